/* Calls on device memory, with a node and a backend that the case plays: what is started on the device, and which
 * of several failures the program is told. */
#include <stdio.h>
#include <string.h>

#include <muster/gpu.h>
#include <muster/strategy.h>

#include "assertion_count.h"
#include "collective/gpu/device_transfer.h"
#include "played_node.h"
#include "training/strategy_device.h"

/* --- the backend --- */

static struct {
    struct muster_backend backend;
    enum muster_rc open_rc;
    unsigned on_device; /* tensors, of those that are asked about at a time, by bits */
    unsigned bad;       /* the tensor that the backend refuses, from 1; 0: none */
    enum muster_rc work_rc, commit_rc, start_rc;
    const char *commit_text;
    void (*on_work)(void);
    void (*on_commit)(void);
    struct muster_device_call last;
    unsigned checked;
    struct muster_task tasks[8];
    struct muster_op *ops[8];
    muster_op_fn *done[8];
    unsigned started, ended;
    int ordinal, opened_ordinal; /* of what is asked about, of the backend */
    struct muster_error failure; /* of its memory */
} device;

enum muster_rc muster_gpu_open(struct muster_env *env, const struct muster_gpu_options *options,
                               struct muster_backend **ret_backend, struct muster_error *ret_error)
{
    (void)env;
    played_note("device opened\n");
    device.opened_ordinal = options->ordinal;
    if (device.open_rc != MUSTER_OK)
        return muster_error_set(ret_error, device.open_rc, "no driver");
    *ret_backend = &device.backend;
    return MUSTER_OK;
}

static struct muster_task close_task;
static muster_gpu_close_fn *closed;
static void *closed_data;

static void on_close_turn(struct muster_task *task)
{
    (void)task;
    closed(closed_data);
}

void muster_gpu_close(struct muster_backend *backend, muster_gpu_close_fn *on_closed, void *data)
{
    assert_ptr_equal(backend, &device.backend);
    played_note("device closed\n");
    closed = on_closed;
    closed_data = data;
    played_post(&close_task, on_close_turn);
}

size_t muster_gpu_count_tensors(const struct muster_env *env, const struct muster_tensor *tensors,
                                size_t count)
{
    size_t found = 0;

    (void)env;
    (void)tensors;
    for (size_t i = 0; i < count; i++)
        found += device.on_device >> i & 1;
    return found;
}

enum muster_rc muster_backend_check(const struct muster_backend *backend,
                                    const struct muster_device_call *call,
                                    struct muster_error *ret_error)
{
    assert_ptr_equal(backend, &device.backend);
    (void)call;
    return ++device.checked == device.bad
               ? muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "no such type")
               : MUSTER_OK;
}

static void on_op_turn(struct muster_task *task)
{
    unsigned i = device.ended++;
    bool is_commit = device.tasks[i].data != NULL;
    enum muster_rc rc = is_commit ? device.commit_rc : device.work_rc;

    (void)task;
    if (!is_commit && device.on_work != NULL)
        device.on_work();
    if (is_commit && device.on_commit != NULL)
        device.on_commit();
    if (rc != MUSTER_OK)
        (void)muster_error_set(&device.ops[i]->error, rc,
                               is_commit ? "of the commit" : "of the work");
    device.done[i](device.ops[i], rc);
}

static enum muster_rc op_start(struct muster_op *op, muster_op_fn *done, bool is_commit)
{
    unsigned i = device.started++;

    assert_true(i < 8);
    device.ops[i] = op;
    device.done[i] = done;
    muster_task_init(&device.tasks[i], on_op_turn, is_commit ? &device : NULL);
    muster_task_post(&device.tasks[i], played.env->loop);
    return MUSTER_OK;
}

enum muster_rc muster_backend_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_device_call *call, muster_op_fn *done)
{
    (void)group;
    if (device.start_rc != MUSTER_OK)
        return device.start_rc;
    played_note("device %s %llu %s root %u\n", muster_device_kind_name(call->kind),
                (unsigned long long)call->input.count, muster_reduction_name(call->reduction),
                call->root);
    device.last = *call;
    return op_start(op, done, false);
}

enum muster_rc muster_gpu_commit_start(struct muster_op *op, struct muster_group *group,
                                       muster_op_fn *done)
{
    (void)group;
    played_note("device commit\n");
    return op_start(op, done, true);
}

