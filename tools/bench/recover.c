/* `muster bench recover`: kills workers in the middle of an all_reduce and measures what it cost
 * the others. This file: options, and the course of a run.
 *
 * A first crew with one worker less tells how long the survivors alone would need. The second crew
 * is killed into: the moment of each kill is uniform over the duration of an operation, so that
 * every phase of the protocol is hit as often as it lasts. */
#include "bench/recover.h"

#include "bench/bench.h"
#include "common/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Open files of the launcher, which has pipes of every worker, and of a worker, which has links and
 * boards. */
#define FILES_BASE     32u
#define FILES_PER_TASK 8u

enum {
    WARM_STEPS = 12,     /* undisturbed operations of all tasks before the first kill */
    CALM_STEPS = 2,      /* and before each further one */
    ONE_LESS_STEPS = 24, /* of a crew without the victim */
};

struct recover_settings {
    uint64_t tasks, bytes, kills, victim_rss_bytes, seed, timeout_s;
    const char *wire, *memory, *victim;
    bool is_json;
};

/* The time that the survivors would need if the victim had never been there. */
static bool measure_one_less(struct recover *run)
{
    struct bench_samples *calm = &run->calm_ns;
    long restarts, lost;
    bool is_good;

    if (!recover_crew_open(run, run->tasks - 1))
        return false;
    run->tasks--;
    is_good = recover_wait_calm(run, ONE_LESS_STEPS);
    recover_crew_close(run, is_good, &restarts, &lost);
    run->tasks++;
    run->one_less_ns = bench_samples_quantile(calm, 0.5);
    calm->count = 0;
    return is_good;
}

static bool kill_all(struct recover *run)
{
    uint64_t attempts_max = 20 * run->kills + 20; /* some kills fall between two operations */

    if (!recover_wait_calm(run, WARM_STEPS))
        return false;
    while (run->in_op < run->kills && run->attempts < attempts_max)
        if (!(run->is_bystander ? recover_kill_bystander(run) : recover_kill_once(run)) ||
            !recover_wait_calm(run, CALM_STEPS))
            return false;
    if (run->in_op < run->kills)
        fprintf(stderr,
                "muster bench recover: only %" PRIu64 " of %" PRIu64
                " kills fell inside an operation\n",
                run->in_op, run->attempts);
    return run->in_op >= run->kills;
}

/* The summary of the launcher comes with the end of the crew, so the crew is closed before the line
 * is printed. */
static int measure_kills(struct recover *run)
{
    long restarts = -1, steps_lost = -1;
    bool is_good = measure_one_less(run);
    int exit_code;

    if (!is_good || !recover_crew_open(run, run->tasks))
        return EXIT_OTHER;
    is_good = kill_all(run);
    recover_crew_close(run, is_good, &restarts, &steps_lost);
    exit_code = recover_print(run, restarts, steps_lost);
    return is_good ? exit_code : EXIT_OTHER;
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
     .help = "Number of workers."},
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
     .help = "Number of kills that must fall inside the operation."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct recover_settings, wire),
     .fallback = "auto",
     .choices = "auto|shm|tcp",
     .help = "Transport of the chunks; auto: shared memory where it is available."},
    {.name = "memory",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct recover_settings, memory),
     .fallback = "mapped",
     .choices = "mapped|private",
     .help = "Tensors that the other workers map, or private memory."},
    {.name = "victim-rss-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct recover_settings, victim_rss_bytes),
     .fallback = "0",
     .unit = "bytes",
     .help = "Extra memory of every worker (or of the bystander); releasing it slows a death."},
    {.name = "victim",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct recover_settings, victim),
     .fallback = "worker",
     .choices = "worker|bystander",
     .help = "Process to kill. bystander: an idle process, to measure how long the kernel takes to "
             "end one."},
    {.name = "seed",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct recover_settings, seed),
     .fallback = "1",
     .help = "Seed for the choice of victims and phases."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct recover_settings, timeout_s),
     .fallback = "900",
     .unit = "seconds",
     .min = 1,
     .max = 86400,
     .help = "Give up after this time and report what was awaited."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct recover_settings, is_json),
     .help = "Print one JSON object (the only output format)."},
};

const struct muster_options bench_recover_options = {
    .command = "muster bench recover",
    .usage = "-n N --bytes B --kills K [--json]",
    .about = "Run workers that repeat an all-reduce, kill a random one with SIGKILL in the middle "
             "of K operations, and measure the cost to the others.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int bench_recover(int argc, char **argv)
{
    struct recover_settings settings = {.is_json = false};
    struct recover run = {.launcher = 0};
    int exit_code = EXIT_OK;

    if (!command_parse_all(&bench_recover_options, argc, argv, &settings, &exit_code))
        return exit_code;
    if (!command_has_files("muster bench recover", FILES_BASE + FILES_PER_TASK * settings.tasks))
        return EXIT_OTHER;
    run.tasks = (uint32_t)settings.tasks;
    run.bytes = settings.bytes / sizeof(float) * sizeof(float);
    run.kills = settings.kills;
    run.victim_rss_bytes = settings.victim_rss_bytes;
    run.wire = settings.wire;
    run.memory = settings.memory;
    run.is_bystander = strcmp(settings.victim, "bystander") == 0;
    run.random = settings.seed * UINT64_C(2654435769) + UINT64_C(88172645463325252);
    run.timeout_s = settings.timeout_s;
    run.started_ns = recover_now_ns();
    run.give_up_ns = run.started_ns + settings.timeout_s * UINT64_C(1000000000);
    run.log = calloc(run.kills + 1, sizeof(*run.log));
    if (run.log == NULL)
        return EXIT_OTHER;
    exit_code = measure_kills(&run);
    free(run.calm_ns.at);
    free(run.log);
    return exit_code;
}
