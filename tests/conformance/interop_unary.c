/* Interop cases with one message each way. */
#include <stdio.h>
#include <string.h>

#include "interop_client.h"
#include "tests/proto/interop.pb-c.h"

#define VERY_LARGE_REQUEST (10 << 20) /* as grpc-java has it */
#define PICK_CALLS         100

#define INITIAL_NAME   "x-grpc-test-echo-initial"
#define INITIAL_VALUE  "test_initial_metadata_value"
#define TRAILING_NAME  "x-grpc-test-echo-trailing-bin"
#define TRAILING_VALUE "\xab\xab\xab"

static uint8_t zeros[VERY_LARGE_REQUEST];

static const struct interop_ask unary_ask = {.method = INTEROP_TEST_SERVICE "UnaryCall",
                                             .answer = &grpc__testing__simple_response__descriptor};

/* A SimpleRequest and its parts. */
struct request {
    Grpc__Testing__SimpleRequest simple;
    Grpc__Testing__Payload payload;
    Grpc__Testing__BoolValue truth;
};

static void request_init(struct request *request, size_t request_bytes, int32_t response_bytes)
{
    grpc__testing__simple_request__init(&request->simple);
    grpc__testing__payload__init(&request->payload);
    grpc__testing__bool_value__init(&request->truth);
    request->payload.body.data = zeros;
    request->payload.body.len = request_bytes;
    request->simple.payload = &request->payload;
    request->simple.response_size = response_bytes;
}

static bool check_answer(const struct interop_call *call, size_t bytes)
{
    const Grpc__Testing__SimpleResponse *answer = call->answers[0].message;

    return interop_check(call->client, answer->payload != NULL, "the answer has no payload") &&
           interop_check_body(call->client, &answer->payload->body, bytes);
}

bool interop_empty_unary(struct interop_client *client)
{
    const struct interop_ask ask = {.method = INTEROP_TEST_SERVICE "EmptyCall",
                                    .answer = &grpc__testing__empty__descriptor};
    struct interop_call call = {.client = NULL};
    Grpc__Testing__Empty empty;
    bool is_right;

    grpc__testing__empty__init(&empty);
    is_right = interop_unary(&call, client, &ask, &empty, MUSTER_OK);
    interop_call_fini(&call);
    return is_right;
}

static bool ask_sizes(struct interop_client *client, size_t request_bytes, int32_t response_bytes)
{
    struct interop_call call = {.client = NULL};
    struct request request;
    bool is_right;

    request_init(&request, request_bytes, response_bytes);
    is_right = interop_unary(&call, client, &unary_ask, &request.simple, MUSTER_OK) &&
               check_answer(&call, (size_t)response_bytes);
    interop_call_fini(&call);
    return is_right;
}

bool interop_large_unary(struct interop_client *client)
{
    return ask_sizes(client, INTEROP_LARGE_REQUEST, INTEROP_LARGE_RESPONSE);
}

bool interop_very_large_request(struct interop_client *client)
{
    return ask_sizes(client, VERY_LARGE_REQUEST, 10);
}

/* One call that says of its message that it is compressed, or not, truly or not. */
static bool say_compressed(struct interop_client *client, bool is_said, bool is_so)
{
    enum muster_rc expected = is_said == is_so ? MUSTER_OK : MUSTER_INVALID_ARGUMENT;
    struct interop_ask ask = unary_ask;
    struct interop_call call = {.client = NULL};
    struct request request;
    bool is_right;

    ask.can_compress = true;
    request_init(&request, INTEROP_LARGE_REQUEST, INTEROP_LARGE_RESPONSE);
    request.truth.value = is_said;
    request.simple.expect_compressed = &request.truth;
    is_right =
        interop_call_start(&call, client, &ask) && interop_call_send(&call, &request.simple, is_so);
    if (is_right) {
        muster_call_half_close(&call.call);
        is_right = interop_call_end(&call, expected);
    }
    if (is_right && expected == MUSTER_OK)
        is_right = interop_call_await(&call, 1) && check_answer(&call, INTEROP_LARGE_RESPONSE);
    interop_call_fini(&call);
    return is_right;
}

bool interop_client_compressed_unary(struct interop_client *client)
{
    return say_compressed(client, true, false) && say_compressed(client, true, true) &&
           say_compressed(client, false, false);
}

