/* muster bench tune: every algorithm at every size and number of processes; the fastest make a
 * table.
 *
 * Each measurement is a `muster bench allreduce` of its own, so that no state of one is left to the
 * next. The table is written when all are done, but the file is opened first: a wrong path must not
 * cost the minutes of measuring. */
#include "bench/bench.h"

#include <muster/env.h>
#include <muster/json.h>
#include <muster/view.h>

#include "bench/allreduce.h"
#include "bench/list.h"
#include "bench/tune.h"
#include "common/command.h"
#include "common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define TEXT_BYTES 8192

struct settings {
    const char *members, *bytes, *out;
    uint64_t iterations;
};

#define FIELD(name) .offset = offsetof(struct settings, name)

static const struct muster_option rows[] = {
    {.name = "ranks",
     .letter = 'n',
     .kind = MUSTER_OPTION_TEXT,
     FIELD(members),
     .fallback = "2,4",
     .value = "A,B,…",
     .help = "Numbers of processes."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_TEXT,
     FIELD(bytes),
     .fallback = "1K,8K,64K,256K,1M,4M,16M,64M",
     .value = "A,B,…",
     .help = "Sizes of the tensor."},
    {.name = "iters",
     .kind = MUSTER_OPTION_NUMBER,
     FIELD(iterations),
     .fallback = "20",
     .min = 1,
     .max = 100000,
     .help = "Measured operations per size and algorithm."},
    {.name = "out",
     .kind = MUSTER_OPTION_TEXT,
     FIELD(out),
     .value = "FILE",
     .help = "Write the table to this file instead of standard output."},
};

const struct muster_options bench_tune_options = {
    .command = "muster bench tune",
    .usage = "[-n A,B,…] [--bytes A,B,…] [--out FILE]",
    .about = "Time the all-reduce of each algorithm between processes of this machine over TCP, "
             "and write a table of the fastest algorithm by number of processes and size, for "
             "'muster run --tune-file FILE'. Run nothing else meanwhile.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static const enum muster_algorithm candidates[] = {
    MUSTER_ALGORITHM_DIRECT, MUSTER_ALGORITHM_BLOCKS, MUSTER_ALGORITHM_HALVING,
    MUSTER_ALGORITHM_DOUBLE_TREE, MUSTER_ALGORITHM_RING};

#define CANDIDATE_COUNT (sizeof(candidates) / sizeof(candidates[0]))

/* --- Measuring --- */

static bool own_path(char *ret_path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", ret_path, size - 1);

    if (length < 0)
        return false;
    ret_path[length] = '\0';
    return true;
}

/* Take one line of `muster bench allreduce --json`. A line of another algorithm is skipped: the one
 * asked for could not run that size. False: it is not JSON. */
static bool take_line(struct bench_tune_set *set, enum muster_algorithm algorithm, const char *line)
{
    struct muster_json *json = NULL;
    struct muster_error error;
    const char *name;

    if (muster_json_parse(line, strlen(line), &json, &error) != MUSTER_OK)
        return false;
    name = muster_json_text(muster_json_member(json, "algorithm"));
    if (name != NULL && strcmp(name, muster_algorithm_name(algorithm)) == 0) {
        double median_us = muster_json_number(muster_json_member(json, "median_us"));
        uint64_t bytes = (uint64_t)muster_json_integer(muster_json_member(json, "bytes"));

        (void)bench_tune_add(set, bytes, algorithm, median_us);
        fprintf(stderr, "n %u  %10llu bytes  %-11s %10.1f us\n", set->n, (unsigned long long)bytes,
                name, median_us);
    }
    muster_json_free(json);
    return true;
}

/* False: it could not be started, or has failed. */
static bool measure_all(const struct settings *settings, struct bench_tune_set *set,
                        enum muster_algorithm algorithm)
{
    char path[1024], command[2048], line[LINE_BYTES];
    bool is_ok = true;
    FILE *output;

    if (!own_path(path, sizeof(path)))
        return false;
    snprintf(command, sizeof(command),
             "'%s' bench allreduce --json --wire tcp -n %u --bytes %s --iters %llu --algorithm %s",
             path, set->n, settings->bytes, (unsigned long long)settings->iterations,
             muster_algorithm_name(algorithm));
    output = popen(command, "r");
    if (output == NULL)
        return false;
    while (fgets(line, sizeof(line), output) != NULL)
        is_ok = take_line(set, algorithm, line) && is_ok;
    return pclose(output) == 0 && is_ok;
}

/* --- The table --- */

/* Append mode creates the file without emptying one that is there: a run that fails keeps the old
 * table. */
static FILE *open_table(const struct settings *settings)
{
    FILE *file = settings->out != NULL ? fopen(settings->out, "ae") : stdout;

    if (file == NULL)
        fprintf(stderr, "muster bench tune: --out %s: %s\n", settings->out, strerror(errno));
    return file;
}

static bool write_table(const struct settings *settings, FILE *file, struct bench_tune_set *sets,
                        size_t count)
{
    struct muster_plan_parameters parameters = {.chunk_bytes = 0};
    char text[TEXT_BYTES];

    bench_tune_make(sets, count, &parameters);
    (void)muster_plan_parameters_format(&parameters, text, sizeof(text));
    if (file != stdout)
        (void)!ftruncate(fileno(file), 0); /* a device has no length */
    fprintf(file, "# muster bench tune -n %s --bytes %s\n%s", settings->members, settings->bytes,
            text);
    if (file == stdout)
        return output_flush();
    if (fflush(file) == 0 && fclose(file) == 0)
        return true;
    fprintf(stderr, "muster bench tune: --out %s: %s\n", settings->out, strerror(errno));
    return false;
}

static const struct bench_list_rule member_rule = {.command = "muster bench tune",
                                                   .option = "--ranks",
                                                   .min = 2,
                                                   .max = 64,
                                                   .count_max = BENCH_TUNE_MEMBERS_MAX};
static const struct bench_list_rule size_rule = {.command = "muster bench tune",
                                                 .option = "--bytes",
                                                 .is_sizes = true,
                                                 .min = 4,
                                                 .max = BENCH_BYTES_MAX,
                                                 .multiple = sizeof(float)};

int bench_tune(int argc, char **argv)
{
    struct bench_tune_set sets[BENCH_TUNE_MEMBERS_MAX] = {{.n = 0}};
    struct settings settings = {.members = NULL};
    int exit_code = EXIT_OK;
    struct bench_list members, sizes;
    FILE *file;
    size_t count;

    if (!command_parse_all(&bench_tune_options, argc, argv, &settings, &exit_code))
        return exit_code;
    if (!bench_list_parse(&member_rule, settings.members, &members) ||
        !bench_list_parse(&size_rule, settings.bytes, &sizes))
        return EXIT_USAGE;
    count = members.count;
    for (size_t i = 0; i < count; i++)
        sets[i].n = (uint32_t)members.values[i];
    file = open_table(&settings);
    if (file == NULL)
        return EXIT_BAD_INPUT;
    for (size_t i = 0; i < count; i++)
        for (size_t a = 0; a < CANDIDATE_COUNT; a++)
            if (!measure_all(&settings, &sets[i], candidates[a])) {
                fprintf(stderr, "muster bench tune: `muster bench allreduce` has failed\n");
                return EXIT_OTHER;
            }
    return write_table(&settings, file, sets, count) ? EXIT_OK : EXIT_OTHER;
}