/* Its memory is the host's, and each copy is noted. */
static enum muster_rc memory_read(struct muster_far_memory *memory, void *to, const void *from,
                                  size_t bytes)
{
    (void)memory;
    played_note("out %zu\n", bytes);
    memcpy(to, from, bytes);
    return device.failure.rc;
}

static enum muster_rc memory_write(struct muster_far_memory *memory, void *to, const void *from,
                                   size_t bytes)
{
    (void)memory;
    played_note("in %zu\n", bytes);
    memcpy(to, from, bytes);
    return device.failure.rc;
}

static struct muster_far_memory far_memory = {.read = memory_read, .write = memory_write};

int muster_device_ordinal_of(const struct muster_env *env, const void *address)
{
    (void)env;
    (void)address;
    return device.ordinal;
}

enum muster_rc muster_device_memory_open(struct muster_env *env, int ordinal,
                                         struct muster_device_memory **ret_memory,
                                         struct muster_error *ret_error)
{
    (void)env;
    played_note("memory of %d opened\n", ordinal);
    if (device.open_rc != MUSTER_OK)
        return muster_error_set(ret_error, device.open_rc, "no driver");
    *ret_memory = (struct muster_device_memory *)&device;
    device.opened_ordinal = ordinal;
    return MUSTER_OK;
}

void muster_device_memory_close(struct muster_device_memory *memory)
{
    assert_true(memory == NULL || memory == (struct muster_device_memory *)&device);
}

int muster_device_memory_ordinal(const struct muster_device_memory *memory)
{
    assert_ptr_equal(memory, &device);
    return device.opened_ordinal;
}

struct muster_far_memory *muster_device_memory_far(struct muster_device_memory *memory)
{
    return memory != NULL ? &far_memory : NULL;
}

enum muster_rc muster_device_memory_wait(struct muster_device_memory *memory, void *stream,
                                         const char *operation)
{
    assert_ptr_equal(memory, &device);
    (void)operation;
    played_note("wait for %s\n", stream == &device ? "the stream" : "the default stream");
    return device.failure.rc;
}

enum muster_rc muster_device_memory_order(struct muster_device_memory *memory, void *first,
                                          void *stream, struct muster_error *ret_error)
{
    assert_ptr_equal(memory, &device);
    played_note("%s after %s\n", stream == &device ? "the stream" : "the default stream",
                first == &device ? "the stream"
                : first == NULL  ? "the default stream"
                                 : "another");
    if (device.failure.rc != MUSTER_OK)
        *ret_error = device.failure;
    return device.failure.rc;
}

bool muster_device_memory_has_failed(struct muster_device_memory *memory,
                                     struct muster_error *ret_error)
{
    if (memory == NULL || device.failure.rc == MUSTER_OK)
        return false;
    *ret_error = device.failure;
    return true;
}

/* No memory is pinned: a request waits for the stream. */
bool muster_device_pin(struct muster_device_memory *memory, void *host, size_t bytes)
{
    assert_ptr_equal(memory, &device);
    (void)host;
    (void)bytes;
    return false;
}

void muster_device_unpin(struct muster_device_memory *memory, void *host)
{
    (void)memory;
    (void)host;
    fail();
}

enum muster_rc muster_device_transfer_start(struct muster_device_transfer *transfer,
                                            struct muster_device_memory *memory,
                                            const struct muster_device_copy *copies, size_t count,
                                            bool is_out, void *stream,
                                            muster_device_transfer_fn *done)
{
    (void)transfer;
    (void)memory;
    (void)copies;
    (void)count;
    (void)is_out;
    (void)stream;
    (void)done;
    fail();
    return MUSTER_INTERNAL;
}

bool muster_device_transfers_are_over(const struct muster_device_memory *memory)
{
    (void)memory;
    return true;
}

void muster_device_fence_set(struct muster_device_fence *fence, struct muster_device_memory *memory,
                             void *stream, const char *operation)
{
    fence->memory = memory;
    (void)!muster_device_memory_wait(memory, stream, operation);
}

bool muster_device_fence_is_reached(struct muster_device_fence *fence)
{
    assert_ptr_equal(fence->memory, &device);
    return true;
}

void muster_device_fence_clear(struct muster_device_fence *fence)
{
    assert_ptr_equal(fence->memory, &device);
}

