/* A call as the client sees it: waits for a transport, streams, and ends in exactly one done. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "net/grpc_status.h"
#include "net/rpc_channel_internal.h"

#define FREE_CALLS_MAX   256
#define ATTEMPTS_MAX     5
#define REPLAY_BYTES_MAX (256u << 10)

static const bool moves[4][4] = {
    [MUSTER_GRPC_CALL_WAITING] =
        {[MUSTER_GRPC_CALL_ACTIVE] = true, [MUSTER_GRPC_CALL_DECIDED] = true},
    [MUSTER_GRPC_CALL_ACTIVE] =
        {[MUSTER_GRPC_CALL_WAITING] = true, [MUSTER_GRPC_CALL_DECIDED] = true},
    [MUSTER_GRPC_CALL_DECIDED] = {[MUSTER_GRPC_CALL_DONE] = true},
};

static void call_move(struct muster_grpc_call *call, enum muster_grpc_call_state state)
{
    bool is_allowed = moves[call->state][state];

    assert(is_allowed);
    (void)is_allowed;
    call->state = state;
}

static void on_expire(struct muster_timer *timer);
static void on_done_task(struct muster_task *task);

static void call_reset(struct muster_grpc_call *call)
{
    muster_h2_stream_init(&call->stream, call, REPLAY_BYTES_MAX);
    muster_rpc_inbox_reset(&call->inbox);
    muster_grpc_parser_reset(&call->parser);
    muster_grpc_metadata_reset(&call->request);
    muster_grpc_metadata_reset(&call->initial);
    muster_grpc_metadata_reset(&call->trailing);
    call->transport = NULL;
    call->call = NULL;
    call->state = MUSTER_GRPC_CALL_WAITING;
    call->is_streaming = call->is_delivering = false;
    call->attempts = 0;
    call->http_status = 0;
    call->has_headers = call->is_grpc = call->has_unknown_encoding = call->has_status = false;
    call->status = MUSTER_UNKNOWN;
    call->metadata_rc = MUSTER_OK;
    memset(&call->outcome, 0, sizeof(call->outcome));
    call->interception.started = 0;
}

static struct muster_grpc_call *call_new(struct muster_channel *channel)
{
    struct muster_mem *mem = channel->env->mem;
    struct muster_list *node = muster_list_pop(&channel->free_calls);
    struct muster_grpc_call *call;

    if (node != NULL) {
        call = MUSTER_CONTAINER_OF(node, struct muster_grpc_call, node);
        channel->free_call_count--;
    } else {
        call = muster_mem_alloc_zero(mem, 1, sizeof(*call));
        if (call == NULL)
            return NULL;
        call->channel = channel;
        muster_list_init(&call->node);
        muster_timer_init(&call->timer, on_expire, call);
        muster_task_init(&call->done_task, on_done_task, call);
        muster_grpc_parser_init(&call->parser, mem, channel->options.receive_message_max_bytes);
        muster_grpc_call_receive_init(call);
        muster_grpc_metadata_init(&call->request, mem);
        muster_grpc_metadata_init(&call->initial, mem);
        muster_grpc_metadata_init(&call->trailing, mem);
    }
    call_reset(call);
    muster_list_append(&channel->calls, &call->channel_node);
    return call;
}

void muster_grpc_call_free(struct muster_grpc_call *call)
{
    muster_rpc_inbox_reset(&call->inbox);
    muster_grpc_parser_fini(&call->parser);
    muster_grpc_metadata_fini(&call->request);
    muster_grpc_metadata_fini(&call->initial);
    muster_grpc_metadata_fini(&call->trailing);
    muster_mem_free(call->parser.mem, call);
}

void muster_grpc_call_release(struct muster_grpc_call *call)
{
    struct muster_channel *channel = call->channel;

    if (!muster_rpc_inbox_release(&call->inbox))
        return;
    muster_timer_stop(&call->timer);
    muster_task_cancel(&call->done_task);
    muster_h2_stream_fini(&call->stream);
    muster_list_remove(&call->node);
    muster_list_remove(&call->channel_node);
    if (channel->free_call_count >= FREE_CALLS_MAX) {
        muster_grpc_call_free(call);
    } else {
        muster_rpc_inbox_reset(&call->inbox);
        muster_grpc_parser_reset(&call->parser);
        channel->free_call_count++;
        muster_list_prepend(&channel->free_calls, &call->node);
    }
    muster_channel_check_closed(channel);
}

/* Run done. The stream may outlive it until its close is acknowledged. */
static void deliver(struct muster_grpc_call *call)
{
    struct muster_call *user = call->call;

    call_move(call, MUSTER_GRPC_CALL_DONE);
    call->call = NULL;
    call->is_delivering = true;
    user->impl = NULL;
    user->status = call->outcome;
    user->is_unsent = call->attempts == 0;
    user->initial_metadata = muster_grpc_metadata_view(&call->initial);
    user->trailing_metadata = muster_grpc_metadata_view(&call->trailing);
    muster_interception_end(&call->interception, user->status.rc, user->status.text,
                            user->trailing_metadata);
    user->done(user, call->outcome.rc);
    call->is_delivering = false;
    if (!call->is_streaming)
        muster_grpc_call_release(call);
}

