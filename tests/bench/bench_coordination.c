/* A coordination service with many tasks: a server process on one core, all tasks with a connection
 * each in another. Prints one JSON line: processor time of the server while all beat once per
 * second, and how long barriers of all take.
 *
 * usage: bench_coordination [--tasks N] [--seconds S] [--barriers B] */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <muster/coordination_server.h>
#include <muster/stream.h>

#include "bench_clock.h"
#include "tools/bench/meet.h"

#define SERVICE          "/xla.coordination.CoordinationService/"
#define DEADLINE_NS      (120 * MUSTER_NS_PER_S)
#define BARRIERS_MAX     100
#define REQUEST_BYTES    128
#define FIXED64_BYTES    8
#define HEARTBEAT_EACH_S 1
#define CONNECTING_MAX   200 /* at once */

struct settings {
    uint32_t tasks;
    unsigned seconds;
    unsigned barriers;
};

struct bench;

struct task {
    struct muster_unary unary;
    struct bench *bench;
    struct muster_channel *channel;
    uint32_t id;
    bool is_asking; /* a client beats again only when it was answered */
    struct muster_timer timer;
};

struct bench {
    struct muster_env *env;
    struct settings settings;
    struct task *tasks;
    uint64_t service_incarnation;
    uint32_t done; /* of the round */
    uint32_t started;
    uint64_t beats;
    bool is_beating;
    unsigned barrier;
};

static void fail_bench(const char *what)
{
    fprintf(stderr, "bench_coordination: %s\n", what);
    exit(1);
}

static struct muster_env *open_env(void)
{
    struct muster_env *env = NULL;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK)
        fail_bench("no environment");
    return env;
}

/* --- The server --- */

static _Noreturn void serve_settings(const struct settings *settings, int ready)
{
    const struct muster_coordination_server_options options = {.task_count = settings->tasks,
                                                               .listen = "127.0.0.1:0"};
    struct muster_coordination_server *server = NULL;
    struct muster_error error;
    struct muster_env *env;
    uint16_t port;

    bench_bind(0);
    env = open_env();
    if (muster_coordination_server_open(env, &options, &server, &error) != MUSTER_OK)
        fail_bench(error.text);
    port = muster_coordination_server_address(server)->port;
    if (write(ready, &port, sizeof(port)) != sizeof(port))
        fail_bench("nobody waits for the server");
    for (;;)
        muster_loop_turn(env->loop, UINT64_MAX);
}

