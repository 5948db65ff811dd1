/* The HTTP/2 session under a gRPC connection, client's or server's: windows, handshake limit,
 * keepalive. */
#ifndef MUSTER_NET_RPC_SESSION_H
#define MUSTER_NET_RPC_SESSION_H

#include "net/h2/session.h"
#include "net/grpc/keepalive.h"

struct muster_rpc_session_options {
    struct muster_mem *mem; /* as muster_h2_options */
    bool is_server;         /* and ping a client that has no calls open, too */
    uint32_t concurrent_streams_max;
    uint64_t keepalive_interval_ns; /* 0: never ping */
    uint64_t keepalive_timeout_ns;
    uint64_t handshake_timeout_ns; /* until the peer's SETTINGS */
    int64_t *keepalives_sent;      /* counted there */
};

/** Its owner embeds it; all zero before open. */
struct muster_rpc_session {
    struct muster_h2_session *h2; /* NULL: not open */
    /* private */
    struct muster_rpc_keepalive keepalive;
    struct muster_timer handshake_timer;
};

/**
 * Speak HTTP/2 over stream. A peer that does not answer as HTTP/2, or stays silent after a ping,
 * takes the session down: UNAVAILABLE by on_down. The owner passes on_settings and on_pong on.
 *
 * Owns:   takes stream (also on failure); borrows env, events and session until closed has run;
 * data is what muster_h2_session_data gives back. Errors: RESOURCE_EXHAUSTED: session is untouched.
 */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_session_open(
    struct muster_rpc_session *session, struct muster_env *env, struct muster_stream *stream,
    const struct muster_rpc_session_options *options, const struct muster_h2_events *events,
    void *data);
void muster_rpc_session_on_settings(struct muster_rpc_session *session);
void muster_rpc_session_on_pong(struct muster_rpc_session *session);
/** As muster_h2_session_close. */
void muster_rpc_session_close(struct muster_rpc_session *session,
                              muster_h2_session_close_fn *closed);

#endif
