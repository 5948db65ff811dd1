/* A strategy and device memory, with the fake libraries: which memory goes where, what is refused before
 * anything has started, and members without a device. The fakes have threads, so that this process, which
 * starts the others, never loads them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy.h>

#include "device_tensors.h"
#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE  2u
#define COUNT 5u
#define CUDA  MUSTER_BINARY_DIR "/lib/fake_gpu/libcuda.so.1"
#define NCCL  MUSTER_BINARY_DIR "/lib/fake_gpu/23007/libnccl.so.2"

/* The fake's threads run until the end of the process: the search for leaks stumbles over them. */
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_sigill=2";
}

static struct job_stage stage;

/* With room for a part of each member. */
static struct muster_tensor on_device(double value)
{
    struct muster_tensor tensor = device_tensor_new(SIZE * COUNT, value);

    tensor.count = COUNT;
    return tensor;
}

static void use_fakes(void)
{
    setenv("MUSTER_CUDA_LIBRARY", CUDA, 1);
    setenv("MUSTER_NCCL_LIBRARY", NCCL, 1);
    setenv("FAKE_CUDA_GUARDED", "1", 1);
    unsetenv("FAKE_CUDA_NO_DEVICE");
}

static enum muster_rc open_as(enum muster_communication implementation,
                              struct muster_strategy **ret_strategy, struct muster_error *ret_error)
{
    const struct muster_strategy_options options = {
        .op_timeout_ns = JOB_WAIT_NS,
        .start_timeout_ns = JOB_WAIT_NS,
        .communication = {.implementation = implementation}};

    unsetenv("MUSTER_REPORT_FD");
    return muster_strategy_open(&options, ret_strategy, ret_error);
}

static struct muster_strategy *must_open(enum muster_communication implementation)
{
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    if (open_as(implementation, &strategy, &error) != MUSTER_OK)
        job_check(false, error.text, __FILE__, __LINE__);
    return strategy;
}

/* --- what there is --- */

struct run {
    unsigned rank;
    struct muster_strategy *strategy;
    struct muster_tensor a, b;
};

#define OK(call)              JOB_RC(run->strategy, (call), MUSTER_OK, "")
#define FAILS(call, rc, text) JOB_RC(run->strategy, (call), (rc), (text))

static void reduce_and_give(struct run *run)
{
    const uint64_t *sent = &run->strategy->activity.sent_bytes[MUSTER_ACTIVITY_NCCL];
    struct muster_tensor both[2];

    device_tensor_set(&run->a, run->rank + 1);
    device_tensor_set(&run->b, 10 * (run->rank + 1));
    both[0] = run->a;
    both[1] = run->b;
    OK(muster_strategy_all_reduce(run->strategy, both, 2, MUSTER_SUM));
    JOB_CHECK(device_tensor_has(&run->a, 0, COUNT, 3) && device_tensor_has(&run->b, 0, COUNT, 30));
    JOB_CHECK(muster_strategy_contributors(run->strategy) == SIZE);
    JOB_CHECK(*sent == 2 * COUNT * sizeof(double));
    device_tensor_set(&run->a, run->rank + 1);
    OK(muster_strategy_broadcast(run->strategy, &run->a, 1));
    JOB_CHECK(device_tensor_has(&run->a, 0, COUNT, 2));
    device_tensor_set(&run->a, run->rank + 1);
    OK(muster_strategy_reduce(run->strategy, &run->a, MUSTER_MAX, 1));
    JOB_CHECK(device_tensor_has(&run->a, 0, COUNT, run->rank == 1 ? 2 : 1));
}

static void gather_and_exchange(struct run *run)
{
    struct muster_tensor all = run->b, parts = run->a;

    all.count = parts.count = SIZE * COUNT;
    device_tensor_set(&run->a, run->rank + 1);
    OK(muster_strategy_all_gather(run->strategy, &run->a, &all));
    JOB_CHECK(device_tensor_has(&all, 0, COUNT, 1) && device_tensor_has(&all, COUNT, COUNT, 2));
    for (unsigned i = 0; i < SIZE * COUNT; i++)
        device_tensor_values(&parts)[i] = 10 * run->rank + i / COUNT;
    OK(muster_strategy_all_to_all(run->strategy, &parts, &all));
    JOB_CHECK(device_tensor_has(&all, 0, COUNT, run->rank) &&
              device_tensor_has(&all, COUNT, COUNT, 10 + run->rank));
}

