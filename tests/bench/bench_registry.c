/* Puts per second of the embedded registry: a server process on one core, a client with a fixed
 * number in flight on another. One JSON line. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <muster/registry.h>
#include <muster/registry_server.h>
#include <muster/stream.h>

#include "bench_clock.h"
#include "tools/bench/meet.h"

#define IN_FLIGHT_MAX 1024
#define VALUE_BYTES   128
#define KEYS          10000
#define SAMPLES_MAX   (4u << 20)

struct settings {
    unsigned seconds;
    unsigned in_flight;
    bool is_durable;
    bool is_memory;
};

struct bench;

struct slot {
    struct muster_registry_op op;
    struct bench *bench;
    uint64_t started_ns;
};

struct bench {
    struct muster_env *env;
    struct muster_registry *registry;
    struct slot slots[IN_FLIGHT_MAX];
    uint32_t *latency_us;
    size_t count;
    size_t open;
    uint64_t next_key;
    uint64_t end_ns;
    bool has_failed;
    bool is_closed;
};

static void fail_bench(const char *what)
{
    fprintf(stderr, "bench_registry: %s\n", what);
    exit(1);
}

static struct muster_env *open_env(void)
{
    struct muster_env *env = NULL;

    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK)
        fail_bench("no environment");
    return env;
}

/* The server's process: until it is killed. */
static void serve_settings(const struct settings *settings, const char *path, int port_fd)
{
    struct muster_env *env = open_env();
    struct muster_registry_store_options store_options = {.path = settings->is_memory ? NULL : path,
                                                          .is_durable = settings->is_durable};
    struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
    struct muster_registry_store *store = NULL;
    struct muster_registry_server *server = NULL;
    struct muster_error error;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    bench_bind(0);
    if (muster_registry_store_open(env->mem, &store_options, &store, &error) != MUSTER_OK ||
        muster_registry_server_open(env, store, &options, &server, &error) != MUSTER_OK)
        fail_bench(error.text);
    muster_address_format(muster_registry_server_address(server), text);
    if (write(port_fd, text, sizeof(text)) != (ssize_t)sizeof(text))
        fail_bench("the client is gone");
    for (;;)
        muster_loop_turn(env->loop, UINT64_MAX);
}

static void on_put(struct muster_registry_op *op, enum muster_rc rc);

static void start_put(struct slot *slot)
{
    static const char value[VALUE_BYTES] = "value";
    struct bench *bench = slot->bench;
    char key[32];
    int length = snprintf(key, sizeof(key), "key-%08llu",
                          (unsigned long long)(bench->next_key++ * 7919 % KEYS));

    slot->started_ns = bench_clock_ns();
    if (muster_registry_put_start(
            &slot->op, bench->registry, (struct muster_bytes){.data = key, .size = (size_t)length},
            (struct muster_bytes){.data = value, .size = sizeof(value)}, 0,
            muster_loop_after_ns(bench->env->loop, 30 * MUSTER_NS_PER_S), on_put) != MUSTER_OK)
        fail_bench("a put cannot start");
    bench->open++;
}

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct slot *slot = op->data;
    struct bench *bench = slot->bench;
    uint64_t now_ns = bench_clock_ns();

    bench->open--;
    if (rc != MUSTER_OK) {
        fprintf(stderr, "bench_registry: put: %s\n", op->error.text);
        bench->has_failed = true;
        return;
    }
    if (bench->count < SAMPLES_MAX)
        bench->latency_us[bench->count++] = (uint32_t)((now_ns - slot->started_ns) / 1000);
    if (now_ns < bench->end_ns && !bench->has_failed)
        start_put(slot);
}

