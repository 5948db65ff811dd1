/* `muster bench join`: lets a process join members that train, and measures what it cost them.
 *
 * Workers run below `muster run`. One of them is killed; its next life prepares its memory, and waits until the others
 * have trained alone for a while. Then it joins. A step of a member counts as beside the join when it overlaps the time
 * from the joiner's first word to the end of the members' first step with it. */
#include "bench/join.h"

#include "bench/bench.h"
#include "bench/samples.h"
#include "common/command.h"
#include "common/output.h"

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

#define NAP_NS       1000000
#define WAIT_MAX_NS  (120 * UINT64_C(1000000000)) /* for one thing */
#define CALM_STEPS   20u                          /* to compare with, before each join */
#define SETTLE_STEPS 3u                           /* after a kill or a join, not counted */

struct settings {
    uint64_t members, bytes, changing_bytes, compute_ns, idle_ns, joins;
    bool is_unnamed, is_json;
};

struct bench_join {
    struct settings settings;
    struct join_shared *shared;
    int fd;
    pid_t launcher; /* 0: it has ended, with status */
    int status;
    struct bench_samples calm_ms, calm_longest_ms, ahead_ms, admission_ms, over_ms, joined_s;
    uint64_t within_count; /* joins in which no step was longer than the bound */
};

static bool join_fail(const char *what)
{
    fprintf(stderr, "muster bench join: cannot %s: %s\n", what, strerror(errno));
    return false;
}

/* --- The crew --- */

static void run_launcher(const struct bench_join *bench, pid_t parent)
{
    char path[64], count[16];

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)parent, bench->fd);
    snprintf(count, sizeof(count), "%" PRIu64, bench->settings.members + 1);
    setenv(JOIN_FILE_VAR, path, 1);
    execl("/proc/self/exe", "muster", "run", "-n", count, "--max-restarts", "1000000", "--quiet",
          "--", "/proc/self/exe", "bench", "join-worker", (char *)NULL);
    _exit(127);
}

static bool crew_open(struct bench_join *bench)
{
    const struct settings *settings = &bench->settings;
    pid_t parent = getpid();

    bench->fd = memfd_create("muster-join", MFD_CLOEXEC);
    if (bench->fd >= 0 && ftruncate(bench->fd, (off_t)sizeof(struct join_shared)) == 0)
        bench->shared = join_map(bench->fd);
    if (bench->shared == NULL)
        return join_fail("map shared memory");
    bench->shared->bytes = settings->bytes / sizeof(uint64_t) * sizeof(uint64_t);
    bench->shared->changing_bytes = settings->changing_bytes < bench->shared->bytes
                                        ? settings->changing_bytes
                                        : bench->shared->bytes;
    bench->shared->compute_ns = settings->compute_ns;
    bench->shared->idle_ns = settings->idle_ns;
    bench->shared->is_named = !settings->is_unnamed;
    bench->shared->joiner = (uint32_t)settings->members;
    bench->launcher = fork();
    if (bench->launcher == 0)
        run_launcher(bench, parent);
    return bench->launcher > 0 || join_fail("start workers");
}

/* --- Waiting --- */

static bool has_ended(struct bench_join *bench)
{
    if (bench->launcher > 0 && waitpid(bench->launcher, &bench->status, WNOHANG) == bench->launcher)
        bench->launcher = 0;
    return bench->launcher == 0;
}

