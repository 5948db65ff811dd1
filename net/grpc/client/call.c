/* A call as the client sees it: waits for a transport, streams, and ends in exactly one done. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/grpc/client/channel_internal.h"
#include "runtime/loop/deadline.h"

#define FREE_CALLS_MAX 256

static const bool moves[5][5] = {
    [MUSTER_GRPC_CALL_WAITING] = {[MUSTER_GRPC_CALL_ACTIVE] = true,
                                  [MUSTER_GRPC_CALL_PAUSED] = true,
                                  [MUSTER_GRPC_CALL_DECIDED] = true},
    [MUSTER_GRPC_CALL_ACTIVE] = {[MUSTER_GRPC_CALL_WAITING] = true,
                                 [MUSTER_GRPC_CALL_PAUSED] = true,
                                 [MUSTER_GRPC_CALL_DECIDED] = true},
    [MUSTER_GRPC_CALL_PAUSED] =
        {[MUSTER_GRPC_CALL_WAITING] = true, [MUSTER_GRPC_CALL_DECIDED] = true},
    [MUSTER_GRPC_CALL_DECIDED] = {[MUSTER_GRPC_CALL_DONE] = true},
};

void muster_grpc_call_move(struct muster_grpc_call *call, enum muster_grpc_call_state state)
{
    bool is_allowed = moves[call->state][state];

    assert(is_allowed);
    (void)is_allowed;
    call->state = state;
}

static void on_expire(struct muster_timer *timer);
static void on_done_task(struct muster_task *task);

void muster_grpc_call_forget_response(struct muster_grpc_call *call)
{
    call->stream.session = NULL;
    call->stream.is_discarded = false;
    muster_rpc_inbox_restart(&call->inbox);
    muster_grpc_parser_reset(&call->parser);
    muster_grpc_metadata_reset(&call->initial);
    muster_grpc_metadata_reset(&call->trailing);
    call->http_status = 0;
    call->has_headers = call->is_grpc = call->has_unknown_encoding = call->has_status = false;
    call->has_peer_ended = call->has_answer = call->retry.has_pushback = false;
    call->status = MUSTER_UNKNOWN;
    call->metadata_rc = MUSTER_OK;
    memset(&call->outcome, 0, sizeof(call->outcome));
}

static void call_reset(struct muster_grpc_call *call)
{
    muster_h2_stream_init(&call->stream, call, call->channel->options.replay_max_bytes);
    muster_rpc_inbox_reset(&call->inbox);
    muster_grpc_call_forget_response(call);
    muster_grpc_metadata_reset(&call->request);
    call->subchannel = NULL;
    call->transport = NULL;
    call->call = NULL;
    call->state = MUSTER_GRPC_CALL_WAITING;
    call->is_streaming = call->is_delivering = call->is_committed = false;
    call->attempts = call->resent = 0;
    memset(&call->retry, 0, sizeof(call->retry));
    call->interception.started = 0;
    call->tally.series = NULL;
}

static struct muster_grpc_call *call_new(struct muster_channel *channel)
{
    struct muster_mem *mem = &channel->pool.mem;
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
        muster_timer_init(&call->retry_timer, muster_grpc_call_on_retry, call);
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

    muster_grpc_call_move(call, MUSTER_GRPC_CALL_DONE);
    call->call = NULL;
    call->is_delivering = true;
    user->impl = NULL;
    user->status = call->outcome;
    user->is_unsent = call->attempts == 0;
    user->is_answered = call->has_answer;
    user->initial_metadata = muster_grpc_metadata_view(&call->initial);
    user->trailing_metadata = muster_grpc_metadata_view(&call->trailing);
    muster_rpc_tally_end(&call->tally, user->status.rc, call->channel->env->loop);
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
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_DECIDED);
    muster_timer_stop(&call->timer);
    muster_timer_stop(&call->retry_timer);
    muster_list_remove(&call->node);
    call->outcome.rc = rc;
    if (text != NULL)
        (void)muster_error_set(&call->outcome, rc, "%s", text);
}

void muster_grpc_call_leave_stream(struct muster_grpc_call *call)
{
    bool is_over = call->stream.body.is_ended && call->stream.body.bytes == 0;

    if (call->is_streaming && !(call->has_peer_ended && is_over))
        muster_h2_stream_reset(&call->stream,
                               call->has_peer_ended ? MUSTER_H2_NO_ERROR : MUSTER_H2_CANCEL);
}

void muster_grpc_call_finish(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    set_outcome(call, rc, text);
    muster_grpc_call_leave_stream(call);
    deliver(call);
}

/* The server, or the way to it, has ended the attempt. */
static void conclude(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    if (muster_grpc_call_repeat(call, rc, text))
        call->has_answer = false; /* of another attempt */
    else
        muster_grpc_call_finish(call, rc, text);
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
    const struct muster_error *error = muster_rpc_balance_error(call->channel);
    char text[MUSTER_ERROR_TEXT_BYTES];

    if (call->state == MUSTER_GRPC_CALL_WAITING && error->rc != MUSTER_OK)
        (void)snprintf(text, sizeof(text), "deadline exceeded while connecting: %.200s",
                       error->text);
    else if (call->state == MUSTER_GRPC_CALL_PAUSED)
        (void)snprintf(text, sizeof(text), "deadline exceeded, the last attempt said: %.180s",
                       call->outcome.text);
    else
        (void)snprintf(text, sizeof(text), "deadline exceeded");
    muster_grpc_call_finish(call, MUSTER_DEADLINE_EXCEEDED, text);
}