void muster_device_memory_set_timeout(struct muster_device_memory *memory, uint64_t timeout_ns)
{
    (void)memory;
    (void)timeout_ns;
    fail();
}

bool muster_device_memory_hangs(const struct muster_device_memory *memory)
{
    assert_ptr_equal(memory, &device);
    return false;
}

/* --- the stage --- */

static int64_t values[6];
static const struct muster_tensor one = {.data = values, .count = 1, .dtype = MUSTER_I64};
static const struct muster_tensor two = {.data = values + 1, .count = 2, .dtype = MUSTER_I64};
static const struct muster_tensor three = {.data = values + 3, .count = 3, .dtype = MUSTER_I64};

static struct muster_strategy *open_in_step(void)
{
    struct muster_strategy *strategy;
    uint64_t step;

    memset(&device, 0, sizeof(device));
    played_open();
    strategy = played_strategy();
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_OK);
    played.journal[0] = '\0';
    device.on_device = 0xff;
    return strategy;
}

static void close_all(struct muster_strategy *strategy)
{
    bool has_device = strategy->env->backend != NULL;

    played.journal[0] = '\0';
    muster_strategy_close(strategy);
    assert_int_equal(strstr(played.journal, "close\ndevice closed\n") != NULL, has_device);
    played_close();
}

/* --- cases --- */

static void each_call_is_started_on_the_device_and_committed(void **state)
{
    struct muster_strategy *strategy = open_in_step();
    const struct muster_tensor list[] = {one, two};
    const uint64_t *sent = &strategy->activity.sent_bytes[MUSTER_ACTIVITY_NCCL];

    (void)state;
    muster_strategy_set_stream(strategy, &device);
    assert_int_equal(muster_strategy_all_reduce(strategy, list, 2, MUSTER_MAX), MUSTER_OK);
    played_expect("device opened\ndevice all_reduce 1 max root 0\ndevice all_reduce 2 max root 0\n"
                  "touch\ntouch\ndevice commit\ntouch\n");
    assert_ptr_equal(device.last.input.data, two.data);
    assert_ptr_equal(device.last.output.data, two.data);
    assert_ptr_equal(device.last.stream, &device);
    assert_int_equal(device.checked, 2);
    assert_int_equal(*sent, 3 * 8);
    assert_int_equal(muster_strategy_broadcast(strategy, &one, 2), MUSTER_OK);
    played_expect("device broadcast 1 sum root 2\ntouch\ndevice commit\ntouch\n");
    device.started = device.ended = 0;
    assert_int_equal(muster_strategy_reduce(strategy, &two, MUSTER_MIN, 1), MUSTER_OK);
    played_expect("device reduce 2 min root 1\ntouch\ndevice commit\ntouch\n");
    assert_int_equal(muster_strategy_all_gather(strategy, &one, &three), MUSTER_OK);
    played_expect("device all_gather 1 sum root 0\ntouch\ndevice commit\ntouch\n");
    assert_ptr_equal(device.last.input.data, one.data);
    assert_ptr_equal(device.last.output.data, three.data);
    assert_int_equal(*sent, (3 + 1 + 2 + 1) * 8);
    assert_int_equal(muster_strategy_barrier(strategy), MUSTER_OK); /* it has no tensors */
    played_expect("barrier\ntouch\n");
    close_all(strategy);
}

struct refusal {
    unsigned on_device;
    enum muster_communication own, of_call;
    enum muster_rc rc;
    const char *text;
};

/* Two tensors; nothing is started. */
static void memory_of_the_wrong_kind_is_refused(void **state)
{
    static const struct refusal rows[] = {
        {1, MUSTER_COMMUNICATION_AUTO, MUSTER_COMMUNICATION_AUTO, MUSTER_INVALID_ARGUMENT,
         "all_reduce: 1 of 2 tensors are in device memory, the others in host memory: use two "
         "calls"},
        {0, MUSTER_COMMUNICATION_NCCL, MUSTER_COMMUNICATION_AUTO, MUSTER_INVALID_ARGUMENT,
         "all_reduce: communication NCCL, and the tensors are in host memory: use AUTO, or RING "
         "for this call"},
        {0, MUSTER_COMMUNICATION_RING, MUSTER_COMMUNICATION_NCCL, MUSTER_INVALID_ARGUMENT,
         "all_reduce: communication NCCL, and the tensors are in host memory: use AUTO, or RING "
         "for this call"},
        {0, MUSTER_COMMUNICATION_NCCL, MUSTER_COMMUNICATION_RING, MUSTER_OK, NULL},
        {3, MUSTER_COMMUNICATION_RING, MUSTER_COMMUNICATION_NCCL, MUSTER_OK, NULL},
    };
    const struct muster_tensor list[] = {one, two};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_communication_options options = {.implementation = rows[i].of_call};
        struct muster_strategy *strategy = open_in_step();
        enum muster_rc rc;

        strategy->communication.implementation = rows[i].own;
        device.on_device = rows[i].on_device;
        rc = muster_strategy_all_reduce_with(strategy, list, 2, MUSTER_SUM, &options);
        if (rows[i].rc != MUSTER_OK) {
            played_expect_error(strategy, rc, rows[i].rc, rows[i].text);
            played_expect("");
        } else {
            assert_int_equal(rc, MUSTER_OK);
        }
        close_all(strategy);
    }
}

