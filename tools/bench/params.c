/* muster bench params: pushes and pulls of many clients at one server, with and without kills. This
 * file: options, the course of a run, its result. */
#include "bench/params.h"

#include "bench/bench.h"
#include "bench/meet.h"
#include "common/command.h"
#include "common/output.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/stream.h>

#define FILES_BASE      32u
#define BULK_ROW_BYTES  65536u
#define SERVER_PROCESSOR 0u
#define LOAD_PROCESSOR   1u

static const struct muster_option rows[] = {
    {.name = "clients",
     .letter = 'c',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, clients),
     .fallback = "8",
     .min = 1,
     .max = 100000,
     .help = "Connections, all in one process."},
    {.name = "value-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct bench_params_settings, value_bytes),
     .fallback = "64",
     .unit = "bytes",
     .min = 4,
     .max = MUSTER_PARAMS_ROW_BYTES_MAX,
     .help = "Bytes of a row's values (f32): a multiple of 4."},
    {.name = "batch",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, batch),
     .fallback = "64",
     .min = 1,
     .max = 65535,
     .help = "Rows of one call."},
    {.name = "depth",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, depth),
     .fallback = "16",
     .min = 1,
     .max = 65536,
     .help = "Calls of a client that are under way at a time."},
    {.name = "mix",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_params_settings, mix),
     .fallback = "push",
     .choices = "push|pull|push_pull",
     .help = "What the clients do; push_pull: by turns."},
    {.name = "rows",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, rows),
     .fallback = "100000",
     .min = 1,
     .max = (uint64_t)1 << 32,
     .help = "Keys that are drawn from, evenly."},
    {.name = "optimizer",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_params_settings, optimizer),
     .fallback = "add",
     .choices = "add|sgd|momentum|adagrad|row_adagrad|adam|ftrl",
     .help = "Of the table; with add the sums are checked at the end."},
    {.name = "replicas",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, replicas),
     .fallback = "1",
     .min = 1,
     .max = 1,
     .help = "Servers that hold each row."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_params_settings, wire),
     .fallback = "auto",
     .choices = "auto|tcp",
     .help = "Transport."},
    {.name = "bulk-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct bench_params_settings, bulk_bytes),
     .fallback = "0",
     .unit = "bytes",
     .max = (uint64_t)1 << 32,
     .help = "Instead of small rows: calls of so many bytes, in rows of 64 KiB."},
    {.name = "kills",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, kills),
     .fallback = "0",
     .max = 100000,
     .help = "SIGKILLs of the serving process in the middle of the load."},
    {.name = "kill-interval",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct bench_params_settings, kill_interval_ns),
     .fallback = "50ms",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "Mean time from the end of a stall to the next kill."},
    {.name = "rate",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, rate),
     .fallback = "0",
     .max = UINT64_C(1000000000),
     .help = "Rows per second of all clients; 0: as fast as they are answered."},
    {.name = "seconds",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct bench_params_settings, duration_ns),
     .fallback = "2",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "Time of the load; with --kills at least that."},
    {.name = "memory-max",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct bench_params_settings, memory_max),
     .fallback = "4G",
     .unit = "bytes",
     .min = (uint64_t)16 << 20,
     .max = (uint64_t)64 << 30,
     .help = "Memory of the server's tables."},
    {.name = "seed",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, seed),
     .fallback = "1",
     .min = 1,
     .help = "Of the keys."},
    {.name = "bind",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct bench_params_settings, is_bound),
     .help = "The server on processor 0, the clients on processor 1."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct bench_params_settings, is_json),
     .help = "The result as JSON."},
};

const struct muster_options bench_params_options = {
    .command = "muster bench params",
    .usage = "[--clients C] [--batch N] [--mix push|pull|push_pull] [--kills K]",
    .about = "Push to and pull from a server of parameters, and check that nothing was lost or "
             "doubled. An operation is one row.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* --- The server --- */

static bool keeper_start(struct bench_params *bench)
{
    pid_t parent = getpid();

    fflush(NULL);
    bench->keeper = fork();
    if (bench->keeper != 0)
        return bench->keeper > 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_OTHER);
    if (bench->settings->is_bound)
        bench_bind(SERVER_PROCESSOR);
    if (freopen("/dev/null", "w", stdout) == NULL ||
        (bench->settings->kills > 0 && freopen("/dev/null", "w", stderr) == NULL))
        _exit(EXIT_OTHER);
    _exit(keeper_run(&bench->seat.keeper));
}

