/* One connection of a subchannel: the events of its HTTP/2 session become those of calls
 * (call_events.c, call_receive.c), and readiness, GOAWAY and loss go to subchannel.c by its table.
 * It owns the session and frees itself when that has closed; calls end before that, each by its own
 * on_close. */
#include <string.h>

#include "net/grpc/client/channel_internal.h"

#define KEEPALIVE_MAX_NS ((uint64_t)INT32_MAX * MUSTER_NS_PER_MS) /* as gRPC's other clients */

/* A transport that its channel closes need not be LOST before. */
static const bool moves[4][4] = {
    [MUSTER_RPC_TRANSPORT_OPENING] = {[MUSTER_RPC_TRANSPORT_READY] = true,
                                      [MUSTER_RPC_TRANSPORT_LOST] = true,
                                      [MUSTER_RPC_TRANSPORT_CLOSING] = true},
    [MUSTER_RPC_TRANSPORT_READY] =
        {[MUSTER_RPC_TRANSPORT_LOST] = true, [MUSTER_RPC_TRANSPORT_CLOSING] = true},
    [MUSTER_RPC_TRANSPORT_LOST] = {[MUSTER_RPC_TRANSPORT_CLOSING] = true},
};

void muster_rpc_transport_move(struct muster_rpc_transport *transport,
                               enum muster_rpc_transport_state state)
{
    MUSTER_ASSERT(moves[transport->state][state]);
    transport->state = state;
}

static struct muster_rpc_transport *transport_of(const struct muster_h2_session *session)
{
    return muster_h2_session_data(session);
}

static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    (void)session; /* servers begin no streams: push is off */
    return NULL;
}

static void on_header(struct muster_h2_stream *stream, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes)
{
    muster_grpc_call_header_parse(stream->data, name, name_bytes, value, value_bytes);
}

static void on_headers(struct muster_h2_stream *stream, bool is_end)
{
    muster_grpc_call_on_headers(stream->data, is_end);
}

static void on_data(struct muster_h2_stream *stream, const void *bytes, size_t count, bool is_end)
{
    struct muster_grpc_call *call = stream->data;

    muster_rpc_inbox_receive(&call->inbox, (struct muster_bytes){bytes, count}, is_end);
}

static void on_end(struct muster_h2_stream *stream)
{
    struct muster_grpc_call *call = stream->data;

    muster_rpc_inbox_end(&call->inbox);
}

static void on_over_limit(struct muster_h2_stream *stream)
{
    muster_grpc_call_on_over_limit(stream->data);
}

static void on_trailers(struct muster_h2_stream *stream)
{
    (void)stream; /* clients send none */
}

static void on_drained(struct muster_h2_stream *stream)
{
    muster_grpc_call_on_drained(stream->data);
}

static void on_close(struct muster_h2_stream *stream, uint32_t code)
{
    muster_grpc_call_on_close(stream->data, code);
}

static void on_settings(struct muster_h2_session *session)
{
    struct muster_rpc_transport *transport = transport_of(session);

    muster_rpc_session_on_settings(&transport->session);
    if (transport->state != MUSTER_RPC_TRANSPORT_OPENING) /* it closes amid the first frames */
        return;
    muster_rpc_transport_move(transport, MUSTER_RPC_TRANSPORT_READY);
    transport->ready_ns = muster_loop_now_ns(transport->subchannel->channel->env->loop);
    transport->subchannel->events->on_transport_ready(transport->subchannel, transport);
}

static void on_ping(struct muster_h2_session *session)
{
    (void)session;
}

static void on_pong(struct muster_h2_session *session)
{
    muster_rpc_session_on_pong(&transport_of(session)->session);
}

/* gRPC A8: the server takes our pings for abuse, so the next connections ping half as often as this
 * one. The channel's option is changed because the connection that learnt it is about to end. */
static void ping_less(const struct muster_rpc_transport *transport)
{
    struct muster_channel *channel = transport->subchannel->channel;
    uint64_t used_ns = transport->session.keepalive.interval_ns;
    uint64_t slower_ns = used_ns < KEEPALIVE_MAX_NS / 2 ? 2 * used_ns : KEEPALIVE_MAX_NS;

    if (slower_ns <= channel->options.keepalive_interval_ns)
        return;
    channel->options.keepalive_interval_ns = slower_ns;
    MUSTER_LOG(channel->env, WARN, "rpc_pings_refused", "interval_ns", slower_ns);
}