static bool want_compressed(struct interop_client *client, bool is_wanted)
{
    struct interop_call call = {.client = NULL};
    struct request request;
    bool is_right;

    request_init(&request, INTEROP_LARGE_REQUEST, INTEROP_LARGE_RESPONSE);
    request.truth.value = is_wanted;
    request.simple.response_compressed = &request.truth;
    is_right = interop_unary(&call, client, &unary_ask, &request.simple, MUSTER_OK) &&
               check_answer(&call, INTEROP_LARGE_RESPONSE) &&
               interop_check(client, call.answers[0].is_compressed == is_wanted,
                             "the answer is%s compressed, although response_compressed is %s",
                             is_wanted ? " not" : "", is_wanted ? "true" : "false");
    interop_call_fini(&call);
    return is_right;
}

bool interop_server_compressed_unary(struct interop_client *client)
{
    return want_compressed(client, true) && want_compressed(client, false);
}

bool interop_pick_first_unary(struct interop_client *client)
{
    char first[64] = "";

    for (int i = 0; i < PICK_CALLS; i++) {
        struct interop_call call = {.client = NULL};
        const Grpc__Testing__SimpleResponse *answer;
        struct request request;
        bool is_right;

        request_init(&request, 1, 1);
        request.simple.fill_server_id = true;
        is_right = interop_unary(&call, client, &unary_ask, &request.simple, MUSTER_OK);
        answer = call.answers[0].message;
        if (is_right && i == 0)
            (void)snprintf(first, sizeof(first), "%s", answer->server_id);
        is_right =
            is_right &&
            interop_check(client, answer->server_id[0] != '\0', "the server has no server_id") &&
            interop_check(client, strcmp(first, answer->server_id) == 0,
                          "call %d went to server %s, the first to %s", i, answer->server_id,
                          first);
        interop_call_fini(&call);
        if (!is_right)
            return false;
    }
    return true;
}

static bool check_echo(struct interop_client *client, const struct interop_value *seen,
                       const char *name, const char *expected)
{
    size_t bytes = strlen(expected);

    return interop_check(client, seen->count == 1, "%s came %u times, expected 1", name,
                         seen->count) &&
           interop_check(client, seen->bytes == bytes && memcmp(seen->value, expected, bytes) == 0,
                         "%s came with another value", name);
}

static bool client_echo(struct interop_client *client, const char *method,
                        const ProtobufCMessageDescriptor *descriptor, const void *request)
{
    const struct muster_metadata_entry entries[] = {
        {.name = INITIAL_NAME, .value = INITIAL_VALUE, .value_bytes = strlen(INITIAL_VALUE)},
        {.name = TRAILING_NAME, .value = TRAILING_VALUE, .value_bytes = strlen(TRAILING_VALUE)}};
    const struct interop_ask ask = {.method = method,
                                    .answer = descriptor,
                                    .metadata = {entries, 2},
                                    .initial_name = INITIAL_NAME,
                                    .trailing_name = TRAILING_NAME};
    struct interop_call call = {.client = NULL};
    bool is_right = interop_unary(&call, client, &ask, request, MUSTER_OK) &&
                    check_echo(client, &call.initial, INITIAL_NAME, INITIAL_VALUE) &&
                    check_echo(client, &call.trailing, TRAILING_NAME, TRAILING_VALUE);

    interop_call_fini(&call);
    return is_right;
}

bool interop_custom_metadata(struct interop_client *client)
{
    Grpc__Testing__StreamingOutputCallRequest stream;
    Grpc__Testing__ResponseParameters wanted, *list = &wanted;
    struct request request;

    request_init(&request, INTEROP_LARGE_REQUEST, INTEROP_LARGE_RESPONSE);
    grpc__testing__response_parameters__init(&wanted);
    wanted.size = INTEROP_LARGE_RESPONSE;
    grpc__testing__streaming_output_call_request__init(&stream);
    stream.response_parameters = &list;
    stream.n_response_parameters = 1;
    stream.payload = &request.payload;
    return client_echo(client, unary_ask.method, unary_ask.answer, &request.simple) &&
           client_echo(client, INTEROP_TEST_SERVICE "FullDuplexCall",
                       &grpc__testing__streaming_output_call_response__descriptor, &stream);
}
