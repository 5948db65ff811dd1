/* Two processes that cannot reach each other while the others reach both: how long it lasts, and
 * which of the two is left out. */
#include <string.h>

#include "cluster/membership/membership_internal.h"

#define PATIENCE_NS  (10 * MUSTER_NS_PER_S)
#define FORGOTTEN_NS (2 * MUSTER_NS_PER_S)    /* without a word of it: it is over */
#define UNREACHED_NS (600 * MUSTER_NS_PER_MS) /* a joiner repeats its words faster */
#define QUARRELS_MAX MEMBERSHIP_QUARRELS_MAX

static bool is_pair(const struct membership_quarrel *quarrel, const struct muster_incarnation *a,
                    const struct muster_incarnation *b)
{
    return (muster_incarnation_is_equal(&quarrel->a, a) &&
            muster_incarnation_is_equal(&quarrel->b, b)) ||
           (muster_incarnation_is_equal(&quarrel->a, b) &&
            muster_incarnation_is_equal(&quarrel->b, a));
}

static bool is_over(const struct muster_membership *machine,
                    const struct membership_quarrel *quarrel)
{
    return quarrel->last_ns == 0 || machine->now_ns > quarrel->last_ns + FORGOTTEN_NS;
}

/* The pair's entry, or one that is free or over; NULL: too many at once, the others first. */
static struct membership_quarrel *find_or_make(struct muster_membership *machine,
                                               const struct muster_incarnation *a,
                                               const struct muster_incarnation *b)
{
    struct membership_quarrel *free_one = NULL;

    for (size_t i = 0; i < QUARRELS_MAX; i++) {
        struct membership_quarrel *quarrel = &machine->quarrels[i];

        if (!is_over(machine, quarrel) && is_pair(quarrel, a, b))
            return quarrel;
        if (free_one == NULL && is_over(machine, quarrel))
            free_one = quarrel;
    }
    if (free_one == NULL)
        return NULL;
    *free_one = (struct membership_quarrel){.a = *a, .b = *b, .since_ns = machine->now_ns};
    return free_one;
}

void muster_membership_quarrel(struct muster_membership *machine,
                               const struct muster_incarnation *a,
                               const struct muster_incarnation *b)
{
    struct membership_quarrel *quarrel = find_or_make(machine, a, b);

    if (quarrel != NULL)
        quarrel->last_ns = machine->now_ns;
}

/* --- a joiner that does not reach a member --- */

/* Of the view, and not about to be left out of the next. */
static bool stays(const struct muster_membership *machine,
                  const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    return peer != NULL && muster_membership_in_view(machine, peer) &&
           muster_membership_peer_belief(machine, peer) < MUSTER_BELIEF_SUSPECTED;
}

bool muster_membership_is_unreached(const struct muster_membership *machine,
                                    const struct muster_incarnation *joiner)
{
    for (size_t i = 0; i < QUARRELS_MAX; i++) {
        const struct membership_quarrel *quarrel = &machine->quarrels[i];

        if (is_over(machine, quarrel) || machine->now_ns > quarrel->last_ns + UNREACHED_NS)
            continue;
        if ((muster_incarnation_is_equal(&quarrel->a, joiner) && stays(machine, &quarrel->b)) ||
            (muster_incarnation_is_equal(&quarrel->b, joiner) && stays(machine, &quarrel->a)))
            return true;
    }
    return false;
}

/* --- two members --- */

/* On one host links are not lost for long: there somebody stands still, and is waited for. */
static bool is_one_host(const struct muster_membership *machine,
                        const struct membership_quarrel *quarrel)
{
    const struct membership_peer *a = muster_membership_peer_find(machine, &quarrel->a);
    const struct membership_peer *b = muster_membership_peer_find(machine, &quarrel->b);

    return a != NULL && b != NULL && a->member.host_key[0] != '\0' &&
           strcmp(a->member.host_key, b->member.host_key) == 0;
}

/* Neither is this process: it takes no word of itself, and who does not hear it tells another. */
static bool is_lasting(const struct muster_membership *machine,
                       const struct membership_quarrel *quarrel)
{
    return !is_over(machine, quarrel) && machine->now_ns >= quarrel->since_ns + PATIENCE_NS &&
           !is_one_host(machine, quarrel) && stays(machine, &quarrel->a) &&
           stays(machine, &quarrel->b);
}

static bool lacks_state(const struct muster_membership *machine,
                        const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    return peer->vote != NULL && peer->vote->lacks_state;
}

/* How many it does not reach; also those of whom it was said a moment later. */
static uint32_t degree(const struct muster_membership *machine,
                       const struct muster_incarnation *incarnation)
{
    uint32_t count = 0;

    for (size_t i = 0; i < QUARRELS_MAX; i++)
        if (!is_over(machine, &machine->quarrels[i]) &&
            (muster_incarnation_is_equal(&machine->quarrels[i].a, incarnation) ||
             muster_incarnation_is_equal(&machine->quarrels[i].b, incarnation)))
            count++;
    return count;
}

/* a rather than b: who reaches fewer, who has no state to give, the later rank. */
static bool is_rather(const struct muster_membership *machine, const struct muster_incarnation *a,
                      const struct muster_incarnation *b)
{
    uint32_t degree_a = degree(machine, a), degree_b = degree(machine, b), rank_a = 0, rank_b = 0;
    bool lacks_a = lacks_state(machine, a), lacks_b = lacks_state(machine, b);

    if (lacks_a != lacks_b)
        return lacks_a;
    if (degree_a != degree_b)
        return degree_a > degree_b;
    muster_view_find(machine->view, a, &rank_a);
    muster_view_find(machine->view, b, &rank_b);
    return rank_a > rank_b;
}

bool muster_membership_outcast(const struct muster_membership *machine,
                               struct muster_incarnation *ret_outcast)
{
    const struct muster_incarnation *outcast = NULL;

    if (machine->view->member_count <= machine->options.min_members)
        return false; /* the link may come back; a member less would end the job */
    for (size_t i = 0; i < QUARRELS_MAX; i++) {
        const struct membership_quarrel *quarrel = &machine->quarrels[i];
        const struct muster_incarnation *one;

        if (!is_lasting(machine, quarrel))
            continue;
        one = is_rather(machine, &quarrel->a, &quarrel->b) ? &quarrel->a : &quarrel->b;
        if (outcast == NULL || is_rather(machine, one, outcast))
            outcast = one;
    }
    if (outcast == NULL)
        return false;
    *ret_outcast = *outcast;
    return true;
}
