/* `muster bench recover`, the supervisor: kills workers in the middle of an all_reduce and measures
 * what it cost the others. */
#include "bench_recover.h"

#include "bench.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CALM_STEPS = 4, /* undisturbed operations of all tasks before the next kill */
    POLL_US = 100,
    WAIT_MAX_S = 60,
};

struct kill_record {
    uint64_t step;
    uint64_t kill_ns;
    uint32_t task;
    bool is_in_op;
};

struct recover_settings {
    uint64_t tasks, bytes, kills, victim_rss_bytes, seed;
    const char *wire;
    bool is_json;
};

struct recover {
    uint32_t tasks;
    uint64_t bytes, kills, victim_rss_bytes;
    const char *wire;
    char path[64], summary_path[64];
    pid_t launcher;
    struct recover_shared *shared;
    struct kill_record *log; /* of `attempts` */
    uint64_t attempts;
    uint64_t random;
};

/* --- small tools --- */

static uint64_t next_random(struct recover *run)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random;
}

static void sleep_us(uint64_t us)
{
    struct timespec span = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    nanosleep(&span, NULL);
}

static struct recover_record *record_of(const struct recover *run, uint32_t task, uint64_t step)
{
    return &run->shared->tasks[task].records[step];
}

struct samples {
    double *at;
    size_t count, capacity;
};

static void add_sample(struct samples *samples, double value)
{
    if (samples->count == samples->capacity) {
        samples->capacity = 2 * samples->capacity + 64;
        samples->at = realloc(samples->at, samples->capacity * sizeof(double));
        if (samples->at == NULL)
            abort();
    }
    samples->at[samples->count++] = value;
}

static double quantile(struct samples *samples, double q)
{
    return samples->count == 0 ? 0 : bench_quantile(samples->at, samples->count, q);
}

/* --- the life of the run --- */

static bool is_launcher_alive(struct recover *run)
{
    int status;

    if (run->launcher > 0 && waitpid(run->launcher, &status, WNOHANG) == run->launcher) {
        fprintf(stderr, "muster bench recover: the launcher ended early (status %d)\n", status);
        run->launcher = 0;
    }
    return run->launcher > 0;
}

static int start_launcher(struct recover *run)
{
    char tasks[16], restarts[24];

    snprintf(tasks, sizeof(tasks), "%u", run->tasks);
    snprintf(restarts, sizeof(restarts), "%" PRIu64, run->kills * 4 + 100);
    run->launcher = fork();
    if (run->launcher != 0)
        return run->launcher > 0 ? 0 : -1;
    setenv(RECOVER_FILE_VAR, run->path, 1);
    execl("/proc/self/exe", "muster", "run", "-n", tasks, "--max-restarts", restarts, "--json",
          run->summary_path, "--quiet", "--", "/proc/self/exe", "bench", "recover-worker",
          (char *)NULL);
    _exit(127);
}

/* Whether `step` was done by all tasks with all contributing and no change of view. */
static bool is_calm(const struct recover *run, uint64_t step)
{
    uint64_t epoch = record_of(run, 0, step)->epoch;

    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_record *record = record_of(run, t, step);

        if (atomic_load(&record->done_ns) == 0 || record->contributors != run->tasks ||
            record->is_interrupted || record->epoch != epoch)
            return false;
    }
    return true;
}

static uint64_t newest_step(const struct recover *run)
{
    uint64_t newest = 0;

    for (uint32_t t = 0; t < run->tasks; t++) {
        uint64_t step = atomic_load(&run->shared->tasks[t].step);

        newest = step > newest ? step : newest;
    }
    return newest;
}

static bool is_started_by_all(const struct recover *run, uint64_t step)
{
    for (uint32_t t = 0; t < run->tasks; t++)
        if (atomic_load(&record_of(run, t, step)->start_ns) == 0)
            return false;
    return true;
}

