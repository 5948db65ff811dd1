/* Preemption: the whole job is asked to stop. The leader takes the request up, and the next view names the step after
 * which all members stop (docs/protocol.md, "Preemption"). */
#include <stdio.h>

#include "cluster/membership/membership_internal.h"

/* Requests are repeated with higher numbers while no view has taken them up, and several processes may make one. */
void muster_membership_on_preempted(struct muster_membership *machine,
                                    const struct muster_membership_event *event)
{
    if (machine->preempted_epoch != 0 && event->id + 1 <= machine->preempted_epoch)
        return;
    machine->preempted_epoch = event->id + 1;
    (void)snprintf(machine->preemption, sizeof(machine->preemption), "%s",
                   event->text != NULL ? event->text : "");
}

/* A request of before the last new beginning meant other members. */
bool muster_membership_is_stop_wanted(const struct muster_membership *machine)
{
    return machine->view != NULL && !machine->view->is_stopping &&
           machine->preempted_epoch > machine->view->begin_epoch;
}

/* It was registered when the last member had not left yet, and has only read the registry too late to meet one. */
static bool is_of_stopped_job(const struct muster_membership *machine)
{
    const struct membership_peer *self =
        muster_membership_peer_find(machine, &machine->options.self.incarnation);

    return machine->view->member_count == 0 && machine->is_revision_known && self != NULL &&
           self->is_registered && self->register_revision < machine->revision;
}

/* The job of this process stops without it: it does not begin it anew. One that was started after its end is of the
 * next job. */
bool muster_membership_fail_if_stopping(struct muster_membership *machine)
{
    if (machine->view == NULL || !machine->view->is_stopping || machine->is_leaving ||
        !(machine->options.is_return || machine->has_seen_members || is_of_stopped_job(machine)))
        return false;
    muster_membership_fail(machine, MUSTER_CANCELLED,
                           "the job is preempted: its members stop, and nobody joins any more");
    return true;
}
