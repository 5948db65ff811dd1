/* Locks: a place in a queue whose keys have no value. The queue is in place.c; this file gives it
 * the types of locks. The token of a lock is the create revision of its key: it rises with each
 * holder, so a resource can refuse a holder that is late (a fencing token). */
#include <muster/locks.h>

static struct muster_lock *lock_of(struct muster_lease_place *place)
{
    return MUSTER_CONTAINER_OF(place, struct muster_lock, place);
}

static void on_done(struct muster_lease_place *place, enum muster_rc rc)
{
    struct muster_lock *lock = lock_of(place);

    lock->token = place->revision;
    lock->error = place->error;
    lock->done(lock, rc);
}

static void on_lost(struct muster_lease_place *place)
{
    lock_of(place)->on_lost(lock_of(place));
}

static void on_stopped(struct muster_lease_place *place)
{
    lock_of(place)->stopped(lock_of(place));
}

enum muster_rc muster_lock_start(struct muster_lock *lock, struct muster_session *session,
                                 const struct muster_lock_options *options,
                                 muster_lock_done_fn *done, muster_lock_fn *lost)
{
    static const struct muster_lock_options none = {.is_try = false};
    const struct muster_lock_options *with = options != NULL ? options : &none;
    struct muster_lease_place_options place_options = {
        .queue = with->name, .deadline_ns = with->deadline_ns, .is_try = with->is_try};
    enum muster_rc rc =
        muster_lease_place_start(&lock->place, session, &place_options, on_done, on_lost);

    if (rc != MUSTER_OK) {
        lock->error = lock->place.error;
        return rc;
    }
    lock->done = done;
    lock->on_lost = lost;
    return MUSTER_OK;
}

void muster_lock_cancel(struct muster_lock *lock)
{
    muster_lease_place_cancel(&lock->place);
}

enum muster_rc muster_lock_stop(struct muster_lock *lock, muster_lock_fn *stopped)
{
    enum muster_rc rc = muster_lease_place_stop(&lock->place, on_stopped);

    /* A stop that is refused must not take the callback of the one under way. */
    if (rc == MUSTER_OK)
        lock->stopped = stopped;
    return rc;
}

struct muster_registry_compare muster_lock_compare(const struct muster_lock *lock)
{
    return muster_lease_place_compare(&lock->place);
}
