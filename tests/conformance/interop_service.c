/* grpc.testing.TestService: what its calls share, and those with one answer. */
#include "interop_service.h"

#include <stdio.h>
#include <string.h>

#include "proto/guard.h"

#define ECHO_INITIAL  "x-grpc-test-echo-initial"
#define ECHO_TRAILING "x-grpc-test-echo-trailing-bin"

bool interop_request(struct muster_rpc *rpc, const ProtobufCMessageDescriptor *descriptor,
                     struct muster_bytes bytes, void *ret_message)
{
    struct muster_error error;

    if (muster_proto_unpack(muster_rpc_env(rpc)->mem, descriptor, bytes.data, bytes.size, NULL,
                            ret_message, &error) == MUSTER_OK)
        return true;
    muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, error.text);
    return false;
}

bool interop_reply(struct muster_rpc *rpc, const void *message)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_proto_pack(mem, message, &bytes, &size);

    if (rc == MUSTER_OK)
        rc = muster_rpc_send(rpc, bytes, size);
    muster_mem_free(mem, bytes);
    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, rc, "answer cannot be queued");
    return rc == MUSTER_OK;
}

bool interop_check_compressed(struct muster_rpc *rpc, const Grpc__Testing__BoolValue *expected)
{
    if (expected == NULL || !expected->value == !muster_rpc_is_compressed(rpc))
        return true;
    muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT,
                      expected->value ? "the message is not compressed, as it should be"
                                      : "the message is compressed, as it should not be");
    return false;
}

bool interop_payload_init(struct muster_rpc *rpc, Grpc__Testing__PayloadType type, int32_t size,
                          Grpc__Testing__Payload *ret_payload)
{
    void *zeros = NULL;

    if (type != GRPC__TESTING__PAYLOAD_TYPE__COMPRESSABLE) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "only COMPRESSABLE payloads are served");
        return false;
    }
    if (size < 0 || size > INTEROP_PAYLOAD_MAX_BYTES) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "payload size is not in 0..67108864");
        return false;
    }
    zeros = muster_mem_alloc_zero(muster_rpc_env(rpc)->mem, (size_t)size + 1, 1);
    if (zeros == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the payload");
        return false;
    }
    grpc__testing__payload__init(ret_payload);
    ret_payload->body.data = zeros;
    ret_payload->body.len = (size_t)size;
    return true;
}

void interop_begin(struct muster_rpc *rpc)
{
    struct muster_metadata metadata = muster_rpc_metadata(rpc);
    const struct muster_metadata_entry *initial = muster_metadata_find(&metadata, ECHO_INITIAL);
    const struct muster_metadata_entry *trailing = muster_metadata_find(&metadata, ECHO_TRAILING);

    muster_rpc_set_compression(rpc, MUSTER_COMPRESSION_GZIP);
    muster_rpc_set_compressing(rpc, false);
    if (trailing != NULL)
        muster_rpc_set_trailers(rpc, (struct muster_metadata){trailing, 1});
    if (initial != NULL)
        muster_rpc_send_headers(rpc, (struct muster_metadata){initial, 1});
}

void interop_add_trailer(struct muster_rpc *rpc, const void *report, size_t bytes)
{
    struct muster_metadata metadata = muster_rpc_metadata(rpc);
    const struct muster_metadata_entry *echo = muster_metadata_find(&metadata, ECHO_TRAILING);
    struct muster_metadata_entry entries[2] = {
        {.name = INTEROP_ORCA_TRAILER, .value = report, .value_bytes = bytes}};
    size_t count = 1;

    if (echo != NULL)
        entries[count++] = *echo;
    muster_rpc_set_trailers(rpc, (struct muster_metadata){entries, count});
}

enum muster_rc interop_status_of(const Grpc__Testing__EchoStatus *wanted)
{
    bool is_status = wanted->code > MUSTER_OK && wanted->code <= MUSTER_UNAUTHENTICATED;

    return is_status ? (enum muster_rc)wanted->code : MUSTER_UNKNOWN;
}

static void on_empty(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    Grpc__Testing__Empty *request = NULL;
    Grpc__Testing__Empty answer;

    if (!interop_request(rpc, &grpc__testing__empty__descriptor, bytes, &request))
        return;
    muster_proto_free(request);
    grpc__testing__empty__init(&answer);
    if (interop_reply(rpc, &answer))
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* False: the call has been finished. */
static bool tell_load(struct muster_rpc *rpc, const Grpc__Testing__TestOrcaReport *wanted)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    void *report = NULL;
    size_t size = 0;
    enum muster_rc rc;

    if (wanted == NULL)
        return true;
    rc = interop_orca_pack(mem, wanted, &report, &size);
    if (rc == MUSTER_OK)
        interop_add_trailer(rpc, report, size);
    else
        muster_rpc_finish(rpc, rc, "the load report has too many names");
    muster_mem_free(mem, report);
    return rc == MUSTER_OK;
}

