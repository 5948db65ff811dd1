/* `muster bench recover`: a crew of workers below `muster run`, what they have done so far, and the
 * waiting for it.
 *
 * Workers write a record for each operation into a mapped file (recover.h); this file reads them
 * after the workers, compares the results, and finds the operations that no kill has disturbed.
 * Every wait goes through recover_go_on, which ends it with a reason when nothing comes. */
#include "bench/recover.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS     UINT64_C(1000000000)
#define WAIT_MAX_NS   (60 * SECOND_NS) /* for one thing */
#define STOP_WAIT_NS  (30 * SECOND_NS) /* for the crew to end by itself; then signals */
#define PROGRESS_NS   (2 * SECOND_NS)
#define NAP_NS        300000
#define RESTARTS_MAX  "1000000000" /* the supervisor counts the kills and ends the run */
#define SETTLED_STEPS 2 /* a worker that is two steps further has checked the result of a step */

/* --- start and end --- */

static bool crew_fail(const char *what)
{
    fprintf(stderr, "muster bench recover: cannot %s: %s\n", what, strerror(errno));
    return false;
}

/* The file goes by its path below /proc, which the workers can open as long as this process lives.
 */
static void run_launcher(const struct recover *run, uint32_t tasks, pid_t parent)
{
    char path[64], count[16];

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)parent, run->fd);
    snprintf(count, sizeof(count), "%u", tasks);
    setenv(RECOVER_FILE_VAR, path, 1);
    if (strcmp(run->wire, "tcp") == 0)
        setenv("MUSTER_WIRE", "tcp", 1);
    execl("/proc/self/exe", "muster", "run", "-n", count, "--max-restarts", RESTARTS_MAX, "--json",
          run->summary_path, "--quiet", "--", "/proc/self/exe", "bench", "recover-worker",
          (char *)NULL);
    _exit(127);
}

bool recover_crew_open(struct recover *run, uint32_t tasks)
{
    pid_t parent = getpid();

    run->shared = NULL;
    run->launcher = 0;
    run->calm_after = 0;
    run->calm_count = 0;
    snprintf(run->summary_path, sizeof(run->summary_path), "/tmp/muster-recover-%d.json",
             (int)parent);
    run->fd = memfd_create("muster-recover", MFD_CLOEXEC);
    if (run->fd >= 0 && ftruncate(run->fd, (off_t)sizeof(struct recover_shared)) == 0)
        run->shared = recover_map(run->fd);
    if (run->shared == NULL)
        return crew_fail("map shared memory");
    run->shared->bytes = run->bytes;
    run->shared->is_mapped = strcmp(run->memory, "mapped") == 0;
    run->shared->victim_rss_bytes = run->is_bystander ? 0 : run->victim_rss_bytes;
    run->launcher = fork();
    if (run->launcher == 0)
        run_launcher(run, tasks, parent);
    return run->launcher > 0 || crew_fail("start workers");
}

/* The number after "name": in the launcher's summary, or -1. The summary is JSON of our own
 * without blanks, so a search does. */
static long read_number(const char *summary, const char *name)
{
    const char *at = strstr(summary, name);

    return at != NULL ? strtol(at + strlen(name), NULL, 10) : -1;
}

static void read_summary(const struct recover *run, long *ret_restarts, long *ret_steps_lost)
{
    char text[65536];
    FILE *file = fopen(run->summary_path, "re");
    size_t length = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;

    if (file != NULL)
        fclose(file);
    unlink(run->summary_path);
    text[length] = '\0';
    *ret_restarts = read_number(text, "\"restarts\":");
    *ret_steps_lost = read_number(text, "\"steps_lost\":");
}

static void sleep_briefly(void)
{
    struct timespec span = {0, NAP_NS};

    nanosleep(&span, NULL);
}

static bool is_launcher_alive(struct recover *run)
{
    int status;

    if (run->launcher > 0 && waitpid(run->launcher, &status, WNOHANG) == run->launcher)
        run->launcher = 0;
    return run->launcher > 0;
}

/* A worker waits when its ring of records is full, so they are read while the crew ends. */
static bool wait_for_end(struct recover *run, uint64_t span_ns)
{
    uint64_t until_ns = recover_now_ns() + span_ns;

    while (is_launcher_alive(run) && recover_now_ns() < until_ns) {
        recover_read_steps(run);
        sleep_briefly();
    }
    return run->launcher == 0;
}

void recover_crew_close(struct recover *run, bool is_good, long *ret_restarts, long *ret_steps_lost)
{
    atomic_store(&run->shared->stop, 1);
    if (is_good && !wait_for_end(run, STOP_WAIT_NS))
        fprintf(stderr, "muster bench recover: the workers did not stop when told to\n");
    if (is_launcher_alive(run)) {
        kill(run->launcher, SIGTERM);
        if (!wait_for_end(run, STOP_WAIT_NS))
            kill(run->launcher, SIGKILL);
    }
    if (run->launcher > 0)
        waitpid(run->launcher, NULL, 0);
    recover_read_steps(run);
    read_summary(run, ret_restarts, ret_steps_lost);
    munmap(run->shared, sizeof(*run->shared));
    close(run->fd);
}

