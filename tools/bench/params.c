/* muster bench params: pushes and pulls of many clients at one server, with and without kills. This
 * file: options, the course of a run, its result. */
#include "bench/params.h"

#include "bench/bench.h"
#include "bench/meet.h"
#include "common/command.h"
#include "common/output.h"
#include "serve/serve.h"

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
#define GRPC_CALL_BYTES_MAX ((uint64_t)16 << 20) /* of values (muster.params.v1) */

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
     .help = "What a call does; push_pull: it pushes rows and gets them back, and each of them counts twice."},
    {.name = "rows",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, rows),
     .fallback = "100000",
     .min = 1,
     .max = (uint64_t)1 << 32,
     .help = "Rows, all of them made before the load; their keys are drawn evenly. Rows that are many more "
             "than the processor caches, such as 16000000, show how fast cold ones are."},
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
     .max = BENCH_SERVERS_MAX,
     .help = "Servers that hold each row, all on this host, with a registry of their own."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_params_settings, wire),
     .fallback = "auto",
     .choices = "auto|tcp|shm|grpc",
     .help = "grpc: calls of muster.params.v1; else links, through memory of the host for shm, and for auto where "
             "that can be. For these two, rows are also read from the server's memory, beside the load, for half "
             "of --seconds."},
    {.name = "bulk-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct bench_params_settings, bulk_bytes),
     .fallback = "0",
     .unit = "bytes",
     .max = (uint64_t)1 << 32,
     .help = "Instead of small rows: calls of so many bytes, all of a tensor (with --wire grpc or --mix "
             "push_pull in rows of 64 KiB); beside them iperf3, where it is installed. At most 16M with --wire grpc."},
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
    {.name = "cut-dir",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct bench_params_settings, cut_dir),
     .value = "DIR",
     .help = "Cut to this folder in the middle of the load; tells the longest "
             "time without an answer, with the cut and without."},
    {.name = "rate",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_params_settings, rate),
     .fallback = "0",
     .max = UINT64_C(1000000000),
     .help = "Rows per second of all clients, whether or not the server keeps up: a call is measured from "
             "when it is due. 0: as fast as they are answered."},
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
     .help = "The server on processor 0, the clients on processor 1; of two servers one on each, and the "
             "clients on both."},
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

/* Does not return in the child, which ends with this process. */
static pid_t child_fork(void)
{
    pid_t parent = getpid(), child;

    fflush(NULL);
    child = fork();
    if (child != 0)
        return child;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_OTHER);
    return 0;
}

static bool keeper_start(struct bench_params *bench, uint32_t i)
{
    pid_t child = child_fork();

    bench->keepers[i] = child;
    if (child != 0)
        return child > 0;
    if (bench->settings->is_bound)
        bench_bind(i % 2 == 0 ? BENCH_SERVER_PROCESSOR : BENCH_LOAD_PROCESSOR);
    if (freopen("/dev/null", "w", stdout) == NULL ||
        (bench->settings->kills > 0 && freopen("/dev/null", "w", stderr) == NULL))
        _exit(EXIT_OTHER);
    _exit(keeper_run(&bench->seats[i].keeper));
}

static int child_stop(pid_t child)
{
    int status = 0;

    if (child <= 0)
        return EXIT_OTHER;
    (void)kill(child, SIGTERM);
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_OTHER;
}

/* Its ready line tells its address. */
static bool registry_start(struct bench_params *bench)
{
    char name[] = "registry", option[] = "--listen=127.0.0.1:0", level[] = "--log-level=error";
    char *words[] = {name, option, level, NULL};
    int ends[2];
    FILE *lines;
    bool is_ready;

    if (pipe(ends) != 0)
        return false;
    bench->registry = child_fork();
    if (bench->registry == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        _exit(command_registry(3, words));
    }
    close(ends[1]);
    lines = fdopen(ends[0], "r");
    is_ready = lines != NULL && fscanf(lines, "listening %159s", bench->registry_address) == 1;
    if (lines != NULL)
        fclose(lines);
    return is_ready;
}

static bool seats_open(struct bench_params *bench, const struct params_seat_settings *one,
                       struct muster_error *ret_error)
{
    struct params_seat_settings settings = *one;
    size_t length = 0;

