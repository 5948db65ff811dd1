/* Calls on device memory that NCCL has no form of, or that the program wants in host memory: each gives what it gives
 * there. The fake device's memory kills a process that touches it without the driver. The fakes have threads, so that
 * this process, which starts the others, never loads them. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <muster/strategy_exchange.h>
#include <muster/strategy_request.h>

#include "device_tensors.h"
#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE  3u
#define COUNT 5u
#define REQUESTS_MAX 1024u
#define CUDA  MUSTER_BINARY_DIR "/lib/fake_gpu/libcuda.so.1"

/* The fake's threads run until the end of the process: the search for leaks stumbles over them. */
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_sigill=2";
}

static struct job_stage stage;

struct run {
    unsigned rank;
    struct muster_strategy *strategy;
    struct muster_strategy_split *split; /* all but rank 0 */
    struct muster_tensor part, other, all, parts;
};

#define OK(call)              JOB_RC(run->strategy, (call), MUSTER_OK, "")
#define FAILS(call, rc, text) JOB_RC(run->strategy, (call), (rc), (text))

static uint32_t is_not_first(void *data, const struct muster_member *member)
{
    (void)data;
    return member->task_index == 0 ? MUSTER_COLOR_NO_GROUP : 0;
}

/* Part r of it is value + r. */
static void set_parts(const struct muster_tensor *tensor, double value)
{
    for (unsigned i = 0; i < SIZE * COUNT; i++)
        device_tensor_values(tensor)[i] = value + i / COUNT;
}

static bool has_parts(const struct muster_tensor *tensor, double value, double step)
{
    for (unsigned i = 0; i < SIZE; i++)
        if (!device_tensor_has(tensor, (uint64_t)i * COUNT, COUNT, value + step * i))
            return false;
    return true;
}

static void weigh_and_reduce(struct run *run)
{
    const struct muster_communication_options ring = {.implementation = MUSTER_COMMUNICATION_RING,
                                                      .bytes_per_pack = 1u << 20};
    struct muster_tensor both[2] = {run->part, run->other};

    device_tensor_set(&run->part, run->rank + 1);
    OK(muster_strategy_all_reduce_weighted(run->strategy, &run->part, 1, run->rank + 1));
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, (1 + 4 + 9) / 6.0));
    JOB_CHECK(muster_strategy_result(run->strategy)->total_weight == 6);
    device_tensor_set(&run->part, run->rank + 1);
    device_tensor_set(&run->other, 10);
    OK(muster_strategy_all_reduce_with(run->strategy, both, 2, MUSTER_SUM, &ring));
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 6));
    JOB_CHECK(device_tensor_has(&run->other, 0, COUNT, 30));
    JOB_CHECK(run->strategy->env->backend == NULL); /* no NCCL is opened for these */
}

static void use_parts(struct run *run)
{
    device_tensor_set(&run->part, run->rank + 1);
    device_tensor_set(&run->all, -1);
    OK(muster_strategy_gather(run->strategy, &run->part, run->rank == 1 ? &run->all : NULL, 1));
    JOB_CHECK(run->rank == 1 ? has_parts(&run->all, 1, 1)
                             : device_tensor_has(&run->all, 0, SIZE * COUNT, -1));
    set_parts(&run->parts, 20);
    OK(muster_strategy_scatter(run->strategy, run->rank == 2 ? &run->parts : NULL, &run->part, 2));
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 20 + run->rank));
}

/* Member r has r + 1 elements. */
static void use_uneven_parts(struct run *run)
{
    const uint64_t counts[SIZE] = {1, 2, 3};
    const struct muster_parts whole = {
        .data = run->all.data, .counts = counts, .part_count = SIZE, .dtype = MUSTER_F64};
    struct muster_tensor own = run->part;

    own.count = run->rank + 1;
    device_tensor_set(&run->part, run->rank + 1);
    device_tensor_set(&run->all, -1);
    OK(muster_strategy_all_gather_uneven(run->strategy, &own, &whole));
    JOB_CHECK(device_tensor_has(&run->all, 0, 1, 1) && device_tensor_has(&run->all, 1, 2, 2) &&
              device_tensor_has(&run->all, 3, 3, 3) && device_tensor_has(&run->all, 6, 1, -1));
    device_tensor_set(&run->all, run->rank);
    OK(muster_strategy_reduce_scatter_uneven(run->strategy, &whole, &own, MUSTER_MAX));
    JOB_CHECK(device_tensor_has(&run->part, 0, own.count, SIZE - 1));
    JOB_CHECK(device_tensor_has(&run->part, own.count, COUNT - own.count, run->rank + 1));
}