static int compare_u32(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

/* Returns puts per second. */
static double run_bench(struct bench *bench, const struct settings *settings, uint64_t duration_ns)
{
    uint64_t begin_ns = bench_clock_ns();

    bench->count = 0;
    bench->end_ns = begin_ns + duration_ns;
    for (unsigned i = 0; i < settings->in_flight; i++) {
        bench->slots[i].bench = bench;
        bench->slots[i].op.data = &bench->slots[i];
        start_put(&bench->slots[i]);
    }
    while (bench->open > 0)
        muster_loop_turn(bench->env->loop, UINT64_MAX);
    return (double)bench->count * 1e9 / (double)(bench_clock_ns() - begin_ns);
}

static void on_closed(struct muster_registry *registry)
{
    struct bench *bench = muster_registry_data(registry);

    bench->is_closed = true;
}

static void report_bench(const struct bench *bench, const struct settings *settings, double rate,
                         uint64_t server_ns)
{
    size_t count = bench->count;

    qsort(bench->latency_us, count, sizeof(bench->latency_us[0]), compare_u32);
    printf("{\"bench\":\"registry\",\"puts_per_s\":%.0f,\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u,"
           "\"server_cpu_us_per_put\":%.1f,\"in_flight\":%u,\"value_bytes\":%d,\"keys\":%d,"
           "\"puts\":%zu,\"store\":\"%s\"}\n",
           rate, bench->latency_us[count / 2], bench->latency_us[count * 99 / 100],
           bench->latency_us[count - 1], (double)server_ns / 1e3 / (double)count,
           settings->in_flight, VALUE_BYTES, KEYS, count,
           settings->is_memory    ? "memory"
           : settings->is_durable ? "durable"
                                  : "file");
}

/* CPU time that a process of ours has used, all of it, in ns; 0 when it cannot be read. */
static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock_id = 0;
    struct timespec used;

    if (clock_getcpuclockid(pid, &clock_id) != 0 || clock_gettime(clock_id, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * MUSTER_NS_PER_S + (uint64_t)used.tv_nsec;
}

static int measure_settings(const struct settings *settings, const char *endpoint, pid_t server)
{
    static struct bench bench;
    struct muster_registry_options options = {.endpoints = endpoint};
    struct muster_error error;
    double rate = 0;
    uint64_t before_ns = 0;

    bench_bind(1);
    bench.env = open_env();
    bench.latency_us = calloc(SAMPLES_MAX, sizeof(bench.latency_us[0]));
    if (bench.latency_us == NULL)
        fail_bench("no memory");
    if (muster_registry_open(bench.env, &options, &bench.registry, &error) != MUSTER_OK)
        fail_bench(error.text);
    muster_registry_set_data(bench.registry, &bench);
    (void)run_bench(&bench, settings, MUSTER_NS_PER_S / 2); /* warm up: all keys exist */
    before_ns = cpu_ns(server);
    rate = run_bench(&bench, settings, settings->seconds * MUSTER_NS_PER_S);
    if (!bench.has_failed && bench.count > 0)
        report_bench(&bench, settings, rate, cpu_ns(server) - before_ns);
    muster_registry_close(bench.registry, on_closed);
    while (!bench.is_closed)
        muster_loop_turn(bench.env->loop, UINT64_MAX);
    free(bench.latency_us);
    muster_net_system_close(bench.env->net);
    muster_env_system_close(bench.env);
    return bench.has_failed;
}

static void parse_arguments(int argc, char **argv, struct settings *ret_settings)
{
    *ret_settings = (struct settings){.seconds = 5, .in_flight = 64};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--durable") == 0)
            ret_settings->is_durable = true;
        else if (strcmp(argv[i], "--memory") == 0)
            ret_settings->is_memory = true;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            ret_settings->seconds = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--in-flight") == 0 && i + 1 < argc)
            ret_settings->in_flight = (unsigned)atoi(argv[++i]);
        else
            fail_bench("usage: [--seconds S] [--in-flight N] [--durable | --memory]");
    }
    if (ret_settings->in_flight == 0 || ret_settings->in_flight > IN_FLIGHT_MAX)
        fail_bench("--in-flight: 1 to 1024");
}

int main(int argc, char **argv)
{
    struct settings settings;
    char folder[] = "/tmp/bench_registry.XXXXXX";
    char path[64];
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES] = "";
    int port[2];
    int code = 1;
    pid_t server = 0;

    parse_arguments(argc, argv, &settings);
    if (mkdtemp(folder) == NULL || pipe(port) != 0)
        fail_bench("no temporary folder");
    (void)snprintf(path, sizeof(path), "%s/registry.db", folder);
    server = fork();
    if (server == 0)
        serve_settings(&settings, path, port[1]);
    if (server > 0 && read(port[0], endpoint, sizeof(endpoint)) == (ssize_t)sizeof(endpoint))
        code = measure_settings(&settings, endpoint, server);
    if (server > 0) {
        (void)kill(server, SIGKILL);
        (void)waitpid(server, NULL, 0);
    }
    (void)unlink(path);
    (void)strcat(path, "-wal");
    (void)unlink(path);
    (void)rmdir(folder);
    return code;
}