/* False: it did not come, or the crew has ended; told. */
static bool wait_for(struct bench_join *bench, const _Atomic uint64_t *number, uint64_t count,
                     const char *what)
{
    uint64_t until_ns = join_now_ns() + WAIT_MAX_NS;
    struct timespec nap = {0, NAP_NS};

    while (atomic_load(number) < count) {
        if (has_ended(bench) || join_now_ns() > until_ns) {
            fprintf(stderr, "muster bench join: %s did not come\n", what);
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

static bool wait_steps(struct bench_join *bench, uint64_t count)
{
    const _Atomic uint64_t *steps = &bench->shared->tasks[0].step_count;

    return wait_for(bench, steps, atomic_load(steps) + count, "a step");
}

/* Returns whether all ended well. */
static bool crew_close(struct bench_join *bench, bool is_good)
{
    uint64_t until_ns = join_now_ns() + WAIT_MAX_NS;
    struct timespec nap = {0, NAP_NS};

    atomic_store(&bench->shared->stop, 1);
    atomic_store(&bench->shared->is_held, 0);
    if (!is_good && !has_ended(bench))
        kill(bench->launcher, SIGTERM);
    while (!has_ended(bench) && join_now_ns() < until_ns)
        nanosleep(&nap, NULL);
    if (!has_ended(bench)) {
        fprintf(stderr, "muster bench join: the workers did not stop when told to\n");
        kill(bench->launcher, SIGTERM);
        (void)waitpid(bench->launcher, &bench->status, 0);
        return false;
    }
    return WIFEXITED(bench->status) && WEXITSTATUS(bench->status) == 0;
}

/* --- Measuring --- */

static double ms_of(const struct join_step *step)
{
    return (double)(atomic_load(&step->end_ns) - step->begin_ns) * 1e-6;
}

/* The steps of all members that overlap the time from from_ns to to_ns, without those that overlap not_at_ns. */
static void collect_steps(const struct bench_join *bench, uint64_t from_ns, uint64_t to_ns,
                          uint64_t not_at_ns, struct bench_samples *samples)
{
    for (uint32_t t = 0; t < bench->settings.members; t++) {
        const struct join_task *task = &bench->shared->tasks[t];
        uint64_t count = atomic_load(&task->step_count);

        for (uint64_t i = count > JOIN_RING ? count - JOIN_RING : 0; i < count; i++) {
            const struct join_step *step = &task->steps[i % JOIN_RING];

            uint64_t end_ns = atomic_load(&step->end_ns);

            if (step->begin_ns <= to_ns && end_ns >= from_ns &&
                !(step->begin_ns <= not_at_ns && end_ns >= not_at_ns))
                bench_samples_add(samples, ms_of(step));
        }
    }
}

static void judge_join(struct bench_join *bench, uint64_t calm_from_ns)
{
    const struct join_task *joiner = &bench->shared->tasks[bench->shared->joiner];
    struct bench_samples calm = {.at = NULL}, ahead = {.at = NULL}, admission = {.at = NULL};
    double median_ms, ahead_ms, admission_ms, max_ms;

    collect_steps(bench, calm_from_ns, joiner->asked_ns, 0, &calm);
    collect_steps(bench, joiner->asked_ns, joiner->joined_ns, joiner->joined_ns, &ahead);
    collect_steps(bench, joiner->joined_ns, joiner->joined_ns, 0, &admission);
    median_ms = bench_samples_quantile(&calm, 0.5);
    admission_ms = bench_samples_quantile(&admission, 1);
    ahead_ms = bench_samples_quantile(&ahead, 1);
    max_ms = ahead_ms > admission_ms ? ahead_ms : admission_ms;
    bench_samples_add(&bench->calm_ms, median_ms);
    bench_samples_add(&bench->calm_longest_ms, bench_samples_quantile(&calm, 1));
    bench_samples_add(&bench->ahead_ms, ahead_ms);
    bench_samples_add(&bench->admission_ms, admission_ms);
    bench_samples_add(&bench->over_ms, max_ms - median_ms);
    bench_samples_add(&bench->joined_s, (double)(joiner->joined_ns - joiner->asked_ns) * 1e-9);
    bench->within_count += max_ms <= 1.1 * median_ms + 5;
    free(calm.at);
    free(ahead.at);
    free(admission.at);
}

static bool join_once(struct bench_join *bench)
{
    struct join_task *joiner = &bench->shared->tasks[bench->shared->joiner];
    uint64_t joined = atomic_load(&joiner->joined), calm_from_ns;
    int64_t pid = atomic_load(&joiner->pid);
    struct timespec nap = {0, NAP_NS};

    atomic_store(&bench->shared->is_held, 1);
    atomic_store(&joiner->pid, 0);
    kill((pid_t)pid, SIGKILL);
    while (atomic_load(&joiner->pid) == 0) {
        if (!wait_steps(bench, 1))
            return false;
        nanosleep(&nap, NULL);
    }
    if (!wait_steps(bench, SETTLE_STEPS))
        return false;
    calm_from_ns = join_now_ns();
    if (!wait_steps(bench, CALM_STEPS))
        return false;
    atomic_store(&bench->shared->is_held, 0);
    if (!wait_for(bench, &joiner->joined, joined + 1, "the joiner") ||
        !wait_steps(bench, SETTLE_STEPS))
        return false;
    judge_join(bench, calm_from_ns);
    return true;
}

static bool are_identical(const struct bench_join *bench)
{
    const struct join_task *tasks = bench->shared->tasks;

    for (uint32_t t = 0; t <= bench->settings.members; t++)
        if (tasks[t].digest == 0 || tasks[t].digest != tasks[0].digest)
            return false;
    return true;
}

/* The longest one of a worker: all have other values than the first, which gives its own to all. */
static double first_begin_s(const struct bench_join *bench)
{
    uint64_t longest_ns = 0;

    for (uint64_t t = 0; t <= bench->settings.members; t++)
        if (bench->shared->tasks[t].first_begin_ns > longest_ns)
            longest_ns = bench->shared->tasks[t].first_begin_ns;
    return (double)longest_ns * 1e-9;
}

static void quantiles_print(const char *name, struct bench_samples *samples)
{
    printf(",\"%s\":{\"median\":%.3f,\"max\":%.3f}", name, bench_samples_quantile(samples, 0.5),
           bench_samples_quantile(samples, 1));
}

static void result_print(struct bench_join *bench, bool is_identical)
{
    const struct settings *settings = &bench->settings;

    printf("{\"bench\":\"join\",\"members\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"changing_bytes\":%" PRIu64 ",\"named\":%s,\"compute_ms\":%.1f,\"idle_ms\":%.1f"
           ",\"joins\":%" PRIu64 ",\"within\":%" PRIu64 ",\"identical\":%s",
           settings->members, bench->shared->bytes, bench->shared->changing_bytes,
           settings->is_unnamed ? "false" : "true", (double)settings->compute_ns * 1e-6,
           (double)settings->idle_ns * 1e-6, settings->joins, bench->within_count,
           is_identical ? "true" : "false");
    quantiles_print("step_ms", &bench->calm_ms);
    quantiles_print("longest_without_ms", &bench->calm_longest_ms);
    quantiles_print("ahead_ms", &bench->ahead_ms);
    quantiles_print("admission_ms", &bench->admission_ms);
    quantiles_print("over_ms", &bench->over_ms);
    quantiles_print("joined_s", &bench->joined_s);
    printf(",\"first_begin_s\":%.3f", first_begin_s(bench));
    printf("}\n");
}

static int measure_joins(struct bench_join *bench)
{
    bool is_good = crew_open(bench), is_identical = false;

    if (!is_good)
        return EXIT_OTHER;
    for (uint64_t t = 0; is_good && t <= bench->settings.members; t++)
        is_good = wait_for(bench, &bench->shared->tasks[t].step_count, SETTLE_STEPS, "a worker");
    for (uint64_t i = 0; is_good && i < bench->settings.joins; i++)
        is_good = join_once(bench);
    is_good = crew_close(bench, is_good) && is_good;
    if (is_good) {
        is_identical = are_identical(bench);
        result_print(bench, is_identical);
        if (!is_identical)
            fprintf(stderr, "muster bench join: the states differ at the end\n");
    }
    munmap(bench->shared, sizeof(*bench->shared));
    close(bench->fd);
    return is_good && is_identical && output_flush() ? EXIT_OK : EXIT_OTHER;
}

/* --- Arguments --- */

static const struct muster_option rows[] = {
    {.name = "members",
     .letter = 'n',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, members),
     .fallback = "4",
     .unit = "tasks",
     .min = 1,
     .max = JOIN_TASKS_MAX - 1,
     .help = "Number of members, besides the one that joins."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, bytes),
     .fallback = "1G",
     .unit = "bytes",
     .min = 8,
     .help = "Size of the state."},
    {.name = "changing",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, changing_bytes),
     .fallback = "8M",
     .unit = "bytes",
     .help = "The part of it that each step changes; the rest is frozen."},
    {.name = "unnamed",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_unnamed),
     .help = "The program does not say which part it changes."},
    {.name = "compute",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, compute_ns),
     .fallback = "50ms",
     .unit = "s",
     .help = "Computing of each worker in each step."},
    {.name = "idle",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, idle_ns),
     .fallback = "50ms",
     .unit = "s",
     .help = "Time that each worker idles in each step."},
    {.name = "joins",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, joins),
     .fallback = "5",
     .min = 1,
     .max = 10000,
     .help = "How often the process is killed and joins again."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one JSON object (the only output format)."},
};

const struct muster_options bench_join_options = {
    .command = "muster bench join",
    .usage = "-n N --bytes B [--changing B] [--compute TIME] [--idle TIME] [--joins K] [--json]",
    .about = "Run workers that change part of a large state in each step, let one more join them, "
             "and measure the longest step of the others meanwhile.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int bench_join(int argc, char **argv)
{
    struct bench_join bench = {.fd = -1};
    int exit_code = EXIT_OK;

    if (!command_parse_all(&bench_join_options, argc, argv, &bench.settings, &exit_code))
        return exit_code;
    exit_code = measure_joins(&bench);
    free(bench.calm_ms.at);
    free(bench.calm_longest_ms.at);
    free(bench.ahead_ms.at);
    free(bench.admission_ms.at);
    free(bench.joined_s.at);
    free(bench.over_ms.at);
    return exit_code;
}