static uint32_t is_same(void *data, const struct muster_member *member)
{
    (void)data;
    (void)member;
    return 0;
}

static void ring_copies_device_memory_to_the_host(void **state)
{
    const struct muster_communication_options ring = {.implementation = MUSTER_COMMUNICATION_RING};
    const struct muster_tensor list[] = {one, two};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct muster_strategy *strategy = open_in_step();

        strategy->communication.implementation =
            i == 0 ? MUSTER_COMMUNICATION_RING : MUSTER_COMMUNICATION_NCCL;
        muster_strategy_set_stream(strategy, &device);
        assert_int_equal(
            muster_strategy_all_reduce_with(strategy, list, 2, MUSTER_SUM, i == 0 ? NULL : &ring),
            MUSTER_OK);
        played_expect(
            "memory of 0 opened\nwait for the stream\nout 8\nout 16\n"
            "all_reduce 1 x i64 sum\nall_reduce 2 x i64 sum\ntouch\ntouch\nin 8\nin 16\n");
        close_all(strategy);
    }
}

static void what_a_device_has_not_runs_on_copies(void **state)
{
    struct muster_strategy *strategy;
    struct muster_strategy_split *split = NULL;
    uint64_t step;

    (void)state;
    memset(&device, 0, sizeof(device));
    played_open();
    strategy = played_strategy();
    assert_int_equal(muster_strategy_split(strategy, is_same, NULL, &split), MUSTER_OK);
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_OK);
    played.journal[0] = '\0';
    device.on_device = 1;
    assert_int_equal(muster_strategy_split_all_reduce(split, &one, 1, MUSTER_SUM), MUSTER_OK);
    played_expect(
        "memory of 0 opened\nwait for the default stream\nout 8\nall_reduce 1 x i64 lane 16 sum\n"
        "touch\nin 8\n");
    played_expect_error(strategy, muster_strategy_all_gather(strategy, &one, &three),
                        MUSTER_INVALID_ARGUMENT,
                        "all_gather: 1 of 2 tensors are in device memory, the others in host "
                        "memory: use two calls");
    device.ordinal = 1;
    assert_int_equal(muster_strategy_split_all_reduce(split, &one, 1, MUSTER_SUM), MUSTER_OK);
    played_expect("memory of 1 opened\nwait for the default stream\nwait for the default stream\n"
                  "out 8\nall_reduce 1 x i64 lane 16 sum\ntouch\nin 8\n"); /* of both devices */
    close_all(strategy);
}

/* A device that has failed is told by the call, and before the step ends. */
static void a_device_that_fails_fails_the_strategy(void **state)
{
    struct muster_strategy *strategy = open_in_step();
    const struct muster_communication_options ring = {.implementation = MUSTER_COMMUNICATION_RING};

    (void)state;
    assert_int_equal(muster_strategy_all_reduce_with(strategy, &one, 1, MUSTER_SUM, &ring),
                     MUSTER_OK);
    (void)muster_error_set(&device.failure, MUSTER_UNAVAILABLE, "lost");
    played.journal[0] = '\0';
    played_expect_error(strategy, muster_strategy_commit(strategy), MUSTER_UNAVAILABLE,
                        "the device of this process has failed: lost");
    played_expect("wait for the default stream\n"
                  "give up: the device of this process has failed: lost\n"
                  "dump: the device of this process has failed: lost\n");
    close_all(strategy);
}