    bench->server_count = (uint32_t)bench->settings->replicas;
    if (bench->server_count > 1 && !registry_start(bench)) {
        muster_error_set(ret_error, MUSTER_UNAVAILABLE, "a registry cannot be started");
        return false;
    }
    settings.replicas = settings.expected = bench->server_count;
    if (bench->server_count > 1) {
        settings.registry = bench->registry_address;
        settings.job = BENCH_JOB;
        settings.drain_ns = MUSTER_NS_PER_S;
    }
    for (uint32_t i = 0; i < bench->server_count; i++) {
        char text[MUSTER_ADDRESS_TEXT_BYTES];

        if (params_seat_open(&bench->seats[i], &settings, ret_error) != MUSTER_OK)
            return false;
        muster_address_format(&bench->seats[i].address, text);
        length += (size_t)snprintf(bench->servers + length, sizeof(bench->servers) - length,
                                   "%s%s", i > 0 ? "," : "", text);
    }
    return true;
}

/* --- The result --- */

/* All runs have the same keys: null where a number does not apply, or was not measured. */
static void number_print(const char *key, bool has, int digits, double number)
{
    if (has)
        printf(",\"%s\":%.*f", key, digits, number);
    else
        printf(",\"%s\":null", key);
}

static void bulk_print(const struct bench_params *bench, double rows_per_s)
{
    double rate = rows_per_s * BULK_ROW_BYTES / 1e9;
    bool is_bulk = bench->settings->bulk_bytes > 0;

    number_print("bulk_gb_per_s", is_bulk, 3, rate);
    number_print("bulk_gbps", is_bulk, 3, rate * 8);
    number_print("iperf3_gb_per_s", bench->iperf3_gb_per_s > 0, 3, bench->iperf3_gb_per_s);
}

static void stalls_print(struct bench_params *bench)
{
    struct bench_samples *stalls = &bench->stalls_ms;

    if (bench->kill_count == 0) {
        printf(",\"stall_ms\":null");
        return;
    }
    printf(",\"stall_ms\":{\"median\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"max\":%.2f}",
           bench_samples_quantile(stalls, 0.5), bench_samples_quantile(stalls, 0.9),
           bench_samples_quantile(stalls, 0.99), bench_samples_quantile(stalls, 1));
}

static const char *wire_name(const struct bench_params *bench)
{
    if (bench->wire != NULL)
        return bench->wire->name;
    if (bench->memory_most == 0)
        return "tcp";
    return bench->memory_least == bench->settings->clients ? "shm" : "both";
}

static void result_print(struct bench_params *bench)
{
    const struct bench_params_settings *settings = bench->settings;
    double seconds = (double)settings->duration_ns / 1e9;
    double push = (double)bench->pushed_in_time / seconds;
    double pull = (double)bench->pulled_in_time / seconds;

    printf("{\"bench\":\"params\",\"clients\":%" PRIu64 ",\"value_bytes\":%" PRIu64
           ",\"batch\":%" PRIu64 ",\"depth\":%" PRIu64 ",\"mix\":\"%s\",\"rows\":%" PRIu64
           ",\"replicas\":%u,\"wire\":\"%s\",\"optimizer\":\"%s\",\"rate\":%" PRIu64
           ",\"seed\":%" PRIu64,
           settings->clients, settings->value_bytes, settings->batch, settings->depth,
           settings->mix, settings->rows, bench->server_count, wire_name(bench),
           settings->optimizer, settings->rate, settings->seed);
    printf(",\"ops_per_s\":%.0f,\"push_ops_per_s\":%.0f,\"pull_ops_per_s\":%.0f", push + pull, push,
           pull);
    number_print("ops_per_server_cpu_s", bench->cpu_s > 0, 0,
                 (push + pull) * seconds / bench->cpu_s);
    printf(",\"p50_us\":%.1f,\"p99_us\":%.1f", bench_samples_quantile(&bench->latencies_us, 0.5),
           bench_samples_quantile(&bench->latencies_us, 0.99));
    number_print("peek_ops_per_s", bench->peek_ns > 0, 0,
                 (double)bench->peeked_rows * 1e9 / (double)bench->peek_ns);
    number_print("torn", bench->peek_ns > 0, 0, (double)bench->torn);
    bulk_print(bench, push + pull);
    printf(",\"kills\":%" PRIu64, bench->kill_count);
    stalls_print(bench);
    bench_params_cut_print(bench);
    printf(",\"pushed\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"doubled\":%" PRIu64
           ",\"digest\":\"%s\"}\n",
           bench->pushed_rows, bench->lost, bench->doubled, bench->digest);
}

/* A rate of nothing says nothing of the server. */
static bool result_check(const struct bench_params *bench)
{
    if (bench->pushed_in_time + bench->pulled_in_time > 0)
        return true;
    fprintf(stderr, "muster bench params: no call ended within %.3g s; give more --seconds\n",
            (double)bench->settings->duration_ns / 1e9);
    return false;
}

