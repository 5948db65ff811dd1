/* muster-sim: runs seeds of the simulated world, on all cores, and says how to repeat what fails.
 */
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/profile.h"

#define JOBS_MAX     64
#define FAILURES_MAX 64
#define WORK_CHUNK   8

struct options {
    uint64_t first, last;
    const struct sim_profile *profile; /* NULL: all */
    bool is_json, is_trace, is_quiet, is_once;
    uint32_t jobs;
};

struct failure {
    uint64_t seed;
    char profile[32];
    char what[512];
};

/* Shared with the workers. */
struct board {
    uint64_t next; /* work item */
    uint64_t faults, events, seeds;
    uint64_t failure_count;
    struct failure failures[FAILURES_MAX];
    struct slot {
        uint64_t item;   /* under way; UINT64_MAX: none */
        uint64_t resume; /* after a crash: the rest of its chunk */
        uint64_t resume_end;
    } slots[JOBS_MAX];
};

static size_t profile_count(void)
{
    size_t count = 0;

    while (sim_profile_at(count) != NULL)
        count++;
    return count;
}

/* Work items: seed by seed, within a seed profile by profile. */

static uint64_t item_count(const struct options *options)
{
    uint64_t seeds = options->last - options->first + 1;

    return options->profile != NULL ? seeds : seeds * profile_count();
}

static const struct sim_profile *item_profile(const struct options *options, uint64_t item)
{
    return options->profile != NULL ? options->profile
                                    : sim_profile_at((size_t)(item % profile_count()));
}

static uint64_t item_seed(const struct options *options, uint64_t item)
{
    return options->first + (options->profile != NULL ? item : item / profile_count());
}

static void add_failure(struct board *board, const struct options *options, uint64_t item,
                        const char *what)
{
    uint64_t place = __atomic_fetch_add(&board->failure_count, 1, __ATOMIC_RELAXED);
    struct failure *failure;

    if (place >= FAILURES_MAX)
        return;
    failure = &board->failures[place];
    failure->seed = item_seed(options, item);
    snprintf(failure->profile, sizeof(failure->profile), "%s", item_profile(options, item)->name);
    snprintf(failure->what, sizeof(failure->what), "%s", what);
}

static void run_item(struct board *board, const struct options *options, uint64_t item)
{
    bool (*run_seed)(const struct sim_profile *, uint64_t, struct sim_run *) =
        options->is_once ? sim_run_once : sim_run_twice;
    struct sim_run run;

    if (!run_seed(item_profile(options, item), item_seed(options, item), &run))
        add_failure(board, options, item, run.failure);
    __atomic_fetch_add(&board->faults, run.faults, __ATOMIC_RELAXED);
    __atomic_fetch_add(&board->events, run.events, __ATOMIC_RELAXED);
    __atomic_fetch_add(&board->seeds, 1, __ATOMIC_RELAXED);
}

static void run_worker(struct board *board, const struct options *options, struct slot *slot)
{
    uint64_t count = item_count(options);

    for (;;) {
        if (slot->resume == slot->resume_end) {
            slot->resume = __atomic_fetch_add(&board->next, WORK_CHUNK, __ATOMIC_RELAXED);
            slot->resume_end = slot->resume + WORK_CHUNK;
        }
        if (slot->resume >= count)
            return;
        slot->item = slot->resume++;
        run_item(board, options, slot->item);
        slot->item = UINT64_MAX;
    }
}

/* A worker that crashes has found something: note it and go on with the rest. */

static pid_t spawn_member(struct board *board, const struct options *options, struct slot *slot)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        run_worker(board, options, slot);
        _exit(0);
    }
    if (pid < 0) {
        perror("muster-sim: fork");
        exit(2);
    }
    return pid;
}

static bool note_end(struct board *board, const struct options *options, struct slot *slot,
                     int status)
{
    char what[64];

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    if (WIFSIGNALED(status))
        snprintf(what, sizeof(what), "crashed with signal %d", WTERMSIG(status));
    else
        snprintf(what, sizeof(what), "ended with exit code %d", WEXITSTATUS(status));
    if (slot->item == UINT64_MAX)
        slot->item = slot->resume;
    add_failure(board, options, slot->item, what);
    __atomic_fetch_add(&board->seeds, 1, __ATOMIC_RELAXED);
    slot->item = UINT64_MAX;
    return true;
}

static void run_all(struct board *board, const struct options *options)
{
    pid_t pids[JOBS_MAX];
    uint32_t running = options->jobs, i;

    for (i = 0; i < options->jobs; i++) {
        board->slots[i].item = UINT64_MAX;
        pids[i] = spawn_member(board, options, &board->slots[i]);
    }
    while (running > 0) {
        int status = 0;
        pid_t pid = wait(&status);

        if (pid < 0 && errno != EINTR)
            return;
        for (i = 0; i < options->jobs; i++) {
            if (pids[i] != pid)
                continue;
            pids[i] = 0;
            running--;
            if (note_end(board, options, &board->slots[i], status)) {
                pids[i] = spawn_member(board, options, &board->slots[i]);
                running++;
            }
        }
    }
}

/* Saying what came out. */

static void print_json_text(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            printf("\\u%04x", (unsigned)*text);
        else
            putchar(*text);
    }
}

static uint64_t kept_failures(const struct board *board)
{
    return board->failure_count < FAILURES_MAX ? board->failure_count : FAILURES_MAX;
}

static void print_command(const struct failure *failure)
{
    printf("build/bin/muster-sim --seeds %" PRIu64 "..%" PRIu64 " --profile %s --trace",
           failure->seed, failure->seed, failure->profile);
}