/* Around the ring, and from the last one to the first. */
static void send_and_receive(struct run *run)
{
    device_tensor_set(&run->part, run->rank + 1);
    device_tensor_set(&run->other, -1);
    OK(muster_strategy_exchange(run->strategy, &run->part, (run->rank + 1) % SIZE, &run->other,
                                (run->rank + SIZE - 1) % SIZE));
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, run->rank + 1));
    JOB_CHECK(device_tensor_has(&run->other, 0, COUNT, (run->rank + SIZE - 1) % SIZE + 1));
    if (run->rank == SIZE - 1)
        OK(muster_strategy_send(run->strategy, &run->part, 0));
    if (run->rank == 0)
        OK(muster_strategy_receive(run->strategy, &run->other, SIZE - 1));
    JOB_CHECK(run->rank != 0 || device_tensor_has(&run->other, 0, COUNT, SIZE));
}

static void use_split(struct run *run)
{
    device_tensor_set(&run->part, run->rank + 1);
    if (run->rank == 0)
        return;
    OK(muster_strategy_split_all_reduce(run->split, &run->part, 1, MUSTER_SUM));
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 2 + 3));
    OK(muster_strategy_split_broadcast(run->split, &run->part, 1));
}

static void check_request(struct run *run, struct muster_request *request)
{
    OK(muster_request_wait(request));
    JOB_CHECK(request->error.rc == MUSTER_OK);
}

/* More at the same time than memory is kept for. */
static void use_requests(struct run *run)
{
    enum { REQUESTS = MUSTER_STRATEGY_ROOMS + 2 };
    struct muster_tensor tensors[REQUESTS];
    struct muster_request requests[REQUESTS] = {{0}};

    for (unsigned i = 0; i < REQUESTS; i++) {
        tensors[i] = device_tensor_new(COUNT, i + run->rank);
        requests[i].output = &tensors[i];
        OK(muster_request_start(&requests[i], run->strategy));
    }
    for (unsigned i = 0; i < REQUESTS; i++) {
        check_request(run, &requests[i]);
        JOB_CHECK(device_tensor_has(&tensors[i], 0, COUNT, 3 * i + 3));
        device_tensor_free(&tensors[i]);
    }
    requests[0] = (struct muster_request){
        .kind = MUSTER_REQUEST_REDUCE_SCATTER, .input = &run->parts, .output = &run->part};
    set_parts(&run->parts, 0);
    OK(muster_request_start(&requests[0], run->strategy));
    check_request(run, &requests[0]);
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, SIZE * run->rank));
}

static void refuse_run(struct run *run)
{
    double values[COUNT] = {0};
    const struct muster_tensor host = {.data = values, .count = COUNT, .dtype = MUSTER_F64};
    struct muster_tensor mixed[] = {run->part, host};

    device_tensor_set(&run->part, 7);
    FAILS(muster_strategy_all_reduce_weighted(run->strategy, mixed, 2, 1), MUSTER_INVALID_ARGUMENT,
          "all_reduce: 1 of 2 tensors are in device memory");
    mixed[0].dtype = MUSTER_BOOL;
    FAILS(muster_strategy_all_reduce_weighted(run->strategy, mixed, 1, 1), MUSTER_INVALID_ARGUMENT,
          "all_reduce of tensor 0");
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 7));
}

static void run_open(struct run *run)
{
    run->strategy = job_strategy_open();
    run->part = device_tensor_new(COUNT, 0);
    run->other = device_tensor_new(COUNT, 0);
    run->all = device_tensor_new(SIZE * COUNT, 0);
    run->parts = device_tensor_new(SIZE * COUNT, 0);
}

static void run_close(struct run *run)
{
    job_commit(run->strategy);
    muster_strategy_close(run->strategy);
    device_tensor_free(&run->part);
    device_tensor_free(&run->other);
    device_tensor_free(&run->all);
    device_tensor_free(&run->parts);
    JOB_CHECK(device_knob_get("misuse") == 0 && device_knob_get("pinned") == 0);
}

static void run_all(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;

    (void)data;
    run_open(run);
    OK(muster_strategy_split(run->strategy, is_not_first, NULL, &run->split));
    job_begin(run->strategy);
    weigh_and_reduce(run);
    use_parts(run);
    use_uneven_parts(run);
    send_and_receive(run);
    use_split(run);
    use_requests(run);
    refuse_run(run);
    run_close(run);
}

static void play_members(job_member_fn *body, void *data)
{
    setenv("MUSTER_CUDA_LIBRARY", CUDA, 1);
    setenv("FAKE_CUDA_GUARDED", "1", 1);
    job_stage_open(&stage, 0, SIZE);
    for (unsigned rank = 0; rank < SIZE; rank++)
        job_stage_start(&stage, rank, body, data);
    job_stage_join(&stage); /* each has checked what it saw */
    job_stage_close(&stage);
}

