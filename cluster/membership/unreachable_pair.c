/* Two processes that cannot reach each other while the others reach both: how long it lasts, and which of
 * the two is left out. Suspicion alone cannot settle this: each of the two suspects the other, and the
 * leader suspects neither. So both report to the leader (control_send.c), which leaves one of them out
 * (docs/protocol.md, "The decision"). */
#include <string.h>

#include "cluster/membership/membership_internal.h"

/* Healing of links and a change of routes get this long before a healthy member is given up. */
#define PATIENCE_NS  (10 * MUSTER_NS_PER_S)
#define FORGOTTEN_NS (2 * MUSTER_NS_PER_S)    /* without a word of it: it is over */
#define UNREACHED_NS (600 * MUSTER_NS_PER_MS) /* a joiner repeats its words faster */
#define PAIRS_MAX    MEMBERSHIP_UNREACHABLE_PAIRS_MAX

static bool is_pair(const struct membership_unreachable_pair *pair,
                    const struct muster_incarnation *a, const struct muster_incarnation *b)
{
    return (muster_incarnation_is_equal(&pair->a, a) && muster_incarnation_is_equal(&pair->b, b)) ||
           (muster_incarnation_is_equal(&pair->a, b) && muster_incarnation_is_equal(&pair->b, a));
}

/* Reports are repeated with every heartbeat, so a gap of FORGOTTEN_NS (20 heartbeats) means that the two
 * hear each other again. There is no message that says so. */
static bool pair_is_over(const struct muster_membership *machine,
                         const struct membership_unreachable_pair *pair)
{
    return pair->last_ns == 0 || machine->now_ns > pair->last_ns + FORGOTTEN_NS;
}

/* The pair's entry, or one that is free or over; NULL: all are taken. A pair that finds no entry is repeated
 * like the others, and gets one when the pairs before it are settled. */
static struct membership_unreachable_pair *find_or_add_pair(struct muster_membership *machine,
                                                            const struct muster_incarnation *a,
                                                            const struct muster_incarnation *b)
{
    struct membership_unreachable_pair *free_one = NULL;

    for (size_t i = 0; i < PAIRS_MAX; i++) {
        struct membership_unreachable_pair *pair = &machine->unreachable_pairs[i];

        if (!pair_is_over(machine, pair) && is_pair(pair, a, b))
            return pair;
        if (free_one == NULL && pair_is_over(machine, pair))
            free_one = pair;
    }
    if (free_one == NULL)
        return NULL;
    *free_one = (struct membership_unreachable_pair){.a = *a, .b = *b, .since_ns = machine->now_ns};
    return free_one;
}

void muster_membership_record_unreachable(struct muster_membership *machine,
                                          const struct muster_incarnation *a,
                                          const struct muster_incarnation *b)
{
    struct membership_unreachable_pair *pair = find_or_add_pair(machine, a, b);

    if (pair != NULL)
        pair->last_ns = machine->now_ns;
}

/* --- a joiner that does not reach a member --- */

/* A member of the view that is not about to be left out of the next. */
static bool stays_member(const struct muster_membership *machine,
                         const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    return peer != NULL && muster_membership_in_view(machine, peer) &&
           muster_membership_peer_belief(machine, peer) < MUSTER_BELIEF_SUSPECTED;
}

/* A joiner that does not reach a member that stays could not work with it, and would be a reason for the
 * next change at once. No patience here: the joiner only waits outside. */
bool muster_membership_is_unreached(const struct muster_membership *machine,
                                    const struct muster_incarnation *joiner)
{
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        const struct membership_unreachable_pair *pair = &machine->unreachable_pairs[i];

        if (pair_is_over(machine, pair) || machine->now_ns > pair->last_ns + UNREACHED_NS)
            continue;
        if ((muster_incarnation_is_equal(&pair->a, joiner) && stays_member(machine, &pair->b)) ||
            (muster_incarnation_is_equal(&pair->b, joiner) && stays_member(machine, &pair->a)))
            return true;
    }
    return false;
}

