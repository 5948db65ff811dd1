/* A client of bench.Echo: measures unary calls, or checks every kind of call once against any gRPC
 * server. bench_rpc_client --port P [--calls N] [--inflight K] [--bytes B] | --check 1; with
 * --other-port P and --service-config JSON as other gRPC clients take it; with --tls-ca FILE
 * [--tls-cert FILE --tls-key FILE] under TLS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/env.h>
#include <muster/rpc.h>

#include "proto/echo.pb-c.h"
#include "proto/guard.h"
#include "tests/lib/program_tls.h"

#define MESSAGE_MAX_BYTES (64u << 20)
#define DEADLINE_NS       (60 * MUSTER_NS_PER_S)

struct options {
    unsigned long port, other_port, calls, inflight, bytes, check;
    const char *service_config;
    struct muster_tls *tls; /* NULL: plain text */
};

struct bench {
    struct muster_env *env;
    struct muster_channel *channel;
    unsigned long left, running, failed;
    void *request;
    size_t request_bytes;
    uint64_t *latencies_ns;
    unsigned long latency_count;
};

struct slot {
    struct muster_unary unary;
    struct bench *bench;
    uint64_t start_ns;
};

static void slot_start(struct slot *slot);

static void on_done(struct muster_unary *unary, enum muster_rc rc)
{
    struct slot *slot = unary->data;
    struct bench *bench = slot->bench;

    bench->running--;
    if (rc != MUSTER_OK || unary->response.size != bench->request_bytes) {
        if (bench->failed++ == 0)
            fprintf(stderr, "call failed: %s: %s\n", muster_rc_name(rc), unary->status.text);
    }
    bench->latencies_ns[bench->latency_count++] =
        muster_loop_now_ns(bench->env->loop) - slot->start_ns;
    if (bench->left > 0)
        slot_start(slot);
}