static void what_nccl_has_no_form_of_runs_in_host_memory(void **state)
{
    (void)state;
    play_members(run_all, NULL);
}

/* --- A device that fails --- */

/* In the copy out of the device, or in the one back. */
static void fail_in_copy(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    bool is_back = *(const bool *)data;
    enum muster_rc rc;

    run_open(run);
    job_begin(run->strategy);
    device_tensor_set(&run->part, rank + 1);
    if (rank == 2 && !is_back)
        device_knob_set("copy_fails", 1);
    if (rank == 2 && is_back)
        device_knob_set("write_fails", 1);
    rc = muster_strategy_all_reduce_weighted(run->strategy, &run->part, 1, 1);
    if (rank == 2) {
        FAILS(rc, MUSTER_UNAVAILABLE, "the device of this process has failed: copy ");
        FAILS(muster_strategy_commit(run->strategy), MUSTER_UNAVAILABLE, "the device of this");
        muster_strategy_close(run->strategy);
        return;
    }
    OK(rc);
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, is_back ? 2 : 1.5));
    run_close(run);
}

static void a_device_that_fails_ends_this_member_and_the_others_go_on(void **state)
{
    bool is_back = false;

    (void)state;
    play_members(fail_in_copy, &is_back);
    is_back = true;
    play_members(fail_in_copy, &is_back);
}

/* --- Requests beside the program's stream --- */

static double later[COUNT]; /* read when the stream comes so far */

/* The default stream gets the value, and stands still. */
static void put_later(const struct muster_tensor *tensor, double value)
{
    int (*copy_in)(unsigned long long, const void *, size_t, void *);

    device_knob_set("lazy", 1);
    for (unsigned i = 0; i < COUNT; i++)
        later[i] = value;
    *(void **)&copy_in = device_symbol("cuMemcpyHtoDAsync_v2");
    JOB_CHECK(copy_in((unsigned long long)(uintptr_t)tensor->data, later, sizeof(later), NULL) ==
              0);
}

static void start_device(struct run *run, struct muster_request *request,
                         const struct muster_tensor *tensor)
{
    *request = (struct muster_request){.output = tensor};
    OK(muster_request_start(request, run->strategy));
}

/* Rank 0 begins last, and in the order of its calls all the same. */
static void go_on_beside(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request requests[3] = {{0}};
    int64_t host = rank + 1, sum = rank + 1;
    const struct muster_tensor on_host = {.data = &host, .count = 1, .dtype = MUSTER_I64};

    (void)data;
    run_open(run);
    job_begin(run->strategy);
    OK(muster_strategy_all_reduce_weighted(run->strategy, &run->part, 1, 1)); /* opens the device */
    if (rank != 0)
        device_knob_set("pinned_fails", 1); /* its operations begin at once */
    device_tensor_set(&run->part, rank + 1);
    if (rank == 0)
        put_later(&run->part, 10);
    start_device(run, &requests[0], &run->part);
    start_device(run, &requests[1], &on_host);
    if (rank == 0) {
        JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 1)); /* nobody has waited for it */
        JOB_CHECK(!muster_request_has_ended(&requests[0]) &&
                  !muster_request_has_ended(&requests[1]));
        device_knob_set("lazy", 0);
    }
    job_sum(run->strategy, &sum);
    JOB_CHECK(sum == 6);
    check_request(run, &requests[0]);
    check_request(run, &requests[1]);
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 10 + 2 + 3) && host == 6);
    device_knob_set("lost_callbacks", 1);
    start_device(run, &requests[2], &run->part);
    check_request(run, &requests[2]);
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 45));
    run_close(run);
}

static void a_request_goes_on_behind_the_stream(void **state)
{
    (void)state;
    play_members(go_on_beside, NULL);
}

static void cancel_deferred(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {0};
    atomic_bool *has_ended = data;
    enum muster_rc rc;

    run_open(run);
    job_begin(run->strategy);
    if (rank == 0)
        put_later(&run->part, 10);
    while (rank != 0 && !atomic_load(has_ended)) /* else it may be delivered before */
        (void)sched_yield();
    start_device(run, &request, &run->part);
    if (rank == 0) {
        muster_request_cancel(&request);
        JOB_CHECK(!muster_request_has_ended(&request));
        device_knob_set("lazy", 0);
    }
    rc = muster_request_wait(&request);
    JOB_CHECK(rc == (rank == 0 ? MUSTER_CANCELLED : MUSTER_ABORTED));
    atomic_store(has_ended, true);
    job_begin(run->strategy);
    device_tensor_set(&run->part, 1);
    start_device(run, &request, &run->part);
    check_request(run, &request);
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, SIZE));
    run_close(run);
}

