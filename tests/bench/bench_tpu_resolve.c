/* A thousand TPU nodes resolved at once, each by a resolver of its own, against a fake cloud in a second process:
 * time against a single one, connections, memory of this process.
 *
 * bench_tpu_resolve [--nodes N] [--latency-ms N] [--plain | --http1] [--authorities FILE]: a line of JSON.
 * --authorities: certificates that are trusted beside the cloud's own, as the system's bundle is by a real client. */
#include "fake_cloud.h"
#include "bench_clock.h"

#include <muster/http.h>
#include <muster/stream.h>
#include <muster/tpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUNDLE_BYTES_MAX (4u << 20)

struct cloud_process {
    pid_t pid;
    int ask;    /* closed: the cloud ends */
    int answer; /* its address and authority, then its counts */
    char base[64];
    char *ca_pem;
};

struct node {
    struct bench *bench;
    struct muster_resolver *resolver;
    struct muster_resolve resolve;
};

struct bench {
    struct muster_env *env;
    struct cloud_process cloud;
    struct fake_cloud_options options;
    const char *authorities;
    char ca_file[64];
    size_t node_count;
    size_t left;
    size_t failed;
};

static _Noreturn void give_up(const char *what, const char *detail)
{
    fprintf(stderr, "bench_tpu_resolve: %s: %s\n", what, detail);
    exit(1);
}

/* The processor time of this process, or of the cloud's once it has ended. */
static double cpu_ms(int who)
{
    struct rusage usage;

    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-3;
}

/* The cloud's side. */

static void put_bytes(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count)
        exit(1);
}

static void put_text(int fd, const char *text)
{
    size_t count = strlen(text);

    put_bytes(fd, &count, sizeof(count));
    put_bytes(fd, text, count);
}

static void on_asker_gone(struct muster_fd_watch *watch, unsigned ready)
{
    (void)ready;
    *(bool *)watch->data = true;
}

static _Noreturn void serve_options(const struct fake_cloud_options *options, int ask, int answer)
{
    struct muster_error error = {.text = ""};
    struct muster_env *env = NULL;
    struct fake_cloud *cloud = NULL;
    bool is_over = false;
    struct muster_fd_watch watch = {
        .data = &is_over, .on_ready = on_asker_gone, .fd = ask, .wanted = MUSTER_FD_READ};

    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        fake_cloud_open(env, options, &cloud, &error) != MUSTER_OK ||
        muster_fd_watch_open(&watch, env->loop) != MUSTER_OK)
        give_up("no cloud", error.text);
    fake_cloud_say(cloud, "GET", NULL, 200,
                   "{\"state\": \"READY\", \"health\": \"HEALTHY\", \"networkEndpoints\": "
                   "[{\"ipAddress\": \"10.1.2.3\", \"port\": 8470}]}");
    put_text(answer, fake_cloud_base(cloud));
    put_text(answer, options->is_tls ? fake_cloud_identity(cloud)->ca_pem : "");
    while (!is_over)
        muster_loop_turn(env->loop, MUSTER_NS_PER_S);
    put_bytes(answer, fake_cloud_counts(cloud), sizeof(struct fake_cloud_counts));
    _exit(0);
}

static void get_bytes(int fd, void *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        ssize_t n = read(fd, (char *)bytes + at, count - at);

        if (n <= 0)
            give_up("the cloud", "has ended");
        at += (size_t)n;
    }
}

static char *get_text(int fd)
{
    size_t count;
    char *text;

    get_bytes(fd, &count, sizeof(count));
    text = calloc(1, count + 1);
    if (text == NULL)
        abort();
    get_bytes(fd, text, count);
    return text;
}

