/* A session: a lease that is kept alive, and what hangs on it: locks, candidates, places in queues.
 */
#ifndef MUSTER_SESSION_H
#define MUSTER_SESSION_H

#include <muster/base.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/registry.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_session;

typedef void muster_session_opened_fn(struct muster_session *session, enum muster_rc rc);
typedef void muster_session_lost_fn(struct muster_session *session);
typedef void muster_session_closed_fn(struct muster_session *session);

#define MUSTER_SESSION_TTL_S 60 /* etcd's default */

/** Caller's memory until opened with an error, or closed. */
struct muster_session {
    void *data;
    int64_t lease;             /* id, from opened on; keys may be put with it */
    struct muster_error error; /* of an open that failed */
    /* private */
    muster_session_opened_fn *opened;
    muster_session_lost_fn *on_lost;
    muster_session_closed_fn *closed;
    struct muster_registry *registry;
    struct muster_registry_lease keeper;
    struct muster_registry_op op; /* the revocation */
    struct muster_task task;      /* the end */
    struct muster_list places;
    bool is_granted, is_lost, is_closing, is_revoked;
};

/**
 * Grant a lease and keep it alive. While the session lives, what was made with it lives.
 *
 * Units:   ttl_s seconds (0: 60) that others wait after the death of this process; deadline_ns of
 *          the grant.
 * Owns:    borrows session until closed; borrows registry, which must be closed later.
 * Errors:  returned FAILED_PRECONDITION (registry closing), RESOURCE_EXHAUSTED; by opened those of
 *          a registry operation.
 * Order:   opened once. After OK on_lost at most once, after the on_lost of all that hangs on it:
 *          the registry says that the lease is gone, or it could not be asked for a whole TTL.
 * Thread:  loop only.
 * Source:  etcd client/v3/concurrency, Session.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_session_open(
    struct muster_session *session, struct muster_registry *registry, uint64_t ttl_s,
    uint64_t deadline_ns, muster_session_opened_fn *opened, muster_session_lost_fn *on_lost);

/** End what hangs on it (who waits ends with CANCELLED, who holds is told nothing), revoke the
 * lease, so that others need not wait for its end, then closed. Also after on_lost; before opened,
 * closed comes in its stead. */
MUSTER_API void muster_session_close(struct muster_session *session,
                                     muster_session_closed_fn *closed);

MUSTER_END

#endif
