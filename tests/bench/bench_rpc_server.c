/* Serves bench.Echo (proto/echo.proto) for outside load generators: bench_rpc_server --port P, in
 * plain text or with --tls-cert FILE --tls-key FILE [--tls-client-ca FILE];
 * --metrics FILE: counts every call, and writes that there at the end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/env.h>
#include <muster/rpc.h>

#include "proto/echo.muster.h"
#include "proto/echo.pb-c.h"
#include "proto/guard.h"
#include "tests/lib/program_tls.h"

#define MESSAGE_MAX_BYTES (64u << 20)
#define CONNECTIONS_MAX   20000
#define MEMORY_KEPT_BYTES (32u << 20)

/* How far a Sink or a Source is; the call's data. */
struct progress {
    int32_t size;
    int32_t count; /* Sink: messages seen; Source: messages left */
};

static struct muster_mem_pool memory; /* of messages */

static void send_reply(struct muster_rpc *rpc, const void *message)
{
    struct muster_mem *mem = &memory.mem;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_proto_pack(mem, message, &bytes, &size);

    if (rc == MUSTER_OK)
        rc = muster_rpc_send(rpc, bytes, size);
    muster_mem_free(mem, bytes);
    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, rc, "answer cannot be queued");
}

static bool unpack_request(struct muster_rpc *rpc, const ProtobufCMessageDescriptor *descriptor,
                           struct muster_bytes bytes, void *ret_message)
{
    struct muster_error error;

    if (muster_proto_unpack(&memory.mem, descriptor, bytes.data, bytes.size, NULL, ret_message,
                            &error) == MUSTER_OK)
        return true;
    muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, error.text);
    return false;
}

/* A message from this size on arrives in memory of its own and is sent from there: protobuf-c would
 * copy it twice. */
#define LARGE_BYTES (16u << 10)

/* The data of a call with a large request, or an answer on its way. */
struct large {
    struct muster_loan loan;
    uint8_t bytes[];
};

static void *on_place(struct muster_rpc *rpc, size_t bytes)
{
    struct large *large;

    if (bytes < LARGE_BYTES || muster_rpc_data(rpc) != NULL)
        return NULL;
    large = muster_mem_alloc(&memory.mem, sizeof(*large) + bytes);
    muster_rpc_set_data(rpc, large);
    return large != NULL ? large->bytes : NULL;
}

static void on_large_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    (void)rc;
    muster_mem_free(&memory.mem, muster_rpc_data(rpc));
}

static void on_released(struct muster_loan *loan)
{
    muster_mem_free(&memory.mem, loan->data);
}

/* Takes large. */
static void lend_buffer(struct muster_rpc *rpc, struct large *large, size_t bytes)
{
    const struct iovec piece = {large->bytes, bytes};
    enum muster_rc rc;

    large->loan.data = large;
    rc = muster_rpc_send_loan(rpc, &large->loan, &piece, 1, on_released);
    if (rc != MUSTER_OK)
        muster_mem_free(&memory.mem, large);
    muster_rpc_finish(rpc, rc, rc != MUSTER_OK ? "answer cannot be queued" : NULL);
}

/* A Msg is its payload's tag and length, and the payload. Returns the bytes of tag and length. */
static size_t head_format(size_t payload_bytes, uint8_t head[12])
{
    size_t used = 0;

    head[used++] = 0x0a;
    for (; payload_bytes >= 0x80; payload_bytes >>= 7)
        head[used++] = (uint8_t)(payload_bytes | 0x80);
    head[used++] = (uint8_t)payload_bytes;
    return used;
}

/* Whether a large message is a Msg with nothing in it but the payload. */
static bool is_plain_msg(struct muster_bytes message, size_t *ret_payload_bytes)
{
    for (size_t head_bytes = 2; head_bytes < 7 && head_bytes < message.size; head_bytes++) {
        uint8_t head[12];

        if (head_format(message.size - head_bytes, head) == head_bytes &&
            memcmp(head, message.data, head_bytes) == 0) {
            *ret_payload_bytes = message.size - head_bytes;
            return true;
        }
    }
    return false;
}