static uint32_t memory_count(const struct bench_params *bench)
{
    uint32_t count = 0;

    for (uint64_t i = 0; bench->wire == NULL && i < bench->settings->clients; i++)
        count += muster_params_is_by_memory(bench->clients[i].params);
    return count;
}

/* After a kill, clients come back by connections, and go back to memory a little later. */
static bool load_watch(struct bench_params *bench)
{
    uint32_t before = memory_count(bench), behind;

    if (before == 0 && strcmp(bench->settings->wire, "shm") == 0) {
        fprintf(stderr, "muster bench params: clients cannot talk to the server through memory\n");
        return false;
    }
    if (!bench_params_load(bench))
        return false;
    behind = memory_count(bench);
    bench->memory_least = before < behind ? before : behind;
    bench->memory_most = before > behind ? before : behind;
    return true;
}

static int params_measure(struct bench_params *bench)
{
    bool is_good = bench_params_connect(bench) && bench_params_fill(bench) &&
                   load_watch(bench) && bench_params_peek(bench) && bench_params_verify(bench) && result_check(bench);

    if (is_good && bench->settings->bulk_bytes > 0)
        bench_params_beside(bench);

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

    for (uint32_t i = 0; i < bench->server_count; i++) {
        if (!keeper_start(bench, i)) {
            fprintf(stderr, "muster bench params: the server cannot be started\n");
            return EXIT_OTHER;
        }
    }
    if (bench->settings->is_bound && bench->server_count == 1)
        bench_bind(BENCH_LOAD_PROCESSOR);
    if (muster_env_system_open(NULL, &bench->env) == MUSTER_OK &&
        muster_net_system_open(bench->env, &bench->env->net) == MUSTER_OK) {
        code = params_measure(bench);
        muster_net_system_close(bench->env->net);
    }
    muster_env_system_close(bench->env);
    for (uint32_t i = 0; i < bench->server_count; i++) {
        if (child_stop(bench->keepers[i]) != EXIT_OK && code == EXIT_OK) {
            fprintf(stderr, "muster bench params: the server did not end in order\n");
            code = EXIT_OTHER;
        }
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
    if (settings.kills > 0 && strcmp(settings.wire, "grpc") == 0)
        return command_refuse(bench_params_options.command,
                              "--kills need clients that repeat their calls, got --wire grpc; take another --wire");
    if (settings.bulk_bytes > 0) {
        settings.value_bytes = BULK_ROW_BYTES;
        settings.batch = settings.rows = settings.bulk_bytes / BULK_ROW_BYTES;
    }
    if (strcmp(settings.wire, "grpc") == 0 && settings.batch * settings.value_bytes > GRPC_CALL_BYTES_MAX)
        return command_refuse(bench_params_options.command,
                              "%s must be at most 16M with --wire grpc, where a call is one message, got %" PRIu64,
                              settings.bulk_bytes > 0 ? "--bulk-bytes" : "--batch times --value-bytes",
                              settings.batch * settings.value_bytes);
    if (!command_has_files(bench_params_options.command, FILES_BASE + settings.clients))
        return EXIT_OTHER;
    bench.elements = (uint32_t)(settings.value_bytes / sizeof(float));
    bench.rows_per_batch = (uint32_t)settings.batch;
    bench.random = settings.seed;
    bench.wire = strcmp(settings.wire, bench_params_grpc.name) == 0 ? &bench_params_grpc : NULL;
    bench.kind = strcmp(settings.mix, "push") == 0   ? BENCH_PUSH
                 : strcmp(settings.mix, "pull") == 0 ? BENCH_PULL
                                                     : BENCH_PUSH_PULL;
    bench.is_tensor = settings.bulk_bytes > 0 && bench.wire == NULL && bench.kind != BENCH_PUSH_PULL;
    if (settings.replicas > 1 && strcmp(settings.wire, "shm") == 0 && !bench.is_tensor)
        return command_refuse(
            bench_params_options.command,
            "--wire shm needs --replicas 1, got %" PRIu64
            ": rows that have replicas are not read from a server's memory, since "
            "its death may still undo them; take --wire auto",
            settings.replicas);
    seat.memory_max = settings.memory_max;
    code = seats_open(&bench, &seat, &error) ? params_run(&bench)
                                             : command_fail("bench params", &error);
    for (uint32_t i = 0; i < bench.server_count; i++)
        params_seat_close(&bench.seats[i]);
    if (bench.registry > 0)
        (void)child_stop(bench.registry);
    free(bench.latencies_us.at);
    free(bench.stalls_ms.at);
    return code;
}
