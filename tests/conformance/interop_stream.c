/* grpc.testing.TestService: the calls that answer with a stream. */
#include <string.h>

#include "interop_service.h"
#include "proto/guard.h"

#define RESPONSES_MAX    4096 /* wished for and not yet sent, per call */
#define QUEUED_BYTES_MAX (256u << 10)

/* A response that is wished for. */
struct response {
    uint64_t interval_ns; /* after the response before */
    int32_t size;
    Grpc__Testing__PayloadType type;
    bool is_compressed;
};

/* The work left for a call; its data. */
struct flow {
    struct muster_rpc *rpc;
    struct muster_timer timer; /* the first response's interval */
    struct response *responses;
    size_t capacity, first, count; /* a ring */
    bool is_paced;                 /* the first response's interval is over */
    bool is_held;                  /* nothing is sent before the client has said all */
    bool is_complete;              /* no more wishes come */
    enum muster_rc status;
    char *message;
};

static void go_on(struct flow *flow);

static void on_paced(struct muster_timer *timer)
{
    struct flow *flow = timer->data;

    flow->is_paced = true;
    go_on(flow);
}

/* False: wait for the timer. */
static bool is_due(struct flow *flow, const struct response *response)
{
    struct muster_env *env = muster_rpc_env(flow->rpc);

    if (flow->is_paced || response->interval_ns == 0)
        return true;
    if (!muster_timer_is_started(&flow->timer))
        muster_timer_start(&flow->timer, env->loop,
                           muster_loop_after_ns(env->loop, response->interval_ns));
    return false;
}

/* False: the call has been finished. */
static bool send_response(struct flow *flow, const struct response *response)
{
    struct muster_rpc *rpc = flow->rpc;
    Grpc__Testing__StreamingOutputCallResponse answer;
    Grpc__Testing__Payload payload;
    bool is_sent;

    if (!interop_payload_init(rpc, response->type, response->size, &payload))
        return false;
    grpc__testing__streaming_output_call_response__init(&answer);
    answer.payload = &payload;
    muster_rpc_set_compressing(rpc, response->is_compressed);
    is_sent = interop_reply(rpc, &answer);
    muster_mem_free(muster_rpc_env(rpc)->mem, payload.body.data);
    return is_sent;
}

/* Send what is due and has room; then the status. */
static void go_on(struct flow *flow)
{
    struct muster_rpc *rpc = flow->rpc;

    while (flow->count > 0 && !flow->is_held) {
        const struct response *response = &flow->responses[flow->first];

        if (muster_rpc_queued_bytes(rpc) >= QUEUED_BYTES_MAX || !is_due(flow, response))
            return; /* on_writable or the timer */
        if (!send_response(flow, response))
            return;
        flow->first = (flow->first + 1) % flow->capacity;
        flow->count--;
        flow->is_paced = false;
    }
    if (flow->is_complete && flow->count == 0)
        muster_rpc_finish(rpc, flow->status, flow->message);
}

static bool flow_reserve(struct flow *flow, size_t more)
{
    struct muster_mem *mem = muster_rpc_env(flow->rpc)->mem;
    size_t capacity = flow->capacity == 0 ? 4 : flow->capacity;
    struct response *responses;

    if (more > RESPONSES_MAX - flow->count)
        return false;
    while (capacity < flow->count + more)
        capacity *= 2;
    if (capacity == flow->capacity)
        return true;
    responses = muster_mem_alloc_zero(mem, capacity, sizeof(*responses));
    if (responses == NULL)
        return false;
    for (size_t i = 0; i < flow->count; i++)
        responses[i] = flow->responses[(flow->first + i) % flow->capacity];
    muster_mem_free(mem, flow->responses);
    flow->responses = responses;
    flow->capacity = capacity;
    flow->first = 0;
    return true;
}

