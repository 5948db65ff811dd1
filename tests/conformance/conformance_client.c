/* conformance_client: a client under connectconformance (connectrpc.com/conformance), which says on
 * standard input what to call, and is told on standard output what came of it. */
#include <stdio.h>
#include <string.h>

#include <muster/env.h>
#include <muster/stream.h>
#include <muster/stub.h>
#include <muster/tls.h>

#include "conformance_wire.h"
#include "proto/guard.h"

#define PAYLOADS_MAX 256
#define DETAILS_NAME "grpc-status-details-bin"

/* One call, as it is asked for. */
struct run {
    struct muster_stub_call stub;
    struct muster_stub_method method;
    char path[256];
    struct muster_env *env;
    struct conformance_arena arena;
    const Conformance__ClientCompatRequest *request;
    struct muster_tls *tls;
    struct muster_channel *channel;
    struct muster_timer timer;
    bool is_due, is_done, is_closed;
    size_t sent_count;
    Conformance__ClientResponseResult result;
    Conformance__ConformancePayload *payloads[PAYLOADS_MAX];
    Conformance__Error error;
};

static void on_due(struct muster_timer *timer)
{
    ((struct run *)timer->data)->is_due = true;
}

static void wait_ms(struct run *run, uint32_t ms)
{
    struct muster_loop *loop = run->env->loop;

    run->is_due = false;
    muster_timer_start(&run->timer, loop, muster_loop_after_ns(loop, ms * MUSTER_NS_PER_MS));
    while (!run->is_due && !run->is_done)
        muster_loop_turn(loop, UINT64_MAX);
    muster_timer_stop(&run->timer);
}

static void wait_payloads(struct run *run, size_t count)
{
    while (!run->is_done && run->result.n_payloads < count)
        muster_loop_turn(run->env->loop, UINT64_MAX);
}

/* The message goes with its callback: keep a copy. */
static void keep_payload(struct run *run, const Conformance__Response *response)
{
    Conformance__ConformancePayload empty;
    void *bytes = NULL;
    size_t size = 0;

    conformance__conformance_payload__init(&empty);
    if (run->result.n_payloads == PAYLOADS_MAX ||
        muster_proto_pack(run->env->mem, response->payload != NULL ? response->payload : &empty,
                          &bytes, &size) != MUSTER_OK)
        return;
    run->payloads[run->result.n_payloads++] =
        conformance_unpack(&run->arena, &conformance__conformance_payload__descriptor, bytes, size);
    muster_mem_free(run->env->mem, bytes);
}

static void on_message(struct muster_stub_call *stub, const void *message)
{
    keep_payload(MUSTER_CONTAINER_OF(stub, struct run, stub), message);
}

static void keep_details(struct run *run)
{
    const struct muster_metadata_entry *entry =
        muster_metadata_find(&run->stub.call.trailing_metadata, DETAILS_NAME);
    Conformance__Status *status;

    if (entry == NULL)
        return;
    status = conformance_unpack(&run->arena, &conformance__status__descriptor, entry->value,
                                entry->value_bytes);
    run->error.details = status->details;
    run->error.n_details = status->n_details;
}

static void on_done(struct muster_stub_call *stub, enum muster_rc rc, const void *response)
{
    struct run *run = MUSTER_CONTAINER_OF(stub, struct run, stub);
    Conformance__ClientResponseResult *result = &run->result;
    const char *text = stub->call.status.text;

    run->is_done = true;
    result->response_headers =
        conformance_headers(&run->arena, &stub->call.initial_metadata, &result->n_response_headers);
    result->response_trailers = conformance_headers(&run->arena, &stub->call.trailing_metadata,
                                                    &result->n_response_trailers);
    if (response != NULL)
        keep_payload(run, response);
    if (rc == MUSTER_OK)
        return;
    conformance__error__init(&run->error);
    run->error.code = (int32_t)rc;
    run->error.has_message_case = CONFORMANCE__ERROR__HAS_MESSAGE_MESSAGE;
    run->error.message = conformance_copy(&run->arena, text, strlen(text));
    keep_details(run);
    result->error = &run->error;
}