/* --- two members --- */

/* Links within one host are not lost for long: a silent process there is stopped, and is waited for. */
static bool pair_is_on_one_host(const struct muster_membership *machine,
                                const struct membership_unreachable_pair *pair)
{
    const struct membership_peer *a = muster_membership_peer_find(machine, &pair->a);
    const struct membership_peer *b = muster_membership_peer_find(machine, &pair->b);

    return a != NULL && b != NULL && a->member.host_key[0] != '\0' &&
           strcmp(a->member.host_key, b->member.host_key) == 0;
}

/* Neither of the pair is this process: it ignores reports about itself, and a member that does not hear it reports
 * to another one. */
static bool pair_is_lasting(const struct muster_membership *machine,
                            const struct membership_unreachable_pair *pair)
{
    return !pair_is_over(machine, pair) && machine->now_ns >= pair->since_ns + PATIENCE_NS &&
           !pair_is_on_one_host(machine, pair) && stays_member(machine, &pair->a) &&
           stays_member(machine, &pair->b);
}

static bool lacks_state(const struct muster_membership *machine,
                        const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    MUSTER_ASSERT(peer != NULL); /* both of a lasting pair stay members */
    return peer->vote != NULL && peer->vote->lacks_state;
}

/* The number of processes it cannot reach. Pairs whose patience is not over yet count: they show early which
 * of the two is the one that is cut off. */
static uint32_t count_unreachable(const struct muster_membership *machine,
                                  const struct muster_incarnation *incarnation)
{
    uint32_t count = 0;

    for (size_t i = 0; i < PAIRS_MAX; i++)
        if (!pair_is_over(machine, &machine->unreachable_pairs[i]) &&
            (muster_incarnation_is_equal(&machine->unreachable_pairs[i].a, incarnation) ||
             muster_incarnation_is_equal(&machine->unreachable_pairs[i].b, incarnation)))
            count++;
    return count;
}

/* Evict a rather than b: the one without training state, since losing it loses nothing; then the one that
 * reaches fewer members, since the fault is likely at its end; then the later rank, so that the order is
 * total. */
static bool is_evicted_before(const struct muster_membership *machine,
                              const struct muster_incarnation *a,
                              const struct muster_incarnation *b)
{
    uint32_t degree_a = count_unreachable(machine, a), degree_b = count_unreachable(machine, b),
             rank_a = 0, rank_b = 0;
    bool lacks_a = lacks_state(machine, a), lacks_b = lacks_state(machine, b);

    if (lacks_a != lacks_b)
        return lacks_a;
    if (degree_a != degree_b)
        return degree_a > degree_b;
    muster_view_find(machine->view, a, &rank_a);
    muster_view_find(machine->view, b, &rank_b);
    return rank_a > rank_b;
}

/* Reports go to the leader only, so its choice counts. Another member that takes over the lead has no
 * reports and evicts nobody until it has heard them for PATIENCE_NS itself. */
bool muster_membership_find_evicted(const struct muster_membership *machine,
                                    struct muster_incarnation *ret_evicted)
{
    const struct muster_incarnation *evicted = NULL;

    MUSTER_ASSERT(machine->view != NULL);
    if (machine->view->member_count <= machine->options.min_members)
        return false; /* the link may come back; a member less would end the job */
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        const struct membership_unreachable_pair *pair = &machine->unreachable_pairs[i];
        const struct muster_incarnation *one;

        if (!pair_is_lasting(machine, pair))
            continue;
        one = is_evicted_before(machine, &pair->a, &pair->b) ? &pair->a : &pair->b;
        if (evicted == NULL || is_evicted_before(machine, one, evicted))
            evicted = one;
    }
    if (evicted == NULL)
        return false;
    *ret_evicted = *evicted;
    return true;
}
