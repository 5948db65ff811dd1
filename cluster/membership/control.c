/* Control messages received: each records a fact about its sender, in the epoch that it names; the settle
 * functions decide what follows. Messages may be lost, repeated and late, so each is harmless when it comes
 * twice, and without effect when its epoch is past. */
#include <stdio.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "cluster/membership/progress_proto.h"

/* Send the view to a peer that is behind. It could not answer a Freeze before, so that is sent again right
 * after it. */
static void bring_up(struct muster_membership *machine, const struct membership_peer *peer)
{
    muster_membership_send_commit(machine, peer);
    machine->change.freeze_due_ns = 0;
}

/* True when both are in the same epoch; else the one that is behind gets the view. */
static bool is_same_epoch(struct muster_membership *machine, const struct membership_peer *peer,
                          uint64_t epoch)
{
    if (epoch < muster_membership_epoch(machine))
        bring_up(machine, peer);
    else if (epoch > muster_membership_epoch(machine))
        muster_membership_request_view(machine, peer);
    return epoch == muster_membership_epoch(machine) && epoch != 0;
}

/* Ranks are those of the view, which both have: they agree on which of the two goes on. */
static bool is_before_self(const struct muster_membership *machine,
                           const struct membership_peer *peer)
{
    uint32_t rank, own;

    return muster_view_find(machine->view, &peer->member.incarnation, &rank) &&
           muster_view_find(machine->view, &machine->options.self.incarnation, &own) && rank < own;
}

/* A Freeze is answered whoever sends it: a vote binds its sender to nobody. Two members may lead at once;
 * the higher rank steps back, and the swap decides if both go on. A member that is PROPOSING does not step
 * back, because its swap may have been applied. */
static void on_freeze(struct muster_membership *machine, struct membership_peer *peer,
                      const struct muster_control *control)
{
    if (!is_same_epoch(machine, peer, control->epoch) || !muster_membership_is_member(machine) ||
        !muster_membership_in_view(machine, peer))
        return;
    peer->asked_change_id = control->change_id;
    if (machine->state == MUSTER_MEMBERSHIP_STEADY) {
        muster_membership_act(machine, MUSTER_ACTION_FREEZE);
        muster_membership_move(machine, MUSTER_MEMBERSHIP_FROZEN);
    } else if ((machine->state == MUSTER_MEMBERSHIP_COLLECTING ||
                machine->state == MUSTER_MEMBERSHIP_WAITING) &&
               is_before_self(machine, peer)) {
        machine->frozen_ns = machine->now_ns;
        muster_membership_move(machine, MUSTER_MEMBERSHIP_FROZEN); /* the lower rank leads */
    }
    muster_membership_answer_freeze(machine, peer);
}

/* A vote is copied: it must outlive the message, until the view changes. A repeated one replaces it. */
static void on_progress(struct muster_membership *machine, struct membership_peer *peer,
                        const struct muster_control *control)
{
    struct muster_progress *vote = NULL;

    if (!muster_membership_is_member(machine) || !muster_membership_in_view(machine, peer) ||
        control->progress->epoch != machine->view->epoch)
        return;
    if (muster_progress_copy(machine->options.mem, control->progress, &vote) != MUSTER_OK) {
        machine->rc = MUSTER_RESOURCE_EXHAUSTED;
        return;
    }
    muster_progress_free(peer->vote);
    peer->vote = vote;
    peer->is_vote_resigning = control->is_resigning;
}

/* Only a joiner that knows the present view may be admitted: it has proved that it is not a member of it. */
static void on_join(struct muster_membership *machine, struct membership_peer *peer,
                    const struct muster_control *control)
{
    if (!muster_incarnation_is_equal(&control->member.incarnation, &peer->member.incarnation) ||
        peer->suspicion.is_dead)
        return;
    if (!is_same_epoch(machine, peer, control->epoch) || muster_membership_in_view(machine, peer))
        return;
    muster_membership_peer_record(machine, peer, &control->member);
    peer->join_epoch = control->is_ready ? control->epoch : 0;
}