static void on_done_task(struct muster_task *task)
{
    deliver(task->data);
}

static void set_outcome(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    call_move(call, MUSTER_GRPC_CALL_DECIDED);
    muster_timer_stop(&call->timer);
    muster_list_remove(&call->node);
    call->outcome.rc = rc;
    if (text != NULL)
        (void)muster_error_set(&call->outcome, rc, "%s", text);
}

/* Amid events of the loop: decide and run done at once; what the peer still sends is not wanted. */
static void finish(struct muster_grpc_call *call, enum muster_rc rc, const char *text, bool is_over)
{
    set_outcome(call, rc, text);
    if (call->is_streaming && !(is_over && call->stream.body.is_ended))
        muster_h2_stream_reset(&call->stream, is_over ? MUSTER_H2_NO_ERROR : MUSTER_H2_CANCEL);
    deliver(call);
}

void muster_grpc_call_decide(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    if (call->state >= MUSTER_GRPC_CALL_DECIDED)
        return;
    set_outcome(call, rc, text);
    if (call->is_streaming)
        muster_h2_stream_reset(&call->stream, MUSTER_H2_CANCEL);
    muster_task_post(&call->done_task, call->channel->env->loop);
}

static void on_expire(struct muster_timer *timer)
{
    struct muster_grpc_call *call = timer->data;
    const struct muster_channel *channel = call->channel;
    char text[MUSTER_ERROR_TEXT_BYTES];

    if (call->state == MUSTER_GRPC_CALL_WAITING && channel->error.rc != MUSTER_OK)
        (void)snprintf(text, sizeof(text), "deadline exceeded while connecting: %.200s",
                       channel->error.text);
    else
        (void)snprintf(text, sizeof(text), "deadline exceeded");
    finish(call, MUSTER_DEADLINE_EXCEEDED, text, false);
}

enum muster_rc muster_grpc_call_submit(struct muster_grpc_call *call,
                                       struct muster_rpc_transport *transport)
{
    enum muster_rc rc = muster_grpc_call_request(call, transport->session.h2);

    if (rc != MUSTER_OK)
        return rc;
    call_move(call, MUSTER_GRPC_CALL_ACTIVE);
    call->transport = transport;
    call->is_streaming = true;
    call->attempts++;
    muster_interception_attempt(&call->interception, call->attempts);
    return MUSTER_OK;
}

/* Events of the stream. */

static bool is_informational(const struct muster_grpc_call *call)
{
    return call->http_status >= 100 && call->http_status < 200;
}

