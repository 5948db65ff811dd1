/* A call goes on after a failed attempt: at once when the server has not seen it, or later by its
 * policy (gRPC A6). retry.c has the rules and the numbers; this file moves the call and its stream.
 * An attempt ends here, its stream may close later: the next begins when both the wait and the
 * stream are over. */
#include "net/grpc/client/channel_internal.h"

/* gRPC A6 resends such a call once; a server that is restarting may refuse several streams in a
 * row, and each costs only a round trip. */
#define RESENT_MAX 4

/* Begins the next attempt: the stream of the last one has gone, and its wait is over. */
static void call_restart(struct muster_grpc_call *call)
{
    MUSTER_ASSERT(!call->is_streaming);
    if (!muster_h2_body_rewind(&call->stream.body)) { /* what was on its way was too much to keep */
        muster_grpc_call_finish(call, call->outcome.rc, NULL);
        return;
    }
    muster_grpc_call_forget_response(call);
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_WAITING);
    call->channel->listener->on_call_waiting(call->channel, call);
}

/* A stream that is still closing restarts the call by muster_grpc_call_resume. */
void muster_grpc_call_on_retry(struct muster_timer *timer)
{
    struct muster_grpc_call *call = timer->data;

    if (!call->is_streaming)
        call_restart(call);
}

void muster_grpc_call_resume(struct muster_grpc_call *call)
{
    if (!muster_timer_is_started(&call->retry_timer))
        call_restart(call);
}

bool muster_grpc_call_repeat(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    struct muster_channel *channel = call->channel;
    /* No kept body means that the request was longer than replay_max_bytes, so it cannot be sent
     * again. */
    bool is_committed = call->is_committed || call->stream.body.keep_max_bytes == 0;
    uint64_t delay_ns = 0;

    if (!muster_rpc_retry_next(&call->retry, &channel->throttle, channel->env->rng, rc,
                               is_committed, &delay_ns))
        return false;
    muster_rpc_tally_attempt_end(&call->tally, rc, channel->env->loop);
    muster_interception_attempt_end(&call->interception, rc);
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_PAUSED);
    call->outcome.rc = rc;
    if (text != NULL)
        (void)muster_error_set(&call->outcome, rc, "%s", text);
    muster_grpc_call_leave_stream(call);
    muster_timer_start(&call->retry_timer, channel->env->loop,
                       muster_loop_after_ns(channel->env->loop, delay_ns));
    return true;
}

void muster_grpc_call_reject(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    /* A call that has never had a stream counts as an attempt, too: the policy of the method says
     * whether no connection is worth waiting for. */
    if (!muster_grpc_call_repeat(call, rc, text))
        muster_grpc_call_decide(call, rc, text);
}

bool muster_grpc_call_resend(struct muster_grpc_call *call)
{
    if (call->has_headers || call->resent >= RESENT_MAX ||
        !muster_h2_body_rewind(&call->stream.body))
        return false;
    /* It does not count against the attempts of the policy (A6), so it has a bound of its own. */
    call->resent++;
    muster_rpc_tally_attempt_end(&call->tally, MUSTER_UNAVAILABLE, call->channel->env->loop);
    muster_interception_attempt_end(&call->interception, MUSTER_UNAVAILABLE);
    muster_grpc_call_forget_response(call);
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_WAITING);
    call->channel->listener->on_call_waiting(call->channel, call);
    return true;
}