/* Two members of one epoch with different views (a registry that was restored from a backup, say) cannot
 * work together: each fails rather than give other results than the rest. */
static void on_heartbeat(struct muster_membership *machine, struct membership_peer *peer,
                         const struct muster_control *control)
{
    char text[MUSTER_CONTROL_TEXT_BYTES], name[MUSTER_INCARNATION_TEXT_BYTES];

    peer->committed_step = control->progress_count;
    peer->committed_epoch = control->epoch;
    if (!is_same_epoch(machine, peer, control->epoch) ||
        control->view_digest == machine->view->digest)
        return;
    snprintf(text, sizeof(text), "view %llu differs at %s", (unsigned long long)control->epoch,
             muster_incarnation_format(&peer->member.incarnation, name));
    muster_membership_fail(machine, MUSTER_DATA_LOSS, text);
}

/* A confirmed death counts in any epoch, because it is final; a process that confirms its own end quits (its
 * memory may still change, so it is suspected only). What is only suspected counts in its own epoch. Suspicions
 * are not believed as such: an accusation renews links, and silence is weighed by the leader
 * (unreachable_pair.c). */
static void on_suspect(struct muster_membership *machine, struct membership_peer *peer,
                       const struct muster_control *control)
{
    struct muster_incarnation accuser = peer->member.incarnation; /* peer moves when one is made */
    struct membership_peer *accused;

    if (muster_membership_is_self(machine, &control->accused)) {
        if (control->is_confirmed || control->is_silence)
            return;
        accused = peer; /* the link between the two is lost at its end alone */
    } else {
        accused = muster_membership_peer(machine, &control->accused);
    }
    if (accused == NULL)
        return;
    if (control->is_confirmed && muster_incarnation_is_equal(&accuser, &control->accused)) {
        muster_suspicion_quit(&accused->suspicion);
        return;
    }
    if (control->is_confirmed) {
        muster_membership_confirm_dead(machine, accused, control->text);
        return;
    }
    if (control->epoch != muster_membership_epoch(machine) ||
        !muster_membership_in_view(machine, accused))
        return;
    if (control->is_silence)
        muster_membership_record_unreachable(machine, &accuser, &control->accused);
    else
        accused->accused_epoch = control->epoch;
}

static void on_leave(struct muster_membership *machine, struct membership_peer *peer,
                     const struct muster_control *control)
{
    if (is_same_epoch(machine, peer, control->epoch) && muster_membership_in_view(machine, peer)) {
        peer->leave_epoch = control->epoch;
        peer->is_resigning = control->is_resigning;
        peer->is_done = control->is_done;
        peer->done_calls =
            control->committed_step >= peer->committed_step ? control->done_calls : 0;
        if (control->committed_step > peer->committed_step)
            peer->committed_step = control->committed_step;
    }
}

void muster_membership_handle_control(struct muster_membership *machine,
                                      struct membership_peer *peer,
                                      const struct muster_control *control)
{
    switch (control->kind) {
    case MUSTER_CONTROL_FREEZE:
        on_freeze(machine, peer, control);
        return;
    case MUSTER_CONTROL_PROGRESS:
        on_progress(machine, peer, control);
        return;
    case MUSTER_CONTROL_COMMIT:
        muster_membership_record_view(machine, control->view, control->revision);
        return;
    case MUSTER_CONTROL_VIEW_REQUEST:
        if (control->epoch < muster_membership_epoch(machine))
            bring_up(machine, peer);
        return;
    case MUSTER_CONTROL_JOIN:
        on_join(machine, peer, control);
        return;
    case MUSTER_CONTROL_LEAVE:
        on_leave(machine, peer, control);
        return;
    case MUSTER_CONTROL_ABORT_PROPOSE:
        if (is_same_epoch(machine, peer, control->epoch) &&
            muster_membership_in_view(machine, peer))
            peer->abort_epoch = control->epoch;
        return;
    case MUSTER_CONTROL_HEARTBEAT:
        on_heartbeat(machine, peer, control);
        return;
    case MUSTER_CONTROL_SUSPECT:
        on_suspect(machine, peer, control);
        return;
    }
}