enum muster_rc muster_grpc_call_submit(struct muster_grpc_call *call,
                                       struct muster_rpc_transport *transport)
{
    enum muster_rc rc = muster_grpc_call_request(call, transport->session.h2);

    if (rc != MUSTER_OK)
        return rc;
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_ACTIVE);
    call->transport = transport;
    transport->call_count++;
    call->is_streaming = true;
    call->attempts++;
    muster_rpc_tally_attempt(&call->tally, call->attempts, call->channel->env->loop);
    call->channel->counters->streams_started++;
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

static void conclude_refused(struct muster_grpc_call *call, const char *text)
{
    char whole[96];

    (void)snprintf(whole, sizeof(whole), "%s (status %d)", text, call->http_status);
    conclude(call, muster_rc_from_http_status(call->http_status), whole);
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
        conclude(call,
                 call->metadata_rc == MUSTER_RESOURCE_EXHAUSTED ? MUSTER_RESOURCE_EXHAUSTED
                                                                : MUSTER_INTERNAL,
                 "malformed metadata in the response");
        return;
    }
    if (call->has_headers)
        return; /* trailers; on_end follows */
    call->has_headers = true;
    call->transport->has_served = true;
    if (is_end) { /* Trailers-Only: there was no initial metadata */
        struct muster_grpc_metadata swap = call->initial;

        call->initial = call->trailing;
        call->trailing = swap;
        return;
    }
    call->is_committed = true;
    muster_h2_body_commit(&call->stream.body);
    call->has_status = false; /* it belongs into trailers */
    if (refusal(call) != NULL)
        conclude_refused(call, refusal(call));
    else if (call->on_headers != NULL) {
        call->call->initial_metadata = muster_grpc_metadata_view(&call->initial);
        call->on_headers(call->call);
    }
}

void muster_grpc_call_refuse(struct muster_grpc_call *call, enum muster_grpc_parsed parsed)
{
    char text[MUSTER_GRPC_EXPLANATION_BYTES];
    enum muster_rc rc = muster_grpc_parser_explain(&call->parser, parsed, text);

    if (parsed == MUSTER_GRPC_BAD_FLAG && call->has_unknown_encoding)
        (void)snprintf(text, sizeof(text), "response has an unknown grpc-encoding");
    conclude(call, rc, text);
}

void muster_grpc_call_on_end(struct muster_grpc_call *call)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    call->has_peer_ended = true;
    call->has_answer = call->has_status;
    if (call->has_status && call->status != MUSTER_OK)
        conclude(call, call->status, NULL);
    else if (!muster_grpc_parser_is_empty(&call->parser))
        conclude(call, MUSTER_INTERNAL, "message is cut off");
    else if (call->has_status)
        conclude(call, MUSTER_OK, NULL);
    else if (refusal(call) != NULL)
        conclude_refused(call, refusal(call));
    else
        conclude(call, MUSTER_UNKNOWN, "response without grpc-status");
}

void muster_grpc_call_on_over_limit(struct muster_grpc_call *call)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    call->has_peer_ended = true; /* the session resets it */
    conclude(call, MUSTER_RESOURCE_EXHAUSTED, "response headers are too large");
}

void muster_grpc_call_on_drained(struct muster_grpc_call *call)
{
    if (call->state == MUSTER_GRPC_CALL_ACTIVE && call->on_writable != NULL)
        call->on_writable(call->call);
}