static void on_goaway(struct muster_h2_session *session, uint32_t code, const char *text,
                      size_t length)
{
    static const char pings[] = "too_many_pings";
    struct muster_rpc_transport *transport = transport_of(session);
    struct muster_rpc_subchannel *subchannel = transport->subchannel;
    struct muster_error error;

    /* The debug data alone tells this case from other reasons to calm down (gRPC A8). */
    if (code == MUSTER_H2_ENHANCE_YOUR_CALM && length == sizeof(pings) - 1 &&
        memcmp(text, pings, length) == 0)
        ping_less(transport);
    (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "server is going away (code %u)", code);
    /* A server that says goodbye in good order (it restarts, or the connection is old) is not
     * broken: the next connection is opened at once. */
    transport->has_served = transport->has_served || code == MUSTER_H2_NO_ERROR;
    subchannel->events->on_transport_lost(subchannel, transport, &error);
}

/* The session is the last part: its streams have all closed before, so no call points here any
 * more. */
static void on_closed(struct muster_h2_session *session)
{
    struct muster_rpc_transport *transport = transport_of(session);
    struct muster_rpc_subchannel *subchannel = transport->subchannel;

    MUSTER_ASSERT(transport->call_count == 0);
    muster_list_remove(&transport->node);
    subchannel->channel->counters->connections--;
    muster_mem_free(&subchannel->channel->pool.mem, transport);
    subchannel->events->on_part_ended(subchannel);
}

void muster_rpc_transport_close(struct muster_rpc_transport *transport)
{
    if (transport->state == MUSTER_RPC_TRANSPORT_CLOSING)
        return;
    muster_rpc_transport_move(transport, MUSTER_RPC_TRANSPORT_CLOSING);
    muster_rpc_session_close(&transport->session, on_closed);
}

/* The subchannel hears of the loss first, while the transport is still whole; then it goes. */
static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct muster_rpc_transport *transport = transport_of(session);

    transport->subchannel->events->on_transport_lost(transport->subchannel, transport, error);
    muster_rpc_transport_close(transport);
}

static const struct muster_h2_events events = {
    .on_begin = on_begin,
    .on_header = on_header,
    .on_headers = on_headers,
    .on_data = on_data,
    .on_end = on_end,
    .on_over_limit = on_over_limit,
    .on_trailers = on_trailers,
    .on_drained = on_drained,
    .on_close = on_close,
    .on_settings = on_settings,
    .on_ping = on_ping,
    .on_pong = on_pong,
    .on_goaway = on_goaway,
    .on_down = on_down,
};

enum muster_rc muster_rpc_transport_open(struct muster_rpc_subchannel *subchannel,
                                         struct muster_stream *stream,
                                         struct muster_rpc_transport **ret_transport)
{
    struct muster_channel *channel = subchannel->channel;
    const struct muster_rpc_session_options options = {
        .mem = &channel->pool.mem,
        .keepalive_interval_ns = channel->options.keepalive_interval_ns,
        .keepalive_timeout_ns = channel->options.keepalive_timeout_ns,
        .handshake_timeout_ns = channel->options.connect_timeout_ns,
        .keepalives_sent = &channel->counters->keepalives_sent,
    };
    struct muster_rpc_transport *transport =
        muster_mem_alloc_zero(&channel->pool.mem, 1, sizeof(*transport));
    enum muster_rc rc;

    if (transport == NULL) {
        muster_stream_close(stream, NULL);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    transport->subchannel = subchannel;
    rc = muster_rpc_session_open(&transport->session, channel->env, stream, &options, &events,
                                 transport);
    if (rc != MUSTER_OK) {
        muster_mem_free(&channel->pool.mem, transport);
        return rc;
    }
    /* The session took the stream, so from here on only its on_closed frees the transport. */
    muster_list_append(&subchannel->transports, &transport->node);
    channel->counters->connections++;
    channel->counters->connections_opened++;
    *ret_transport = transport;
    return MUSTER_OK;
}
