/* Interop cases with streams of messages. */
#include "interop_client.h"
#include "tests/proto/interop.pb-c.h"

#define SIZES 4

static const size_t request_bytes[SIZES] = {27182, 8, 1828, 45904};
static const size_t response_bytes[SIZES] = {31415, 9, 2653, 58979};
static uint8_t zeros[45904];

static const struct interop_ask input_ask = {
    .method = INTEROP_TEST_SERVICE "StreamingInputCall",
    .answer = &grpc__testing__streaming_input_call_response__descriptor};
static const struct interop_ask output_ask = {
    .method = INTEROP_TEST_SERVICE "StreamingOutputCall",
    .answer = &grpc__testing__streaming_output_call_response__descriptor};
static const struct interop_ask duplex_ask = {
    .method = INTEROP_TEST_SERVICE "FullDuplexCall",
    .answer = &grpc__testing__streaming_output_call_response__descriptor};

/* One message of a StreamingInputCall; `expected` may be NULL. */
static bool send_input(struct interop_call *call, size_t bytes, const bool *expected,
                       bool is_compressed)
{
    Grpc__Testing__StreamingInputCallRequest request;
    Grpc__Testing__Payload payload;
    Grpc__Testing__BoolValue truth;

    grpc__testing__streaming_input_call_request__init(&request);
    grpc__testing__payload__init(&payload);
    grpc__testing__bool_value__init(&truth);
    payload.body.data = zeros;
    payload.body.len = bytes;
    request.payload = &payload;
    if (expected != NULL) {
        truth.value = *expected;
        request.expect_compressed = &truth;
    }
    return interop_call_send(call, &request, is_compressed);
}

static bool check_sum(struct interop_call *call, int32_t expected)
{
    const Grpc__Testing__StreamingInputCallResponse *answer;

    muster_call_half_close(&call->call);
    if (!interop_call_end(call, MUSTER_OK) || !interop_call_await(call, 1))
        return false;
    answer = call->answers[0].message;
    return interop_check(call->client, answer->aggregated_payload_size == expected,
                         "aggregated_payload_size is %d, expected %d",
                         (int)answer->aggregated_payload_size, (int)expected);
}

bool interop_client_streaming(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = interop_call_start(&call, client, &input_ask);

    for (size_t i = 0; is_right && i < SIZES; i++)
        is_right = send_input(&call, request_bytes[i], NULL, false);
    is_right = is_right && check_sum(&call, 74922);
    interop_call_fini(&call);
    return is_right;
}

bool interop_client_compressed_streaming(struct interop_client *client)
{
    static const bool yes = true, no = false;
    struct interop_call probe = {.client = NULL}, call = {.client = NULL};
    struct interop_ask ask = input_ask;
    bool is_right;

    ask.can_compress = true;
    is_right = interop_call_start(&probe, client, &ask) && send_input(&probe, 27182, &yes, false);
    if (is_right) {
        muster_call_half_close(&probe.call);
        is_right = interop_call_end(&probe, MUSTER_INVALID_ARGUMENT);
    }
    is_right = is_right && interop_call_start(&call, client, &ask) &&
               send_input(&call, 27182, &yes, true) && send_input(&call, 45904, &no, false) &&
               check_sum(&call, 73086);
    interop_call_fini(&probe);
    interop_call_fini(&call);
    return is_right;
}

/* A request for `count` responses of these sizes, compressed as said (NULL: not said). */
static bool send_wish(struct interop_call *call, size_t payload_bytes, const size_t *sizes,
                      const bool *is_compressed, size_t count)
{
    Grpc__Testing__StreamingOutputCallRequest request;
    Grpc__Testing__ResponseParameters wanted[SIZES], *list[SIZES];
    Grpc__Testing__BoolValue truths[SIZES];
    Grpc__Testing__Payload payload;

    grpc__testing__streaming_output_call_request__init(&request);
    for (size_t i = 0; i < count; i++) {
        grpc__testing__response_parameters__init(&wanted[i]);
        grpc__testing__bool_value__init(&truths[i]);
        wanted[i].size = (int32_t)sizes[i];
        if (is_compressed != NULL) {
            truths[i].value = is_compressed[i];
            wanted[i].compressed = &truths[i];
        }
        list[i] = &wanted[i];
    }
    request.response_parameters = list;
    request.n_response_parameters = count;
    grpc__testing__payload__init(&payload);
    payload.body.data = zeros;
    payload.body.len = payload_bytes;
    if (payload_bytes > 0)
        request.payload = &payload;
    return interop_call_send(call, &request, false);
}

