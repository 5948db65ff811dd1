/* How long a server keeps a connection (gRPC A9): idle or old ones are asked to leave, and end when
 * their calls have, or at the end of their grace. */
#ifndef MUSTER_NET_RPC_LIFETIME_H
#define MUSTER_NET_RPC_LIFETIME_H

#include "net/h2/session.h"

struct muster_rpc_lifetime;
typedef void muster_rpc_lifetime_fn(struct muster_rpc_lifetime *lifetime);

enum muster_rpc_lifetime_state {
    MUSTER_RPC_LIFETIME_LIVING,
    MUSTER_RPC_LIFETIME_LEAVING, /* told to go; the last call is not known yet */
    MUSTER_RPC_LIFETIME_GRACE,   /* the last call is known */
    MUSTER_RPC_LIFETIME_STOPPED, /* the connection is being closed */
};

/** Its owner embeds it and sets the first part; the rest is zero. */
struct muster_rpc_lifetime {
    void *data;
    muster_rpc_lifetime_fn *on_over; /* the grace is over: close */
    uint64_t idle_max_ns;            /* 0: none */
    uint64_t age_max_ns;             /* 0: none */
    uint64_t grace_ns;               /* 0: none */
    uint64_t leave_timeout_ns;       /* how long the peer may take to hear of it */
    /* to be read */
    uint64_t idle_since_ns; /* the end of the last call, or the start */
    /* private */
    struct muster_loop *loop;
    struct muster_h2_session *session;
    struct muster_timer timer;
    enum muster_rpc_lifetime_state state;
    uint64_t age_due_ns;
};

/** Borrows env and session until stop. */
void muster_rpc_lifetime_start(struct muster_rpc_lifetime *lifetime, struct muster_env *env,
                               struct muster_h2_session *session);
/** To be called when a call has ended: idleness begins with the last one. */
void muster_rpc_lifetime_on_call_end(struct muster_rpc_lifetime *lifetime);
/** Asks the client to leave (GOAWAY, RFC 9113 6.8); text is its debug data, static. Idempotent. */
void muster_rpc_lifetime_leave(struct muster_rpc_lifetime *lifetime, const char *text);
/** The client has been told to go: on_over follows unless the connection ends within delay_ns. */
void muster_rpc_lifetime_end(struct muster_rpc_lifetime *lifetime, uint64_t delay_ns);
/** Ends it for good: later calls of the other functions do nothing. */
void muster_rpc_lifetime_stop(struct muster_rpc_lifetime *lifetime);

#endif
