/* Interop cases about how a call ends: statuses, and methods that are not there. */
#include <string.h>

#include "interop_client.h"
#include "tests/proto/interop.pb-c.h"

#define PLAIN_TEXT   "test status message"
#define SPECIAL_TEXT "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"

static bool check_status(struct interop_client *client, const char *method,
                         const ProtobufCMessageDescriptor *descriptor, const void *request,
                         const char *text)
{
    const struct interop_ask ask = {.method = method, .answer = descriptor};
    struct interop_call call = {.client = NULL};
    bool is_right =
        interop_unary(&call, client, &ask, request, MUSTER_UNKNOWN) &&
        interop_check(client, strcmp(call.text, text) == 0,
                      "%s: the status says '%s', expected '%s'", method, call.text, text);

    interop_call_fini(&call);
    return is_right;
}

static bool check_unary_status(struct interop_client *client, char *text)
{
    Grpc__Testing__SimpleRequest request;
    Grpc__Testing__EchoStatus status;

    grpc__testing__echo_status__init(&status);
    status.code = MUSTER_UNKNOWN;
    status.message = text;
    grpc__testing__simple_request__init(&request);
    request.response_status = &status;
    return check_status(client, INTEROP_TEST_SERVICE "UnaryCall",
                        &grpc__testing__simple_response__descriptor, &request, text);
}

bool interop_status_code_and_message(struct interop_client *client)
{
    static char text[] = PLAIN_TEXT;
    Grpc__Testing__StreamingOutputCallRequest request;
    Grpc__Testing__EchoStatus status;

    grpc__testing__echo_status__init(&status);
    status.code = MUSTER_UNKNOWN;
    status.message = text;
    grpc__testing__streaming_output_call_request__init(&request);
    request.response_status = &status;
    return check_unary_status(client, text) &&
           check_status(client, INTEROP_TEST_SERVICE "FullDuplexCall",
                        &grpc__testing__streaming_output_call_response__descriptor, &request, text);
}

bool interop_special_status_message(struct interop_client *client)
{
    static char text[] = SPECIAL_TEXT;

    return check_unary_status(client, text);
}

static bool check_missing(struct interop_client *client, const char *method)
{
    const struct interop_ask ask = {.method = method, .answer = &grpc__testing__empty__descriptor};
    struct interop_call call = {.client = NULL};
    Grpc__Testing__Empty empty;
    bool is_right;

    grpc__testing__empty__init(&empty);
    is_right = interop_unary(&call, client, &ask, &empty, MUSTER_UNIMPLEMENTED);
    interop_call_fini(&call);
    return is_right;
}

bool interop_unimplemented_method(struct interop_client *client)
{
    return check_missing(client, INTEROP_TEST_SERVICE "UnimplementedCall");
}

bool interop_unimplemented_service(struct interop_client *client)
{
    return check_missing(client, "/grpc.testing.UnimplementedService/UnimplementedCall");
}