static void nccl_is_opened_on_the_device_of_the_tensors(void **state)
{
    struct muster_strategy *strategy = open_in_step();

    (void)state;
    device.ordinal = 2;
    assert_int_equal(muster_strategy_all_reduce(strategy, &one, 1, MUSTER_SUM), MUSTER_OK);
    assert_int_equal(device.opened_ordinal, 2);
    device.ordinal = 1;
    played_expect_error(
        strategy, muster_strategy_all_reduce(strategy, &one, 1, MUSTER_SUM),
        MUSTER_INVALID_ARGUMENT,
        "all_reduce of tensor 0: it is on device 1, and NCCL was opened on device 2");
    close_all(strategy);
}

static void another_stream_of_the_program_comes_first(void **state)
{
    struct muster_strategy *strategy = open_in_step();
    int other = 0;

    (void)state;
    muster_strategy_set_stream(strategy, &device);
    assert_int_equal(muster_strategy_wait_stream(strategy, &one, &other), MUSTER_OK);
    assert_int_equal(muster_strategy_wait_stream(strategy, &one, NULL), MUSTER_OK);
    assert_int_equal(muster_strategy_wait_stream(strategy, &one, &device), MUSTER_OK);
    played_expect("memory of 0 opened\nthe stream after another\n"
                  "the stream after the default stream\n");
    (void)muster_error_set(&device.failure, MUSTER_UNAVAILABLE, "refused");
    assert_int_equal(muster_strategy_wait_stream(strategy, &one, &other), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(muster_strategy_error(strategy)->text, " of a tensor: refused"));
    device.failure.rc = MUSTER_OK;
    close_all(strategy);
}

static void without_a_device_a_call_fails(void **state)
{
    struct muster_strategy *strategy = open_in_step();

    (void)state;
    device.open_rc = MUSTER_UNAVAILABLE;
    played_expect_error(strategy, muster_strategy_all_reduce(strategy, &one, 1, MUSTER_SUM),
                        MUSTER_UNAVAILABLE,
                        "communication NCCL (tensors in host memory need none: AUTO or RING): no "
                        "driver");
    played_expect("device opened\n");
    close_all(strategy);
}

static void follow_nccl(void)
{
    played.communication.implementation = MUSTER_COMMUNICATION_NCCL;
    played_start_job();
}

/* The device is opened when the members have agreed on it, and before anybody counts on who asks for it. */
static void where_all_need_a_device_it_is_opened_at_once(void **state)
{
    static const struct muster_strategy_options nccl = {
        .communication = {.implementation = MUSTER_COMMUNICATION_NCCL}};
    struct muster_strategy *strategy = NULL;
    struct muster_error error;
    uint64_t step;

    (void)state;
    for (int i = 0; i < 2; i++) {
        memset(&device, 0, sizeof(device));
        device.open_rc = i == 0 ? MUSTER_OK : MUSTER_UNAVAILABLE;
        played_open();
        played.on_state = follow_nccl;
        strategy = played_strategy();
        played.journal[0] = '\0';
        assert_int_equal(muster_strategy_begin(strategy, &step, NULL), device.open_rc);
        assert_non_null(strstr(played.journal, "device opened\n"));
        assert_int_equal(strstr(played.journal, "give up: communication NCCL (") != NULL, i == 1);
        assert_int_equal(strstr(played.journal, "gather") != NULL, i == 0);
        close_all(strategy);

        strategy = NULL;
        played_open();
        assert_int_equal(muster_strategy_open(&nccl, &strategy, &error), device.open_rc);
        played_expect(i == 0 ? "device opened\nopen worker:1 of 3 in default at 127.0.0.1:0\n"
                             : "device opened\n");
        if (strategy != NULL)
            close_all(strategy);
        else
            played_close();
    }
}

static void fail_node(void)
{
    played_fail(MUSTER_UNAVAILABLE, "no registry");
}

struct outcome {
    const char *name;
    enum muster_rc work_rc, commit_rc;
    void (*on_work)(void);
    void (*on_commit)(void);
    enum muster_rc rc, ops_rc;
    const char *text;
    bool is_committed;
};

