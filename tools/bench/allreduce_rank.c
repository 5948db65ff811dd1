/* muster bench allreduce, a rank: rewrite the tensor, meet, start, wait.
 *
 * Between two operations a rank writes its tensor anew and checks the last result, as a program
 * would; none of that is timed. The ranks meet in shared memory in front of the clock (meet.c) and
 * not by a barrier of the library, whose own time would become part of what is measured. */
#include "bench/allreduce.h"
#include "bench/allreduce_device.h"
#include "bench/elements.h"

#include <muster/collective.h>
#include <muster/hash.h>
#include <muster/runtime.h>
#include <muster/static_group.h>
#include <muster/stream.h>

#include "common/command.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Inputs differ from one operation to the next, so that results of old data are noticed. */
#define PHASES        3u
#define TILE_ELEMENTS 3072u                   /* a multiple of PHASES, the period of value_at */
#define TIMEOUT_NS    (120 * MUSTER_NS_PER_S) /* of one operation, on an overloaded machine */

struct rank {
    const struct bench_run *run;
    uint32_t index;
    struct muster_env *env;
    struct muster_runtime *runtime;
    struct muster_static_group *static_group;
    struct muster_group *group;
    struct muster_mem_limited mem;       /* counts */
    uint64_t steady_allocations;         /* in the later half of the operations of this size */
    struct muster_op_cost used;          /* of this size, at most */
    const char *input;                   /* of the last operation */
    struct muster_tensor shared;         /* the tensor, if it is mapped */
    void *inputs[PHASES], *sums[PHASES]; /* by iteration: its own tile, and that of the result */
    uint8_t *tensor;                     /* on the host: a copy, if it is on the device */
    struct bench_device device;          /* with --memory device */
    uint64_t count;
    bool is_done;
    enum muster_rc rc;
    struct muster_op op;
};

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct rank *rank = op->data;

    rank->is_done = true;
    rank->rc = rc;
}

static bool is_on_device(const struct rank *rank)
{
    return strcmp(rank->run->settings->memory, "device") == 0;
}

static bool is_done(void *data)
{
    return *(const bool *)data;
}

static bool is_good(const struct rank *rank, enum muster_rc started)
{
    if (started != MUSTER_OK)
        fprintf(stderr, "muster bench: %s\n", muster_rc_text(started));
    else if (rank->rc != MUSTER_OK)
        fprintf(stderr, "muster bench: rank %u: %s\n", rank->index, rank->op.error.text);
    return started == MUSTER_OK && rank->rc == MUSTER_OK;
}

static bool is_told(const struct rank *rank, enum muster_rc rc, const char *what)
{
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster bench: rank %u: %s: %s\n", rank->index, what, muster_rc_text(rc));
    return rc == MUSTER_OK;
}

static void prepare_op(struct rank *rank)
{
    rank->is_done = false;
    rank->rc = MUSTER_OK;
    rank->op.data = rank;
    rank->op.deadline_ns = muster_loop_after_ns(rank->env->loop, TIMEOUT_NS);
}

/* While this rank waits for the others they may still need what it has to send, so its loop turns.
 */
static void rank_turn(void *data)
{
    const struct rank *rank = data;

    muster_runtime_enter(rank->runtime);
    muster_loop_turn(rank->env->loop, 0);
    muster_runtime_leave(rank->runtime);
}

static bool pass_barrier(struct rank *rank)
{
    enum muster_rc rc;

    muster_runtime_enter(rank->runtime);
    prepare_op(rank);
    rc = muster_barrier_start(&rank->op, rank->group, on_done);
    if (rc == MUSTER_OK)
        rc = muster_runtime_wait(rank->runtime, is_done, &rank->is_done, UINT64_MAX);
    muster_runtime_leave(rank->runtime);
    return is_good(rank, rc);
}

/* Small whole numbers: their sums are exact in every type. */
static uint32_t value_at(uint32_t rank, uint64_t i, size_t iteration)
{
    return (uint32_t)((i + rank + iteration) % PHASES);
}

/* The data for rewriting and checking are made beforehand: with fewer processors than ranks, time
 * that a rank takes between operations is taken from one that still measures. */
