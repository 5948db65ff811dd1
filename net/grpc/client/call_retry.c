/* A call goes on after a failed attempt: sent again at once, or later by its policy (gRPC A6). */
#include "net/grpc/client/channel_internal.h"

#define RESENT_MAX 4

/* The stream of the last attempt is gone, its wait over. */
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
    if (!muster_grpc_call_repeat(call, rc, text))
        muster_grpc_call_decide(call, rc, text);
}

bool muster_grpc_call_resend(struct muster_grpc_call *call)
{
    if (call->has_headers || call->resent >= RESENT_MAX ||
        !muster_h2_body_rewind(&call->stream.body))
        return false;
    call->resent++;
    muster_rpc_tally_attempt_end(&call->tally, MUSTER_UNAVAILABLE, call->channel->env->loop);
    muster_interception_attempt_end(&call->interception, MUSTER_UNAVAILABLE);
    muster_grpc_call_forget_response(call);
    muster_grpc_call_move(call, MUSTER_GRPC_CALL_WAITING);
    call->channel->listener->on_call_waiting(call->channel, call);
    return true;
}