/* --- reading --- */

uint64_t recover_newest_step(const struct recover *run)
{
    uint64_t newest = 0;

    for (uint32_t t = 0; t < run->tasks; t++) {
        uint64_t step = atomic_load(&run->shared->tasks[t].step);

        newest = step > newest ? step : newest;
    }
    return newest;
}

static void compare_digests(struct recover *run, const struct recover_record *first,
                            const struct recover_record *record, uint64_t step)
{
    if (!record->is_wrong && record->digest == first->digest &&
        record->contributors == first->contributors)
        return;
    if (!run->is_different)
        fprintf(stderr, "muster bench recover: step %" PRIu64 " differs between workers\n", step);
    run->is_different = true;
}

/* Undisturbed: done by all tasks with all contributing, and no change of view meanwhile. */
static void read_step(struct recover *run, uint64_t step)
{
    const struct recover_record *first = NULL;
    uint64_t start = 0, done = 0;
    bool is_calm = true;

    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_record *record = recover_find(run->shared, t, step);
        uint64_t s = record != NULL ? atomic_load(&record->start_ns) : 0;
        uint64_t d = record != NULL ? atomic_load(&record->done_ns) : 0;

        if (d == 0 || !atomic_load(&record->is_checked)) {
            is_calm = false; /* killed before it had, or had looked at, the result */
            continue;
        }
        start = s > start ? s : start;
        done = d > done ? d : done;
        first = first != NULL ? first : record;
        compare_digests(run, first, record, step);
        is_calm = is_calm && record->contributors == run->tasks && !record->is_interrupted &&
                  record->epoch == first->epoch;
    }
    is_calm = is_calm && step != run->hit_step;
    run->steps++;
    run->steps_unfinished += first == NULL;
    if (is_calm)
        bench_samples_add(&run->calm_ns, done > start ? (double)(done - start) : 0);
    if (step > run->calm_after)
        run->calm_count = is_calm ? run->calm_count + 1 : 0;
}

void recover_read_steps(struct recover *run)
{
    uint64_t newest = recover_newest_step(run);
    uint64_t step = atomic_load(&run->shared->read_through);

    while (newest > SETTLED_STEPS && step < newest - SETTLED_STEPS)
        read_step(run, ++step);
    atomic_store(&run->shared->read_through, step);
}

/* --- waiting --- */

static void tell_where_all_are(const struct recover *run)
{
    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_task *task = &run->shared->tasks[t];
        uint64_t step = atomic_load(&task->step);
        pid_t pid = (pid_t)atomic_load(&task->pid);
        const struct recover_record *record = recover_find(run->shared, t, step);

        fprintf(stderr, "  worker:%u: life %" PRIu64 ", pid %d%s, step %" PRIu64 "%s\n", t,
                atomic_load(&task->lives), (int)pid, pid > 0 && kill(pid, 0) != 0 ? " (gone)" : "",
                step,
                record == NULL                       ? ""
                : atomic_load(&record->done_ns) == 0 ? " under way"
                                                     : " done");
    }
}

static bool give_up(const struct recover *run, const char *what, uint64_t since_ns, const char *why)
{
    fprintf(stderr,
            "muster bench recover: %s, after %.1f s of waiting for %s (kill %" PRIu64 ", %" PRIu64
            " of %" PRIu64 " inside an operation):\n",
            why, (double)(recover_now_ns() - since_ns) / 1e9, what, run->attempts, run->in_op,
            run->kills);
    tell_where_all_are(run);
    return false;
}

static void tell_progress(struct recover *run, uint64_t now_ns)
{
    if (now_ns < run->progress_due_ns)
        return;
    if (run->progress_due_ns != 0)
        fprintf(stderr,
                "muster bench recover: %" PRIu64 " of %" PRIu64 " kills, %" PRIu64
                " steps, %.0f s\n",
                run->in_op, run->kills, run->steps, (double)(now_ns - run->started_ns) / 1e9);
    run->progress_due_ns = now_ns + PROGRESS_NS;
}

bool recover_go_on(struct recover *run, const char *what, uint64_t since_ns)
{
    uint64_t now_ns = recover_now_ns();
    char text[80];

    tell_progress(run, now_ns);
    if (!is_launcher_alive(run))
        return give_up(run, what, since_ns, "the launcher ended early");
    snprintf(text, sizeof(text), "the %" PRIu64 " s of --timeout are over", run->timeout_s);
    if (now_ns >= run->give_up_ns)
        return give_up(run, what, since_ns, text);
    if (now_ns >= since_ns + WAIT_MAX_NS)
        return give_up(run, what, since_ns, "nothing came");
    sleep_briefly();
    return true;
}

bool recover_wait_calm(struct recover *run, uint64_t count)
{
    uint64_t since_ns = recover_now_ns();

    run->calm_count = 0;
    for (;;) {
        recover_read_steps(run);
        if (run->calm_count >= count)
            return true;
        if (!recover_go_on(run, "undisturbed operations of all workers", since_ns))
            return false;
    }
}
