/* Servers of /test.Echo/Unary that a channel chooses between, beside an RPC fixture's environment. */
#ifndef MUSTER_RPC_BACKEND_H
#define MUSTER_RPC_BACKEND_H

#include "rpc_fixture.h"

struct rpc_backend {
    struct muster_rpc_server *server; /* NULL: stopped */
    struct muster_rpc_health *health; /* NULL: it does not serve that */
    struct muster_address address;    /* stays behind a stop */
    unsigned served;
    bool is_closed;
};

/** At its address; all zero: at a port that the fixture holds from now on. */
void rpc_backend_serve(struct rpc_backend *backend, struct rpc_fixture *fixture, bool has_health);
void rpc_backend_stop(struct rpc_backend *backend, struct rpc_fixture *fixture);
/** Another channel instead, whose target is prefix (NULL: nothing) and the addresses of all. */
void rpc_backends_dial(const struct rpc_backend *backends, size_t count,
                       struct rpc_fixture *fixture, const char *prefix,
                       const struct muster_channel_options *options);
/** Make calls until it serves one more. */
void rpc_backend_ask_until_served(struct rpc_backend *backend, struct rpc_fixture *fixture);
/** test_env_run_until: the state of the channel, data, is MUSTER_CHANNEL_TRANSIENT_FAILURE. */
bool rpc_channel_is_failing(void *data);

#endif
