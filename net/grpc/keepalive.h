/* Pings a silent connection and tells when it stays silent (gRPC A8, A9). */
#ifndef MUSTER_NET_RPC_KEEPALIVE_H
#define MUSTER_NET_RPC_KEEPALIVE_H

#include "net/h2/session.h"

struct muster_rpc_keepalive;
typedef void muster_rpc_keepalive_fn(struct muster_rpc_keepalive *keepalive);

/** Caller's memory. */
struct muster_rpc_keepalive {
    void *data;
    muster_rpc_keepalive_fn *on_dead;
    uint64_t interval_ns; /* 0: never ping */
    uint64_t timeout_ns;
    bool is_idle_allowed; /* ping without open streams too */
    int64_t *sent;        /* pings are counted there; NULL: nowhere */
    /* private */
    struct muster_loop *loop;
    struct muster_h2_session *session;
    struct muster_timer timer;
    uint64_t seen_bytes; /* received when the timer looked last */
    bool is_waiting;     /* a ping is out, and nothing has come since */
};

/** Borrows session until stop. */
void muster_rpc_keepalive_start(struct muster_rpc_keepalive *keepalive, struct muster_loop *loop,
                                struct muster_h2_session *session);
/** To be called when the answer to a ping has come. */
void muster_rpc_keepalive_on_pong(struct muster_rpc_keepalive *keepalive);
/** Idempotent; also for one that never started (all zero). */
void muster_rpc_keepalive_stop(struct muster_rpc_keepalive *keepalive);

#endif
