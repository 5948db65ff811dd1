/* connectrpc.conformance.v1.ConformanceService: it answers as each request says. */
#include "conformance_service.h"

#include <string.h>

#include "conformance_wire.h"
#include "proto/guard.h"

#define TYPE_PREFIX  "type.googleapis.com/connectrpc.conformance.v1."
#define INFO_TYPE    TYPE_PREFIX "ConformancePayload.RequestInfo"
#define REQUESTS_MAX 256

/* How the requests of a method look. */
struct kind {
    const char *type_url;
    const ProtobufCMessageDescriptor *request;
    bool is_stream_request, is_stream_response;
};

/* A call under way; its data. */
struct work {
    struct muster_rpc *rpc;
    const struct kind *kind;
    struct conformance_arena arena;
    struct muster_timer timer; /* the delay before a response */
    void *first;               /* the request with the definition */
    Conformance__Any *requests[REQUESTS_MAX];
    size_t request_count, told_count; /* received; those before the last response */
    uint64_t timeout_ms;              /* UINT64_MAX: none */
    /* the definition */
    ProtobufCBinaryData *responses;
    size_t response_count, sent_count;
    uint32_t delay_ms;
    const Conformance__Error *error;
    struct muster_metadata trailers;
    bool is_full_duplex;
    bool is_half_closed, is_paced, is_over;
};

static Conformance__RequestInfo *info_of(struct work *work, bool is_whole)
{
    struct muster_metadata metadata = muster_rpc_metadata(work->rpc);
    Conformance__RequestInfo *info = conformance_alloc(&work->arena, 1, sizeof(*info));

    conformance__request_info__init(info);
    info->requests = work->requests + work->told_count;
    info->n_requests = work->request_count - work->told_count;
    if (!is_whole)
        return info;
    info->request_headers = conformance_headers(&work->arena, &metadata, &info->n_request_headers);
    if (work->timeout_ms != UINT64_MAX) {
        info->has_timeout_case = CONFORMANCE__REQUEST_INFO__HAS_TIMEOUT_TIMEOUT_MS;
        info->timeout_ms = (int64_t)work->timeout_ms;
    }
    return info;
}

/* Send one response. False: the call has been finished. */
static bool send_response(struct work *work)
{
    struct muster_mem *mem = work->arena.mem;
    Conformance__ConformancePayload payload;
    Conformance__Response response;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    conformance__conformance_payload__init(&payload);
    conformance__response__init(&response);
    response.payload = &payload;
    payload.data = work->responses[work->sent_count];
    if (work->sent_count == 0 || work->is_full_duplex)
        payload.request_info = info_of(work, work->sent_count == 0);
    rc = muster_proto_pack(mem, &response, &bytes, &size);
    if (rc == MUSTER_OK)
        rc = muster_rpc_send(work->rpc, bytes, size);
    muster_mem_free(mem, bytes);
    if (rc != MUSTER_OK) {
        muster_rpc_finish(work->rpc, rc, "the response cannot be queued");
        return false;
    }
    work->sent_count++;
    work->told_count = work->request_count;
    work->is_paced = false;
    return true;
}

/* Trailers with the error's details; what the request was is one of them if nothing else told. */
static void set_error_trailers(struct work *work)
{
    const Conformance__Error *error = work->error;
    struct conformance_arena *arena = &work->arena;
    struct muster_metadata_entry *entries =
        conformance_alloc(arena, work->trailers.count + 1, sizeof(*entries));
    Conformance__Any **details = conformance_alloc(arena, error->n_details + 1, sizeof(*details));
    Conformance__Any info = CONFORMANCE__ANY__INIT;
    Conformance__Status status = CONFORMANCE__STATUS__INIT;
    void *info_bytes = NULL, *bytes = NULL;
    size_t size = 0;

    for (size_t i = 0; i < error->n_details; i++)
        details[status.n_details++] = error->details[i];
    info.type_url = (char *)(uintptr_t)INFO_TYPE;
    if (work->sent_count == 0 && muster_proto_pack(arena->mem, info_of(work, true), &info_bytes,
                                                   &info.value.len) == MUSTER_OK) {
        info.value.data = info_bytes;
        details[status.n_details++] = &info;
    }
    status.code = error->code;
    if (error->has_message_case == CONFORMANCE__ERROR__HAS_MESSAGE_MESSAGE)
        status.message = error->message;
    status.details = details;
    for (size_t i = 0; i < work->trailers.count; i++)
        entries[i] = work->trailers.entries[i];
    if (status.n_details > 0 &&
        muster_proto_pack(arena->mem, &status, &bytes, &size) == MUSTER_OK) {
        entries[work->trailers.count] =
            (struct muster_metadata_entry){"grpc-status-details-bin", bytes, size};
        muster_rpc_set_trailers(work->rpc,
                                (struct muster_metadata){entries, work->trailers.count + 1});
    }
    muster_mem_free(arena->mem, info_bytes);
    muster_mem_free(arena->mem, bytes);
}

