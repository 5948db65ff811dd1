/* The receiving half of a client's call: the caller gets messages as they come, or when it is
 * ready. net/grpc/inbox.c parses and holds; this file answers its events from the fields of the
 * call. */
#include "net/grpc/client/channel_internal.h"

/* A call that waits, or is repeated, has left its stream: what still comes from there is dropped.
 */
static bool is_open(const struct muster_rpc_inbox *inbox)
{
    return ((const struct muster_grpc_call *)inbox->data)->state == MUSTER_GRPC_CALL_ACTIVE;
}

static void *on_place(void *owner, size_t bytes)
{
    struct muster_grpc_call *call = owner;

    return call->on_place != NULL ? call->on_place(call->call, bytes) : NULL;
}

static void on_message(struct muster_rpc_inbox *inbox, struct muster_bytes message, bool is_last)
{
    struct muster_grpc_call *call = inbox->data;

    (void)is_last;
    call->tally.received_bytes += call->parser.message_bytes;
    call->channel->counters->messages_received++;
    muster_interception_receive(&call->interception, message, call->parser.message_bytes);
    if (call->on_message != NULL)
        call->on_message(call->call, message);
}

static void on_refused(struct muster_rpc_inbox *inbox, enum muster_grpc_parsed parsed)
{
    muster_grpc_call_refuse(inbox->data, parsed);
}

static void on_end(struct muster_rpc_inbox *inbox)
{
    muster_grpc_call_on_end(inbox->data);
}

static void on_change(struct muster_rpc_inbox *inbox)
{
    (void)inbox; /* a client does not count what calls hold */
}

static void on_idle(struct muster_rpc_inbox *inbox)
{
    muster_grpc_call_release(inbox->data);
}

void muster_grpc_call_receive_init(struct muster_grpc_call *call)
{
    static const struct muster_rpc_inbox_events events = {
        .is_open = is_open,
        .on_message = on_message,
        .on_refused = on_refused,
        .on_end = on_end,
        .on_change = on_change,
        .on_idle = on_idle,
    };

    muster_rpc_inbox_init(&call->inbox, &events, call, call->channel->env->loop,
                          &call->channel->inflation, &call->stream, &call->parser);
    call->parser.on_place = on_place;
    call->parser.owner = call;
}

void muster_call_pause(struct muster_call *user)
{
    struct muster_grpc_call *call = user->impl;

    if (call != NULL)
        muster_rpc_inbox_pause(&call->inbox);
}

void muster_call_resume(struct muster_call *user)
{
    struct muster_grpc_call *call = user->impl;

    if (call != NULL)
        muster_rpc_inbox_resume(&call->inbox);
}