static bool check_output(const struct interop_call *call, size_t at, size_t bytes)
{
    const Grpc__Testing__StreamingOutputCallResponse *answer = call->answers[at].message;

    return interop_check(call->client, answer != NULL && answer->payload != NULL,
                         "answer %zu has no payload", at) &&
           interop_check_body(call->client, &answer->payload->body, bytes);
}

static bool check_count(const struct interop_call *call, size_t count)
{
    return interop_check(call->client, call->answer_count == count,
                         "%zu answers came, expected %zu", call->answer_count, count);
}

bool interop_server_streaming(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = interop_call_start(&call, client, &output_ask) &&
                    send_wish(&call, 0, response_bytes, NULL, SIZES);

    if (is_right) {
        muster_call_half_close(&call.call);
        is_right = interop_call_end(&call, MUSTER_OK) && check_count(&call, SIZES);
    }
    for (size_t i = 0; is_right && i < SIZES; i++)
        is_right = check_output(&call, i, response_bytes[i]);
    interop_call_fini(&call);
    return is_right;
}

bool interop_server_compressed_streaming(struct interop_client *client)
{
    static const size_t sizes[2] = {31415, 92653};
    static const bool is_compressed[2] = {true, false};
    struct interop_call call = {.client = NULL};
    bool is_right = interop_call_start(&call, client, &output_ask) &&
                    send_wish(&call, 0, sizes, is_compressed, 2);

    if (is_right) {
        muster_call_half_close(&call.call);
        is_right = interop_call_end(&call, MUSTER_OK) && check_count(&call, 2);
    }
    for (size_t i = 0; is_right && i < 2; i++)
        is_right = check_output(&call, i, sizes[i]) &&
                   interop_check(client, call.answers[i].is_compressed == is_compressed[i],
                                 "answer %zu is%s compressed, as it should%s be", i,
                                 is_compressed[i] ? " not" : "", is_compressed[i] ? "" : " not");
    interop_call_fini(&call);
    return is_right;
}

bool interop_ping_pong(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = interop_call_start(&call, client, &duplex_ask);

    for (size_t i = 0; is_right && i < SIZES; i++)
        is_right = send_wish(&call, request_bytes[i], &response_bytes[i], NULL, 1) &&
                   interop_call_await(&call, i + 1) && check_output(&call, i, response_bytes[i]);
    if (is_right) {
        muster_call_half_close(&call.call);
        is_right = interop_call_end(&call, MUSTER_OK) && check_count(&call, SIZES);
    }
    interop_call_fini(&call);
    return is_right;
}

bool interop_empty_stream(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = interop_call_start(&call, client, &duplex_ask);

    if (is_right) {
        muster_call_half_close(&call.call);
        is_right = interop_call_end(&call, MUSTER_OK) && check_count(&call, 0);
    }
    interop_call_fini(&call);
    return is_right;
}

bool interop_cancel_after_begin(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = interop_empty_unary(client) && /* the connection is there */
                    interop_call_start(&call, client, &input_ask);

    if (is_right) {
        muster_loop_turn(client->env->loop, 0);
        muster_call_cancel(&call.call);
        is_right = interop_call_end(&call, MUSTER_CANCELLED);
    }
    interop_call_fini(&call);
    return is_right;
}

bool interop_cancel_after_first_response(struct interop_client *client)
{
    struct interop_call call = {.client = NULL};
    bool is_right = interop_call_start(&call, client, &duplex_ask) &&
                    send_wish(&call, request_bytes[0], response_bytes, NULL, 1) &&
                    interop_call_await(&call, 1);

    if (is_right) {
        muster_call_cancel(&call.call);
        is_right = interop_call_end(&call, MUSTER_CANCELLED) && check_count(&call, 1);
    }
    interop_call_fini(&call);
    return is_right;
}

bool interop_timeout_on_sleeping_server(struct interop_client *client)
{
    struct interop_ask ask = duplex_ask;
    struct interop_call call = {.client = NULL};
    bool is_right;

    ask.timeout_ns = MUSTER_NS_PER_MS;
    is_right = interop_empty_unary(client) && interop_call_start(&call, client, &ask) &&
               send_wish(&call, request_bytes[0], NULL, NULL, 0) &&
               interop_call_end(&call, MUSTER_DEADLINE_EXCEEDED);
    interop_call_fini(&call);
    return is_right;
}