static void print_json(const struct board *board, const struct options *options)
{
    uint64_t i;

    printf("{\"sim\":\"%s\",\"seeds\":%" PRIu64 ",\"faults\":%" PRIu64 ",\"events\":%" PRIu64
           ",\"failure_count\":%" PRIu64 ",\"failures\":[",
           options->profile != NULL ? options->profile->group : "membership", board->seeds,
           board->faults, board->events, board->failure_count);
    for (i = 0; i < kept_failures(board); i++) {
        const struct failure *failure = &board->failures[i];

        printf("%s{\"seed\":%" PRIu64 ",\"profile\":\"%s\",\"what\":\"", i > 0 ? "," : "",
               failure->seed, failure->profile);
        print_json_text(failure->what);
        printf("\",\"command\":\"");
        print_command(failure);
        printf("\"}");
    }
    printf("]}\n");
}

static void print_text(const struct board *board)
{
    uint64_t i;

    for (i = 0; i < kept_failures(board); i++) {
        const struct failure *failure = &board->failures[i];

        printf("FAILED seed %" PRIu64 " of %s: %s\n  ", failure->seed, failure->profile,
               failure->what);
        print_command(failure);
        printf("\n");
    }
    printf("%" PRIu64 " seeds, %" PRIu64 " faults, %" PRIu64 " events, %" PRIu64 " failures\n",
           board->seeds, board->faults, board->events, board->failure_count);
}

static int write_trace(const struct options *options)
{
    uint64_t item;
    int rc = 0;

    for (item = 0; item < item_count(options); item++) {
        const struct sim_profile *profile = item_profile(options, item);
        struct sim_run run = {.seed = item_seed(options, item), .trace = stdout, .fill = 0xA5};

        printf("== seed %" PRIu64 ", profile %s\n", run.seed, profile->name);
        profile->run(&run, profile);
        printf("== hash %016" PRIx64 ", %" PRIu64 " events, %" PRIu64 " faults: %s\n", run.hash,
               run.events, run.faults, run.failure[0] != '\0' ? run.failure : "no failure");
        rc |= run.failure[0] != '\0';
    }
    return rc;
}

/* The command line. */

static const char usage_text[] =
    "usage: muster-sim --seeds A..B [--profile NAME] [--once] [--json] [--trace] [--jobs N]\n"
    "       muster-sim --list\n"
    "  --seeds A..B    seeds to run, each twice (also A alone)\n"
    "  --once          run each seed once: does not look whether two runs are equal\n"
    "  --profile NAME  one profile instead of all\n"
    "  --json          one JSON object on standard output\n"
    "  --trace         print every event (one seed, one run)\n"
    "  --jobs N        processes (default: number of cores)\n"
    "  --list          print the profiles\n"
    "exit code: 0 no failure, 1 failures, 2 wrong usage\n";

static int refuse_option(const char *what, const char *text)
{
    fprintf(stderr, "muster-sim: %s: %s\n%s", what, text, usage_text);
    return 2;
}

static bool parse_seeds(const char *text, struct options *options)
{
    char *end = NULL;

    errno = 0;
    options->first = options->last = strtoull(text, &end, 10);
    if (end == text || errno != 0)
        return false;
    if (strncmp(end, "..", 2) == 0) {
        const char *second = end + 2;

        options->last = strtoull(second, &end, 10);
        if (end == second || errno != 0)
            return false;
    }
    return *end == '\0' && options->last >= options->first;
}

static void list_profiles(void)
{
    size_t i;

    for (i = 0; sim_profile_at(i) != NULL; i++)
        printf("%-18s %s\n", sim_profile_at(i)->name, sim_profile_at(i)->text);
}

/* -1: go on; else the exit code. */
static int parse_arguments(int argc, char **argv, struct options *options)
{
    static const struct option flags[] = {
        {"seeds", required_argument, NULL, 's'},
        {"profile", required_argument, NULL, 'p'},
        {"json", no_argument, NULL, 'j'},
        {"trace", no_argument, NULL, 't'},
        {"jobs", required_argument, NULL, 'n'},
        {"list", no_argument, NULL, 'l'},
        {"once", no_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool has_seeds = false;
    int flag;

    while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
        switch (flag) {
        case 's':
            if (!parse_seeds(optarg, options))
                return refuse_option("not a range of seeds", optarg);
            has_seeds = true;
            break;
        case 'p':
            options->profile = sim_profile_find(optarg);
            if (options->profile == NULL)
                return refuse_option("no such profile (see --list)", optarg);
            break;
        case 'j':
            options->is_json = true;
            break;
        case 't':
            options->is_trace = true;
            break;
        case 'o':
            options->is_once = true;
            break;
        case 'n':
            options->jobs = (uint32_t)strtoul(optarg, NULL, 10);
            if (options->jobs == 0 || options->jobs > JOBS_MAX)
                return refuse_option("not a number of jobs", optarg);
            break;
        case 'l':
            list_profiles();
            return 0;
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        default:
            fputs(usage_text, stderr);
            return 2;
        }
    }
    if (optind < argc)
        return refuse_option("unexpected argument", argv[optind]);
    return has_seeds ? -1 : refuse_option("missing", "--seeds A..B");
}

int main(int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.jobs = cores < 1          ? 1
                                      : cores > JOBS_MAX ? JOBS_MAX
                                                         : (uint32_t)cores};
    struct board *board;
    int rc = parse_arguments(argc, argv, &options);

    if (rc >= 0)
        return rc;
    if (options.is_trace)
        return write_trace(&options);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("muster-sim: mmap");
        return 2;
    }
    run_all(board, &options);
    if (options.is_json)
        print_json(board, &options);
    else
        print_text(board);
    return board->failure_count > 0 ? 1 : 0;
}
