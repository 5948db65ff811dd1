/* A place in a queue of the registry: the one in front holds what the queue is for. Locks and
 * elections are made of it. */
#ifndef MUSTER_PLACE_H
#define MUSTER_PLACE_H

#include <muster/base.h>
#include <muster/registry.h>
#include <muster/session.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_place;

typedef void muster_place_done_fn(struct muster_place *place, enum muster_rc rc);
typedef void muster_place_fn(struct muster_place *place);

enum muster_place_state {
    MUSTER_PLACE_IDLE,
    MUSTER_PLACE_ENTERING, /* our key is being made */
    MUSTER_PLACE_LOOKING,  /* for who is before us */
    MUSTER_PLACE_WAITING,  /* until that key goes */
    MUSTER_PLACE_FIRST,
    MUSTER_PLACE_LEAVING, /* our key is being deleted */
};

/** Caller's memory while a callback is to come: done with an error, on_lost, or stopped. */
struct muster_place {
    void *data;
    uint64_t revision;         /* create revision of our key: rises from one owner to the next */
    struct muster_error error; /* when done or set with an error */
    /* private */
    enum muster_place_state state;
    muster_place_done_fn *done;
    muster_place_fn *on_lost;
    muster_place_fn *stopped;
    muster_place_done_fn *was_set;
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

struct muster_place_options {
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
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_place_start(
    struct muster_place *place, struct muster_session *session,
    const struct muster_place_options *options, muster_place_done_fn *done,
    muster_place_fn *on_lost);
/** Give up waiting; done still comes, with CANCELLED unless it had already won. Idempotent. */
MUSTER_API void muster_place_cancel(struct muster_place *place);
/** In front: replace the value of our key. was_set gets ABORTED when the key is gone; one at a
 * time. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_place_set_start(struct muster_place *place,
                                                                   struct muster_bytes value,
                                                                   uint64_t deadline_ns,
                                                                   muster_place_done_fn *was_set);
/** In front: let the next one in. stopped comes when our key is certainly gone, or when the registry
 * forbids us to delete it: then it goes with the session. Errors: FAILED_PRECONDITION (not in
 * front). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_place_stop(struct muster_place *place,
                                                              muster_place_fn *stopped);
/** True in a transaction as long as the place is in front: a compare that fences what it guards. */
MUSTER_API struct muster_registry_compare muster_place_compare(const struct muster_place *place);

MUSTER_END

#endif