static bool make_tiles(struct rank *rank)
{
    size_t tile_bytes = TILE_ELEMENTS * muster_dtype_bytes(rank->run->dtype);

    for (size_t phase = 0; phase < PHASES; phase++) {
        rank->inputs[phase] = calloc(1, tile_bytes);
        rank->sums[phase] = calloc(1, tile_bytes);
        if (rank->inputs[phase] == NULL || rank->sums[phase] == NULL)
            return false;
        for (uint64_t i = 0; i < TILE_ELEMENTS; i++) {
            uint32_t sum = 0;

            for (uint32_t k = 0; k < rank->run->rank_count; k++)
                sum += value_at(k, i, phase);
            bench_element_put(rank->run->dtype, rank->inputs[phase], i,
                              value_at(rank->index, i, phase));
            bench_element_put(rank->run->dtype, rank->sums[phase], i, sum);
        }
    }
    return true;
}

static size_t tile_bytes_at(const struct rank *rank, uint64_t first)
{
    uint64_t count = rank->count - first < TILE_ELEMENTS ? rank->count - first : TILE_ELEMENTS;

    return count * muster_dtype_bytes(rank->run->dtype);
}

static void rank_rewrite(struct rank *rank, size_t iteration)
{
    size_t element_bytes = muster_dtype_bytes(rank->run->dtype);

    for (uint64_t i = 0; i < rank->count; i += TILE_ELEMENTS)
        memcpy(rank->tensor + i * element_bytes, rank->inputs[iteration % PHASES],
               tile_bytes_at(rank, i));
}