static void work_finish(struct work *work)
{
    const Conformance__Error *error = work->error;
    bool has_text =
        error != NULL && error->has_message_case == CONFORMANCE__ERROR__HAS_MESSAGE_MESSAGE;

    if (error != NULL)
        set_error_trailers(work);
    muster_rpc_finish(work->rpc, error != NULL ? (enum muster_rc)error->code : MUSTER_OK,
                      has_text ? error->message : NULL);
}

/* Whether a response may be sent, its delay aside. */
static bool is_wanted(const struct work *work)
{
    if (work->sent_count == work->response_count)
        return false;
    return work->is_half_closed || (work->is_full_duplex && work->request_count > work->told_count);
}

static void go_on(struct work *work)
{
    struct muster_loop *loop = muster_rpc_env(work->rpc)->loop;

    while (is_wanted(work)) {
        if (work->delay_ms > 0 && !work->is_paced) {
            if (!muster_timer_is_started(&work->timer))
                muster_timer_start(&work->timer, loop,
                                   muster_loop_after_ns(loop, work->delay_ms * MUSTER_NS_PER_MS));
            return;
        }
        if (!send_response(work))
            return;
    }
    if (work->sent_count == work->response_count && (work->is_half_closed || work->is_over))
        work_finish(work);
}

static void on_paced(struct muster_timer *timer)
{
    struct work *work = timer->data;

    work->is_paced = true;
    go_on(work);
}

static void take_unary(struct work *work, const Conformance__UnaryRequest *request)
{
    const Conformance__UnaryResponseDefinition *wanted = request->response_definition;

    work->response_count = 1;
    work->responses = conformance_alloc(&work->arena, 1, sizeof(*work->responses));
    if (wanted == NULL)
        return;
    work->delay_ms = wanted->response_delay_ms;
    work->trailers =
        conformance_metadata(&work->arena, wanted->response_trailers, wanted->n_response_trailers);
    muster_rpc_set_trailers(work->rpc, work->trailers);
    if (wanted->response_case == CONFORMANCE__UNARY_RESPONSE_DEFINITION__RESPONSE_RESPONSE_DATA)
        work->responses[0] = wanted->response_data;
    if (wanted->response_case == CONFORMANCE__UNARY_RESPONSE_DEFINITION__RESPONSE_ERROR) {
        work->response_count = 0;
        work->error = wanted->error;
    }
    if (wanted->n_response_headers > 0)
        muster_rpc_send_headers(work->rpc,
                                conformance_metadata(&work->arena, wanted->response_headers,
                                                     wanted->n_response_headers));
}

static void take_stream(struct work *work, const Conformance__StreamResponseDefinition *wanted)
{
    if (wanted == NULL)
        return;
    work->delay_ms = wanted->response_delay_ms;
    work->responses = wanted->response_data;
    work->response_count = wanted->n_response_data;
    work->error = wanted->error;
    work->trailers =
        conformance_metadata(&work->arena, wanted->response_trailers, wanted->n_response_trailers);
    muster_rpc_set_trailers(work->rpc, work->trailers);
    if (wanted->n_response_headers > 0 || work->response_count > 0)
        muster_rpc_send_headers(work->rpc,
                                conformance_metadata(&work->arena, wanted->response_headers,
                                                     wanted->n_response_headers));
}

static void take_first(struct work *work)
{
    if (!work->kind->is_stream_response) {
        take_unary(work, work->first);
    } else if (work->kind->request == &conformance__server_stream_request__descriptor) {
        take_stream(work, ((Conformance__ServerStreamRequest *)work->first)->response_definition);
    } else {
        Conformance__BidiStreamRequest *request = work->first;

        work->is_full_duplex = request->full_duplex;
        take_stream(work, request->response_definition);
    }
}

