/* Interop cases against a strict HTTP/2 peer (tests/lib/strict_peer.py), which does what a case is
 * about: doc/http2-interop-test-descriptions.md of gRPC. */
#include "interop_client.h"
#include "tests/proto/interop.pb-c.h"

#define CALLS 10

static uint8_t zeros[INTEROP_LARGE_REQUEST];

static const struct interop_ask unary_ask = {.method = INTEROP_TEST_SERVICE "UnaryCall",
                                             .answer = &grpc__testing__simple_response__descriptor};

static bool call_begin(struct interop_call *call, struct interop_client *client)
{
    Grpc__Testing__SimpleRequest request;
    Grpc__Testing__Payload payload;

    grpc__testing__simple_request__init(&request);
    grpc__testing__payload__init(&payload);
    payload.body.data = zeros;
    payload.body.len = sizeof(zeros);
    request.payload = &payload;
    request.response_size = INTEROP_LARGE_RESPONSE;
    if (!interop_call_start(call, client, &unary_ask) || !interop_call_send(call, &request, false))
        return false;
    muster_call_half_close(&call->call);
    return true;
}

static bool check_end(struct interop_call *call)
{
    const Grpc__Testing__SimpleResponse *answer;

    if (!interop_call_end(call, MUSTER_OK) || !interop_call_await(call, 1))
        return false;
    answer = call->answers[0].message;
    return interop_check(call->client, answer != NULL && answer->payload != NULL,
                         "the answer has no payload") &&
           interop_check_body(call->client, &answer->payload->body, INTEROP_LARGE_RESPONSE);
}

/* The second call goes over another connection, unseen. */
bool interop_goaway(struct interop_client *client)
{
    return interop_large_unary(client) && interop_large_unary(client);
}

/* The peer resets the stream, with NO_ERROR, before the status: the call must fail. */
bool interop_reset(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = call_begin(&call, client) && interop_call_end(&call, MUSTER_INTERNAL);

    interop_call_fini(&call);
    return is_right;
}

/* The peer allows one stream at a time. */
bool interop_max_streams(struct interop_client *client)
{
    struct interop_call calls[CALLS] = {{.client = NULL}};
    bool is_right = interop_large_unary(client);

    for (size_t i = 0; is_right && i < CALLS; i++)
        is_right = call_begin(&calls[i], client);
    for (size_t i = 0; is_right && i < CALLS; i++)
        is_right = check_end(&calls[i]);
    for (size_t i = 0; i < CALLS; i++)
        interop_call_fini(&calls[i]);
    return is_right;
}
