/* Asks a server of parameters from outside to give its shards away, and to end. */
#ifndef MUSTER_PARAMS_DRAIN_H
#define MUSTER_PARAMS_DRAIN_H

#include <muster/base.h>
#include <muster/channel.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_params_drain;
typedef void muster_params_drain_fn(struct muster_params_drain *drain, enum muster_rc rc);

/** One request. Caller's memory until done. */
struct muster_params_drain {
    void *data;
    struct muster_error error; /* at done, unless OK */
};

/**
 * Ask the server at the other end of channel (channel.h: "HOST:PORT", and TLS) to drain. OK: the other servers of its
 * job have all of its shards, and it ends.
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows drain until done, env and channel too.
 * Errors:  returned RESOURCE_EXHAUSTED, and as muster_call_start; by done FAILED_PRECONDITION (no other
 *          server could take its shards), UNIMPLEMENTED (its program does not let clients ask),
 *          PERMISSION_DENIED, UNAVAILABLE, DEADLINE_EXCEEDED (also the server's own: it ends, and some
 *          of its shards are at no other server).
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_drain_start(
    struct muster_params_drain *drain, struct muster_env *env, struct muster_channel *channel,
    uint64_t deadline_ns, muster_params_drain_fn *done);

MUSTER_END

#endif
