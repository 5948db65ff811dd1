/* `muster bench recover`, the workers: one checked all_reduce per step, its times noted in the
 * shared file. */
#include "bench/recover.h"

#include "bench/bench.h"

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

struct recover_shared *recover_map(int fd)
{
    void *map =
        mmap(NULL, sizeof(struct recover_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return map == MAP_FAILED ? NULL : map;
}

uint64_t recover_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t recover_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * UINT64_C(1000000000) + (uint64_t)used.tv_nsec;
}

struct recover_record *recover_find(struct recover_shared *shared, uint32_t task, uint64_t step)
{
    struct recover_record *record = &shared->tasks[task].records[step % RECOVER_RING];

    return step != 0 && atomic_load(&record->step) == step ? record : NULL;
}

/* One period of what a tensor holds whose first element is `first`. */
static void make_row(float *row, float first)
{
    for (uint64_t i = 0; i < PATTERN; i++)
        row[i] = first * (float)(i + 1);
}

static void fill_tensor(float *values, uint64_t count, uint32_t task)
{
    float row[PATTERN];
    uint64_t i;

    make_row(row, (float)(UINT32_C(1) << (task % 16)));
    for (i = 0; i + PATTERN <= count; i += PATTERN)
        memcpy(values + i, row, sizeof(row));
    memcpy(values + i, row, (size_t)(count - i) * sizeof(float));
}

static bool is_uniform(const float *values, uint64_t count)
{
    float row[PATTERN];
    uint64_t i;

    make_row(row, values[0]);
    for (i = 0; i + PATTERN <= count; i += PATTERN)
        if (memcmp(values + i, row, sizeof(row)) != 0)
            return false;
    return memcmp(values + i, row, (size_t)(count - i) * sizeof(float)) == 0;
}

/* FNV over 64-bit words in four lanes: the workers share the processors with what is measured. */
static uint64_t digest_of(const float *values, uint64_t count)
{
    enum { LANES = 4 };
    uint64_t hash[LANES] = {UINT64_C(0xcbf29ce484222325), 1, 2, 3}, words[LANES] = {0};
    size_t bytes = (size_t)count * sizeof(float);
    const char *at = (const char *)values;

    for (size_t rest = bytes; rest > 0;) {
        size_t part = rest < sizeof(words) ? rest : sizeof(words);

        memcpy(words, at, part);
        for (size_t i = 0; i < LANES; i++)
            hash[i] = (hash[i] ^ words[i]) * UINT64_C(0x100000001b3);
        at += part;
        rest -= part;
    }
    for (size_t i = 1; i < LANES; i++)
        hash[0] = (hash[0] ^ hash[i]) * UINT64_C(0x100000001b3);
    return hash[0];
}

/* The slot of `step`, emptied; waits while the supervisor has not read what it holds. */
static struct recover_record *take_record(struct recover_shared *shared, uint32_t task,
                                          uint64_t step)
{
    struct recover_record *record = &shared->tasks[task].records[step % RECOVER_RING];
    struct timespec nap = {0, 50000};

    while (step >= atomic_load(&shared->read_through) + RECOVER_RING)
        nanosleep(&nap, NULL);
    atomic_store(&record->step, 0);
    atomic_store(&record->start_ns, 0);
    atomic_store(&record->done_ns, 0);
    atomic_store(&record->is_checked, false);
    atomic_store(&record->step, step);
    return record;
}

/* A small all_reduce in which all tasks meet; the word becomes the largest of all. */
static enum muster_rc agree_on_word(struct muster_strategy *strategy, float *word)
{
    struct muster_tensor tensor = {word, 1, MUSTER_F32};

    return muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_MAX);
}

/* One step: all start the operation together, and look at its result when all have it, because
 * fewer processors than workers would let the looking of one delay another. ABORTED: the step has
 * to be begun again. */
static enum muster_rc run_step(struct muster_strategy *strategy, struct recover_shared *shared,
                               uint32_t task, float *values, bool *ret_is_last)
{
    uint64_t count = shared->bytes / sizeof(float), step;
    struct muster_tensor tensor = {values, count, MUSTER_F32};
    float last = 0, word = 0;
    const struct muster_op_result *result;
    struct recover_record *record;
    enum muster_rc rc = muster_strategy_begin(strategy, &step, NULL);

    if (rc != MUSTER_OK)
        return rc;
    last = atomic_load(&shared->stop) != 0 ? 1 : 0;
    fill_tensor(values, count, task);
    rc = agree_on_word(strategy, &last);
    if (rc != MUSTER_OK)
        return rc;
    *ret_is_last = last > 0;

    record = take_record(shared, task, step);
    atomic_store(&shared->tasks[task].step, step);
    record->start_cpu_ns = recover_cpu_ns(0);
    atomic_store(&record->start_ns, recover_now_ns());
    rc = muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM);
    if (rc != MUSTER_OK)
        return rc;
    result = muster_strategy_result(strategy);
    record->epoch = result->epoch;
    record->contributors = result->contributor_count;
    record->is_interrupted = result->is_interrupted;
    record->is_shm = strcmp(result->wire, "shm") == 0;
    atomic_store(&record->done_ns, recover_now_ns());

    rc = agree_on_word(strategy, &word);
    if (rc != MUSTER_OK)
        return rc;
    record->is_wrong = !is_uniform(values, count);
    record->digest = digest_of(values, count);
    atomic_store(&record->is_checked, true);
    return muster_strategy_commit(strategy);
}

