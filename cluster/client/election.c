/* Elections: a place in a queue whose keys carry the candidates' values. The queue is in place.c;
 * this file gives it the types of elections. The term of a leader is the create revision of its
 * key, which rises from leader to leader. */
#include <muster/locks.h>

static struct muster_election *election_of(struct muster_lease_place *place)
{
    return MUSTER_CONTAINER_OF(place, struct muster_election, place);
}

static void on_done(struct muster_lease_place *place, enum muster_rc rc)
{
    struct muster_election *election = election_of(place);

    election->term = place->revision;
    election->error = place->error;
    election->done(election, rc);
}

static void on_lost(struct muster_lease_place *place)
{
    election_of(place)->on_lost(election_of(place));
}

static void on_stopped(struct muster_lease_place *place)
{
    election_of(place)->stopped(election_of(place));
}

static void on_proclaimed(struct muster_lease_place *place, enum muster_rc rc)
{
    struct muster_election *election = election_of(place);

    election->error = place->error;
    election->proclaimed(election, rc);
}

enum muster_rc muster_election_start(struct muster_election *election,
                                     struct muster_session *session,
                                     const struct muster_election_options *options,
                                     muster_election_done_fn *done, muster_election_fn *lost)
{
    /* Options that are missing are checked like empty ones, and the text names what they must
     * have. */
    static const struct muster_election_options none = {.deadline_ns = 0};
    const struct muster_election_options *with = options != NULL ? options : &none;
    struct muster_lease_place_options place_options = {
        .queue = with->name, .value = with->value, .deadline_ns = with->deadline_ns};
    enum muster_rc rc =
        muster_lease_place_start(&election->place, session, &place_options, on_done, on_lost);

    if (rc != MUSTER_OK) {
        election->error = election->place.error;
        return rc;
    }
    election->done = done;
    election->on_lost = lost;
    return MUSTER_OK;
}

void muster_election_cancel(struct muster_election *election)
{
    muster_lease_place_cancel(&election->place);
}

enum muster_rc muster_election_proclaim_start(struct muster_election *election,
                                              struct muster_bytes value, uint64_t deadline_ns,
                                              muster_election_done_fn *proclaimed)
{
    enum muster_rc rc =
        muster_lease_place_set_start(&election->place, value, deadline_ns, on_proclaimed);

    if (rc == MUSTER_OK)
        election->proclaimed = proclaimed;
    return rc;
}

enum muster_rc muster_election_stop(struct muster_election *election, muster_election_fn *stopped)
{
    enum muster_rc rc = muster_lease_place_stop(&election->place, on_stopped);

    /* A stop that is refused must not take the callback of the one under way. */
    if (rc == MUSTER_OK)
        election->stopped = stopped;
    return rc;
}

struct muster_registry_compare muster_election_compare(const struct muster_election *election)
{
    return muster_lease_place_compare(&election->place);
}
