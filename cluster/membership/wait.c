/* The reasons why a change of view waits: votes, a state that only a silent member may hold, the registry.
 * The texts name the processes that hold it up, for view_change_blocked and start_blocked in the log. */
#include <stdio.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"

/* A suspected member does not vote, but may be alive, and may hold the only copy of the state; one that has
 * quit serves nothing any more. With is_force_new the operator has said that it does not, unless its lease shows
 * that it lives. */
static bool may_hold_state(const struct muster_membership *machine,
                           const struct membership_peer *peer)
{
    if (!muster_membership_in_view(machine, peer) ||
        muster_membership_is_self(machine, &peer->member.incarnation) ||
        muster_membership_is_voter(machine, peer) || peer->suspicion.is_dead ||
        peer->suspicion.has_quit)
        return false;
    return !machine->options.is_force_new || peer->is_registered;
}

/* One voter that has the state is enough: the others catch up from it. */
bool muster_membership_is_state_at_stake(const struct muster_membership *machine)
{
    bool is_perhaps_held = false;

    MUSTER_ASSERT(machine->progress != NULL);
    if (!machine->progress->lacks_state)
        return false;
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (muster_membership_is_voter(machine, peer) && !peer->vote->lacks_state)
            return false;
        is_perhaps_held = is_perhaps_held || may_hold_state(machine, peer);
    }
    return is_perhaps_held;
}

/* --- Texts of a change that waits --- */

static void append_peer(const struct membership_peer *peer, const char *why, char *text,
                        size_t room)
{
    size_t length = strlen(text);

    snprintf(text + length, room - length, "%s%s:%u (%s)", length == 0 ? "" : ", ",
             peer->member.task_type, peer->member.task_index, why);
}

static void name_voters(const struct muster_membership *machine, char *text, size_t room)
{
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (!muster_membership_is_awaited(machine, peer))
            continue;
        append_peer(peer,
                    muster_membership_peer_belief(machine, peer) == MUSTER_BELIEF_DOUBTED
                        ? "its link is lost, its death is not confirmed"
                        : "it has not answered",
                    text, room);
    }
}

static void name_holders(const struct muster_membership *machine, char *text, size_t room)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (may_hold_state(machine, &machine->peers[i]))
            append_peer(&machine->peers[i], "nobody else has the state, its death is not confirmed",
                        text, room);
}

/* The first member that is not suspected: the rule of is_own_turn (change.c), without its delays. */
static void name_leader(const struct muster_membership *machine, char *text, size_t room)
{
    for (uint32_t i = 0; i < machine->view->member_count; i++) {
        const struct membership_peer *peer =
            muster_membership_peer_find(machine, &machine->view->members[i].incarnation);

        if (peer == NULL || muster_membership_is_self(machine, &peer->member.incarnation) ||
            muster_membership_peer_belief(machine, peer) >= MUSTER_BELIEF_SUSPECTED)
            continue;
        append_peer(peer, "it leads the change", text, room);
        return;
    }
}

static void describe_change_wait(const struct muster_membership *machine, char *text, size_t room)
{
    if (machine->state == MUSTER_MEMBERSHIP_FROZEN) {
        name_leader(machine, text, room);
        return;
    }
    if (machine->state == MUSTER_MEMBERSHIP_PROPOSING) {
        snprintf(text, room, "the registry, which has not answered to the new view");
        return;
    }
    name_voters(machine, text, room);
    if (text[0] == '\0' && machine->progress != NULL &&
        muster_membership_is_state_at_stake(machine))
        name_holders(machine, text, room);
    if (text[0] == '\0' && machine->state == MUSTER_MEMBERSHIP_WAITING)
        snprintf(text, room, "at least %u members", machine->options.min_members);
}

/* The caller decides after how long a wait is worth a line of the log. */
bool muster_membership_waits_for(const struct muster_membership *machine, char *text, size_t room)
{
    text[0] = '\0';
    if (!muster_membership_is_member(machine) ||
        (machine->state == MUSTER_MEMBERSHIP_STEADY && !muster_membership_has_lost_member(machine)))
        return false;
    if (!machine->is_registry_up)
        snprintf(text, room, "the registry");
    else if (machine->state != MUSTER_MEMBERSHIP_STEADY)
        describe_change_wait(machine, text, room);
    return text[0] != '\0';
}

/* --- Texts of a process that is not a member yet --- */

static size_t add_place(const struct membership_peer *peer, char *text, size_t length, size_t room)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    if (length >= room)
        return length;
    return length + (size_t)snprintf(text + length, room - length, "%s%s:%u at %s (pid %lld)",
                                     length == 0 ? "" : ", ", peer->member.task_type,
                                     peer->member.task_index,
                                     muster_address_format(&peer->member.address, address),
                                     (long long)peer->member.pid);
}

/* The members that are neither linked nor known to be dead. */
static size_t name_unconfirmed(const struct muster_membership *machine, char *text, size_t room)
{
    size_t length = 0;

    for (uint32_t i = 0; i < machine->view->member_count; i++) {
        const struct membership_peer *peer =
            muster_membership_peer_find(machine, &machine->view->members[i].incarnation);

        if (peer != NULL && !peer->suspicion.is_dead && peer->link != MEMBERSHIP_LINK_UP)
            length = add_place(peer, text, length, room);
    }
    return length;
}

static const struct membership_peer *find_first_linked(const struct muster_membership *machine,
                                                       bool is_own_task)
{
    for (uint32_t i = 0; i < machine->view->member_count; i++) {
        const struct membership_peer *peer =
            muster_membership_peer_find(machine, &machine->view->members[i].incarnation);

        if (peer != NULL && peer->link == MEMBERSHIP_LINK_UP &&
            (!is_own_task || muster_member_compare(&peer->member, &machine->options.self) == 0))
            return peer;
    }
    return NULL;
}

static void describe_joining(const struct muster_membership *machine, char *text, size_t room)
{
    const struct membership_peer *holder = find_first_linked(machine, true);
    const struct membership_peer *leader = find_first_linked(machine, false);
    size_t length = 0;

    if (holder != NULL) {
        length = add_place(holder, text, 0, room);
        snprintf(text + length, room > length ? room - length : 0,
                 ", which lives and holds this task");
    } else if (leader != NULL) {
        length = add_place(leader, text, 0, room);
        snprintf(text + length, room > length ? room - length : 0,
                 ", which leads the members and lets others in between two operations");
    } else {
        length = name_unconfirmed(machine, text, room);
        snprintf(text + length, room > length ? room - length : 0,
                 ": members of the last view (%llu), which do not answer and are not known to be "
                 "dead; if their host is gone for ever: muster run --force-new",
                 (unsigned long long)machine->view->epoch);
    }
}

bool muster_membership_has_rival(const struct muster_membership *machine, char *text, size_t room)
{
    const struct membership_peer *rival = muster_membership_rival_find(machine);

    text[0] = '\0';
    if (rival != NULL)
        add_place(rival, text, 0, room);
    return rival != NULL;
}

void muster_membership_start_waits_for(const struct muster_membership *machine, char *text,
                                       size_t room)
{
    snprintf(text, room, "the registry");
    if (!machine->is_registry_up || !machine->is_synced)
        return;
    if (machine->view != NULL && !muster_membership_is_view_dead(machine))
        describe_joining(machine, text, room);
    else
        snprintf(text, room, "the other tasks, which have to agree on a view");
}