static void a_request_is_cancelled_before_it_begins(void **state)
{
    atomic_bool *has_ended =
        mmap(NULL, sizeof(*has_ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(has_ended, MAP_FAILED);
    play_members(cancel_deferred, has_ended);
    assert_int_equal(munmap(has_ended, sizeof(*has_ended)), 0);
}

/* Nothing is left of one that is open at the end: neither its memory nor its copies. */
static void close_amid(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {0};

    (void)data;
    run_open(run);
    job_begin(run->strategy);
    start_device(run, &request, &run->part);
    muster_strategy_close(run->strategy);
    JOB_CHECK(request.impl == NULL);
    JOB_CHECK(device_knob_get("misuse") == 0 && device_knob_get("pinned") == 0 &&
              device_knob_get("events") == 0);
}

static void close_ends_a_request_amid_its_copies(void **state)
{
    (void)state;
    play_members(close_amid, NULL);
}

/* Its copies have begun when it is refused: they would still write to memory that the next one has. */
static void refuse_amid_copies(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request *requests = calloc(REQUESTS_MAX, sizeof(*requests)), last = {0};
    const struct muster_tensor nothing = {.dtype = MUSTER_F64};

    (void)data;
    run_open(run);
    job_begin(run->strategy);
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        start_device(run, &requests[i], &nothing);
    last.output = &run->part;
    FAILS(muster_request_start(&last, run->strategy), MUSTER_RESOURCE_EXHAUSTED,
          "1024 requests are open, at most 1024 are possible");
    JOB_CHECK(device_knob_get("events") == 0);
    muster_strategy_close(run->strategy);
    free(requests);
}

static void a_request_that_is_refused_amid_its_copies_waits_for_them(void **state)
{
    (void)state;
    play_members(refuse_amid_copies, NULL);
}

struct fault {
    const char *knob;
    bool is_at_start;
};

/* Rank 2's device fails. */
static void fail_in_request(unsigned rank, void *data)
{
    const struct fault *fault = data;
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {.output = &own.part};
    enum muster_rc rc;

    run_open(run);
    job_begin(run->strategy);
    device_tensor_set(&run->part, 1);
    if (rank == 2)
        device_knob_set(fault->knob, 1);
    rc = muster_request_start(&request, run->strategy);
    if (rank != 2) {
        OK(rc);
        check_request(run, &request);
        run_close(run);
        return;
    }
    JOB_CHECK((rc != MUSTER_OK) == fault->is_at_start);
    if (rc == MUSTER_OK)
        rc = muster_request_wait(&request);
    FAILS(rc, MUSTER_UNAVAILABLE, "the device of this process has failed: ");
    muster_strategy_close(run->strategy);
}

static void a_device_that_fails_in_a_request_ends_this_member(void **state)
{
    static struct fault faults[] = {{"copy_fails", true},
                                    {"event_fails", true},
                                    {"launch_fails", false},
                                    {"write_fails", false}};

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        play_members(fail_in_request, &faults[i]);
}

static void use_unpinned(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {0};

    (void)data;
    run_open(run);
    job_begin(run->strategy);
    OK(muster_strategy_all_reduce_weighted(run->strategy, &run->part, 1, 1)); /* opens the device */
    device_knob_set("pinned_fails", 2);
    put_later(&run->part, rank + 1);
    start_device(run, &request, &run->part);
    check_request(run, &request);
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 6));
    start_device(run, &request, &run->part);
    check_request(run, &request);
    JOB_CHECK(device_knob_get("pinned_fails") == 1); /* nor is it tried again */
    run_close(run);
}

static void where_nothing_is_pinned_a_request_waits_for_the_stream(void **state)
{
    (void)state;
    play_members(use_unpinned, NULL);
}

/* --- The program's stream --- */

static void work_on_stream(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;

    (void)data;
    run_open(run);
    job_begin(run->strategy);
    put_later(&run->part, rank + 1);
    OK(muster_strategy_all_reduce_weighted(run->strategy, &run->part, 1, 1));
    JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 2));
    run_close(run);
}

static void what_the_stream_holds_comes_before_the_call(void **state)
{
    (void)state;
    play_members(work_on_stream, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nccl_has_no_form_of_runs_in_host_memory),
        cmocka_unit_test(a_device_that_fails_ends_this_member_and_the_others_go_on),
        cmocka_unit_test(a_request_goes_on_behind_the_stream),
        cmocka_unit_test(a_request_is_cancelled_before_it_begins),
        cmocka_unit_test(close_ends_a_request_amid_its_copies),
        cmocka_unit_test(a_request_that_is_refused_amid_its_copies_waits_for_them),
        cmocka_unit_test(a_device_that_fails_in_a_request_ends_this_member),
        cmocka_unit_test(where_nothing_is_pinned_a_request_waits_for_the_stream),
        cmocka_unit_test(what_the_stream_holds_comes_before_the_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
