/* A call as the client sees it: it waits for a transport, streams, and ends in exactly one done.
 * This file has its states and its end; call_start.c begins it, channel.c places it, the other
 * call_*.c files are its parts. The record belongs to the channel, which keeps some of them for the
 * next calls, and may outlive the user's struct muster_call: the stream has to close first. */
#include <string.h>

#include "net/h2/h2_code.h"
#include "net/grpc/client/channel_internal.h"

/* Records of finished calls that wait for the next ones: enough for the calls that one turn of the
 * loop ends; what a larger burst leaves behind is freed. */
#define FREE_CALLS_MAX 256

/* DONE is final: a record that is used again is reset. ACTIVE goes back to WAITING when the server
 * has not seen the stream (gRPC A6, transparent retries), and to PAUSED when a policy repeats the
 * attempt. */
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
    MUSTER_ASSERT(moves[call->state][state]);
    call->state = state;
}

/* The next attempt begins with an empty response. The request and its body stay. */
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
    /* gRPC: a response without grpc-status is UNKNOWN. */
    call->status = MUSTER_UNKNOWN;
    call->metadata_rc = MUSTER_OK;
    memset(&call->outcome, 0, sizeof(call->outcome));
}

void muster_grpc_call_reset(struct muster_grpc_call *call)
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

    MUSTER_ASSERT(call->call == NULL && !call->is_streaming);
    /* The inbox is amid an event of this call; it calls again by on_idle when that is over. */
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
    channel->listener->on_part_gone(channel);
}

/* This runs done. All that the user may see is set before; after done nothing of the user's struct
 * is touched, because it may be gone or in use for another call. The record stays while its stream
 * has not closed. */
static void call_deliver(struct muster_grpc_call *call)
{
    struct muster_call *user = call->call;
    muster_call_done_fn *done;

    MUSTER_ASSERT(user != NULL && user->done != NULL);
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_DONE);
    call->call = NULL;
    /* A stream that closes inside done must not free the record under this function. */
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
    done = user->done;
    user->done = NULL;
    done(user, call->outcome.rc);
    call->is_delivering = false;
    if (!call->is_streaming)
        muster_grpc_call_release(call);
}

void muster_grpc_call_on_done(struct muster_task *task)
{
    call_deliver(task->data);
}

/* The timers stop before done, so that neither a deadline nor a retry comes after the decision. */
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

/* A stream that both sides have ended closes by itself. Otherwise it is reset: with NO_ERROR when
 * the answer is complete and only the rest of the request is dropped, with CANCEL when nobody waits
 * for the answer. */
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
    call_deliver(call);
}

/* It may be called from the user's own code (cancel, close), where done must not run: a task does.
 */
void muster_grpc_call_decide(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    if (call->state >= MUSTER_GRPC_CALL_DECIDED)
        return;
    set_outcome(call, rc, text);
    if (call->is_streaming)
        muster_h2_stream_reset(&call->stream, MUSTER_H2_CANCEL);
    muster_task_post(&call->done_task, call->channel->env->loop);
}

enum muster_rc muster_grpc_call_submit(struct muster_grpc_call *call,
                                       struct muster_rpc_transport *transport)
{
    enum muster_rc rc;

    MUSTER_ASSERT(call->transport == NULL && !call->is_streaming);
    rc = muster_grpc_call_request(call, transport->session.h2);
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

void muster_call_cancel(struct muster_call *user)
{
    struct muster_grpc_call *call = user->impl;

    if (call != NULL)
        muster_grpc_call_decide(call, MUSTER_CANCELLED, "cancelled");
}