/* Wait for CALM_STEPS calm steps in a row after `after`; gives the last of them, or 0. */
static uint64_t wait_calm(struct recover *run, uint64_t after)
{
    uint64_t give_up_ns = recover_now_ns() + WAIT_MAX_S * UINT64_C(1000000000);

    while (recover_now_ns() < give_up_ns && is_launcher_alive(run)) {
        uint64_t newest = newest_step(run), calm = 0;

        for (uint64_t s = newest; s > after + 1 && calm < CALM_STEPS; s--) {
            if (s == newest)
                continue; /* under way */
            if (!is_calm(run, s))
                break;
            calm++;
        }
        if (calm >= CALM_STEPS)
            return newest;
        sleep_us(500);
    }
    return 0;
}

static uint64_t duration_ns(const struct recover *run, uint64_t step)
{
    uint64_t start = 0, done = 0;

    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_record *record = record_of(run, t, step);
        uint64_t s = atomic_load(&record->start_ns), d = atomic_load(&record->done_ns);

        start = s > start ? s : start;
        done = d > done ? d : done;
    }
    return done > start ? done - start : 0;
}

/* Kill one task at a uniform phase of the next operation, and wait until the survivors have its
 * result. */
static bool kill_once(struct recover *run, double typical_ns)
{
    struct kill_record *entry = &run->log[run->attempts];
    uint64_t give_up_ns = recover_now_ns() + WAIT_MAX_S * UINT64_C(1000000000), start = 0, at;
    uint32_t victim = (uint32_t)(next_random(run) % run->tasks);
    double phase = (double)(next_random(run) >> 11) / 9007199254740992.0;
    pid_t pid = (pid_t)atomic_load(&run->shared->tasks[victim].pid);
    uint64_t step = newest_step(run) + 1;
    bool is_done = false;

    while (!is_started_by_all(run, step)) {
        if (recover_now_ns() > give_up_ns || !is_launcher_alive(run))
            return false;
        sleep_us(POLL_US);
    }
    for (uint32_t t = 0; t < run->tasks; t++) {
        uint64_t s = atomic_load(&record_of(run, t, step)->start_ns);
        start = s > start ? s : start;
    }
    at = start + (uint64_t)(phase * typical_ns);
    if (at > recover_now_ns())
        sleep_us((at - recover_now_ns()) / 1000);
    entry->step = step;
    entry->task = victim;
    entry->kill_ns = recover_now_ns();
    kill(pid, SIGKILL);
    run->attempts++;
    while (!is_done && recover_now_ns() < give_up_ns && is_launcher_alive(run)) {
        is_done = true;
        for (uint32_t t = 0; t < run->tasks; t++)
            is_done =
                is_done && (t == victim || atomic_load(&record_of(run, t, step)->done_ns) != 0);
        sleep_us(500);
    }
    if (!is_done)
        fprintf(stderr,
                "muster bench recover: step %" PRIu64
                " was not finished after the death of task %u\n",
                step, victim);
    entry->is_in_op = is_done && atomic_load(&record_of(run, victim, step)->done_ns) == 0;
    return is_done;
}

static double median_calm_ns(const struct recover *run)
{
    struct samples calm = {0};
    uint64_t newest = newest_step(run);
    double median;

    for (uint64_t s = newest > 400 ? newest - 400 : 1; s < newest; s++)
        if (is_calm(run, s))
            add_sample(&calm, (double)duration_ns(run, s));
    median = quantile(&calm, 0.5);
    free(calm.at);
    return median;
}

static bool run_kills(struct recover *run)
{
    uint64_t in_op = 0, step = 0, attempts_max = 3 * run->kills + 20;

    while (in_op < run->kills && run->attempts < attempts_max) {
        step = wait_calm(run, step);
        if (step == 0) {
            fprintf(stderr, "muster bench recover: the tasks did not come together again\n");
            return false;
        }
        if (!kill_once(run, median_calm_ns(run)))
            return false;
        step = run->log[run->attempts - 1].step;
        in_op += run->log[run->attempts - 1].is_in_op;
    }
    return wait_calm(run, step) != 0;
}

