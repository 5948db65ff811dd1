/* `muster bench recover`: one kill at a uniform phase, and the samples.
 *
 * The stall of a kill is the time from the signal to the last survivor's result of the operation
 * that the victim was in. A victim that was between two operations gives no sample. Its next life
 * is held back until the sample is taken, since the start of a process takes processor time from
 * the survivors. */
#include "bench/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AIMED_MIN_NS  UINT64_C(2000000) /* shorter operations are hit by chance */
#define DEATH_WAIT_MS 20000
/* Processor time of a worker from the moment that it writes down before it starts an operation until it has issued
 * it. Other time would count how long it waits for a processor. */
#define ISSUE_MAX_NS UINT64_C(3000000)

/* --- the victim and the moment --- */

/* xorshift64 (Marsaglia 2003): the same seed gives the same victims and phases. */
static uint64_t next_random(struct recover *run)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random;
}

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* When the last task started `step`; 0: not all have. */
static uint64_t started_by_all_ns(const struct recover *run, uint64_t step)
{
    uint64_t last = 0;

    for (uint32_t t = 0; t < run->tasks; t++) {
        struct recover_record *record = recover_find(run->shared, t, step);
        uint64_t start = record != NULL ? atomic_load(&record->start_ns) : 0;

        if (start == 0)
            return 0;
        last = start > last ? start : last;
    }
    return last;
}

/* A uniform phase of the next operation. Operations too short to aim at follow each other so
 * closely that any moment will do. */
static bool wait_for_moment(struct recover *run)
{
    double phase = (double)(next_random(run) >> 11) / 9007199254740992.0;
    double typical_ns = bench_samples_quantile(&run->calm_ns, 0.5);
    uint64_t since_ns = recover_now_ns(), step = recover_newest_step(run) + 1, start_ns;

    if (typical_ns < (double)AIMED_MIN_NS) {
        sleep_until(since_ns + (uint64_t)(phase * (double)AIMED_MIN_NS));
        return true;
    }
    while ((start_ns = started_by_all_ns(run, step)) == 0) {
        recover_read_steps(run);
        if (!recover_go_on(run, "the next operation to start", since_ns))
            return false;
    }
    sleep_until(start_ns + (uint64_t)(phase * typical_ns));
    return true;
}

/* --- the kill --- */

static bool kill_fail(uint32_t victim, const char *what)
{
    fprintf(stderr, "muster bench recover: worker:%u %s: %s\n", victim, what, strerror(errno));
    return false;
}

static void note_cpu_times(struct recover *run)
{
    for (uint32_t t = 0; t < run->tasks; t++)
        run->cpu_ns[t] = recover_cpu_ns((pid_t)atomic_load(&run->shared->tasks[t].pid));
}

/* Returns when the process is dead, so that its records no longer change. */
static bool kill_and_wait(struct recover *run, uint32_t victim, uint64_t *ret_kill_ns)
{
    pid_t pid = (pid_t)atomic_load(&run->shared->tasks[victim].pid);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd death = {.fd = fd, .events = POLLIN};
    bool is_dead;

    if (fd < 0)
        return kill_fail(victim, "cannot be watched");
    note_cpu_times(run);
    *ret_kill_ns = recover_now_ns();
    kill(pid, SIGKILL);
    run->attempts++;
    is_dead = poll(&death, 1, DEATH_WAIT_MS) == 1;
    close(fd);
    return is_dead || kill_fail(victim, "does not die");
}

/* The last operation that the victim started; if its next life has signed in already, that is kept
 * in step_before. */
static uint64_t last_step_of(const struct recover_task *task, uint64_t life)
{
    uint64_t step = atomic_load(&task->step);

    return atomic_load(&task->lives) == life ? step : atomic_load(&task->step_before);
}

static bool is_done_by_others(const struct recover *run, uint32_t victim, uint64_t step)
{
    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_record *record = recover_find(run->shared, t, step);

        if (t != victim && (record == NULL || atomic_load(&record->done_ns) == 0))
            return false;
    }
    return true;
}

