/* An election in the registry: one leader at a time, its word for all to read. */
#ifndef MUSTER_ELECTION_H
#define MUSTER_ELECTION_H

#include <muster/base.h>
#include <muster/place.h>
#include <muster/registry.h>
#include <muster/session.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_election;

typedef void muster_election_done_fn(struct muster_election *election, enum muster_rc rc);
typedef void muster_election_fn(struct muster_election *election);

/** A candidate. Caller's memory while a callback is to come: done with an error, on_lost, or
 * stopped. */
struct muster_election {
    void *data;
    uint64_t term;             /* as leader: higher than that of every leader before */
    struct muster_error error; /* when done or proclaimed with an error */
    /* private */
    struct muster_place place;
    muster_election_done_fn *done;
    muster_election_done_fn *proclaimed;
    muster_election_fn *on_lost;
    muster_election_fn *stopped;
};

struct muster_election_options {
    struct muster_bytes name;
    struct muster_bytes value; /* the leader's word, e.g. its address */
    uint64_t deadline_ns;      /* to be leader by then; UINT64_MAX: as long as it takes */
};

/**
 * Campaign: done comes with OK when this candidate leads. A leader may believe so for a while
 * after others have elected the next: see muster_lock_start on tokens; here term.
 *
 * Owns, Errors, Order, Thread: as muster_place_start.
 * Source:  etcd client/v3/concurrency, Election: the same keys, so `etcdctl elect` runs against it.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_election_start(
    struct muster_election *election, struct muster_session *session,
    const struct muster_election_options *options, muster_election_done_fn *done,
    muster_election_fn *on_lost);
/** Give up waiting; done still comes, with CANCELLED unless it had already won. Idempotent. */
MUSTER_API void muster_election_cancel(struct muster_election *election);
/** Another word of the leader. Errors: returned FAILED_PRECONDITION (not leader, or one is under
 * way); by proclaimed ABORTED (not leader any more), and those of a registry operation. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_election_proclaim_start(
    struct muster_election *election, struct muster_bytes value, uint64_t deadline_ns,
    muster_election_done_fn *proclaimed);
/** Resign; stopped comes when another may lead. Errors: FAILED_PRECONDITION (not leader). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_election_stop(struct muster_election *election,
                                                                 muster_election_fn *stopped);
/** True in a transaction only while this candidate leads. Borrows from election. */
MUSTER_API struct muster_registry_compare muster_election_compare(
    const struct muster_election *election);

MUSTER_END

#endif