/* User and system time of a process, from /proc/PID/stat. */
static double cpu_seconds(pid_t pid)
{
    char path[40], text[1024];
    const char *at;
    unsigned long user = 0, system = 0;
    FILE *file;
    size_t count;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file == NULL)
        fail_bench("the server has died");
    count = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[count] = '\0';
    at = strrchr(text, ')');
    if (at == NULL ||
        sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail_bench("/proc/PID/stat");
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* --- Requests, as jaxlib 0.10 writes them --- */

static size_t put_fixed(uint8_t *out, uint8_t tag, uint64_t value)
{
    out[0] = tag;
    for (size_t i = 0; i < FIXED64_BYTES; i++)
        out[1 + i] = (uint8_t)(value >> (8 * i));
    return 1 + FIXED64_BYTES;
}

static size_t put_varint(uint8_t *out, uint8_t tag, uint64_t value)
{
    size_t at = 0;

    out[at++] = tag;
    for (; value > 0x7f; value >>= 7)
        out[at++] = (uint8_t)(0x80 | (value & 0x7f));
    out[at++] = (uint8_t)value;
    return at;
}

static uint64_t incarnation_of(const struct task *task)
{
    return UINT64_C(0x1000000) + task->id;
}

static size_t put_incarnations(const struct task *task, uint8_t *out)
{
    size_t at = put_varint(out, 0x0a, 2 * (1 + FIXED64_BYTES));

    at += put_fixed(out + at, 0x11, incarnation_of(task));
    return at + put_fixed(out + at, 0x19, task->bench->service_incarnation);
}

static void ask_as_task(struct task *task, const char *method, const uint8_t *request, size_t bytes,
                        muster_unary_done_fn *done)
{
    struct muster_loop *loop = task->bench->env->loop;

    task->unary.data = task;
    task->is_asking = true;
    if (muster_unary_start(&task->unary, task->channel, method, request, bytes,
                           muster_loop_after_ns(loop, DEADLINE_NS), done) != MUSTER_OK)
        fail_bench("a call does not start");
}

static void check_unary(const struct muster_unary *unary, enum muster_rc rc)
{
    ((struct task *)unary->data)->is_asking = false;
    if (rc != MUSTER_OK)
        fail_bench(unary->status.text);
}

/* --- Registration --- */

static void on_registered(struct muster_unary *unary, enum muster_rc rc)
{
    struct task *task = unary->data;
    const uint8_t *bytes = unary->response.data;

    check_unary(unary, rc);
    if (unary->response.size != 1 + FIXED64_BYTES)
        fail_bench("registration without an incarnation");
    task->bench->service_incarnation = 0;
    for (size_t i = 0; i < FIXED64_BYTES; i++)
        task->bench->service_incarnation |= (uint64_t)bytes[1 + i] << (8 * i);
    task->bench->done++;
}

static void register_next(struct bench *bench)
{
    struct task *task = &bench->tasks[bench->started++];
    uint8_t request[REQUEST_BYTES];
    size_t bytes = put_fixed(request, 0x19, incarnation_of(task));

    if (task->id > 0)
        bytes += put_varint(request + bytes, 0x28, task->id);
    ask_as_task(task, SERVICE "RegisterTask", request, bytes, on_registered);
}

/* Answers come only when all are there, so connections are paced by turns. */
static void register_all(struct bench *bench)
{
    while (bench->done < bench->settings.tasks) {
        for (unsigned i = 0; i < CONNECTING_MAX && bench->started < bench->settings.tasks; i++)
            register_next(bench);
        muster_loop_turn(bench->env->loop, MUSTER_NS_PER_MS);
    }
}

/* --- Heartbeats --- */

static void on_beaten(struct muster_unary *unary, enum muster_rc rc)
{
    struct task *task = unary->data;

    check_unary(unary, rc);
    task->bench->beats++;
}

static void on_beat(struct muster_timer *timer)
{
    struct task *task = timer->data;
    uint8_t request[REQUEST_BYTES];
    size_t bytes = put_incarnations(task, request);

    if (!task->bench->is_beating)
        return;
    muster_timer_start(timer, task->bench->env->loop,
                       timer->due_ns + HEARTBEAT_EACH_S * MUSTER_NS_PER_S);
    if (task->is_asking)
        return;
    bytes += put_fixed(request + bytes, 0x11, incarnation_of(task));
    if (task->id > 0)
        bytes += put_varint(request + bytes, 0x18, task->id);
    ask_as_task(task, SERVICE "Heartbeat", request, bytes, on_beaten);
}

/* Spread over the second, as tasks that started at different times. Returns the server's share of a
 * core. */
static double beat_all(struct bench *bench, pid_t server, double *ret_beats_per_s)
{
    uint64_t begun_ns, took_ns;
    double cpu;

    bench->is_beating = true;
    for (uint32_t i = 0; i < bench->settings.tasks; i++)
        muster_timer_start(
            &bench->tasks[i].timer, bench->env->loop,
            muster_loop_after_ns(bench->env->loop, i * MUSTER_NS_PER_S / bench->settings.tasks));
    begun_ns = bench_clock_ns();
    cpu = cpu_seconds(server);
    while (bench_clock_ns() - begun_ns < bench->settings.seconds * MUSTER_NS_PER_S)
        muster_loop_turn(bench->env->loop, MUSTER_NS_PER_MS);
    cpu = cpu_seconds(server) - cpu;
    took_ns = bench_clock_ns() - begun_ns;
    *ret_beats_per_s = (double)bench->beats * 1e9 / (double)took_ns;
    bench->is_beating = false;
    for (uint64_t end_ns = bench_clock_ns() + 2 * MUSTER_NS_PER_S; bench_clock_ns() < end_ns;)
        muster_loop_turn(bench->env->loop, MUSTER_NS_PER_MS); /* the last answers */
    return cpu * 1e9 / (double)took_ns;
}

/* --- Barriers --- */

static void on_passed(struct muster_unary *unary, enum muster_rc rc)
{
    struct task *task = unary->data;

    check_unary(unary, rc);
    task->bench->done++;
}

static double run_barrier(struct bench *bench)
{
    uint64_t begun_ns = bench_clock_ns();

    bench->done = 0;
    for (uint32_t i = 0; i < bench->settings.tasks; i++) {
        struct task *task = &bench->tasks[i];
        uint8_t request[REQUEST_BYTES];
        size_t bytes = put_incarnations(task, request);

        bytes += put_varint(request + bytes, 0x12, 1);
        request[bytes++] = 'b';
        bytes += put_varint(request + bytes, 0x18, 60000);
        if (task->id > 0)
            bytes += put_varint(request + bytes, 0x28, task->id);
        if (bench->barrier > 0)
            bytes += put_varint(request + bytes, 0x30, bench->barrier);
        ask_as_task(task, SERVICE "Barrier", request, bytes, on_passed);
    }
    while (bench->done < bench->settings.tasks)
        muster_loop_turn(bench->env->loop, MUSTER_NS_PER_MS);
    bench->barrier++;
    return (double)(bench_clock_ns() - begun_ns) / 1e6;
}

static int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* --- All --- */

static void open_tasks(struct bench *bench, uint16_t port)
{
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    (void)snprintf(target, sizeof(target), "127.0.0.1:%u", port);
    bench->tasks = calloc(bench->settings.tasks, sizeof(*bench->tasks));
    if (bench->tasks == NULL)
        fail_bench("no memory");
    for (uint32_t i = 0; i < bench->settings.tasks; i++) {
        bench->tasks[i].bench = bench;
        bench->tasks[i].id = i;
        muster_timer_init(&bench->tasks[i].timer, on_beat, &bench->tasks[i]);
        if (muster_channel_open(bench->env, target, NULL, &bench->tasks[i].channel, &error) !=
            MUSTER_OK)
            fail_bench(error.text);
    }
}

static void run_bench(struct bench *bench, pid_t server)
{
    double took_ms[BARRIERS_MAX], share, beats_per_s, registered_ms;
    uint64_t begun_ns = bench_clock_ns();

    register_all(bench);
    registered_ms = (double)(bench_clock_ns() - begun_ns) / 1e6;
    share = beat_all(bench, server, &beats_per_s);
    for (unsigned i = 0; i < bench->settings.barriers; i++)
        took_ms[i] = run_barrier(bench);
    qsort(took_ms, bench->settings.barriers, sizeof(took_ms[0]), compare_times);
    printf("{\"bench\":\"coordination\",\"tasks\":%" PRIu32 ",\"registered_ms\":%.1f,"
           "\"beats_per_s\":%.0f,\"server_core_share\":%.3f,\"barrier_ms\":{\"median\":%.1f,"
           "\"max\":%.1f}}\n",
           bench->settings.tasks, registered_ms, beats_per_s, share,
           took_ms[bench->settings.barriers / 2], took_ms[bench->settings.barriers - 1]);
}

static struct settings parse_arguments(int argc, char **argv)
{
    struct settings settings = {.tasks = 1000, .seconds = 5, .barriers = 9};

    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long value = strtoul(argv[i + 1], NULL, 10);

        if (strcmp(argv[i], "--tasks") == 0)
            settings.tasks = (uint32_t)value;
        else if (strcmp(argv[i], "--seconds") == 0)
            settings.seconds = (unsigned)value;
        else if (strcmp(argv[i], "--barriers") == 0)
            settings.barriers = (unsigned)value;
        else
            fail_bench("usage: bench_coordination [--tasks N] [--seconds S] [--barriers B]");
    }
    if (settings.tasks == 0 || settings.seconds == 0 || settings.barriers == 0 ||
        settings.barriers > BARRIERS_MAX)
        fail_bench("tasks, seconds and barriers (at most 100) are at least 1");
    return settings;
}

int main(int argc, char **argv)
{
    struct bench bench = {.settings = parse_arguments(argc, argv)};
    uint16_t port = 0;
    int ready[2];
    pid_t server;

    if (pipe(ready) != 0)
        fail_bench("no pipe");
    server = fork();
    if (server == 0)
        serve_settings(&bench.settings, ready[1]);
    if (server < 0 || read(ready[0], &port, sizeof(port)) != sizeof(port))
        fail_bench("no server");
    bench_bind(1);
    bench.env = open_env();
    open_tasks(&bench, port);
    run_bench(&bench, server);
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    (void)fflush(stdout);
    _exit(0); /* ten thousand connections go with the process */
}