static void on_start(struct muster_rpc *rpc, const struct kind *kind)
{
    struct muster_env *env = muster_rpc_env(rpc);
    uint64_t deadline_ns = muster_rpc_deadline_ns(rpc);
    struct work *work = muster_mem_alloc_zero(env->mem, 1, sizeof(*work));

    muster_rpc_set_data(rpc, work);
    if (work == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    work->rpc = rpc;
    work->kind = kind;
    work->timeout_ms = deadline_ns == UINT64_MAX
                           ? UINT64_MAX
                           : (deadline_ns - muster_loop_now_ns(env->loop)) / MUSTER_NS_PER_MS;
    conformance_arena_init(&work->arena, env->mem);
    muster_timer_init(&work->timer, on_paced, work);
    muster_rpc_set_compression(rpc, MUSTER_COMPRESSION_GZIP);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct work *work = muster_rpc_data(rpc);
    struct muster_error error;
    Conformance__Any *request;

    if (work->request_count == REQUESTS_MAX) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "more than 256 requests in a call");
        return;
    }
    if (work->first == NULL) {
        if (muster_proto_unpack(work->arena.mem, work->kind->request, bytes.data, bytes.size, NULL,
                                &work->first, &error) != MUSTER_OK) {
            muster_rpc_finish(rpc, MUSTER_INTERNAL, error.text);
            return;
        }
        take_first(work);
    }
    request = conformance_alloc(&work->arena, 1, sizeof(*request));
    conformance__any__init(request);
    request->type_url = (char *)(uintptr_t)work->kind->type_url;
    request->value.data = conformance_copy(&work->arena, bytes.data, bytes.size);
    request->value.len = bytes.size;
    work->requests[work->request_count++] = request;
    work->is_over = work->is_full_duplex && work->sent_count == work->response_count;
    if (!work->kind->is_stream_request)
        work->is_half_closed = true;
    go_on(work);
}

static void on_half_close(struct muster_rpc *rpc)
{
    struct work *work = muster_rpc_data(rpc);
    Conformance__UnaryRequest none;

    if (work->is_half_closed)
        return;
    work->is_half_closed = true;
    conformance__unary_request__init(&none);
    if (work->first == NULL && !work->kind->is_stream_response)
        take_unary(work, &none);
    go_on(work);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct work *work = muster_rpc_data(rpc);

    (void)rc;
    if (work == NULL)
        return;
    muster_timer_stop(&work->timer);
    muster_proto_free(work->first);
    conformance_arena_fini(&work->arena);
    muster_mem_free(muster_rpc_env(rpc)->mem, work);
}

#define KIND(name, descriptor, request_stream, response_stream)                                    \
    static void on_start_##name(struct muster_rpc *rpc)                                            \
    {                                                                                              \
        static const struct kind kind = {TYPE_PREFIX #name "Request", &descriptor, request_stream, \
                                         response_stream};                                         \
        on_start(rpc, &kind);                                                                      \
    }
#define ROW(name, one_request)                                                                     \
    {                                                                                              \
        .path = CONFORMANCE_SERVICE #name, .on_start = on_start_##name, .on_message = on_message,  \
        .on_half_close = on_half_close, .on_end = on_end, .is_unary = one_request                  \
    }

KIND(Unary, conformance__unary_request__descriptor, false, false)
KIND(IdempotentUnary, conformance__unary_request__descriptor, false, false)
KIND(ClientStream, conformance__unary_request__descriptor, true, false)
KIND(ServerStream, conformance__server_stream_request__descriptor, false, true)
KIND(BidiStream, conformance__bidi_stream_request__descriptor, true, true)

static const struct muster_rpc_method methods[] = {
    ROW(Unary, true),        ROW(IdempotentUnary, true), ROW(ClientStream, false),
    ROW(ServerStream, true), ROW(BidiStream, false),
};

enum muster_rc conformance_service_add(struct muster_rpc_server *server)
{
    return muster_rpc_server_add(server, methods, sizeof(methods) / sizeof(methods[0]), NULL);
}
