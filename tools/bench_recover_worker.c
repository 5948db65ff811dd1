/* `muster bench recover`, the workers: one checked all_reduce per step, its times noted in the
 * shared file. */
#include "bench_recover.h"

#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <muster/strategy.h>

/* Element i of task t is weight(t) * pattern(i): small integers, so that sums are exact and every
 * element of the result divided by its pattern names the same set of contributors. */
enum { PATTERN = 61 };

struct recover_shared *recover_map(const char *path, bool create)
{
    int fd = open(path, create ? O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;

    if (fd < 0)
        return NULL;
    if (!create || ftruncate(fd, (off_t)sizeof(struct recover_shared)) == 0)
        map = mmap(NULL, sizeof(struct recover_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

uint64_t recover_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void fill(float *values, uint64_t count, uint32_t task)
{
    float weight = (float)(UINT32_C(1) << (task % 16));

    for (uint64_t i = 0; i < count; i++)
        values[i] = weight * (float)(i % PATTERN + 1);
}

static bool is_uniform(const float *values, uint64_t count)
{
    float sum = values[0];

    for (uint64_t i = 0; i < count; i++)
        if (values[i] != sum * (float)(i % PATTERN + 1)) /* NOLINT: exact by construction */
            return false;
    return true;
}

static uint64_t digest(const float *values, uint64_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof(bits));
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* One step; MUSTER_OK also when the step has to be begun again. */
static enum muster_rc run_step(struct muster_strategy *strategy, struct recover_shared *shared,
                               uint32_t task, float *values, bool *ret_is_last)
{
    uint64_t count = shared->bytes / sizeof(float), step;
    struct muster_tensor tensor = {values, count, MUSTER_F32};
    float last = 0;
    struct muster_tensor vote = {&last, 1, MUSTER_F32};
    const struct muster_op_result *result;
    struct recover_record *record;
    enum muster_rc rc = muster_strategy_begin(strategy, &step, NULL);

    if (rc != MUSTER_OK)
        return rc;
    if (step >= RECOVER_STEPS_MAX) {
        *ret_is_last = true;
        return MUSTER_OK;
    }
    last = atomic_load(&shared->stop) != 0 ? 1 : 0;
    fill(values, count, task);
    rc = muster_strategy_all_reduce(strategy, &vote, 1,
                                    MUSTER_MAX); /* all stop alike; aligns the start */
    if (rc == MUSTER_ABORTED)
        return MUSTER_OK;
    if (rc != MUSTER_OK)
        return rc;
    *ret_is_last = last > 0;

    record = &shared->tasks[task].records[step];
    memset(record, 0, sizeof(*record));
    atomic_store(&shared->tasks[task].step, step);
    atomic_store(&record->start_ns, recover_now_ns());
    rc = muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM);
    if (rc == MUSTER_ABORTED)
        return MUSTER_OK;
    if (rc != MUSTER_OK)
        return rc;
    result = muster_strategy_result(strategy);
    record->epoch = result->epoch;
    record->contributors = result->contributor_count;
    record->is_interrupted = result->is_interrupted;
    record->is_adopted = result->is_interrupted && result->verdict == MUSTER_VERDICT_ADOPT;
    atomic_store(&record->done_ns, recover_now_ns());

    record->is_wrong = !is_uniform(values, count);
    record->digest = digest(values, count);
    return muster_strategy_commit(strategy);
}

static void *touch_memory(uint64_t bytes)
{
    char *memory = bytes > 0 ? malloc(bytes) : NULL;

    for (uint64_t i = 0; memory != NULL && i < bytes; i += 4096)
        memory[i] = 1;
    return memory;
}

int bench_recover_worker(int argc, char **argv)
{
    const char *path = getenv(RECOVER_FILE_VAR), *rank = getenv("RANK");
    struct recover_shared *shared = path != NULL ? recover_map(path, false) : NULL;
    uint32_t task = rank != NULL ? (uint32_t)strtoul(rank, NULL, 10) : RECOVER_TASKS_MAX;
    uint64_t training_state = 0;
    struct muster_tensor state = {&training_state, sizeof(training_state), MUSTER_U8};
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    bool is_last = false;
    enum muster_rc rc;
    float *values;
    void *ballast;

    (void)argc;
    (void)argv;
    if (shared == NULL || task >= RECOVER_TASKS_MAX) {
        fprintf(stderr, "muster bench recover-worker: started by `muster bench recover` only\n");
        return 2;
    }
    values = malloc(shared->bytes);
    ballast = touch_memory(shared->victim_rss_bytes);
    if (values == NULL) {
        fprintf(stderr, "muster bench recover: no memory for a tensor of %llu bytes\n",
                (unsigned long long)shared->bytes);
        return 1;
    }
    fill(values, shared->bytes / sizeof(float), task);
    rc = muster_strategy_open(NULL, &strategy, &error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_register(strategy, "state", &state);
    if (rc == MUSTER_OK)
        atomic_store(&shared->tasks[task].pid, (int64_t)getpid());
    while (rc == MUSTER_OK && !is_last)
        rc = run_step(strategy, shared, task, values, &is_last);
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster bench recover, task %u: %s\n", task,
                strategy != NULL ? muster_strategy_error(strategy)->text : error.text);
    muster_strategy_close(strategy);
    free(ballast);
    free(values);
    return rc == MUSTER_OK ? 0 : 1;
}
