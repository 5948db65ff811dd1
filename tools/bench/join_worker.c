/* `muster bench join`, the workers: steps that compute, idle, reduce a little, and change part of a large state. */
#include "bench/bench.h"
#include "bench/join.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <muster/hash.h>
#include <muster/strategy.h>
#include <muster/strategy_checkpoint.h>

struct worker {
    struct join_shared *shared;
    struct join_task *task;
    struct muster_strategy *strategy;
    struct muster_tensor state;
    bool is_joined, is_last;
};

struct join_shared *join_map(int fd)
{
    void *map = mmap(NULL, sizeof(struct join_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return map == MAP_FAILED ? NULL : map;
}

uint64_t join_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static volatile double sink;

static void spend_time(uint64_t ns)
{
    uint64_t end_ns = join_now_ns() + ns;
    double x = 1;

    while (join_now_ns() < end_ns)
        for (unsigned i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
    sink = x;
}

static void nap_for(uint64_t ns)
{
    struct timespec span = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

    (void)nanosleep(&span, NULL);
}

/* The first part is what is trained; the rest is frozen. */
static enum muster_rc update_state(struct worker *worker, uint64_t step)
{
    uint64_t *values = worker->state.data;
    struct muster_tensor part = worker->state;
    enum muster_rc rc;

    part.count = worker->shared->changing_bytes / sizeof(uint64_t);
    rc = worker->shared->is_named ? muster_strategy_update_begin_parts(worker->strategy, &part, 1)
                                  : muster_strategy_update_begin(worker->strategy);
    for (uint64_t i = 0; i < part.count && rc == MUSTER_OK; i++)
        values[i] = values[i] * 3 + step;
    return rc;
}

static void note_joined(struct worker *worker)
{
    if (worker->is_joined)
        return;
    worker->is_joined = true;
    worker->task->joined_ns = join_now_ns();
    if (atomic_load(&worker->task->joined) == 0)
        worker->task->first_begin_ns = worker->task->joined_ns - worker->task->asked_ns;
    atomic_fetch_add(&worker->task->joined, 1);
}

static void note_step(struct worker *worker, uint64_t step, uint64_t begin_ns)
{
    struct join_step *at = &worker->task->steps[atomic_load(&worker->task->step_count) % JOIN_RING];

    atomic_store(&at->end_ns, 0);
    at->step = step;
    at->begin_ns = begin_ns;
    atomic_store(&at->end_ns, join_now_ns());
    atomic_fetch_add(&worker->task->step_count, 1);
}

static enum muster_rc run_step(struct worker *worker)
{
    struct muster_strategy *strategy = worker->strategy;
    float word = atomic_load(&worker->shared->stop) != 0 ? 1 : 0;
    struct muster_tensor tensor = {&word, 1, MUSTER_F32};
    uint64_t step = 0, begin_ns = join_now_ns();
    enum muster_rc rc = muster_strategy_begin(strategy, &step, NULL);

    if (rc != MUSTER_OK)
        return rc;
    note_joined(worker);
    spend_time(worker->shared->compute_ns);
    nap_for(worker->shared->idle_ns);
    rc = muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_MAX);
    if (rc == MUSTER_OK)
        rc = update_state(worker, step);
    if (rc == MUSTER_OK)
        rc = muster_strategy_commit(strategy);
    if (rc == MUSTER_OK)
        note_step(worker, step, begin_ns);
    worker->is_last = rc == MUSTER_OK && word > 0;
    return rc;
}

/* No first life waits in its begin for another one's memory; a joiner waits to be let go. */
static void await_turn(struct worker *worker)
{
    struct join_shared *shared = worker->shared;

    if (atomic_load(&worker->task->joined) == 0)
        atomic_fetch_add(&shared->ready_count, 1);
    while (atomic_load(&shared->ready_count) <= shared->joiner)
        nap_for(500000);
    while (atomic_load(&shared->is_held) != 0 && worker->task == &shared->tasks[shared->joiner])
        nap_for(500000);
}

static enum muster_rc run_steps(struct worker *worker, struct muster_error *ret_error)
{
    struct join_shared *shared = worker->shared;
    uint8_t digest[MUSTER_HASH128_BYTES];
    enum muster_rc rc;

    /* Its pages are there, and its bytes are not those of the others. */
    memset(worker->state.data, (int)(getpid() % 255) + 1, shared->bytes);
    atomic_store(&worker->task->pid, (int64_t)getpid());
    await_turn(worker);
    worker->task->asked_ns = join_now_ns();
    rc = muster_strategy_open(NULL, &worker->strategy, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_strategy_register(worker->strategy, "state", &worker->state);
    while ((rc == MUSTER_OK || rc == MUSTER_ABORTED) && !worker->is_last)
        rc = run_step(worker);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s", muster_strategy_error(worker->strategy)->text);
    muster_hash128(worker->state.data, shared->bytes, digest);
    memcpy(&worker->task->digest, digest, sizeof(worker->task->digest));
    return rc;
}

/* The mapping lives as long as the process. */
static struct join_shared *open_shared(void)
{
    const char *path = getenv(JOIN_FILE_VAR);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct join_shared *shared = fd >= 0 ? join_map(fd) : NULL;

    if (fd >= 0)
        close(fd);
    return shared;
}

int bench_join_worker(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    struct worker worker = {.shared = open_shared()};
    uint32_t task = rank != NULL ? (uint32_t)strtoul(rank, NULL, 10) : JOIN_TASKS_MAX;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    (void)argc;
    (void)argv;
    if (worker.shared == NULL || task >= JOIN_TASKS_MAX) {
        fprintf(stderr, "muster bench join-worker: its memory must be mapped by `muster bench "
                        "join`, which starts it\n");
        return 2;
    }
    worker.task = &worker.shared->tasks[task];
    worker.state = (struct muster_tensor){malloc(worker.shared->bytes),
                                          worker.shared->bytes / sizeof(uint64_t), MUSTER_U64};
    if (worker.state.data != NULL)
        rc = run_steps(&worker, &error);
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster bench join, task %u: %s: %s\n", task, muster_rc_text(rc),
                error.text);
    muster_strategy_close(worker.strategy);
    free(worker.state.data);
    return rc == MUSTER_OK ? 0 : 1;
}
