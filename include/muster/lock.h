/* A lock in the registry: one holder at a time, in the order of asking, with a token that fences. */
#ifndef MUSTER_LOCK_H
#define MUSTER_LOCK_H

#include <muster/base.h>
#include <muster/place.h>
#include <muster/registry.h>
#include <muster/session.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_lock;

typedef void muster_lock_done_fn(struct muster_lock *lock, enum muster_rc rc);
typedef void muster_lock_fn(struct muster_lock *lock);

/** Caller's memory while a callback is to come: done with an error, on_lost, or stopped. */
struct muster_lock {
    void *data;
    uint64_t token;            /* while held: higher than that of every holder before */
    struct muster_error error; /* when done with an error */
    /* private */
    struct muster_place place;
    muster_lock_done_fn *done;
    muster_lock_fn *on_lost;
    muster_lock_fn *stopped;
};

struct muster_lock_options {
    struct muster_bytes name;
    uint64_t deadline_ns; /* to have it by then; UINT64_MAX: wait as long as it takes */
    bool is_try;          /* do not wait: FAILED_PRECONDITION when another has it */
};

/**
 * Take the lock `name`, or queue up for it.
 *
 * A lock of a lease is a belief: a process that stood still may hold on to it after its session
 * has ended for everybody else. So whatever the lock guards must look at the token and refuse one
 * below the highest that it has seen; keys of the registry are guarded by muster_lock_compare.
 *
 * Owns, Errors, Order, Thread: as muster_place_start.
 * Source:  etcd client/v3/concurrency, Mutex: the same keys, so `etcdctl lock name` queues up too.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lock_start(
    struct muster_lock *lock, struct muster_session *session,
    const struct muster_lock_options *options, muster_lock_done_fn *done, muster_lock_fn *on_lost);
/** Give up waiting; done still comes, with CANCELLED unless it had already won. Idempotent. */
MUSTER_API void muster_lock_cancel(struct muster_lock *lock);
/** Unlock; stopped comes when another may have it. Errors: FAILED_PRECONDITION (not held). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lock_stop(struct muster_lock *lock,
                                                             muster_lock_fn *stopped);
/** True in a transaction only while the lock is held. Borrows from lock. */
MUSTER_API struct muster_registry_compare muster_lock_compare(const struct muster_lock *lock);

MUSTER_END

#endif