static void conclude_reset(struct muster_grpc_call *call, const struct muster_error *error,
                           uint32_t code)
{
    char text[96];

    if (code == MUSTER_H2_LOST) {
        conclude(call, MUSTER_UNAVAILABLE, error->text);
    } else if (code == MUSTER_H2_CANCEL &&
               call->deadline_ns <= muster_loop_now_ns(call->channel->env->loop)) {
        muster_grpc_call_finish(call, MUSTER_DEADLINE_EXCEEDED, "deadline exceeded");
    } else {
        (void)snprintf(text, sizeof(text), "server reset the stream (code %u)", code);
        conclude(call, muster_rc_from_h2_code(code), text);
    }
}

void muster_grpc_call_on_close(struct muster_grpc_call *call, uint32_t code)
{
    const struct muster_error *error = muster_h2_session_error(call->stream.session);
    struct muster_rpc_counters *counters = call->channel->counters;

    *(code == MUSTER_H2_NO_ERROR ? &counters->streams_succeeded : &counters->streams_failed) += 1;
    call->is_streaming = false;
    call->stream.session = NULL;
    call->transport->call_count--;
    call->transport = NULL;
    if (call->state == MUSTER_GRPC_CALL_PAUSED)
        muster_grpc_call_resume(call);
    else if (call->state == MUSTER_GRPC_CALL_DONE && !call->is_delivering)
        muster_grpc_call_release(call);
    else if (call->state == MUSTER_GRPC_CALL_ACTIVE &&
             !muster_rpc_inbox_is_holding_end(
                 &call->inbox) && /* else it ends with the last message */
             (code != MUSTER_H2_REFUSED_STREAM || !muster_grpc_call_resend(call)))
        conclude_reset(call, error, code);
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

    if (call->subchannel == NULL)
        muster_rpc_tally_start(&call->tally,
                               muster_rpc_metrics_series(channel->metrics, MUSTER_RPC_CLIENT,
                                                         options->method, channel->target_text),
                               channel->env->loop);
    if (channel->interceptors.count > 0 && call->subchannel == NULL)
        rc = muster_interception_start(&call->interception, &channel->interceptors, &seen, &error);
    call->interception.call.metadata = (struct muster_metadata){NULL, 0};
    if (rc == MUSTER_OK)
        muster_channel_place(channel, call);
    else
        muster_grpc_call_decide(call, rc, error.text);
}

/* What the channel wants of calls of this method; policy may be NULL. */
static void obey(struct muster_grpc_call *call, const struct muster_method_policy *policy)
{
    const struct muster_channel *channel = call->channel;
    uint64_t limit_ns;

    call->request_max_bytes = UINT32_MAX;
    call->parser.message_max_bytes = channel->options.receive_message_max_bytes;
    if (policy == NULL)
        return;
    call->retry.policy = &policy->retry;
    call->wait_for_ready = call->wait_for_ready || policy->wait_for_ready;
    if (policy->request_max_bytes != 0)
        call->request_max_bytes = policy->request_max_bytes;
    if (policy->response_max_bytes != 0)
        call->parser.message_max_bytes = policy->response_max_bytes;
    limit_ns = muster_loop_after_ns(channel->env->loop, policy->timeout_ns);
    if (policy->timeout_ns != 0 && limit_ns < call->deadline_ns)
        call->deadline_ns = limit_ns;
}

static enum muster_rc options_check(const struct muster_call_options *options,
                                    const struct muster_env *env, struct muster_error *ret_error)
{
    if (options == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "muster_call_start: options must not be NULL: a call needs a "
                                "method and a deadline_ns; set both");
    if (options->method == NULL || options->method[0] != '/')
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "muster_call_start: method must be \"/package.Service/Method\", got "
            "%s%.60s%s",
            options->method == NULL ? "" : "\"", options->method == NULL ? "NULL" : options->method,
            options->method == NULL ? "" : "\"");
    return muster_deadline_check(env, "muster_call_start", options->deadline_ns, ret_error);
}

enum muster_rc muster_call_start(struct muster_call *user, struct muster_channel *channel,
                                 const struct muster_call_options *options,
                                 muster_call_done_fn *done)
{
    struct muster_grpc_call *call;
    enum muster_rc rc;

    if (channel->state == MUSTER_CHANNEL_SHUTDOWN)
        return MUSTER_FAILED_PRECONDITION;
    rc = options_check(options, channel->env, &user->status);
    if (rc != MUSTER_OK)
        return rc;
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
    call->subchannel = options->subchannel;
    obey(call, call->subchannel == NULL
                   ? muster_method_policy_table_find(&channel->policies, options->method)
                   : NULL);
    call->compression = options->compression;
    call->is_compressing = options->compression != MUSTER_COMPRESSION_NONE;
    call->on_headers = options->on_headers;
    call->on_place = options->on_place;
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