static int keeper_stop(struct bench_params *bench)
{
    int status = 0;

    if (bench->keeper <= 0)
        return EXIT_OTHER;
    (void)kill(bench->keeper, SIGTERM);
    (void)waitpid(bench->keeper, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_OTHER;
}

/* --- The result --- */

static void result_print(struct bench_params *bench)
{
    const struct bench_params_settings *settings = bench->settings;
    double seconds = (double)settings->duration_ns / 1e9;
    double push = (double)bench->pushed_in_time / seconds;
    double pull = (double)bench->pulled_in_time / seconds;

    printf("{\"bench\":\"params\",\"clients\":%" PRIu64 ",\"value_bytes\":%" PRIu64
           ",\"batch\":%" PRIu64 ",\"depth\":%" PRIu64 ",\"mix\":\"%s\",\"rows\":%" PRIu64
           ",\"replicas\":1,\"wire\":\"tcp\",\"optimizer\":\"%s\",\"seed\":%" PRIu64,
           settings->clients, settings->value_bytes, settings->batch, settings->depth,
           settings->mix, settings->rows, settings->optimizer, settings->seed);
    printf(",\"ops_per_s\":%.0f,\"push_ops_per_s\":%.0f,\"pull_ops_per_s\":%.0f", push + pull, push,
           pull);
    if (bench->cpu_s > 0)
        printf(",\"ops_per_server_cpu_s\":%.0f", (push + pull) * seconds / bench->cpu_s);
    printf(",\"p50_us\":%.1f,\"p99_us\":%.1f", bench_samples_quantile(&bench->latencies_us, 0.5),
           bench_samples_quantile(&bench->latencies_us, 0.99));
    if (settings->bulk_bytes > 0)
        printf(",\"bulk_gb_per_s\":%.3f", (push + pull) * BULK_ROW_BYTES / 1e9);
    printf(",\"kills\":%" PRIu64, bench->kill_count);
    if (bench->kill_count > 0)
        printf(",\"stall_ms\":{\"median\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"max\":%.2f}",
               bench_samples_quantile(&bench->stalls_ms, 0.5),
               bench_samples_quantile(&bench->stalls_ms, 0.9),
               bench_samples_quantile(&bench->stalls_ms, 0.99),
               bench_samples_quantile(&bench->stalls_ms, 1));
    printf(",\"pushed\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"doubled\":%" PRIu64
           ",\"digest\":\"%s\"}\n",
           bench->pushed_rows, bench->lost, bench->doubled, bench->digest);
}

static int params_measure(struct bench_params *bench)
{
    bool is_good = bench_params_connect(bench) && bench_params_load(bench) &&
                   bench_params_verify(bench);

    if (is_good)
        result_print(bench);
    if (bench->lost > 0 || bench->doubled > 0)
        fprintf(stderr,
                "muster bench params: %" PRIu64 " pushes were lost, %" PRIu64 " were doubled\n",
                bench->lost, bench->doubled);
    bench_params_disconnect(bench);
    return is_good && bench->lost == 0 && bench->doubled == 0 && output_flush() ? EXIT_OK
                                                                                : EXIT_OTHER;
}

static int params_run(struct bench_params *bench)
{
    int code = EXIT_OTHER;

    if (!keeper_start(bench)) {
        fprintf(stderr, "muster bench params: the server cannot be started\n");
        return EXIT_OTHER;
    }
    if (bench->settings->is_bound)
        bench_bind(LOAD_PROCESSOR);
    if (muster_env_system_open(NULL, &bench->env) == MUSTER_OK &&
        muster_net_system_open(bench->env, &bench->env->net) == MUSTER_OK) {
        code = params_measure(bench);
        muster_net_system_close(bench->env->net);
    }
    muster_env_system_close(bench->env);
    if (keeper_stop(bench) != EXIT_OK && code == EXIT_OK) {
        fprintf(stderr, "muster bench params: the server did not end in order\n");
        code = EXIT_OTHER;
    }
    return code;
}

int bench_params(int argc, char **argv)
{
    struct bench_params_settings settings = {.mix = NULL};
    struct bench_params bench = {.settings = &settings};
    struct params_seat_settings seat = {.listen = "127.0.0.1:0",
                                        .shard_count = 256,
                                        .has_spare = true,
                                        .log_level = "warn",
                                        .log_format = "text"};
    struct muster_error error = {.rc = MUSTER_OK};
    int code = EXIT_OK;

    if (!command_parse_all(&bench_params_options, argc, argv, &settings, &code))
        return code;
    if (settings.value_bytes % sizeof(float) != 0)
        return command_refuse(bench_params_options.command,
                              "--value-bytes must be a multiple of 4, got %" PRIu64,
                              settings.value_bytes);
    if (settings.bulk_bytes % BULK_ROW_BYTES != 0)
        return command_refuse(bench_params_options.command,
                              "--bulk-bytes must be a multiple of 64K, got %" PRIu64,
                              settings.bulk_bytes);
    if (settings.bulk_bytes > 0) {
        settings.value_bytes = BULK_ROW_BYTES;
        settings.batch = settings.rows = settings.bulk_bytes / BULK_ROW_BYTES;
    }
    if (!command_has_files(bench_params_options.command, FILES_BASE + settings.clients))
        return EXIT_OTHER;
    bench.elements = (uint32_t)(settings.value_bytes / sizeof(float));
    bench.rows_per_batch = (uint32_t)settings.batch;
    bench.random = settings.seed;
    seat.memory_max = settings.memory_max;
    code = params_seat_open(&bench.seat, &seat, &error) == MUSTER_OK
               ? params_run(&bench)
               : command_fail("bench params", &error);
    params_seat_close(&bench.seat);
    free(bench.latencies_us.at);
    free(bench.stalls_ms.at);
    return code;
}