static void stop_launcher(struct recover *run, bool is_good)
{
    int status;

    if (!is_launcher_alive(run))
        return;
    atomic_store(&run->shared->stop, 1);
    if (!is_good)
        kill(run->launcher, SIGTERM);
    waitpid(run->launcher, &status, 0);
}

/* --- the result --- */

static void print_quantiles(const char *name, struct samples *samples, const char *end)
{
    if (samples->count == 0)
        printf("\"%s\":null%s", name, end);
    else
        printf("\"%s\":{\"count\":%zu,\"median\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}%s",
               name, samples->count, quantile(samples, 0.5), quantile(samples, 0.9),
               quantile(samples, 0.99), quantile(samples, 1), end);
    free(samples->at);
}

/* All workers that finished `step` have the same bytes, and no element disagrees about the
 * contributors. */
static bool is_step_identical(const struct recover *run, uint64_t step)
{
    const struct recover_record *first = NULL;

    for (uint32_t t = 0; t < run->tasks; t++) {
        const struct recover_record *record = record_of(run, t, step);

        if (atomic_load(&record->done_ns) == 0 || record->digest == 0)
            continue; /* killed before it had the result, or before it had looked at it */
        if (record->is_wrong || (first != NULL && (record->digest != first->digest ||
                                                   record->contributors != first->contributors)))
            return false;
        first = first != NULL ? first : record;
    }
    return true;
}

/* "restarts": N of the launcher's summary. */
static long read_restarts(const struct recover *run)
{
    char text[65536];
    FILE *file = fopen(run->summary_path, "r");
    size_t length = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    const char *at;

    if (file != NULL)
        fclose(file);
    text[length] = '\0';
    at = strstr(text, "\"restarts\":");
    return at != NULL ? strtol(at + strlen("\"restarts\":"), NULL, 10) : -1;
}

static int print_result(struct recover *run)
{
    struct samples stall = {0}, adopt = {0}, retry = {0}, control = {0}, smaller = {0}, calm = {0};
    uint64_t in_op = 0, adopted = 0, retried = 0, newest = newest_step(run);
    long restarts = read_restarts(run);
    bool is_identical = true;
    double median_ns;

    for (uint64_t s = 1; s < newest; s++) {
        const struct recover_record *any = record_of(run, 0, s);

        is_identical = is_identical && is_step_identical(run, s);
        if (is_calm(run, s))
            add_sample(&calm, (double)duration_ns(run, s));
        else if (atomic_load(&any->done_ns) != 0 && any->contributors == run->tasks - 1 &&
                 !any->is_interrupted)
            add_sample(&smaller, (double)duration_ns(run, s) / 1e6);
    }
    median_ns = quantile(&calm, 0.5);
    for (size_t i = 0; i < calm.count; i++)
        add_sample(&control, (calm.at[i] - median_ns) / 1e6);
    for (uint64_t k = 0; k < run->attempts; k++) {
        const struct kill_record *entry = &run->log[k];
        const struct recover_record *survivor =
            record_of(run, entry->task == 0 ? 1 : 0, entry->step);
        uint64_t last_ns = 0;
        double over_ms = ((double)duration_ns(run, entry->step) - median_ns) / 1e6;

        if (!entry->is_in_op)
            continue;
        for (uint32_t t = 0; t < run->tasks; t++) {
            uint64_t done =
                t == entry->task ? 0 : atomic_load(&record_of(run, t, entry->step)->done_ns);
            last_ns = done > last_ns ? done : last_ns;
        }
        in_op++;
        add_sample(&stall, last_ns > entry->kill_ns ? (double)(last_ns - entry->kill_ns) / 1e6 : 0);
        if (survivor->contributors == run->tasks) {
            adopted++;
            add_sample(&adopt, over_ms);
        } else {
            retried++;
            add_sample(&retry, over_ms);
        }
    }
    printf("{\"bench\":\"recover\",\"n\":%u,\"bytes\":%" PRIu64
           ",\"wire\":\"%s\",\"kills\":%" PRIu64 ",\"kills_in_op\":%" PRIu64 ",\"steps\":%" PRIu64
           ",\"undisturbed_ms\":%.3f,",
           run->tasks, run->bytes, run->wire, run->attempts, in_op, newest, median_ns / 1e6);
    print_quantiles("undisturbed_one_less_ms", &smaller, ",");
    print_quantiles("stall_ms", &stall, ",\"overhead_ms\":{");
    print_quantiles("adopt", &adopt, ",");
    print_quantiles("retry", &retry, ",");
    print_quantiles("control", &control, "},");
    printf("\"adopted\":%" PRIu64 ",\"retried\":%" PRIu64
           ",\"identical\":%s,\"survivors_restarted\":%ld}\n",
           adopted, retried, is_identical ? "true" : "false",
           restarts < 0 ? -1 : restarts - (long)run->attempts);
    free(calm.at);
    return is_identical && restarts == (long)run->attempts ? 0 : 1;
}