/* Why a response is none of gRPC; NULL when it is. */
static const char *refusal(const struct muster_grpc_call *call)
{
    if (call->http_status != 200)
        return "server answered with an HTTP error";
    return call->is_grpc ? NULL : "server answered without gRPC's content-type";
}

static void finish_refused(struct muster_grpc_call *call, const char *text, bool is_over)
{
    char whole[96];

    (void)snprintf(whole, sizeof(whole), "%s (status %d)", text, call->http_status);
    finish(call, muster_rc_from_http_status(call->http_status), whole, is_over);
}

void muster_grpc_call_on_headers(struct muster_grpc_call *call, bool is_end)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    if (is_informational(call)) {
        muster_grpc_metadata_reset(&call->initial);
        return;
    }
    if (call->metadata_rc != MUSTER_OK) {
        finish(call,
               call->metadata_rc == MUSTER_RESOURCE_EXHAUSTED ? MUSTER_RESOURCE_EXHAUSTED
                                                              : MUSTER_INTERNAL,
               "malformed metadata in the response", false);
        return;
    }
    if (call->has_headers)
        return; /* trailers; on_end follows */
    call->has_headers = true;
    call->transport->has_served = true;
    muster_h2_body_commit(&call->stream.body);
    if (is_end) { /* Trailers-Only: there was no initial metadata */
        struct muster_grpc_metadata swap = call->initial;

        call->initial = call->trailing;
        call->trailing = swap;
        return;
    }
    call->has_status = false; /* it belongs into trailers */
    if (refusal(call) != NULL)
        finish_refused(call, refusal(call), false);
    else if (call->on_headers != NULL)
        call->on_headers(call->call);
}

void muster_grpc_call_refuse(struct muster_grpc_call *call, enum muster_grpc_parsed parsed)
{
    char text[MUSTER_GRPC_EXPLANATION_BYTES];
    enum muster_rc rc = muster_grpc_parser_explain(&call->parser, parsed, text);

    if (parsed == MUSTER_GRPC_BAD_FLAG && call->has_unknown_encoding)
        (void)snprintf(text, sizeof(text), "response has an unknown grpc-encoding");
    finish(call, rc, text, false);
}

void muster_grpc_call_on_end(struct muster_grpc_call *call)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    if (call->has_status && call->status != MUSTER_OK)
        finish(call, call->status, NULL, true);
    else if (!muster_grpc_parser_is_empty(&call->parser))
        finish(call, MUSTER_INTERNAL, "message is cut off", true);
    else if (call->has_status)
        finish(call, MUSTER_OK, NULL, true);
    else if (refusal(call) != NULL)
        finish_refused(call, refusal(call), true);
    else
        finish(call, MUSTER_UNKNOWN, "response without grpc-status", true);
}

void muster_grpc_call_on_over_limit(struct muster_grpc_call *call)
{
    if (call->state == MUSTER_GRPC_CALL_ACTIVE)
        finish(call, MUSTER_RESOURCE_EXHAUSTED, "response headers are too large", true);
}

void muster_grpc_call_on_drained(struct muster_grpc_call *call)
{
    if (call->state == MUSTER_GRPC_CALL_ACTIVE && call->on_writable != NULL)
        call->on_writable(call->call);
}

/* gRPC A6 "transparent retries": the server has not processed the request. */
static bool try_again(struct muster_grpc_call *call)
{
    if (call->has_headers || call->attempts >= ATTEMPTS_MAX ||
        !muster_h2_body_rewind(&call->stream.body))
        return false;
    muster_interception_attempt_end(&call->interception, MUSTER_UNAVAILABLE);
    call->stream.session = NULL;
    call->stream.is_over_limit = false;
    call_move(call, MUSTER_GRPC_CALL_WAITING);
    muster_channel_place(call->channel, call);
    return true;
}