static bool is_result_right(const struct rank *rank, size_t iteration)
{
    size_t element_bytes = muster_dtype_bytes(rank->run->dtype);

    for (uint64_t i = 0; i < rank->count; i += TILE_ELEMENTS)
        if (memcmp(rank->tensor + i * element_bytes, rank->sums[iteration % PHASES],
                   tile_bytes_at(rank, i)) != 0)
            return false;
    return true;
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* The timed part: start, wait and callback, as a program calls them. */
static enum muster_rc rank_reduce(struct rank *rank)
{
    const struct muster_tensor tensor = {.data = is_on_device(rank) ? rank->device.alloc.memory
                                                                    : rank->tensor,
                                         .count = rank->count,
                                         .dtype = rank->run->dtype};
    enum muster_rc rc;

    muster_runtime_enter(rank->runtime);
    prepare_op(rank);
    rc = is_on_device(rank)
             ? muster_gpu_all_reduce_start(&rank->op, rank->group, &tensor,
                                           bench_reduction(tensor.dtype), NULL, on_done)
             : muster_all_reduce_start(&rank->op, rank->group, &tensor,
                                       bench_reduction(tensor.dtype), on_done);
    if (rc == MUSTER_OK)
        rc = muster_runtime_wait(rank->runtime, is_done, &rank->is_done, UINT64_MAX);
    muster_runtime_leave(rank->runtime);
    return rc;
}

static void note_result(struct rank *rank)
{
    const struct muster_op_result *result = &rank->op.result;
    struct muster_op_cost *used = &rank->used;

    rank->input = is_on_device(rank) ? "device" : result->input;
    used->sent_bytes =
        result->sent_bytes > used->sent_bytes ? result->sent_bytes : used->sent_bytes;
    used->memory_bytes =
        result->memory_bytes > used->memory_bytes ? result->memory_bytes : used->memory_bytes;
}

/* As a program between two steps: it keeps its processor busy, and is in no call. */
static void rank_compute(const struct rank *rank)
{
    const double until_us = now_us() + (double)rank->run->settings->compute_us;

    while (now_us() < until_us)
        continue;
}

/* The clock starts when all ranks have met and computed, and stops when the wait returns; hash and check come
 * after it. */
static bool rank_measure(struct rank *rank, uint64_t bytes, size_t iteration,
                         struct bench_sample *ret_sample)
{
    double begin_us;
    enum muster_rc rc;

    rank_rewrite(rank, iteration);
    if (is_on_device(rank) && !bench_device_write(&rank->device, rank->tensor, bytes))
        return false;
    bench_meet(rank->run->meet, rank->run->rank_count, rank_turn, rank);
    rank_compute(rank);
    begin_us = now_us();
    rc = rank_reduce(rank);
    ret_sample->us = now_us() - begin_us;
    if (!is_good(rank, rc))
        return false;
    note_result(rank);
    if (is_on_device(rank) && !bench_device_read(&rank->device, rank->tensor, bytes))
        return false;
    ret_sample->digest = muster_hash64(rank->tensor, bytes, 0);
    if (is_result_right(rank, iteration))
        return true;
    fprintf(stderr, "muster bench: rank %u has a wrong sum\n", rank->index);
    return false;
}

/* The names of the two plans that run through shared memory. */
static bool has_boards(const char *algorithm)
{
    return strcmp(algorithm, "flat") == 0 || strcmp(algorithm, "host") == 0;
}

static bool tell_size(const struct rank *rank, int to_parent)
{
    const char *algorithm = is_on_device(rank)
                                ? "nccl"
                                : muster_group_algorithm(rank->group, MUSTER_OP_ALL_REDUCE,
                                                         rank->count, rank->run->dtype);
    struct bench_size size = {
        .plan = muster_group_cost(rank->group, MUSTER_OP_ALL_REDUCE, rank->count, rank->run->dtype),
        .used = rank->used,
        .steady_allocations = rank->steady_allocations,
        .is_shm = has_boards(algorithm),
        .is_device = is_on_device(rank)};

    if (!size.is_shm && !size.is_device && strcmp(rank->run->settings->wire, "shm") == 0) {
        fprintf(stderr, "muster bench: rank %u: these processes share no memory\n", rank->index);
        return false;
    }
    snprintf(size.algorithm, sizeof(size.algorithm), "%s", algorithm);
    snprintf(size.input, sizeof(size.input), "%s", rank->input);
    snprintf(size.wire_reason, sizeof(size.wire_reason), "%s",
             size.is_device ? muster_backend_name(rank->device.backend)
                            : muster_group_wire_reason(rank->group));
    snprintf(size.memory_reading, sizeof(size.memory_reading), "%s",
             muster_group_memory_reading(rank->group));
    return bench_write_all(to_parent, &size, sizeof(size));
}

/* The tensor is memory that peers map, private memory, or on the device. */
static bool take_tensor(struct rank *rank)
{
    const struct bench_run *run = rank->run;
    enum muster_rc rc = MUSTER_OK;

    if (strcmp(run->settings->memory, "mapped") == 0) {
        muster_runtime_enter(rank->runtime);
        rc = muster_tensor_new(rank->env, run->dtype, rank->count, &rank->shared);
        muster_runtime_leave(rank->runtime);
        rank->tensor = rank->shared.data;
        return is_told(rank, rc, "no mapped tensor of this size");
    }
    rank->tensor = muster_mem_alloc(rank->env->mem, rank->count * muster_dtype_bytes(run->dtype));
    rc = rank->tensor == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
    return is_told(rank, rc, "no tensor of this size") &&
           (!is_on_device(rank) || bench_device_take(&rank->device, rank->runtime,
                                                     rank->count * muster_dtype_bytes(run->dtype)));
}

static void give_tensor(struct rank *rank)
{
    if (is_on_device(rank))
        bench_device_give(&rank->device);
    if (rank->shared.data == NULL) {
        muster_mem_free(rank->env->mem, rank->tensor);
        return;
    }
    muster_runtime_enter(rank->runtime);
    muster_tensor_free(rank->env, &rank->shared);
    muster_runtime_leave(rank->runtime);
}

/* Samples are written when all ranks have measured the size: the parent that reads them takes
 * processor time. Allocations are counted in the later half, when every cache of memory is filled.
 */
static bool measure_size(struct rank *rank, uint64_t bytes, int to_parent)
{
    size_t iterations = bench_iterations(rank->run->settings, bytes);
    struct bench_sample *samples = calloc(BENCH_WARM_UP + iterations, sizeof(*samples));
    bool is_ok = samples != NULL;

    rank->count = bytes / muster_dtype_bytes(rank->run->dtype);
    rank->used = (struct muster_op_cost){.sent_bytes = 0};
    is_ok = is_ok && take_tensor(rank);
    for (size_t i = 0; i < BENCH_WARM_UP + iterations && is_ok; i++) {
        if (i == BENCH_WARM_UP + iterations / 2)
            rank->steady_allocations = rank->mem.alloc_count;
        is_ok = rank_measure(rank, bytes, i, &samples[i]);
    }
    rank->steady_allocations = rank->mem.alloc_count - rank->steady_allocations;
    is_ok = is_ok && pass_barrier(rank) && tell_size(rank, to_parent) &&
            bench_write_all(to_parent, samples + BENCH_WARM_UP, iterations * sizeof(*samples));
    give_tensor(rank);
    free(samples);
    return is_ok;
}

/* A forced algorithm runs all sizes: the limit below which operations are direct would win over it,
 * so it is set to the least. */
static struct muster_plan_parameters parameters_of(const struct bench_settings *settings)
{
    struct muster_plan_parameters parameters = {.chunk_bytes = (uint32_t)settings->chunk_bytes,
                                                .direct_max_bytes =
                                                    (uint32_t)settings->direct_max_bytes};

    if (muster_algorithm_parse(settings->algorithm, &parameters.forced) &&
        parameters.forced != MUSTER_ALGORITHM_AUTO)
        parameters.direct_max_bytes = 1;
    return parameters;
}

static bool open_env(struct rank *rank)
{
    enum muster_rc rc;

    muster_mem_limited_init(&rank->mem, muster_mem_system(), 0);
    rc = muster_env_system_open(&(struct muster_env_system_options){.mem = &rank->mem.mem},
                                &rank->env);
    if (rc == MUSTER_OK && rank->env->net == NULL)
        rc = muster_net_system_open(rank->env, &rank->env->net);
    return is_told(rank, rc, "cannot open a loop and sockets");
}

static bool rank_join(struct rank *rank, int from_parent, int to_parent)
{
    struct muster_address addresses[BENCH_RANKS_MAX];
    const struct bench_settings *settings = rank->run->settings;
    const struct muster_plan_parameters parameters = parameters_of(settings);
    struct muster_error error;
    char job[32];

    /* Members are known by job and rank: two runs at the same time are two jobs. */
    snprintf(job, sizeof(job), "bench-%d", (int)getppid());
    if (strcmp(settings->wire, "tcp") == 0)
        setenv("MUSTER_WIRE", "tcp", 1);
    if (!open_env(rank) ||
        (is_on_device(rank) && !bench_device_open(&rank->device, rank->env, rank->index)))
        return false;
    if (muster_static_group_open(rank->env, job, &rank->static_group, &error) != MUSTER_OK) {
        fprintf(stderr, "muster bench: %s\n", error.text);
        return false;
    }
    if (!bench_write_all(to_parent, muster_static_group_address(rank->static_group),
                         sizeof(addresses[0])) ||
        !bench_read_all(from_parent, addresses, rank->run->rank_count * sizeof(addresses[0])))
        return false;
    if (!is_told(rank,
                 muster_static_group_join(rank->static_group, rank->index, addresses,
                                          rank->run->rank_count, &parameters),
                 "cannot join the others"))
        return false;
    rank->group = muster_static_group_group(rank->static_group);
    return is_told(
        rank,
        muster_runtime_open(&(struct muster_runtime_options){.env = rank->env}, &rank->runtime),
        "cannot start its thread");
}

/* The last result is here, but frames for other ranks may still be on their way out. */
static void wait_until_idle(struct rank *rank)
{
    muster_runtime_enter(rank->runtime);
    while (!muster_static_group_is_idle(rank->static_group))
        muster_loop_turn(rank->env->loop, MUSTER_NS_PER_S);
    muster_runtime_leave(rank->runtime);
}

int bench_allreduce_rank(const struct bench_run *run, uint32_t index, int from_parent,
                         int to_parent)
{
    static struct rank rank; /* its keeper goes on until the process ends */

    rank.run = run;
    rank.index = index;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (run->settings->is_bound)
        bench_bind(index);
    if (!make_tiles(&rank) || !rank_join(&rank, from_parent, to_parent))
        return EXIT_OTHER;
    for (size_t i = 0; i < run->size_count; i++) {
        if (!measure_size(&rank, run->sizes[i], to_parent))
            return EXIT_OTHER;
    }
    wait_until_idle(&rank);
    return EXIT_OK;
}