static void answer_unary(struct muster_rpc *rpc, const Grpc__Testing__SimpleRequest *request)
{
    struct interop_service *service = muster_rpc_service(rpc);
    Grpc__Testing__SimpleResponse answer;
    Grpc__Testing__Payload payload;

    if (!tell_load(rpc, request->orca_per_query_report) ||
        !interop_payload_init(rpc, request->response_type, request->response_size, &payload))
        return;
    grpc__testing__simple_response__init(&answer);
    answer.payload = &payload;
    if (request->fill_server_id)
        answer.server_id = service->server_id;
    muster_rpc_set_compressing(rpc, request->response_compressed != NULL &&
                                        request->response_compressed->value);
    if (interop_reply(rpc, &answer))
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
    muster_mem_free(service->env->mem, payload.body.data);
}

static void on_unary(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    Grpc__Testing__SimpleRequest *request = NULL;

    if (!interop_request(rpc, &grpc__testing__simple_request__descriptor, bytes, &request))
        return;
    if (interop_check_compressed(rpc, request->expect_compressed)) {
        const Grpc__Testing__EchoStatus *status = request->response_status;

        if (status != NULL && status->code != MUSTER_OK)
            muster_rpc_finish(rpc, interop_status_of(status), status->message);
        else
            answer_unary(rpc, request);
    }
    muster_proto_free(request);
}

/* The data of a StreamingInputCall is the sum so far. */
static void on_input_start(struct muster_rpc *rpc)
{
    interop_begin(rpc);
    muster_rpc_set_data(rpc, muster_mem_alloc_zero(muster_rpc_env(rpc)->mem, 1, sizeof(uint64_t)));
    if (muster_rpc_data(rpc) == NULL)
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
}

static void on_input(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    uint64_t *sum = muster_rpc_data(rpc);
    Grpc__Testing__StreamingInputCallRequest *request = NULL;

    if (!interop_request(rpc, &grpc__testing__streaming_input_call_request__descriptor, bytes,
                         &request))
        return;
    if (interop_check_compressed(rpc, request->expect_compressed) && request->payload != NULL)
        *sum += request->payload->body.len;
    muster_proto_free(request);
}

static void on_input_half_close(struct muster_rpc *rpc)
{
    const uint64_t *sum = muster_rpc_data(rpc);
    Grpc__Testing__StreamingInputCallResponse answer;

    grpc__testing__streaming_input_call_response__init(&answer);
    answer.aggregated_payload_size = (int32_t)(*sum & INT32_MAX);
    if (interop_reply(rpc, &answer))
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_input_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    (void)rc;
    muster_mem_free(muster_rpc_env(rpc)->mem, muster_rpc_data(rpc));
}

/* CacheableUnaryCall is left out: gRPC has dropped the GET that it is for. UnimplementedCall must
 * not be there. */
static const struct muster_rpc_method methods[] = {
    {.path = "/grpc.testing.TestService/EmptyCall",
     .on_start = interop_begin,
     .on_message = on_empty,
     .is_unary = true},
    {.path = "/grpc.testing.TestService/UnaryCall",
     .on_start = interop_begin,
     .on_message = on_unary,
     .is_unary = true},
    {.path = "/grpc.testing.TestService/StreamingInputCall",
     .on_start = on_input_start,
     .on_message = on_input,
     .on_half_close = on_input_half_close,
     .on_end = on_input_end},
};

void interop_service_init(struct interop_service *service, struct muster_env *env)
{
    *service = (struct interop_service){.env = env};
    interop_orca_init(&service->orca, env);
    (void)snprintf(service->server_id, sizeof(service->server_id), "%016llx%016llx",
                   (unsigned long long)muster_rng_next(env->rng),
                   (unsigned long long)muster_rng_next(env->rng));
}

void interop_service_fini(struct interop_service *service)
{
    interop_orca_fini(&service->orca);
}

enum muster_rc interop_service_add(struct interop_service *service,
                                   struct muster_rpc_server *server)
{
    enum muster_rc rc =
        muster_rpc_server_add(server, methods, sizeof(methods) / sizeof(methods[0]), service);

    if (rc == MUSTER_OK)
        rc = interop_stream_add(service, server);
    if (rc == MUSTER_OK)
        rc = interop_orca_add(&service->orca, server);
    return rc;
}
