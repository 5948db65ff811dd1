/* Further connections to a server whose bound of concurrent streams is reached (gRPC A105), up to
 * connections_max. A call asks here for its transport; when all are full and another one may be
 * opened, the call waits for it, else it queues on the one with the fewest calls. subchannel.c
 * reports when the new one is ready or lost. */
#include "net/grpc/client/channel_internal.h"

static bool is_usable(const struct muster_rpc_transport *transport)
{
    return transport->state == MUSTER_RPC_TRANSPORT_READY;
}

/* The bound is the peer's SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 6.5.2), which may change. */
static bool has_room(const struct muster_rpc_transport *transport)
{
    return transport->call_count < muster_h2_session_streams_max(transport->session.h2);
}

/* The calls that wait for it go on with the connections that there are. The next try waits for the
 * first backoff: a server that refuses more connections would otherwise be dialled for each call.
 */
static void scale_delay(struct muster_rpc_subchannel *subchannel)
{
    const struct muster_channel *channel = subchannel->channel;

    subchannel->scale.earliest_ns =
        muster_loop_after_ns(channel->env->loop, channel->options.backoff_base_ns);
    subchannel->listener->on_change(subchannel);
}

static void on_dial(struct muster_dial *dial, enum muster_rc rc)
{
    struct muster_rpc_subchannel *subchannel = dial->data;

    MUSTER_ASSERT(subchannel->scale.is_dialling && subchannel->scale.transport == NULL);
    subchannel->scale.is_dialling = false;
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN) {
        if (rc == MUSTER_OK)
            muster_stream_close(dial->stream, NULL);
        subchannel->events->on_part_ended(subchannel);
        return;
    }
    if (rc == MUSTER_OK)
        rc = muster_rpc_transport_open(subchannel, dial->stream, &subchannel->scale.transport);
    if (rc != MUSTER_OK)
        scale_delay(subchannel);
}

/* Returns true when another connection is on its way, perhaps since earlier. It goes to the address
 * of the current one, not to another server of the name: a call has been given to this server, and
 * only more room is wanted. */
static bool scale_start(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_scale *scale = &subchannel->scale;
    const struct muster_channel *channel = subchannel->channel;
    struct muster_dial_options options;
    struct muster_stream *stream;

    if (scale->is_dialling || scale->transport != NULL)
        return true;
    if (muster_loop_now_ns(channel->env->loop) < scale->earliest_ns)
        return false;
    muster_rpc_subchannel_dial_options(subchannel, &options);
    stream = muster_h2_session_stream(subchannel->current->session.h2);
    scale->dial.data = subchannel;
    scale->is_dialling =
        muster_dial_start(
            &scale->dial, channel->env->net, muster_stream_peer(stream), &options,
            muster_loop_after_ns(channel->env->loop, channel->options.connect_timeout_ns),
            on_dial) == MUSTER_OK;
    return scale->is_dialling;
}

struct muster_rpc_transport *muster_rpc_subchannel_choose(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_transport *best = subchannel->current;
    uint32_t count = 0;

    if (subchannel->channel->options.connections_max <= 1)
        return best;
    MUSTER_LIST_EACH(&subchannel->transports, transport, struct muster_rpc_transport, node) {
        if (!is_usable(transport))
            continue;
        if (has_room(transport))
            return transport;
        count++;
        if (transport->call_count < best->call_count)
            best = transport;
    }
    /* NULL makes the call wait; best may be full, and then HTTP/2 queues the stream. */
    return count < subchannel->channel->options.connections_max && scale_start(subchannel) ? NULL
                                                                                           : best;
}

struct muster_rpc_transport *muster_rpc_subchannel_other(
    const struct muster_rpc_subchannel *subchannel)
{
    MUSTER_LIST_EACH(&subchannel->transports, transport, struct muster_rpc_transport, node) {
        if (is_usable(transport))
            return transport;
    }
    return NULL;
}

void muster_rpc_subchannel_scaled(struct muster_rpc_subchannel *subchannel)
{
    MUSTER_ASSERT(subchannel->scale.transport != NULL);
    subchannel->scale.transport = NULL;
    subchannel->listener->on_change(subchannel);
}

void muster_rpc_subchannel_scale_failed(struct muster_rpc_subchannel *subchannel)
{
    subchannel->scale.transport = NULL;
    if (subchannel->state != MUSTER_CHANNEL_SHUTDOWN)
        scale_delay(subchannel);
}

void muster_rpc_subchannel_scale_cancel(struct muster_rpc_subchannel *subchannel)
{
    if (subchannel->scale.is_dialling)
        /* A connection that is already open is in the list of transports, and goes or stays with
         * the others. */
        muster_dial_cancel(&subchannel->scale.dial);
}
