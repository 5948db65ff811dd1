/* A thousand requests at once against a fake cloud on the same loop: time against a single one, connections, memory.
 *
 * bench_http [--requests N] [--latency-ms N] [--plain | --http1]: a line of JSON. */
#include "fake_cloud.h"

#include <muster/http.h>
#include <muster/stream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct bench {
    struct muster_env *env;
    struct fake_cloud *cloud;
    struct muster_http_tls tls;
    size_t request_count;
    size_t left;
    size_t failed;
};

static void on_call(struct muster_http_call *call, enum muster_rc rc)
{
    struct bench *bench = call->data;

    if (rc != MUSTER_OK || call->request.status != 200) {
        if (bench->failed++ == 0)
            fprintf(stderr, "status %d: %s\n", call->request.status, call->request.error.text);
    }
    bench->left--;
}

static double run_bench(struct bench *bench, size_t count)
{
    struct muster_http_call *calls = calloc(count, sizeof(*calls));
    struct muster_loop *loop = bench->env->loop;
    uint64_t begin_ns = muster_loop_now_ns(loop), end_ns;
    char url[256];

    if (calls == NULL)
        abort();
    bench->left = count;
    snprintf(url, sizeof(url), "%s/v1/nodes/n", fake_cloud_base(bench->cloud));
    for (size_t i = 0; i < count; i++) {
        muster_http_call_init(&calls[i], bench);
        calls[i].request.url = url;
        calls[i].request.tls = &bench->tls;
        calls[i].request.deadline_ns = muster_loop_after_ns(loop, 60 * MUSTER_NS_PER_S);
        if (muster_http_call_start(&calls[i], bench->env, on_call) != MUSTER_OK)
            abort();
    }
    while (bench->left > 0)
        muster_loop_turn(loop, MUSTER_NS_PER_S);
    end_ns = muster_loop_now_ns(loop);
    for (size_t i = 0; i < count; i++)
        muster_http_call_fini(&calls[i]);
    free(calls);
    return (double)(end_ns - begin_ns) / 1e6;
}

static void open_all(struct bench *bench, const struct fake_cloud_options *options)
{
    struct muster_error error = {.text = ""};

    if (muster_env_system_open(NULL, &bench->env) != MUSTER_OK ||
        muster_net_system_open(bench->env, &bench->env->net) != MUSTER_OK ||
        muster_http_curl_open(bench->env, NULL, &bench->env->http, &error) != MUSTER_OK ||
        fake_cloud_open(bench->env, options, &bench->cloud, &error) != MUSTER_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    fake_cloud_say(bench->cloud, "GET", NULL, 200,
                   "{\"state\": \"READY\", \"health\": \"HEALTHY\", \"networkEndpoints\": "
                   "[{\"ipAddress\": \"10.1.2.3\", \"port\": 8470}]}");
    if (options->is_tls)
        bench->tls.ca_pem = fake_cloud_identity(bench->cloud)->ca_pem;
}

static void read_arguments(struct bench *bench, struct fake_cloud_options *options, int argc,
                           char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--requests") == 0 && i + 1 < argc)
            bench->request_count = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--latency-ms") == 0 && i + 1 < argc)
            options->latency_ns = strtoull(argv[++i], NULL, 10) * MUSTER_NS_PER_MS;
        else if (strcmp(argv[i], "--plain") == 0)
            options->is_tls = false;
        else if (strcmp(argv[i], "--http1") == 0)
            options->is_http1_only = true;
        else
            exit(2);
    }
}

static void on_closed(struct muster_http *http)
{
    http->env->http = NULL;
}

static void close_all(struct bench *bench)
{
    struct muster_env *env = bench->env;

    muster_http_close(env->http, on_closed);
    while (env->http != NULL)
        muster_loop_turn(env->loop, MUSTER_NS_PER_S);
    fake_cloud_close_wait(bench->cloud);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
}

int main(int argc, char **argv)
{
    struct bench bench = {.request_count = 1000};
    struct fake_cloud_options options = {.is_tls = true, .latency_ns = 50 * MUSTER_NS_PER_MS};
    const struct fake_cloud_counts *counts;
    struct rusage usage;
    double single_ms, all_ms;

    read_arguments(&bench, &options, argc, argv);
    open_all(&bench, &options);
    single_ms = run_bench(&bench, 1);
    all_ms = run_bench(&bench, bench.request_count);
    counts = fake_cloud_counts(bench.cloud);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"bench\":\"http\",\"wire\":\"%s\",\"requests\":%zu,\"failed\":%zu,\"single_ms\":%.1f,"
           "\"all_ms\":%.1f,\"ratio\":%.2f,\"connections_peak\":%zu,\"connections_h2\":%zu,"
           "\"rss_peak_mb\":%.1f}\n",
           !options.is_tls         ? "http1"
           : options.is_http1_only ? "http1 tls"
                                   : "http2 tls",
           bench.request_count, bench.failed, single_ms, all_ms, all_ms / single_ms,
           counts->connections_peak, counts->connections_h2, (double)usage.ru_maxrss / 1024);
    close_all(&bench);
    return bench.failed == 0 ? 0 : 1;
}
