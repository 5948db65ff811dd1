/* Admission of joiners to the next view. The leader asks here when it looks for causes and when it decides,
 * so both see the same joiners. The step from which a joiner takes part is decided with the view:
 * view_decide_members.c. */
#include "cluster/membership/membership_internal.h"

/* A task has one holder: while that lives, a second process with the same name waits. */
static bool is_task_held(const struct muster_membership *machine,
                         const struct membership_peer *joiner)
{
    const struct muster_view *view = machine->view;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct muster_member *member = &view->members[i];
        const struct membership_peer *holder;

        if (muster_member_compare(member, &joiner->member) != 0)
            continue;
        holder = muster_membership_peer_find(machine, &member->incarnation);
        return holder == NULL ||
               muster_membership_peer_belief(machine, holder) < MUSTER_BELIEF_SUSPECTED;
    }
    return false;
}

/* A joiner must have asked in this very epoch: an older request may come from a process that has been a
 * member since, and then it has operations open (docs/protocol.md, "Control messages": a Join proves that it
 * has none). A joiner that knows that the job stops does not ask. */
bool muster_membership_is_admissible(const struct muster_membership *machine,
                                     const struct membership_peer *peer)
{
    return machine->view != NULL && !muster_membership_is_stop_wanted(machine) &&
           peer->has_record && peer->join_epoch == machine->view->epoch &&
           peer->link == MEMBERSHIP_LINK_UP && !peer->suspicion.is_dead &&
           !muster_membership_in_view(machine, peer) && !is_task_held(machine, peer) &&
           !muster_membership_is_unreached(machine, &peer->member.incarnation);
}

size_t muster_membership_joiners(const struct muster_membership *machine,
                                 struct muster_member *members)
{
    size_t count = 0;

    for (size_t i = 0; i < machine->peer_count; i++)
        if (muster_membership_is_admissible(machine, &machine->peers[i]))
            members[count++] = machine->peers[i].member;
    return count;
}