static void choose_method(struct run *run)
{
    const Conformance__ClientCompatRequest *request = run->request;
    struct muster_stub_method *method = &run->method;

    (void)snprintf(run->path, sizeof(run->path), "/%s/%s",
                   request->service[0] != '\0' ? request->service
                                               : "connectrpc.conformance.v1.ConformanceService",
                   request->method);
    method->path = run->path;
    method->response = &conformance__response__descriptor;
    method->request = &conformance__unary_request__descriptor;
    switch (request->stream_type) {
    case CONFORMANCE__STREAM_TYPE__STREAM_TYPE_CLIENT_STREAM:
        method->is_request_stream = true;
        break;
    case CONFORMANCE__STREAM_TYPE__STREAM_TYPE_SERVER_STREAM:
        method->is_response_stream = true;
        method->request = &conformance__server_stream_request__descriptor;
        break;
    case CONFORMANCE__STREAM_TYPE__STREAM_TYPE_HALF_DUPLEX_BIDI_STREAM:
    case CONFORMANCE__STREAM_TYPE__STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM:
        method->is_request_stream = method->is_response_stream = true;
        method->request = &conformance__bidi_stream_request__descriptor;
        break;
    default:
        break;
    }
    if (strcmp(request->method, "Unimplemented") == 0)
        method->request = &conformance__unimplemented_request__descriptor;
}

static void *message_of(struct run *run, size_t at)
{
    const Conformance__ClientCompatRequest *request = run->request;
    const Conformance__Any *any =
        at < request->n_request_messages ? request->request_messages[at] : NULL;

    return conformance_unpack(&run->arena, run->method.request,
                              any != NULL ? any->value.data : NULL,
                              any != NULL ? any->value.len : 0);
}

static enum muster_rc run_start(struct run *run)
{
    const Conformance__ClientCompatRequest *request = run->request;
    struct muster_loop *loop = run->env->loop;
    struct muster_call_options options = {
        .deadline_ns = UINT64_MAX,
        .metadata = conformance_metadata(&run->arena, request->request_headers,
                                         request->n_request_headers)};

    if (request->has_timeout_case == CONFORMANCE__CLIENT_COMPAT_REQUEST__HAS_TIMEOUT_TIMEOUT_MS)
        options.deadline_ns = muster_loop_after_ns(loop, request->timeout_ms * MUSTER_NS_PER_MS);
    if (request->compression == CONFORMANCE__COMPRESSION__COMPRESSION_GZIP)
        options.compression = MUSTER_COMPRESSION_GZIP;
    choose_method(run);
    run->stub.on_message = on_message;
    run->stub.done = on_done;
    if (run->method.is_request_stream)
        return muster_stub_start(&run->stub, run->channel, &run->method, &options, NULL);
    run->sent_count = request->n_request_messages;
    return muster_stub_start(&run->stub, run->channel, &run->method, &options, message_of(run, 0));
}

static void send_all(struct run *run)
{
    const Conformance__ClientCompatRequest *request = run->request;
    const Conformance__Cancel *cancel = request->cancel;

    while (run->sent_count < request->n_request_messages && !run->is_done) {
        if (request->request_delay_ms > 0)
            wait_ms(run, request->request_delay_ms);
        if (run->is_done ||
            muster_stub_send(&run->stub, message_of(run, run->sent_count)) != MUSTER_OK)
            break;
        run->sent_count++;
        if (request->stream_type != CONFORMANCE__STREAM_TYPE__STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM)
            continue;
        wait_payloads(run, run->sent_count);
        if (cancel != NULL &&
            cancel->cancel_timing_case == CONFORMANCE__CANCEL__CANCEL_TIMING_AFTER_NUM_RESPONSES &&
            run->result.n_payloads >= cancel->after_num_responses)
            return;
    }
}