/* A new life signs in with its pid and no step yet; lives is raised last, so that a supervisor that
 * sees it finds the rest. */
static void sign_in(struct recover_task *task)
{
    atomic_store(&task->step_before, atomic_load(&task->step));
    atomic_store(&task->step, 0);
    atomic_store(&task->pid, (int64_t)getpid());
    atomic_fetch_add(&task->lives, 1);
}

/* The mapping lives as long as the process. */
static struct recover_shared *open_shared(void)
{
    const char *path = getenv(RECOVER_FILE_VAR);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct recover_shared *shared = fd >= 0 ? recover_map(fd) : NULL;

    if (fd >= 0)
        close(fd);
    return shared;
}

void *recover_touch_memory(uint64_t bytes)
{
    char *memory = bytes > 0 ? malloc(bytes) : NULL;

    for (uint64_t i = 0; memory != NULL && i < bytes; i += 4096)
        memory[i] = 1;
    return memory;
}

static void wait_while_held(struct recover_shared *shared)
{
    struct timespec nap = {0, 500000};

    while (atomic_load(&shared->is_held) != 0 && atomic_load(&shared->stop) == 0)
        nanosleep(&nap, NULL);
}

/* The tensor that is reduced, and the memory that makes a death slow. */
struct load {
    struct muster_tensor shared; /* of the strategy, if it is mapped */
    float *values;
    void *ballast;
};

static enum muster_rc load_open(struct load *load, struct muster_strategy *strategy,
                                const struct recover_shared *shared)
{
    uint64_t count = shared->bytes / sizeof(float);
    enum muster_rc rc = MUSTER_OK;

    load->ballast = recover_touch_memory(shared->victim_rss_bytes);
    if (shared->is_mapped) {
        rc = muster_strategy_tensor_new(strategy, MUSTER_F32, count, &load->shared);
        load->values = load->shared.data;
    } else {
        load->values = malloc(shared->bytes);
    }
    return rc == MUSTER_OK && load->values == NULL ? MUSTER_RESOURCE_EXHAUSTED : rc;
}

static void load_close(struct load *load, struct muster_strategy *strategy)
{
    if (load->shared.data != NULL)
        muster_strategy_tensor_free(strategy, &load->shared);
    else
        free(load->values);
    free(load->ballast);
}

static enum muster_rc run_steps(struct muster_strategy *strategy, struct recover_shared *shared,
                                uint32_t task)
{
    static uint64_t training_state; /* until the strategy is closed */
    struct muster_tensor state = {&training_state, sizeof(training_state), MUSTER_U8};
    struct load load = {.values = NULL};
    bool is_last = false;
    enum muster_rc rc = load_open(&load, strategy, shared);

    if (rc == MUSTER_OK) {
        fill_tensor(load.values, shared->bytes / sizeof(float), task);
        rc = muster_strategy_register(strategy, "state", &state);
    }
    if (rc == MUSTER_OK)
        sign_in(&shared->tasks[task]);
    while ((rc == MUSTER_OK || rc == MUSTER_ABORTED) && !is_last)
        rc = run_step(strategy, shared, task, load.values, &is_last);
    load_close(&load, strategy);
    return rc;
}

int bench_recover_worker(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    struct recover_shared *shared = open_shared();
    uint32_t task = rank != NULL ? (uint32_t)strtoul(rank, NULL, 10) : RECOVER_TASKS_MAX;
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    (void)argc;
    (void)argv;
    if (shared == NULL || task >= RECOVER_TASKS_MAX) {
        fprintf(stderr, "muster bench recover-worker: its memory must be mapped by "
                        "`muster bench recover`, which starts it\n");
        return 2;
    }
    wait_while_held(shared);
    rc = muster_strategy_open(NULL, &strategy, &error);
    if (rc == MUSTER_OK)
        rc = run_steps(strategy, shared, task);
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster bench recover, task %u: %s: %s\n", task, muster_rc_text(rc),
                strategy != NULL ? muster_strategy_error(strategy)->text : error.text);
    muster_strategy_close(strategy);
    return rc == MUSTER_OK ? 0 : 1;
}
