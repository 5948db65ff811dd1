/* muster bench scale: the plans of an all-reduce among many members, played through a model.
 *
 * For each number of members and size it plays every algorithm that can run it, and marks the one
 * that the parameters would choose. model.c has the model; this file has the options and prints. */
#include "bench/bench.h"
#include "bench/list.h"
#include "bench/model.h"

#include <muster/env.h>

#include "common/command.h"
#include "common/output.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX  4096u             /* as many workers as a job may have */
#define MESSAGES_MAX UINT64_C(6000000) /* of one plan: seconds of work, and memory for its events */
/* In a direct plan every member keeps the inputs of all. */
#define DIRECT_BYTES_MAX (4u << 20)

struct settings {
    const char *members, *bytes, *algorithm;
    uint64_t ranks_per_host;
    double latency_us, local_latency_us, overhead_us, gbps, local_gbps;
    const char *tune_file;
    bool is_json;
};

#define FIELD(name) .offset = offsetof(struct settings, name)

static const struct muster_option rows[] = {
    {.name = "ranks",
     .letter = 'n',
     .kind = MUSTER_OPTION_TEXT,
     FIELD(members),
     .fallback = "4,8,16,64,256,1024",
     .value = "A,B,…",
     .help = "Numbers of members, from 2."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_TEXT,
     FIELD(bytes),
     .fallback = "4K,64K,1M,64M",
     .value = "A,B,…",
     .help = "Sizes of the tensor (f32)."},
    {.name = "algorithm",
     .kind = MUSTER_OPTION_CHOICE,
     FIELD(algorithm),
     .fallback = "all",
     .choices = "all|auto|direct|ring|halving|double_tree|blocks|two_level",
     .help = "Plans to simulate."},
    {.name = "ranks-per-host",
     .kind = MUSTER_OPTION_NUMBER,
     FIELD(ranks_per_host),
     .fallback = "1",
     .min = 1,
     .max = MEMBERS_MAX,
     .help = "Members that share a host and its port."},
    {.name = "latency-us",
     .kind = MUSTER_OPTION_REAL,
     FIELD(latency_us),
     .fallback = "10",
     .help = "Latency between hosts per message, in µs."},
    {.name = "gbps",
     .kind = MUSTER_OPTION_REAL,
     FIELD(gbps),
     .fallback = "100",
     .help = "Bandwidth of a host's port in each direction, in Gbit/s."},
    {.name = "overhead-us",
     .kind = MUSTER_OPTION_REAL,
     FIELD(overhead_us),
     .fallback = "1",
     .help = "Sender overhead per message, in µs."},
    {.name = "local-latency-us",
     .kind = MUSTER_OPTION_REAL,
     FIELD(local_latency_us),
     .fallback = "1",
     .help = "Latency within a host per message, in µs."},
    {.name = "local-gbps",
     .kind = MUSTER_OPTION_REAL,
     FIELD(local_gbps),
     .fallback = "200",
     .help = "Bandwidth of a member within its host in each direction, in Gbit/s."},
    {.name = "tune-file",
     .kind = MUSTER_OPTION_TEXT,
     FIELD(tune_file),
     .value = "FILE",
     .help = "Choose algorithms by this table instead of the built-in one."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     FIELD(is_json),
     .help = "Print one JSON object per plan."},
};

const struct muster_options bench_scale_options = {
    .command = "muster bench scale",
    .usage = "[-n A,B,…] [--bytes A,B,…] [--ranks-per-host R] [--latency-us L] [--gbps G] [--json]",
    .about = "Simulate the plans of an all-reduce among up to 4,096 members with a model of a "
             "network: a message of b bytes occupies its sender's port for overhead + b / "
             "bandwidth, reaches the receiver one latency later and occupies its port for b / "
             "bandwidth; the members of a host share its port. Adding costs nothing. The bound is "
             "the larger of one latency + log2(hosts) overheads and the time of 2 (hosts - 1) / "
             "hosts of the bytes through one port; no plan can be faster.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static void print_result(const struct settings *settings, const struct bench_model *model,
                         const struct bench_model_result *result, bool is_auto)
{
    const char *name = muster_algorithm_name(result->algorithm);
    uint32_t hosts = (model->n + model->ranks_per_host - 1) / model->ranks_per_host;

    if (settings->is_json)
        printf("{\"bench\":\"scale\",\"n\":%u,\"hosts\":%u,\"ranks_per_host\":%u,\"bytes\":%llu,"
               "\"algorithm\":\"%s\",\"is_auto\":%s,\"time_us\":%.2f,\"bound_us\":%.2f,"
               "\"times_bound\":%.3f,\"messages\":%llu,\"bytes_per_rank_max\":%llu,"
               "\"latency_us\":%.3f,\"gbps\":%.0f,\"overhead_us\":%.3f}\n",
               model->n, hosts, model->ranks_per_host, (unsigned long long)model->bytes, name,
               is_auto ? "true" : "false", result->time_us, result->bound_us,
               result->time_us / result->bound_us, (unsigned long long)result->messages,
               (unsigned long long)result->bytes_per_rank_max, model->latency_us, model->gbps,
               model->overhead_us);
    else
        printf("n %4u on %4u hosts  %10llu bytes  %-11s %c %12.1f us  %8.2f times the bound\n",
               model->n, hosts, (unsigned long long)model->bytes, name, is_auto ? '*' : ' ',
               result->time_us, result->time_us / result->bound_us);
}