static void run_end(struct run *run)
{
    const Conformance__Cancel *cancel = run->request->cancel;
    int timing = cancel != NULL ? (int)cancel->cancel_timing_case : 0;

    if (timing != CONFORMANCE__CANCEL__CANCEL_TIMING_BEFORE_CLOSE_SEND &&
        run->method.is_request_stream)
        muster_call_half_close(&run->stub.call);
    if (timing == CONFORMANCE__CANCEL__CANCEL_TIMING_AFTER_CLOSE_SEND_MS)
        wait_ms(run, cancel->after_close_send_ms);
    if (timing == CONFORMANCE__CANCEL__CANCEL_TIMING_AFTER_NUM_RESPONSES)
        wait_payloads(run, cancel->after_num_responses);
    if (timing != 0)
        muster_call_cancel(&run->stub.call);
    while (!run->is_done)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    run->result.num_unsent_requests = (int32_t)(run->request->n_request_messages - run->sent_count);
}

static char *text_of(struct run *run, const ProtobufCBinaryData *bytes)
{
    return bytes->len == 0 ? NULL : conformance_copy(&run->arena, bytes->data, bytes->len);
}

static enum muster_rc connect_to(struct run *run, struct muster_error *ret_error)
{
    const Conformance__ClientCompatRequest *request = run->request;
    const Conformance__TLSCreds *creds = request->client_tls_creds;
    struct muster_channel_options options = {.receive_message_max_bytes =
                                                 request->message_receive_limit};
    struct muster_tls_options tls = {.ca_pem = text_of(run, &request->server_tls_cert)};
    char target[300];
    enum muster_rc rc = MUSTER_OK;

    if (creds != NULL) {
        tls.cert_pem = text_of(run, &creds->cert);
        tls.key_pem = text_of(run, &creds->key);
    }
    if (tls.ca_pem != NULL)
        rc = muster_tls_open(run->env, &tls, &run->tls, ret_error);
    options.tls = run->tls;
    (void)snprintf(target, sizeof(target), "%s:%u", request->host, (unsigned)request->port);
    if (rc == MUSTER_OK)
        rc = muster_channel_open(run->env, target, &options, &run->channel, ret_error);
    return rc;
}

static void on_closed(struct muster_channel *channel)
{
    ((struct run *)muster_channel_data(channel))->is_closed = true;
}

static void run_disconnect(struct run *run)
{
    if (run->channel != NULL) {
        muster_channel_set_data(run->channel, run);
        muster_channel_close(run->channel, on_closed);
        while (!run->is_closed)
            muster_loop_turn(run->env->loop, UINT64_MAX);
    }
    muster_tls_close(run->tls);
}

static void run_answer(struct run *run, const struct muster_error *error)
{
    Conformance__ClientCompatResponse response = CONFORMANCE__CLIENT_COMPAT_RESPONSE__INIT;
    Conformance__ClientErrorResult failure = CONFORMANCE__CLIENT_ERROR_RESULT__INIT;

    response.test_name = run->request->test_name;
    response.result_case = CONFORMANCE__CLIENT_COMPAT_RESPONSE__RESULT_RESPONSE;
    response.response = &run->result;
    if (!run->is_done) {
        failure.message = conformance_copy(&run->arena, error->text, strlen(error->text));
        response.result_case = CONFORMANCE__CLIENT_COMPAT_RESPONSE__RESULT_ERROR;
        response.error = &failure;
    }
    conformance_write(run->env->mem, &response);
}

/* False: no more are asked for. */
static bool run_next(struct muster_env *env)
{
    struct run *run = muster_mem_alloc_zero(env->mem, 1, sizeof(*run));
    struct muster_error error = {.text = "the call cannot start"};
    bool is_asked;

    if (run == NULL)
        return false;
    run->env = env;
    conformance_arena_init(&run->arena, env->mem);
    conformance__client_response_result__init(&run->result);
    run->result.payloads = run->payloads;
    muster_timer_init(&run->timer, on_due, run);
    is_asked = conformance_read(&run->arena, &conformance__client_compat_request__descriptor,
                                &run->request);
    if (is_asked) {
        if (connect_to(run, &error) == MUSTER_OK && run_start(run) == MUSTER_OK) {
            if (run->method.is_request_stream)
                send_all(run);
            run_end(run);
        }
        run_answer(run, &error);
        run_disconnect(run);
    }
    conformance_arena_fini(&run->arena);
    muster_mem_free(env->mem, run);
    return is_asked;
}

int main(void)
{
    struct muster_env *env = NULL;

    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK)
        return 1;
    while (run_next(env))
        continue;
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return 0;
}