static void refuse_run(struct run *run)
{
    double values[COUNT] = {0};
    const struct muster_tensor host = {.data = values, .count = COUNT, .dtype = MUSTER_F64};
    struct muster_tensor mixed[] = {run->a, host}, list[] = {run->a, run->b};

    device_tensor_set(&run->a, 7);
    FAILS(muster_strategy_all_reduce(run->strategy, mixed, 2, MUSTER_SUM), MUSTER_INVALID_ARGUMENT,
          "all_reduce: 1 of 2 tensors are in device memory");
    FAILS(muster_strategy_all_gather(run->strategy, &run->a, &host), MUSTER_INVALID_ARGUMENT,
          "1 of 2 tensors are in device memory");
    list[1].dtype = MUSTER_BOOL;
    FAILS(muster_strategy_all_reduce(run->strategy, list, 2, MUSTER_SUM), MUSTER_INVALID_ARGUMENT,
          "all_reduce of tensor 1: ");
    JOB_CHECK(device_tensor_has(&run->a, 0, COUNT, 7)); /* nothing of the call has started */
}

static void run_all(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    int64_t one = 1;

    (void)data;
    own.strategy = must_open(MUSTER_COMMUNICATION_AUTO);
    own.a = on_device(0);
    own.b = on_device(0);
    job_begin(own.strategy);
    reduce_and_give(run);
    gather_and_exchange(run);
    refuse_run(run);
    job_sum(own.strategy, &one); /* the host's memory goes the host's way */
    JOB_CHECK(one == SIZE);
    job_commit(own.strategy);
    muster_strategy_close(own.strategy);
    device_tensor_free(&own.a);
    device_tensor_free(&own.b);
}

static void play_members(unsigned size, job_member_fn *const *bodies, void *data)
{
    use_fakes();
    job_stage_open(&stage, 0, size);
    for (unsigned rank = 0; rank < size; rank++)
        job_stage_start(&stage, rank, bodies[rank], data);
    job_stage_join(&stage); /* each has checked what it saw */
    job_stage_close(&stage);
}

static void device_memory_goes_to_the_device_and_host_memory_does_not(void **state)
{
    (void)state;
    play_members(SIZE, (job_member_fn *const[]){run_all, run_all}, NULL);
}

/* --- what there is not --- */

struct lack {
    const char *name, *value, *text;
};

static void open_in_vain(unsigned rank, void *data)
{
    const struct lack *lack = data;
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)rank;
    setenv(lack->name, lack->value, 1);
    JOB_CHECK(open_as(MUSTER_COMMUNICATION_NCCL, &strategy, &error) == MUSTER_UNAVAILABLE);
    JOB_CHECK(strstr(error.text, "communication NCCL (") == error.text);
    if (strstr(error.text, lack->text) == NULL)
        job_check(false, error.text, __FILE__, __LINE__);
    JOB_CHECK(strategy == NULL);
}

static void nccl_without_a_device_or_a_library_opens_nothing(void **state)
{
    static struct lack lacks[] = {
        {"FAKE_CUDA_NO_DEVICE", "1", "device"},
        {"MUSTER_CUDA_LIBRARY", "/nowhere/libcuda.so.1", "/nowhere/libcuda.so.1"},
        {"MUSTER_NCCL_LIBRARY", "/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++)
        play_members(1, (job_member_fn *const[]){open_in_vain}, &lacks[i]);
}

static void be_one_with_nccl(unsigned rank, void *data)
{
    struct muster_strategy *strategy = must_open(MUSTER_COMMUNICATION_NCCL);
    struct muster_tensor tensor = on_device(3);

    (void)rank;
    (void)data;
    job_begin(strategy);
    if (muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM) != MUSTER_OK)
        job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
    JOB_CHECK(device_tensor_has(&tensor, 0, COUNT, 3 * SIZE));
    job_commit(strategy);
    muster_strategy_close(strategy);
    device_tensor_free(&tensor);
}

static void be_one_without(unsigned rank, void *data)
{
    struct muster_strategy *strategy;
    uint64_t step;

    (void)rank;
    (void)data;
    setenv("FAKE_CUDA_NO_DEVICE", "1", 1);
    strategy = must_open(MUSTER_COMMUNICATION_AUTO);
    JOB_CHECK(muster_strategy_begin(strategy, &step, NULL) == MUSTER_UNAVAILABLE);
    JOB_CHECK(strstr(muster_strategy_error(strategy)->text, "communication NCCL (") != NULL);
    JOB_CHECK(muster_strategy_begin(strategy, &step, NULL) == MUSTER_UNAVAILABLE);
    muster_strategy_close(strategy);
}

/* The members have agreed on NCCL: who has no device cannot be one of them, and they go on. */
static void who_has_no_device_where_all_need_one_gives_up(void **state)
{
    (void)state;
    play_members(3, (job_member_fn *const[]){be_one_with_nccl, be_one_with_nccl, be_one_without},
                 NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_memory_goes_to_the_device_and_host_memory_does_not),
        cmocka_unit_test(nccl_without_a_device_or_a_library_opens_nothing),
        cmocka_unit_test(who_has_no_device_where_all_need_one_gives_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