/* All members have one outcome: the commit is started whatever the work has come to. */
static void the_first_failure_is_told(void **state)
{
    static const struct outcome rows[] = {
        {"neither", MUSTER_OK, MUSTER_OK, NULL, NULL, MUSTER_OK, MUSTER_OK, "", true},
        {"the work", MUSTER_ABORTED, MUSTER_OK, NULL, NULL, MUSTER_ABORTED, MUSTER_ABORTED,
         "all_reduce: of the work", true},
        {"both", MUSTER_ABORTED, MUSTER_DEADLINE_EXCEEDED, NULL, NULL, MUSTER_ABORTED,
         MUSTER_ABORTED, "all_reduce: of the work", true},
        {"the commit", MUSTER_OK, MUSTER_DEADLINE_EXCEEDED, NULL, NULL, MUSTER_DEADLINE_EXCEEDED,
         MUSTER_DEADLINE_EXCEEDED, "all_reduce: of the commit", true},
        {"the node", MUSTER_ABORTED, MUSTER_OK, fail_node, NULL, MUSTER_UNAVAILABLE, MUSTER_ABORTED,
         "no registry", false},
        {"the work, then the node", MUSTER_ABORTED, MUSTER_OK, NULL, fail_node, MUSTER_UNAVAILABLE,
         MUSTER_ABORTED, "no registry", true},
        {"the node behind the commit", MUSTER_OK, MUSTER_OK, NULL, fail_node, MUSTER_OK, MUSTER_OK,
         "no registry", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step();

        print_message("%s\n", rows[i].name);
        device.work_rc = rows[i].work_rc;
        device.commit_rc = rows[i].commit_rc;
        device.on_work = rows[i].on_work;
        device.on_commit = rows[i].on_commit;
        assert_int_equal(muster_strategy_all_reduce(strategy, &one, 1, MUSTER_SUM), rows[i].rc);
        assert_string_equal(strategy->error.text, rows[i].text);
        assert_int_equal(strategy->ops_rc, rows[i].ops_rc);
        assert_int_equal(strstr(played.journal, "device commit") != NULL, rows[i].is_committed);
        close_all(strategy);
    }
}

static void what_is_refused_is_not_committed(void **state)
{
    const struct muster_tensor list[] = {one, two, three};
    struct muster_strategy *strategy = open_in_step();

    (void)state;
    device.bad = 2;
    played_expect_error(strategy, muster_strategy_all_reduce(strategy, list, 3, MUSTER_SUM),
                        MUSTER_INVALID_ARGUMENT, "all_reduce of tensor 1: no such type");
    assert_int_equal(device.checked, 2);
    played_expect("device opened\n");
    device.start_rc = MUSTER_RESOURCE_EXHAUSTED;
    played_expect_error(strategy, muster_strategy_all_reduce(strategy, list, 3, MUSTER_SUM),
                        MUSTER_RESOURCE_EXHAUSTED, "all_reduce of tensor 0: resource exhausted");
    played_expect("");
    assert_int_equal(strategy->activity.sent_bytes[MUSTER_ACTIVITY_NCCL], 0);
    device.start_rc = MUSTER_OK;
    played_enter();
    played_view(2, 6, 0, 0, 0, NULL);
    played_leave();
    played.journal[0] = '\0';
    played_expect_error(strategy, muster_strategy_broadcast(strategy, &one, 0), MUSTER_ABORTED,
                        "broadcast: the root is gone");
    played_expect_error(strategy, muster_strategy_reduce(strategy, &one, MUSTER_SUM, 0),
                        MUSTER_ABORTED, "reduce: the root is gone");
    played_expect("");
    assert_int_equal(muster_strategy_broadcast(strategy, &one, 2), MUSTER_OK);
    assert_int_equal(device.last.root, 1); /* as the group counts them */
    close_all(strategy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_is_started_on_the_device_and_committed),
        cmocka_unit_test(memory_of_the_wrong_kind_is_refused),
        cmocka_unit_test(ring_copies_device_memory_to_the_host),
        cmocka_unit_test(what_a_device_has_not_runs_on_copies),
        cmocka_unit_test(a_device_that_fails_fails_the_strategy),
        cmocka_unit_test(nccl_is_opened_on_the_device_of_the_tensors),
        cmocka_unit_test(another_stream_of_the_program_comes_first),
        cmocka_unit_test(without_a_device_a_call_fails),
        cmocka_unit_test(where_all_need_a_device_it_is_opened_at_once),
        cmocka_unit_test(the_first_failure_is_told),
        cmocka_unit_test(what_is_refused_is_not_committed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
