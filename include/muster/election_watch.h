/* Who leads in an election, from now on. */
#ifndef MUSTER_ELECTION_WATCH_H
#define MUSTER_ELECTION_WATCH_H

#include <muster/base.h>
#include <muster/loop.h>
#include <muster/registry.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_election_watch;
struct muster_election_asking; /* private */

/** leader: its key and word; create_revision is its term. NULL: nobody leads. Borrowed for the
 * call. */
typedef void muster_election_watch_fn(struct muster_election_watch *watch,
                                      const struct muster_registry_kv *leader);

/** Caller's memory until stop. */
struct muster_election_watch {
    void *data;
    /* private */
    muster_election_watch_fn *on_leader;
    struct muster_registry *registry;
    struct muster_registry_watch watch;
    struct muster_timer again;
    struct muster_election_asking *asking; /* the range under way */
    uint64_t backoff_ns;
    uint64_t shown_revision; /* mod revision of what was shown last; 0: nobody */
    bool is_watching, has_shown;
    char *queue;
    size_t queue_bytes;
};

/**
 * Show the leader of election `name`, then each new leader and each new word of one. Words that
 * are replaced quickly may be left out, the newest never is.
 *
 * Owns:    borrows watch until stop; copies name. registry must be closed later.
 * Errors:  returned INVALID_ARGUMENT (no name), RESOURCE_EXHAUSTED. Afterwards none: a registry that
 *          does not answer is asked again.
 * Thread:  loop only.
 * Source:  etcd client/v3/concurrency, Election.Observe.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_election_watch_start(
    struct muster_election_watch *watch, struct muster_registry *registry, struct muster_bytes name,
    muster_election_watch_fn *on_leader);
/** Synchronous: no callback follows. Idempotent; may be called from on_leader. */
MUSTER_API void muster_election_watch_stop(struct muster_election_watch *watch);

MUSTER_END

#endif