static void slot_start(struct slot *slot)
{
    struct bench *bench = slot->bench;

    bench->left--;
    slot->unary.data = slot;
    slot->start_ns = muster_loop_now_ns(bench->env->loop);
    if (muster_unary_start(
            &slot->unary, bench->channel, "/bench.Echo/Unary", bench->request, bench->request_bytes,
            muster_loop_after_ns(bench->env->loop, DEADLINE_NS), on_done) == MUSTER_OK)
        bench->running++;
    else
        bench->failed++;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void run_round(struct bench *bench, unsigned long calls, unsigned long inflight)
{
    struct slot *slots = calloc(inflight, sizeof(*slots));

    bench->left = calls;
    bench->latency_count = 0;
    for (unsigned long i = 0; slots != NULL && i < inflight && bench->left > 0; i++) {
        slots[i].bench = bench;
        slot_start(&slots[i]);
    }
    while (bench->running > 0)
        muster_loop_turn(bench->env->loop, UINT64_MAX);
    free(slots);
}

static int measure_bench(struct bench *bench, const struct options *options)
{
    Bench__Msg message;
    uint64_t start_ns, ns;
    uint8_t *payload = calloc(1, options->bytes + 1);

    bench->latencies_ns = calloc(options->calls, sizeof(uint64_t));
    if (payload == NULL || bench->latencies_ns == NULL)
        return 1;
    bench__msg__init(&message);
    message.payload.data = payload;
    message.payload.len = options->bytes;
    if (muster_proto_pack(bench->env->mem, &message, &bench->request, &bench->request_bytes) !=
        MUSTER_OK)
        return 1;
    run_round(bench, options->calls / 10 + 1, options->inflight); /* warm up */
    start_ns = muster_loop_now_ns(bench->env->loop);
    run_round(bench, options->calls, options->inflight);
    ns = muster_loop_now_ns(bench->env->loop) - start_ns;
    qsort(bench->latencies_ns, bench->latency_count, sizeof(uint64_t), compare_times);
    printf("{\"bench\":\"rpc_unary\",\"bytes\":%lu,\"inflight\":%lu,\"calls\":%lu,\"failed\":%lu,"
           "\"calls_per_s\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n",
           options->bytes, options->inflight, options->calls, bench->failed,
           (double)options->calls * 1e9 / (double)(ns > 0 ? ns : 1),
           (double)bench->latencies_ns[bench->latency_count / 2] / 1e3,
           (double)bench->latencies_ns[bench->latency_count * 99 / 100] / 1e3);
    muster_mem_free(bench->env->mem, bench->request);
    free(bench->latencies_ns);
    free(payload);
    return bench->failed > 0;
}

/* One call of any kind, observed. */
struct probe {
    struct muster_call call;
    struct muster_mem *mem;
    unsigned messages;
    size_t payload_bytes;
    int32_t count;
    bool is_done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
};

static void on_msg(struct muster_call *call, struct muster_bytes bytes)
{
    struct probe *probe = call->data;
    Bench__Msg *message = NULL;

    probe->messages++;
    if (muster_proto_unpack(probe->mem, &bench__msg__descriptor, bytes.data, bytes.size, NULL,
                            &message, NULL) == MUSTER_OK)
        probe->payload_bytes += message->payload.len;
    muster_proto_free(message);
}

static void on_req(struct muster_call *call, struct muster_bytes bytes)
{
    struct probe *probe = call->data;
    Bench__Req *request = NULL;

    probe->messages++;
    if (muster_proto_unpack(probe->mem, &bench__req__descriptor, bytes.data, bytes.size, NULL,
                            &request, NULL) == MUSTER_OK)
        probe->count = request->count;
    muster_proto_free(request);
}

static void on_probe_done(struct muster_call *call, enum muster_rc rc)
{
    struct probe *probe = call->data;

    probe->is_done = true;
    probe->rc = rc;
    memcpy(probe->text, call->status.text, sizeof(probe->text));
}

static void ask_server(struct bench *bench, struct probe *probe,
                       struct muster_call_options *options, const void *message, unsigned times)
{
    void *bytes = NULL;
    size_t size = 0;

    if (options->deadline_ns == 0)
        options->deadline_ns = muster_loop_after_ns(bench->env->loop, DEADLINE_NS);
    probe->call.data = probe;
    probe->mem = bench->env->mem;
    if (muster_call_start(&probe->call, bench->channel, options, on_probe_done) != MUSTER_OK ||
        muster_proto_pack(bench->env->mem, message, &bytes, &size) != MUSTER_OK)
        abort();
    for (unsigned i = 0; i < times; i++) {
        if (muster_call_send(&probe->call, bytes, size) != MUSTER_OK)
            abort();
    }
    muster_call_half_close(&probe->call);
    while (!probe->is_done)
        muster_loop_turn(bench->env->loop, UINT64_MAX);
    muster_mem_free(bench->env->mem, bytes);
}

static unsigned report_probe(const char *name, const struct probe *probe, bool is_right)
{
    printf("%s %s: %s %s, %u messages\n", is_right ? "ok" : "FAILED", name,
           muster_rc_name(probe->rc), probe->text, probe->messages);
    return is_right ? 0 : 1;
}

static int check_bench(struct bench *bench)
{
    static uint8_t payload[100000];
    struct probe unary = {.messages = 0}, sink = unary, source = unary, missing = unary,
                 late = unary;
    struct muster_call_options options = {.method = "/bench.Echo/Unary", .on_message = on_msg};
    Bench__Msg message;
    Bench__Req request;
    unsigned failed = 0;

    bench__msg__init(&message);
    message.payload.data = payload;
    message.payload.len = sizeof(payload);
    bench__req__init(&request);
    request.size = 1000;
    request.count = 50;
    ask_server(bench, &unary, &options, &message, 1);
    failed += report_probe("unary", &unary, unary.rc == MUSTER_OK && unary.payload_bytes == 100000);
    options.method = "/bench.Echo/Source";
    ask_server(bench, &source, &options, &request, 1);
    failed += report_probe("server streaming", &source,
                           source.rc == MUSTER_OK && source.messages == 50 &&
                               source.payload_bytes == 50000);
    options.method = "/bench.Echo/Sink";
    options.on_message = on_req;
    ask_server(bench, &sink, &options, &message, 20);
    failed += report_probe("client streaming", &sink, sink.rc == MUSTER_OK && sink.count == 20);
    options.method = "/bench.Echo/Missing";
    ask_server(bench, &missing, &options, &message, 1);
    failed += report_probe("unknown method", &missing, missing.rc == MUSTER_UNIMPLEMENTED);
    options.method = "/bench.Echo/Source"; /* more than it can send until then */
    options.on_message = on_msg;
    options.deadline_ns = muster_loop_after_ns(bench->env->loop, 50 * MUSTER_NS_PER_MS);
    request.count = 1 << 30;
    ask_server(bench, &late, &options, &request, 1);
    failed += report_probe("deadline", &late, late.rc == MUSTER_DEADLINE_EXCEEDED);
    return failed > 0;
}

static void on_closed(struct muster_channel *channel)
{
    *(bool *)muster_channel_data(channel) = true;
}

static int run_bench(struct muster_env *env, const struct options *options)
{
    const struct muster_channel_options channel_options = {
        .receive_message_max_bytes = MESSAGE_MAX_BYTES,
        .service_config = options->service_config,
        .tls = options->tls};
    struct bench bench = {.env = env};
    struct muster_error error;
    char target[64];
    bool is_closed = false;
    int failed;

    (void)snprintf(target, sizeof(target), "127.0.0.1:%lu", options->port);
    if (options->other_port != 0)
        (void)snprintf(target, sizeof(target), "127.0.0.1:%lu,127.0.0.1:%lu", options->port,
                       options->other_port);
    if (muster_channel_open(env, target, &channel_options, &bench.channel, &error) != MUSTER_OK) {
        fprintf(stderr, "bench_rpc_client: %s\n", error.text);
        return 1;
    }
    failed = options->check ? check_bench(&bench) : measure_bench(&bench, options);
    muster_channel_set_data(bench.channel, &is_closed);
    muster_channel_close(bench.channel, on_closed);
    while (!is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    return failed;
}

int main(int argc, char **argv)
{
    struct options options = {.calls = 100000, .inflight = 16, .bytes = 64};
    const struct {
        const char *name;
        unsigned long *value;
    } flags[] = {{"--port", &options.port},   {"--other-port", &options.other_port},
                 {"--calls", &options.calls}, {"--inflight", &options.inflight},
                 {"--bytes", &options.bytes}, {"--check", &options.check}};
    struct muster_env *env = NULL;
    int failed;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--service-config") == 0)
            options.service_config = argv[i + 1];
        for (size_t k = 0; k < sizeof(flags) / sizeof(flags[0]); k++) {
            if (strcmp(argv[i], flags[k].name) == 0)
                *flags[k].value = strtoul(argv[i + 1], NULL, 10);
        }
    }
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK) {
        fprintf(stderr, "bench_rpc_client: no environment\n");
        return 1;
    }
    options.tls = program_tls_open(env, argc, argv);
    failed = run_bench(env, &options);
    muster_tls_close(options.tls);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return failed;
}