static void on_unary(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct large *large = muster_rpc_data(rpc);
    Bench__Msg *message = NULL;
    size_t payload_bytes;

    if (large != NULL && is_plain_msg(bytes, &payload_bytes)) {
        muster_rpc_set_data(rpc, NULL);
        lend_buffer(rpc, large, bytes.size);
        return;
    }
    if (!unpack_request(rpc, &bench__msg__descriptor, bytes, &message))
        return;
    send_reply(rpc, message);
    muster_proto_free(message);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_up(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    Bench__Msg *message = NULL;
    Bench__Req answer;
    size_t payload_bytes = 0;

    if (!is_plain_msg(bytes, &payload_bytes)) {
        if (!unpack_request(rpc, &bench__msg__descriptor, bytes, &message))
            return;
        payload_bytes = message->payload.len;
        muster_proto_free(message);
    }
    bench__req__init(&answer);
    answer.size = (int32_t)payload_bytes;
    answer.count = 1;
    send_reply(rpc, &answer);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_down(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    Bench__Req *request = NULL;
    struct large *large;
    uint8_t head[12];
    size_t payload_bytes = 0, head_bytes;

    if (!unpack_request(rpc, &bench__req__descriptor, bytes, &request))
        return;
    if (request->size >= 0 && request->size <= (int32_t)MESSAGE_MAX_BYTES)
        payload_bytes = (size_t)request->size;
    muster_proto_free(request);
    head_bytes = head_format(payload_bytes, head);
    large = muster_mem_alloc(&memory.mem, sizeof(*large) + head_bytes + payload_bytes);
    if (large == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    memcpy(large->bytes, head, head_bytes);
    memset(large->bytes + head_bytes, 0, payload_bytes);
    lend_buffer(rpc, large, head_bytes + payload_bytes);
}

static void on_progress_start(struct muster_rpc *rpc)
{
    struct progress *progress =
        muster_mem_alloc_zero(muster_rpc_env(rpc)->mem, 1, sizeof(*progress));

    muster_rpc_set_data(rpc, progress);
    if (progress == NULL)
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
}

static void on_progress_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    (void)rc;
    muster_mem_free(muster_rpc_env(rpc)->mem, muster_rpc_data(rpc));
}

static void on_sink_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct progress *progress = muster_rpc_data(rpc);
    Bench__Msg *message = NULL;

    if (!unpack_request(rpc, &bench__msg__descriptor, bytes, &message))
        return;
    progress->count++;
    progress->size += (int32_t)message->payload.len;
    muster_proto_free(message);
}

static void on_sink_end(struct muster_rpc *rpc)
{
    const struct progress *progress = muster_rpc_data(rpc);
    Bench__Req answer;

    bench__req__init(&answer);
    answer.size = progress->size;
    answer.count = progress->count;
    send_reply(rpc, &answer);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* Send until a quarter MiB is queued; on_writable goes on. */
static void source_send(struct muster_rpc *rpc)
{
    struct progress *progress = muster_rpc_data(rpc);
    Bench__Msg message;

    bench__msg__init(&message);
    message.payload.len = (size_t)progress->size;
    message.payload.data = calloc(1, (size_t)progress->size + 1);
    while (progress->count > 0 && muster_rpc_queued_bytes(rpc) < (256u << 10)) {
        send_reply(rpc, &message);
        progress->count--;
    }
    free(message.payload.data);
    if (progress->count == 0)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_source(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct progress *progress = muster_rpc_data(rpc);
    Bench__Req *request = NULL;

    if (!unpack_request(rpc, &bench__req__descriptor, bytes, &request))
        return;
    progress->size = request->size;
    progress->count = request->count;
    muster_proto_free(request);
    if (progress->size < 0 || progress->size > (int32_t)MESSAGE_MAX_BYTES || progress->count < 0)
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "size or count is out of range");
    else
        source_send(rpc);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/bench.Echo/Unary",
     .on_place = on_place,
     .on_message = on_unary,
     .on_end = on_large_end,
     .is_unary = true},
    {.path = "/bench.Echo/Up",
     .on_place = on_place,
     .on_message = on_up,
     .on_end = on_large_end,
     .is_unary = true},
    {.path = "/bench.Echo/Down", .on_message = on_down, .is_unary = true},
    {.path = "/bench.Echo/Sink",
     .on_start = on_progress_start,
     .on_message = on_sink_message,
     .on_half_close = on_sink_end,
     .on_end = on_progress_end},
    {.path = "/bench.Echo/Source",
     .on_start = on_progress_start,
     .on_message = on_source,
     .on_writable = source_send,
     .on_end = on_progress_end,
     .is_unary = true},
};

static struct muster_wake *stop_wake;

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(stop_wake);
}

static void on_closed(struct muster_rpc_server *server)
{
    struct muster_env *env = muster_rpc_server_data(server);

    muster_loop_stop(env->loop);
}

static void on_stop(struct muster_wake *wake)
{
    struct muster_rpc_server *server = muster_wake_data(wake);
    struct muster_env *env = muster_rpc_server_data(server);

    muster_rpc_server_close(server, muster_loop_after_ns(env->loop, MUSTER_NS_PER_S), on_closed);
}

/* Values of flags; NULL: not given. */
struct flags {
    const char *port;
    const char *memory_max_bytes; /* for all calls; a connection gets half */
    const char *unsent_max_bytes; /* of answers that wait to be sent */
    const char *connections_max;
    const char *stall_ms;
    const char *handshake_ms;
    const char *metrics; /* a file for gRPC's metrics, written at the end */
};