/* --- arguments --- */

static const struct muster_option rows[] = {
    {.name = "tasks",
     .letter = 'n',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct recover_settings, tasks),
     .fallback = "4",
     .unit = "tasks",
     .min = 2,
     .max = RECOVER_TASKS_MAX,
     .help = "Workers."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct recover_settings, bytes),
     .fallback = "16M",
     .unit = "bytes",
     .min = 4,
     .help = "Size of the f32 tensor that is reduced."},
    {.name = "kills",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct recover_settings, kills),
     .fallback = "20",
     .min = 1,
     .max = 100000,
     .help = "Kills that must fall inside the operation."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct recover_settings, wire),
     .fallback = "tcp",
     .choices = "auto|tcp",
     .help = "How chunks travel."},
    {.name = "victim-rss-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct recover_settings, victim_rss_bytes),
     .fallback = "0",
     .unit = "bytes",
     .help = "Memory that every worker holds besides; its release slows a death."},
    {.name = "seed",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct recover_settings, seed),
     .fallback = "1",
     .help = "Chooses victims and phases."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct recover_settings, is_json),
     .help = "Print one JSON object (there is no other form)."},
};

const struct muster_options bench_recover_options = {
    .command = "muster bench recover",
    .usage = "-n N --bytes B --kills K [--json]",
    .about = "Run workers that all_reduce again and again, kill a random one with SIGKILL in the "
             "middle of K "
             "operations, and show what it cost the others.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int bench_recover(int argc, char **argv)
{
    struct recover_settings settings;
    struct recover run = {.launcher = 0};
    int exit_code = EXIT_OK;
    bool is_good;

    if (!command_parse_all(&bench_recover_options, argc, argv, &settings, &exit_code))
        return exit_code;
    run.tasks = (uint32_t)settings.tasks;
    run.bytes = settings.bytes / sizeof(float) * sizeof(float);
    run.kills = settings.kills;
    run.victim_rss_bytes = settings.victim_rss_bytes;
    run.wire = settings.wire;
    run.random = settings.seed * UINT64_C(2654435769) + UINT64_C(88172645463325252);
    snprintf(run.path, sizeof(run.path), "/dev/shm/muster-recover-%d", (int)getpid());
    snprintf(run.summary_path, sizeof(run.summary_path), "/tmp/muster-recover-%d.json",
             (int)getpid());
    run.shared = recover_map(run.path, true);
    run.log = calloc(3 * run.kills + 20, sizeof(*run.log));
    if (run.shared == NULL || run.log == NULL) {
        fprintf(stderr, "muster bench recover: cannot map %s: %s\n", run.path, strerror(errno));
        return 1;
    }
    run.shared->bytes = run.bytes;
    run.shared->victim_rss_bytes = run.victim_rss_bytes;
    is_good = start_launcher(&run) == 0 && run_kills(&run);
    stop_launcher(&run, is_good);
    exit_code = print_result(&run);
    unlink(run.path);
    unlink(run.summary_path);
    munmap(run.shared, sizeof(*run.shared));
    free(run.log);
    return is_good ? exit_code : 1;
}