static void flow_wish(struct flow *flow, const Grpc__Testing__StreamingOutputCallRequest *request)
{
    for (size_t i = 0; i < request->n_response_parameters; i++) {
        const Grpc__Testing__ResponseParameters *wanted = request->response_parameters[i];
        struct response *response =
            &flow->responses[(flow->first + flow->count++) % flow->capacity];

        response->type = request->response_type;
        response->size = wanted->size;
        response->is_compressed = wanted->compressed != NULL && wanted->compressed->value;
        response->interval_ns =
            wanted->interval_us > 0 ? (uint64_t)wanted->interval_us * MUSTER_NS_PER_US : 0;
    }
}

static void take_request(struct flow *flow,
                         const Grpc__Testing__StreamingOutputCallRequest *request)
{
    struct interop_service *service = muster_rpc_service(flow->rpc);
    const Grpc__Testing__EchoStatus *status = request->response_status;
    enum muster_rc rc = MUSTER_OK;

    if (request->orca_oob_report != NULL)
        rc = interop_orca_set(&service->orca, request->orca_oob_report);
    if (rc != MUSTER_OK) {
        muster_rpc_finish(flow->rpc, rc, "the load report cannot be kept");
        return;
    }
    if (status != NULL && status->code != MUSTER_OK) {
        flow->is_complete = true;
        flow->status = interop_status_of(status);
        flow->message = muster_mem_strdup(service->env->mem, status->message);
    } else if (flow_reserve(flow, request->n_response_parameters)) {
        flow_wish(flow, request);
    } else {
        muster_rpc_finish(flow->rpc, MUSTER_RESOURCE_EXHAUSTED,
                          "more than 4096 responses wait to be sent");
        return;
    }
    go_on(flow);
}

static void on_start(struct muster_rpc *rpc)
{
    struct flow *flow = muster_mem_alloc_zero(muster_rpc_env(rpc)->mem, 1, sizeof(*flow));

    muster_rpc_set_data(rpc, flow);
    if (flow == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    flow->rpc = rpc;
    muster_timer_init(&flow->timer, on_paced, flow);
    interop_begin(rpc);
}

static void on_held_start(struct muster_rpc *rpc)
{
    struct flow *flow;

    on_start(rpc);
    flow = muster_rpc_data(rpc);
    if (flow != NULL)
        flow->is_held = true;
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct flow *flow = muster_rpc_data(rpc);
    Grpc__Testing__StreamingOutputCallRequest *request = NULL;

    if (flow->is_complete) /* what follows a wished status is not looked at */
        return;
    if (!interop_request(rpc, &grpc__testing__streaming_output_call_request__descriptor, bytes,
                         &request))
        return;
    take_request(flow, request);
    muster_proto_free(request);
}

static void on_half_close(struct muster_rpc *rpc)
{
    struct flow *flow = muster_rpc_data(rpc);

    flow->is_complete = true;
    flow->is_held = false;
    go_on(flow);
}

static void on_writable(struct muster_rpc *rpc)
{
    struct flow *flow = muster_rpc_data(rpc);

    if (flow->count > 0)
        go_on(flow);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    struct flow *flow = muster_rpc_data(rpc);

    (void)rc;
    if (flow == NULL)
        return;
    muster_timer_stop(&flow->timer);
    muster_mem_free(mem, flow->responses);
    muster_mem_free(mem, flow->message);
    muster_mem_free(mem, flow);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/grpc.testing.TestService/StreamingOutputCall",
     .on_start = on_start,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_writable = on_writable,
     .on_end = on_end},
    {.path = "/grpc.testing.TestService/FullDuplexCall",
     .on_start = on_start,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_writable = on_writable,
     .on_end = on_end},
    {.path = "/grpc.testing.TestService/HalfDuplexCall",
     .on_start = on_held_start,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_writable = on_writable,
     .on_end = on_end},
};

enum muster_rc interop_stream_add(struct interop_service *service, struct muster_rpc_server *server)
{
    return muster_rpc_server_add(server, methods, sizeof(methods) / sizeof(methods[0]), service);
}
