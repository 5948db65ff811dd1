/* The addresses of a target: all that its names lead to, looked up again when connections are lost.
 */
#ifndef MUSTER_NET_RPC_RESOLUTION_H
#define MUSTER_NET_RPC_RESOLUTION_H

#include <muster/env.h>
#include <muster/stream.h>

#include "net/grpc/client/target.h"
#include "runtime/value/backoff.h"

/* Servers of one target: each has a connection. Further addresses are left out, and logged. */
#define MUSTER_RPC_ADDRESSES_MAX 64

struct muster_rpc_resolution;
/** OK: addresses are there, at least one; a name that could not be looked up has those of the time
 * before, and is asked again. Else error says why there are none; it goes on trying. */
typedef void muster_rpc_resolution_fn(struct muster_rpc_resolution *resolution, enum muster_rc rc);

/** Its owner sets the first part and then calls init. */
struct muster_rpc_resolution {
    void *data;
    struct muster_env *env;
    const struct muster_rpc_target *target;
    uint64_t timeout_ns;           /* of one name */
    struct muster_backoff backoff; /* after a failure */
    muster_rpc_resolution_fn *on_result;
    /* valid in on_result: without repetitions, in the order of the target */
    struct muster_address addresses[MUSTER_RPC_ADDRESSES_MAX];
    size_t sources[MUSTER_RPC_ADDRESSES_MAX]; /* the endpoint of the target that has it */
    size_t address_count;
    struct muster_error error;
    bool has_failed; /* the last time, at least for one name */
    /* private */
    struct muster_address former[MUSTER_RPC_ADDRESSES_MAX]; /* of the time before */
    size_t former_sources[MUSTER_RPC_ADDRESSES_MAX];
    size_t former_count;
    bool is_partial; /* a name of several could not be looked up */
    struct muster_lookup lookup;
    struct muster_timer timer;
    uint64_t earliest_ns; /* of the next look-up; 0: there was none yet */
    uint64_t backoff_ns;  /* the last wait; 0: the last look-up was a success */
    size_t endpoint_at;   /* the endpoint of the target that is looked up now */
    bool is_looking_up;
    bool is_stopped;
};

void muster_rpc_resolution_init(struct muster_rpc_resolution *resolution);
/** From the loop, at once or 30 s after the last time (gRPC naming.md); not while one is due or
 * under way. A target without names has nothing to ask again: only the first time counts. */
void muster_rpc_resolution_start(struct muster_rpc_resolution *resolution);
/** To be called in on_result when the addresses could not be used: they are looked up once more,
 * after the backoff. */
void muster_rpc_resolution_repeat(struct muster_rpc_resolution *resolution);
/** Ends it for good. While is_looking_up, on_result still comes with CANCELLED, and the memory must
 * stay until then. */
void muster_rpc_resolution_stop(struct muster_rpc_resolution *resolution);

#endif