static uint64_t number_or(const char *text, uint64_t otherwise)
{
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void flags_parse(struct flags *flags, int argc, char **argv)
{
    const struct {
        const char *name;
        const char **value;
    } rows[] = {
        {"--port", &flags->port},
        {"--memory-max-bytes", &flags->memory_max_bytes},
        {"--unsent-max-bytes", &flags->unsent_max_bytes},
        {"--connections-max", &flags->connections_max},
        {"--stall-ms", &flags->stall_ms},
        {"--handshake-ms", &flags->handshake_ms},
        {"--metrics", &flags->metrics},
    };

    for (int i = 1; i + 1 < argc; i++) {
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            if (strcmp(argv[i], rows[k].name) == 0)
                *rows[k].value = argv[i + 1];
        }
    }
}

static int serve_calls(struct muster_env *env, const struct flags *flags, struct muster_tls *tls)
{
    const struct muster_rpc_server_options options = {
        .receive_message_max_bytes = MESSAGE_MAX_BYTES,
        .ping_interval_min_ns = MUSTER_NS_PER_MS,
        .connections_max = (uint32_t)number_or(flags->connections_max, CONNECTIONS_MAX),
        .memory_max_bytes = number_or(flags->memory_max_bytes, 0),
        .connection_memory_max_bytes = number_or(flags->memory_max_bytes, 0) / 2,
        .unsent_max_bytes = number_or(flags->unsent_max_bytes, 0),
        .stall_timeout_ns = number_or(flags->stall_ms, 0) * MUSTER_NS_PER_MS,
        .reader_timeout_ns = number_or(flags->stall_ms, 0) * MUSTER_NS_PER_MS,
        .handshake_timeout_ns = number_or(flags->handshake_ms, 0) * MUSTER_NS_PER_MS,
        .tls = tls,
    };
    const struct muster_descriptors *descriptors = &proto_echo_descriptors;
    struct muster_rpc_server *server = NULL;
    struct muster_address address;
    struct muster_error error = {.text = "out of memory"};
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    (void)snprintf(text, sizeof(text), "127.0.0.1:%s", flags->port);
    if (muster_address_parse(text, &address, &error) != MUSTER_OK ||
        muster_rpc_server_open(env, &options, &server) != MUSTER_OK ||
        muster_rpc_server_add(server, methods, sizeof(methods) / sizeof(methods[0]), NULL) !=
            MUSTER_OK ||
        muster_rpc_health_open(server, NULL) != MUSTER_OK ||
        muster_rpc_reflection_open(server, &descriptors, 1) != MUSTER_OK ||
        muster_rpc_server_listen(server, &address, &address, &error) != MUSTER_OK ||
        muster_wake_open(env->mem, env->loop, on_stop, server, &stop_wake) != MUSTER_OK) {
        fprintf(stderr, "bench_rpc_server: %s\n", error.text);
        return 1;
    }
    muster_rpc_server_set_data(server, env);
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    printf("listening %s\n", muster_address_format(&address, text));
    (void)fflush(stdout);
    muster_loop_run(env->loop);
    muster_wake_close(stop_wake);
    return 0;
}

static int serve_counting(struct muster_env *env, const struct flags *flags, struct muster_tls *tls)
{
    char *text = NULL;
    size_t bytes = 0;
    int failed = 1;

    if (muster_metrics_open(env->mem, &env->metrics) == MUSTER_OK &&
        muster_rpc_metrics_open(env, &env->rpc_metrics) == MUSTER_OK)
        failed = serve_calls(env, flags, tls);
    if (failed == 0 &&
        (muster_metrics_format(env->metrics, env->mem, &text, &bytes) != MUSTER_OK ||
         muster_files_write(muster_files_system(), flags->metrics, text, bytes) != MUSTER_OK))
        failed = 1;
    muster_mem_free(env->mem, text);
    muster_rpc_metrics_close(env->rpc_metrics);
    muster_metrics_close(env->metrics);
    env->metrics = NULL;
    return failed;
}

int main(int argc, char **argv)
{
    struct muster_env *env = NULL;
    struct flags flags = {.port = "0"};
    struct muster_tls *tls;
    int failed;

    flags_parse(&flags, argc, argv);
    muster_mem_pool_init(&memory, muster_mem_system(), MEMORY_KEPT_BYTES);
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK) {
        fprintf(stderr, "bench_rpc_server: no environment\n");
        return 1;
    }
    tls = program_tls_open(env, argc, argv);
    failed =
        flags.metrics != NULL ? serve_counting(env, &flags, tls) : serve_calls(env, &flags, tls);
    muster_tls_close(tls);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    muster_mem_pool_fini(&memory);
    return failed;
}