static bool is_possible(const struct bench_model *model)
{
    return model->algorithm != MUSTER_ALGORITHM_DIRECT || model->bytes <= DIRECT_BYTES_MAX;
}

/* Each pair of members exchanges two messages per chunk; too many to play are left out. */
static bool is_too_much(const struct bench_model *model)
{
    uint64_t chunks = 1 + model->bytes / (16u << 20);

    return model->algorithm == MUSTER_ALGORITHM_BLOCKS &&
           2 * chunks * model->n * model->n > MESSAGES_MAX;
}

/* False: it has failed. What an algorithm cannot run is left out. */
static bool play_plan(const struct settings *settings, struct bench_model *model,
                      enum muster_algorithm chosen)
{
    struct bench_model_result result;
    struct muster_error error;
    enum muster_rc rc;

    if (model->algorithm != chosen && (is_too_much(model) || !is_possible(model)))
        return true;
    rc = bench_model_run(muster_mem_system(), model, &result, &error);
    if (rc == MUSTER_OK)
        print_result(settings, model, &result, result.algorithm == chosen);
    else
        fprintf(stderr, "muster bench scale: %s\n", error.text);
    return rc == MUSTER_OK && output_flush();
}

static bool play_all(const struct settings *settings, struct bench_model *model)
{
    enum muster_algorithm chosen = bench_model_choose(model), only;

    if (muster_algorithm_parse(settings->algorithm, &only)) {
        model->algorithm = only == MUSTER_ALGORITHM_AUTO ? chosen : only;
        return play_plan(settings, model, chosen);
    }
    for (int a = MUSTER_ALGORITHM_DIRECT; a <= MUSTER_ALGORITHM_TWO_LEVEL; a++) {
        model->algorithm = (enum muster_algorithm)a;
        if (!play_plan(settings, model, chosen))
            return false;
    }
    return true;
}

static const struct bench_list_rule member_rule = {
    .command = "muster bench scale", .option = "--ranks", .min = 2, .max = MEMBERS_MAX};
static const struct bench_list_rule size_rule = {.command = "muster bench scale",
                                                 .option = "--bytes",
                                                 .is_sizes = true,
                                                 .min = 4,
                                                 .max = UINT64_C(1) << 40};

/* Real numbers have no bounds in the table of options. */
static bool are_speeds(const struct settings *settings)
{
    const struct {
        const char *option;
        double value;
        bool can_be_zero;
    } numbers[] = {{"--latency-us", settings->latency_us, true},
                   {"--overhead-us", settings->overhead_us, true},
                   {"--local-latency-us", settings->local_latency_us, true},
                   {"--gbps", settings->gbps, false},
                   {"--local-gbps", settings->local_gbps, false}};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value > 0 || (numbers[i].value == 0 && numbers[i].can_be_zero))
            continue;
        command_refuse(bench_scale_options.command, "%s must be %s, got %g", numbers[i].option,
                       numbers[i].can_be_zero ? "at least 0" : "more than 0", numbers[i].value);
        return false;
    }
    return true;
}

int bench_scale(int argc, char **argv)
{
    struct settings settings = {.members = NULL};
    struct bench_model model = {.n = 0};
    struct bench_list members, sizes;
    struct muster_error error;
    bool is_ok = true;
    int exit_code = EXIT_OK;

    if (!command_parse_all(&bench_scale_options, argc, argv, &settings, &exit_code))
        return exit_code;
    if (!bench_list_parse(&member_rule, settings.members, &members) ||
        !bench_list_parse(&size_rule, settings.bytes, &sizes))
        return EXIT_USAGE;
    if (settings.tune_file != NULL &&
        muster_plan_parameters_read(muster_files_system(), muster_mem_system(), settings.tune_file,
                                    &model.parameters, &error) != MUSTER_OK) {
        fprintf(stderr, "muster bench scale: --tune-file %s\n", error.text);
        return EXIT_USAGE;
    }
    if (!are_speeds(&settings))
        return EXIT_USAGE;
    model.ranks_per_host = (uint32_t)settings.ranks_per_host;
    model.latency_us = settings.latency_us;
    model.local_latency_us = settings.local_latency_us;
    model.overhead_us = settings.overhead_us;
    model.gbps = settings.gbps;
    model.local_gbps = settings.local_gbps;
    for (size_t i = 0; i < members.count && is_ok; i++)
        for (size_t k = 0; k < sizes.count && is_ok; k++) {
            model.n = (uint32_t)members.values[i];
            model.bytes = sizes.values[k];
            is_ok = play_all(&settings, &model);
        }
    return is_ok ? EXIT_OK : EXIT_OTHER;
}
