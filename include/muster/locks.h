/* Locks, elections and the queue that both are made of, on the registry. */
#ifndef MUSTER_LOCKS_H
#define MUSTER_LOCKS_H

#include <muster/base.h>
#include <muster/loop.h>
#include <muster/registry.h>
#include <muster/status.h>

MUSTER_BEGIN

/* A place in a queue of the registry: the one in front holds what the queue is for. Locks and
 * elections are made of it. */

struct muster_lease_place;

typedef void muster_lease_place_done_fn(struct muster_lease_place *place, enum muster_rc rc);
typedef void muster_lease_place_fn(struct muster_lease_place *place);

enum muster_lease_place_state {
    MUSTER_LEASE_PLACE_IDLE,
    MUSTER_LEASE_PLACE_ENTERING, /* our key is being made */
    MUSTER_LEASE_PLACE_LOOKING,  /* for who is before us */
    MUSTER_LEASE_PLACE_WAITING,  /* until that key goes */
    MUSTER_LEASE_PLACE_FIRST,
    MUSTER_LEASE_PLACE_LEAVING, /* our key is being deleted */
};

/** Caller's memory while a callback is to come: done with an error, on_lost, or stopped. */
struct muster_lease_place {
    void *data;
    uint64_t revision;         /* create revision of our key: rises from one owner to the next */
    struct muster_error error; /* when done or set with an error */
    /* private */
    enum muster_lease_place_state state;
    muster_lease_place_done_fn *done;
    muster_lease_place_fn *on_lost;
    muster_lease_place_fn *stopped;
    muster_lease_place_done_fn *was_set;
    struct muster_session *session;
    struct muster_registry_op op;
    struct muster_registry_watch watch; /* of the key before ours */
    struct muster_timer again;
    struct muster_timer deadline;
    struct muster_task task;
    struct muster_list node;
    uint64_t deadline_ns;
    uint64_t backoff_ns;
    enum muster_rc result;
    bool is_calling, is_watching, is_ending, is_dropped, is_try;
    char *key;
    size_t key_bytes, queue_bytes; /* the queue is what all its keys begin with */
    void *value;
    size_t value_bytes;
};

struct muster_lease_place_options {
    struct muster_bytes queue; /* our key is <queue>/<lease in hexadecimal digits>, as etcd's */
    struct muster_bytes value; /* of our key */
    uint64_t deadline_ns;      /* to be in front by then; UINT64_MAX: wait as long as it takes */
    bool is_try;               /* do not wait */
};

/**
 * Queue up, by create revision of the keys, and wait until every earlier key is gone.
 *
 * Owns:    borrows place; copies options. One place of a session in a queue at a time.
 * Errors:  returned FAILED_PRECONDITION (session lost or closing, or in this queue already),
 *          INVALID_ARGUMENT (no queue), RESOURCE_EXHAUSTED; by done DEADLINE_EXCEEDED,
 *          FAILED_PRECONDITION (try: another is in front), CANCELLED, ABORTED (the session is
 *          lost, or somebody deleted our key), RESOURCE_EXHAUSTED, PERMISSION_DENIED,
 *          UNAUTHENTICATED. A registry that does not answer is asked again until the deadline.
 *          After an error our key is gone, or goes with the session.
 * Order:   done once. After OK either on_lost (the session is lost) or stopped, once.
 * Thread:  loop only.
 * Source:  etcd client/v3/concurrency, waitDeletes.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lease_place_start(
    struct muster_lease_place *place, struct muster_session *session,
    const struct muster_lease_place_options *options, muster_lease_place_done_fn *done,
    muster_lease_place_fn *on_lost);
/** Give up waiting; done still comes, with CANCELLED unless it had already won. Idempotent. */
MUSTER_API void muster_lease_place_cancel(struct muster_lease_place *place);
/** In front: replace the value of our key. was_set gets ABORTED when the key is gone; one at a
 * time. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lease_place_set_start(
    struct muster_lease_place *place, struct muster_bytes value, uint64_t deadline_ns,
    muster_lease_place_done_fn *was_set);
/** In front: let the next one in. stopped comes when our key is certainly gone, or when the registry
 * forbids us to delete it: then it goes with the session. Errors: FAILED_PRECONDITION (not in
 * front). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lease_place_stop(
    struct muster_lease_place *place, muster_lease_place_fn *stopped);
/** True in a transaction as long as the place is in front: a compare that fences what it guards. */
MUSTER_API struct muster_registry_compare muster_lease_place_compare(
    const struct muster_lease_place *place);

/* A lock in the registry: one holder at a time, in the order of asking, with a token that fences. */

struct muster_lock;

typedef void muster_lock_done_fn(struct muster_lock *lock, enum muster_rc rc);
typedef void muster_lock_fn(struct muster_lock *lock);

/** Caller's memory while a callback is to come: done with an error, on_lost, or stopped. */
struct muster_lock {
    void *data;
    uint64_t token;            /* while held: higher than that of every holder before */
    struct muster_error error; /* when done with an error */
    /* private */
    struct muster_lease_place place;
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
 * Owns, Errors, Order, Thread: as muster_lease_place_start.
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

/* An election in the registry: one leader at a time, whose value all can read. */

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
    struct muster_lease_place place;
    muster_election_done_fn *done;
    muster_election_done_fn *proclaimed;
    muster_election_fn *on_lost;
    muster_election_fn *stopped;
};

struct muster_election_options {
    struct muster_bytes name;
    struct muster_bytes value; /* shown to all while it leads, e.g. its address */
    uint64_t deadline_ns;      /* to be leader by then; UINT64_MAX: as long as it takes */
};

/**
 * Campaign: done comes with OK when this candidate leads. A leader may believe so for a while
 * after others have elected the next: see muster_lock_start on tokens; here term.
 *
 * Owns, Errors, Order, Thread: as muster_lease_place_start.
 * Source:  etcd client/v3/concurrency, Election: the same keys, so `etcdctl elect` runs against it.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_election_start(
    struct muster_election *election, struct muster_session *session,
    const struct muster_election_options *options, muster_election_done_fn *done,
    muster_election_fn *on_lost);
/** Give up waiting; done still comes, with CANCELLED unless it had already won. Idempotent. */
MUSTER_API void muster_election_cancel(struct muster_election *election);
/** Replace the value of the leader. Errors: returned FAILED_PRECONDITION (not leader, or one is under
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

/* Watch of an election: reports the leader now and after each change. */

struct muster_election_watch;
struct muster_election_asking; /* private */

/** leader: its key and value; create_revision is its term. NULL: nobody leads. Borrowed for the
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
    bool has_shown;
    char *queue;
    size_t queue_bytes;
};

/**
 * Show the leader of election `name`, then each new leader and each new value of one. Values that
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