static void start_cloud(struct cloud_process *cloud, const struct fake_cloud_options *options)
{
    int down[2], up[2];
    char *base;

    if (pipe(down) != 0 || pipe(up) != 0)
        give_up("pipe", "none");
    cloud->pid = fork();
    if (cloud->pid == 0) {
        close(down[1]);
        close(up[0]);
        serve_options(options, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    cloud->ask = down[1];
    cloud->answer = up[0];
    base = get_text(cloud->answer);
    snprintf(cloud->base, sizeof(cloud->base), "%s", base);
    free(base);
    cloud->ca_pem = get_text(cloud->answer);
}

static struct fake_cloud_counts end_cloud(struct cloud_process *cloud)
{
    struct fake_cloud_counts counts;

    close(cloud->ask);
    get_bytes(cloud->answer, &counts, sizeof(counts));
    close(cloud->answer);
    (void)waitpid(cloud->pid, NULL, 0);
    free(cloud->ca_pem);
    return counts;
}

/* The client's side. */

static void on_closed(struct muster_resolver *resolver)
{
    struct node *node = resolver->data;

    node->bench->left--;
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct node *node = resolve->data;
    const char *address = NULL;

    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_task_address(resolve->cluster_spec, MUSTER_TPU_JOB, 0, &address,
                                              &resolve->error);
    if (rc != MUSTER_OK || strcmp(address, "10.1.2.3:8470") != 0) {
        if (node->bench->failed++ == 0)
            fprintf(stderr, "%s\n", resolve->error.text);
    }
    muster_cluster_spec_unref(resolve->cluster_spec);
    node->bench->left--;
}

static void start_node(struct node *node, size_t index)
{
    struct bench *bench = node->bench;
    struct muster_tpu_resolver_options options = {
        .client = {
            .project = "p", .zone = "z", .api_endpoint = bench->cloud.base, .is_anonymous = true}};
    struct muster_error error = {.text = ""};
    char name[32];

    snprintf(name, sizeof(name), "node-%zu", index);
    options.client.tpu = name;
    if (muster_tpu_resolver_open(bench->env, &options, &node->resolver, &error) != MUSTER_OK)
        give_up("no resolver", error.text);
    node->resolver->data = node;
    node->resolve.what = MUSTER_RESOLVE_CLUSTER_SPEC;
    node->resolve.data = node;
    node->resolve.deadline_ns = muster_loop_after_ns(bench->env->loop, 60 * MUSTER_NS_PER_S);
    if (muster_resolve_start(&node->resolve, node->resolver, on_answer) != MUSTER_OK)
        give_up("no question", "to a resolver");
}

static void wait_all(struct bench *bench)
{
    while (bench->left > 0)
        muster_loop_turn(bench->env->loop, MUSTER_NS_PER_S);
}

/* From the first open to the last answer. */
static double run_bench(struct bench *bench, size_t count)
{
    struct node *nodes = calloc(count, sizeof(*nodes));
    double begin_ms = bench_clock_ms(), end_ms;

    if (nodes == NULL)
        abort();
    bench->left = count;
    for (size_t i = 0; i < count; i++) {
        nodes[i].bench = bench;
        start_node(&nodes[i], i);
    }
    wait_all(bench);
    end_ms = bench_clock_ms();
    bench->left = count;
    for (size_t i = 0; i < count; i++)
        muster_resolver_close(nodes[i].resolver, on_closed);
    wait_all(bench);
    free(nodes);
    return end_ms - begin_ms;
}

static void on_http_closed(struct muster_http *http)
{
    http->env->http = NULL;
}

static void open_http(struct bench *bench)
{
    struct muster_http_curl_options options = {.ca_file =
                                                   bench->options.is_tls ? bench->ca_file : NULL};
    struct muster_error error = {.text = ""};

    if (muster_http_curl_open(bench->env, &options, &bench->env->http, &error) != MUSTER_OK)
        give_up("no http client", error.text);
}

static void close_http(struct bench *bench)
{
    muster_http_close(bench->env->http, on_http_closed);
    while (bench->env->http != NULL)
        muster_loop_turn(bench->env->loop, MUSTER_NS_PER_S);
}

static void write_authorities(struct bench *bench)
{
    FILE *more = bench->authorities != NULL ? fopen(bench->authorities, "r") : NULL;
    char *text = calloc(1, BUNDLE_BYTES_MAX);
    int fd = mkstemp(strcpy(bench->ca_file, "/tmp/bench_tpu_resolve.XXXXXX"));

    if (fd < 0 || text == NULL || (bench->authorities != NULL && more == NULL))
        give_up("no file of authorities", bench->ca_file);
    if (more != NULL) {
        put_bytes(fd, text, fread(text, 1, BUNDLE_BYTES_MAX, more));
        fclose(more);
    }
    put_bytes(fd, bench->cloud.ca_pem, strlen(bench->cloud.ca_pem));
    close(fd);
    free(text);
}

static void read_arguments(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--nodes") == 0 && i + 1 < argc)
            bench->node_count = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--latency-ms") == 0 && i + 1 < argc)
            bench->options.latency_ns = strtoull(argv[++i], NULL, 10) * MUSTER_NS_PER_MS;
        else if (strcmp(argv[i], "--authorities") == 0 && i + 1 < argc)
            bench->authorities = argv[++i];
        else if (strcmp(argv[i], "--plain") == 0)
            bench->options.is_tls = false;
        else if (strcmp(argv[i], "--http1") == 0)
            bench->options.is_http1_only = true;
        else
            give_up("unknown option", argv[i]);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.node_count = 1000,
                          .options = {.is_tls = true, .latency_ns = 50 * MUSTER_NS_PER_MS}};
    struct fake_cloud_counts counts;
    struct rusage usage;
    double single_ms, warm_ms, all_ms, all_cpu_ms;

    read_arguments(&bench, argc, argv);
    start_cloud(&bench.cloud, &bench.options);
    write_authorities(&bench);
    if (muster_env_system_open(NULL, &bench.env) != MUSTER_OK ||
        muster_net_system_open(bench.env, &bench.env->net) != MUSTER_OK)
        give_up("environment", "none");
    open_http(&bench);
    single_ms = run_bench(&bench, 1);
    warm_ms = run_bench(&bench, 1);
    close_http(&bench);
    open_http(&bench); /* all of them begin without connections, as the single one did */
    all_cpu_ms = cpu_ms(RUSAGE_SELF);
    all_ms = run_bench(&bench, bench.node_count);
    all_cpu_ms = cpu_ms(RUSAGE_SELF) - all_cpu_ms;
    close_http(&bench);
    counts = end_cloud(&bench.cloud);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"bench\":\"tpu_resolve\",\"wire\":\"%s\",\"nodes\":%zu,\"failed\":%zu,"
           "\"single_ms\":%.1f,\"single_warm_ms\":%.1f,\"all_ms\":%.1f,\"ratio\":%.2f,"
           "\"cpu_ms\":%.1f,\"cloud_cpu_ms\":%.1f,\"connections_peak\":%zu,\"connections_h2\":%zu,"
           "\"rss_peak_mb\":%.1f}\n",
           !bench.options.is_tls         ? "http1"
           : bench.options.is_http1_only ? "http1 tls"
                                         : "http2 tls",
           bench.node_count, bench.failed, single_ms, warm_ms, all_ms, all_ms / single_ms,
           all_cpu_ms, cpu_ms(RUSAGE_CHILDREN), counts.connections_peak, counts.connections_h2,
           (double)usage.ru_maxrss / 1024);
    unlink(bench.ca_file);
    muster_net_system_close(bench.env->net);
    muster_env_system_close(bench.env);
    return bench.failed == 0 ? 0 : 1;
}