static void finish_reset(struct muster_grpc_call *call, const struct muster_error *error,
                         uint32_t code)
{
    char text[96];

    if (code == MUSTER_H2_LOST) {
        finish(call, MUSTER_UNAVAILABLE, error->text, true);
    } else if (code == MUSTER_H2_CANCEL &&
               call->deadline_ns <= muster_loop_now_ns(call->channel->env->loop)) {
        finish(call, MUSTER_DEADLINE_EXCEEDED, "deadline exceeded", true);
    } else {
        (void)snprintf(text, sizeof(text), "server reset the stream (code %u)", code);
        finish(call, muster_rc_from_h2_code(code), text, true);
    }
}

void muster_grpc_call_on_close(struct muster_grpc_call *call, uint32_t code)
{
    const struct muster_error *error = muster_h2_session_error(call->stream.session);

    call->is_streaming = false;
    call->transport = NULL;
    if (call->state == MUSTER_GRPC_CALL_DONE && !call->is_delivering) {
        muster_grpc_call_release(call);
        return;
    }
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    if (muster_rpc_inbox_is_holding_end(&call->inbox)) { /* it ends when the user has it all */
        call->stream.session = NULL;
        return;
    }
    if (code != MUSTER_H2_REFUSED_STREAM || !try_again(call))
        finish_reset(call, error, code);
}

/* What users call. */

static enum muster_rc request_store(struct muster_grpc_call *call,
                                    const struct muster_call_options *options)
{
    enum muster_rc rc = muster_grpc_metadata_add_wire(&call->request, ":path", 5, options->method,
                                                      strlen(options->method));

    if (rc != MUSTER_OK)
        return rc;
    return muster_grpc_metadata_add_user(&call->request, &options->metadata, NULL);
}

/* The interceptors decide whether it is sent; a refusal comes by done. */
static void begin(struct muster_grpc_call *call, const struct muster_call_options *options)
{
    struct muster_channel *channel = call->channel;
    const struct muster_intercepted seen = {
        .env = channel->env,
        .method = call->request.entries[0].value,
        .metadata = options->metadata,
        .deadline_ns = call->deadline_ns,
        .call = call->call,
        .added = &call->request,
    };
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    if (channel->interceptors.count > 0)
        rc = muster_interception_start(&call->interception, &channel->interceptors, &seen, &error);
    call->interception.call.metadata = (struct muster_metadata){NULL, 0};
    if (rc == MUSTER_OK)
        muster_channel_place(channel, call);
    else
        muster_grpc_call_decide(call, rc, error.text);
}

enum muster_rc muster_call_start(struct muster_call *user, struct muster_channel *channel,
                                 const struct muster_call_options *options,
                                 muster_call_done_fn *done)
{
    struct muster_grpc_call *call;
    enum muster_rc rc;

    if (channel->state == MUSTER_CHANNEL_SHUTDOWN)
        return MUSTER_FAILED_PRECONDITION;
    if (options->method == NULL || options->method[0] != '/')
        return MUSTER_INVALID_ARGUMENT;
    call = call_new(channel);
    if (call == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = request_store(call, options);
    if (rc != MUSTER_OK) {
        muster_grpc_call_release(call);
        return rc;
    }
    call->call = user;
    call->deadline_ns = options->deadline_ns;
    call->wait_for_ready = options->wait_for_ready;
    call->compression = options->compression;
    call->is_compressing = options->compression != MUSTER_COMPRESSION_NONE;
    call->on_headers = options->on_headers;
    call->on_message = options->on_message;
    call->on_writable = options->on_writable;
    user->done = done;
    user->impl = call;
    memset(&user->status, 0, sizeof(user->status));
    if (call->deadline_ns != UINT64_MAX)
        muster_timer_start(&call->timer, channel->env->loop, call->deadline_ns);
    begin(call, options);
    return MUSTER_OK;
}

void muster_call_cancel(struct muster_call *user)
{
    struct muster_grpc_call *call = user->impl;

    if (call != NULL)
        muster_grpc_call_decide(call, MUSTER_CANCELLED, "cancelled");
}