/* All records read here stand: the victim is dead, and the survivors are done with the step. */
static void note_kill(struct recover *run, uint32_t victim, uint64_t step, uint64_t kill_ns)
{
    struct recover_kill *entry = &run->log[run->in_op++];
    uint64_t start = 0, done = 0;

    entry->is_issued = true;
    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_record *record = recover_find(run->shared, t, step);
        uint64_t s = atomic_load(&record->start_ns), d = atomic_load(&record->done_ns);

        start = s > start ? s : start;
        done = d > done ? d : done;
        entry->is_issued =
            entry->is_issued && s != 0 && record->start_cpu_ns + ISSUE_MAX_NS < run->cpu_ns[t];
        if (t == victim)
            continue;
        entry->is_adopted = record->contributors == run->tasks;
        entry->is_shm = record->is_shm;
    }
    entry->duration_ns = done > start ? done - start : 0;
    entry->stall_ns = done > kill_ns ? done - kill_ns : 0;
}

/* The others finish what the victim was doing. False: told why. */
static bool watch_the_others(struct recover *run, uint32_t victim, uint64_t step, uint64_t kill_ns)
{
    const struct recover_record *record = recover_find(run->shared, victim, step);
    uint64_t since_ns = recover_now_ns();
    char what[80];

    if (record == NULL || atomic_load(&record->start_ns) == 0 || atomic_load(&record->done_ns) != 0)
        return true; /* between two operations */
    snprintf(what, sizeof(what), "step %" PRIu64 ", in which worker:%u was killed", step, victim);
    while (!is_done_by_others(run, victim, step))
        if (!recover_go_on(run, what, since_ns))
            return false;
    note_kill(run, victim, step, kill_ns);
    return true;
}

bool recover_kill_once(struct recover *run)
{
    uint32_t victim = (uint32_t)(next_random(run) % run->tasks);
    struct recover_task *task = &run->shared->tasks[victim];
    uint64_t life, kill_ns;
    bool is_good;

    if (!wait_for_moment(run))
        return false;
    life = atomic_load(&task->lives);
    atomic_store(&run->shared->is_held, 1);
    is_good = kill_and_wait(run, victim, &kill_ns);
    if (is_good) {
        run->calm_after = recover_newest_step(run) + 1;
        is_good = watch_the_others(run, victim, last_step_of(task, life), kill_ns);
    }
    atomic_store(&run->shared->is_held, 0);
    return is_good;
}

/* --- a process that takes no part --- */

/* Returns its id when it holds its memory, or -1. */
static pid_t start_bystander(uint64_t rss_bytes)
{
    int ends[2];
    char byte;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)recover_touch_memory(rss_bytes);
        close(ends[0]);
        close(ends[1]);
        for (;;)
            pause();
    }
    close(ends[1]);
    if (pid > 0 && read(ends[0], &byte, 1) != 0)
        fprintf(stderr, "muster bench recover: the bystander has said something\n");
    close(ends[0]);
    return pid;
}

/* An idle process with as much memory ends beside the workers: the difference to undisturbed
 * operations is what the kernel's work costs, without any recovery. */
bool recover_kill_bystander(struct recover *run)
{
    pid_t pid = start_bystander(run->victim_rss_bytes);
    uint64_t step, kill_ns;
    bool is_good, is_late;

    if (pid < 0)
        return false;
    is_good = recover_wait_calm(run, 1) && wait_for_moment(run);
    run->hit_step = step = recover_newest_step(run);
    note_cpu_times(run);
    kill_ns = recover_now_ns();
    kill(pid, SIGKILL);
    run->attempts++;
    is_late = is_done_by_others(run, RECOVER_TASKS_MAX, step);
    while (is_good && !is_done_by_others(run, RECOVER_TASKS_MAX, step))
        is_good = recover_go_on(run, "an operation beside the end of a bystander", kill_ns);
    waitpid(pid, NULL, 0);
    run->calm_after = recover_newest_step(run) + 1;
    if (is_good && !is_late)
        note_kill(run, RECOVER_TASKS_MAX, step, kill_ns);
    return is_good;
}
