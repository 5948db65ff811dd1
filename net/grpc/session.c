/* The HTTP/2 session under a gRPC connection, client's or server's: windows, handshake limit,
 * keepalive. client/transport.c and server/server_connection.c open one each and keep the events
 * for themselves; they pass SETTINGS and PING on to it. */
#include "net/grpc/session.h"

/* 1 MiB in flight for each call carries 8 Gbit/s at a round trip of 1 ms, and 16 MiB for all 130
 * Gbit/s; they are also the most that a peer can make this side hold unread. */
#define STREAM_WINDOW_BYTES     (1u << 20)
#define CONNECTION_WINDOW_BYTES (16u << 20)
/* Larger frames than HTTP/2's 16 KiB spare work for large messages; a frame still does not block
 * other streams for long. */
#define FRAME_MAX_BYTES (256u << 10)
/* Headers are kept until their call ends; the limit is announced to the peer (RFC 9113 10.5.1). */
#define HEADER_LIST_MAX_BYTES (16u << 10)

static void session_fail(struct muster_rpc_session *session, const char *text)
{
    struct muster_error error;

    (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "%s", text);
    muster_h2_session_fail(session->h2, &error);
}

static void on_handshake_timeout(struct muster_timer *timer)
{
    struct muster_rpc_session *session = timer->data;

    session_fail(session, "peer did not answer as HTTP/2");
}

static void on_dead(struct muster_rpc_keepalive *keepalive)
{
    struct muster_rpc_session *session = keepalive->data;

    session_fail(session, "keepalive timeout");
}

static void watch_start(struct muster_rpc_session *session, struct muster_loop *loop,
                        const struct muster_rpc_session_options *options)
{
    session->keepalive = (struct muster_rpc_keepalive){
        .data = session,
        .on_dead = on_dead,
        .interval_ns = options->keepalive_interval_ns,
        .timeout_ns = options->keepalive_timeout_ns,
        .is_idle_allowed = options->is_server,
        .sent = options->keepalives_sent,
    };
    muster_rpc_keepalive_start(&session->keepalive, loop, session->h2);
    muster_timer_init(&session->handshake_timer, on_handshake_timeout, session);
    muster_timer_start(&session->handshake_timer, loop,
                       muster_loop_after_ns(loop, options->handshake_timeout_ns));
}

enum muster_rc muster_rpc_session_open(struct muster_rpc_session *session, struct muster_env *env,
                                       struct muster_stream *stream,
                                       const struct muster_rpc_session_options *options,
                                       const struct muster_h2_events *events, void *data)
{
    const struct muster_h2_options h2 = {
        .mem = options->mem,
        .is_server = options->is_server,
        .stream_window_bytes = STREAM_WINDOW_BYTES,
        .connection_window_bytes = CONNECTION_WINDOW_BYTES,
        .concurrent_streams_max = options->concurrent_streams_max,
        .header_list_max_bytes = HEADER_LIST_MAX_BYTES,
        .frame_max_bytes = FRAME_MAX_BYTES,
    };
    uint64_t timeout_ms = options->keepalive_timeout_ns / MUSTER_NS_PER_MS;
    enum muster_rc rc;

    MUSTER_ASSERT(session->h2 == NULL);
    if (options->keepalive_interval_ns != 0) /* gRPC A18: a write that is stuck ends it, too */
        muster_stream_set_user_timeout(stream,
                                       timeout_ms < INT32_MAX ? (uint32_t)timeout_ms : INT32_MAX);
    rc = muster_h2_session_open(env, stream, &h2, events, data, &session->h2);

    if (rc == MUSTER_OK)
        watch_start(session, env->loop, options);
    return rc;
}

void muster_rpc_session_on_settings(struct muster_rpc_session *session)
{
    muster_timer_stop(&session->handshake_timer);
}

void muster_rpc_session_on_pong(struct muster_rpc_session *session)
{
    muster_rpc_keepalive_on_pong(&session->keepalive);
}

void muster_rpc_session_close(struct muster_rpc_session *session,
                              muster_h2_session_close_fn *closed)
{
    MUSTER_ASSERT(session->h2 != NULL);
    muster_timer_stop(&session->handshake_timer);
    muster_rpc_keepalive_stop(&session->keepalive);
    muster_h2_session_close(session->h2, closed);
}
