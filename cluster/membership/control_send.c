/* The control messages that this process sends by itself: heartbeats, suspicions, requests, its departure.
 * None is acknowledged; each is repeated until the view changes, so a lost link costs time and never a fact. */
#include <stdio.h>

#include "cluster/membership/membership_internal.h"

/* A leaver wants to be gone soon, and nothing else tells a new leader of its wish. */
#define LEAVE_INTERVAL_NS (50 * MUSTER_NS_PER_MS)

void muster_membership_request_view(struct muster_membership *machine,
                                    const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_VIEW_REQUEST};

    control.epoch = muster_membership_epoch(machine);
    muster_membership_send(machine, peer, &control);
}

/* Heartbeats go to every linked process, joiners too: they carry the epoch and the committed step. */
static void send_heartbeats(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_HEARTBEAT};

    control.epoch = muster_membership_epoch(machine);
    control.view_digest = machine->view == NULL ? 0 : machine->view->digest;
    control.progress_count = machine->committed_step;
    for (size_t i = 0; i < machine->peer_count; i++)
        muster_membership_send(machine, &machine->peers[i], &control);
}

static void send_suspicion(struct muster_membership *machine, const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT};

    control.epoch = muster_membership_epoch(machine);
    control.accused = peer->member.incarnation;
    snprintf(control.text, sizeof(control.text), "data link lost");
    muster_membership_send_members(machine, &control);
}

void muster_membership_send_death(struct muster_membership *machine,
                                  const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT, .is_confirmed = true};

    control.epoch = muster_membership_epoch(machine);
    control.accused = peer->member.incarnation;
    snprintf(control.text, sizeof(control.text), "%s", peer->death);
    muster_membership_send_members(machine, &control);
}

void muster_membership_send_quit(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT, .is_confirmed = true};

    MUSTER_ASSERT(muster_membership_is_member(machine));
    control.epoch = muster_membership_epoch(machine);
    control.accused = machine->options.self.incarnation;
    snprintf(control.text, sizeof(control.text), "closed");
    muster_membership_send_members(machine, &control);
}

/* The lowest rank that this process does not suspect; NULL: itself, or none. Another member may see another
 * leader. A report to the wrong one does no harm: only a member that leads a change reads it. */
static const struct membership_peer *find_leader(const struct muster_membership *machine)
{
    for (uint32_t i = 0; i < machine->view->member_count; i++) {
        const struct muster_incarnation *incarnation = &machine->view->members[i].incarnation;
        const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

        if (muster_membership_is_self(machine, incarnation))
            return NULL;
        if (peer != NULL && muster_membership_peer_belief(machine, peer) < MUSTER_BELIEF_SUSPECTED)
            return peer;
    }
    return NULL;
}

/* Silence of the leader itself is not reported to it: when it is suspected, the next rank is the leader
 * here. */
void muster_membership_send_silence(struct muster_membership *machine,
                                    const struct membership_peer *peer)
{
    const struct membership_peer *leader = find_leader(machine);
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT, .is_silence = true};

    control.epoch = muster_membership_epoch(machine);
    control.accused = peer->member.incarnation;
    snprintf(control.text, sizeof(control.text), "not heard");
    if (leader != NULL && leader != peer)
        muster_membership_send(machine, leader, &control);
}

static void send_abort(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_ABORT_PROPOSE};

    control.epoch = muster_membership_epoch(machine);
    control.op = machine->abort_op;
    control.reason = machine->abort_rc;
    muster_membership_send_members(machine, &control);
}

static void send_leave(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_LEAVE};

    MUSTER_ASSERT(muster_membership_must_remove(machine));
    control.epoch = muster_membership_epoch(machine);
    control.is_resigning = !machine->is_leaving;
    control.is_done = machine->is_leaving && machine->is_done;
    control.committed_step = machine->committed_step;
    control.done_calls = machine->done_calls;
    muster_membership_send_members(machine, &control);
}

/* Only the newest proposal is kept: a change decides about all open operations at once, and each vote marks
 * those that its sender wants aborted. */
void muster_membership_propose_abort(struct muster_membership *machine,
                                     const struct muster_membership_event *event)
{
    if (!muster_membership_is_member(machine))
        return;
    machine->abort_epoch = muster_membership_epoch(machine);
    machine->abort_op = event->op;
    machine->abort_rc = event->rc;
    send_abort(machine);
}

void muster_membership_on_peer_suspected(struct muster_membership *machine,
                                         const struct muster_membership_event *event)
{
    struct membership_peer *peer = muster_membership_peer_find(machine, &event->peer);

    if (peer == NULL || !muster_membership_is_member(machine) ||
        !muster_membership_in_view(machine, peer))
        return;
    peer->accused_epoch = peer->lost_epoch = muster_membership_epoch(machine);
    send_suspicion(machine, peer);
}

/* Proposals are repeated until the view changes: a link may have been down, a leader may be new. */
static void repeat_proposals(struct muster_membership *machine)
{
    if (!muster_membership_is_member(machine))
        return;
    if (machine->abort_epoch == muster_membership_epoch(machine))
        send_abort(machine);
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].lost_epoch == muster_membership_epoch(machine))
            send_suspicion(machine, &machine->peers[i]);
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].is_witnessed &&
            muster_membership_in_view(machine, &machine->peers[i]))
            muster_membership_send_death(machine, &machine->peers[i]);
    for (size_t i = 0; i < machine->peer_count; i++)
        if (muster_membership_in_view(machine, &machine->peers[i]) &&
            muster_membership_peer_belief(machine, &machine->peers[i]) == MUSTER_BELIEF_SUSPECTED)
            muster_membership_send_silence(machine, &machine->peers[i]);
}

/* The deadline is asked for again after it was moved, so that the machine wakes for it
 * (muster_membership_is_due). */
void muster_membership_settle_messages(struct muster_membership *machine)
{
    if (muster_membership_is_due(machine, machine->heartbeat_due_ns)) {
        send_heartbeats(machine);
        repeat_proposals(machine);
        machine->heartbeat_due_ns =
            machine->now_ns +
            muster_membership_jitter(machine, machine->options.heartbeat_interval_ns);
        muster_membership_is_due(machine, machine->heartbeat_due_ns);
    }
    if (!muster_membership_must_remove(machine) || !muster_membership_is_member(machine))
        return;
    if (muster_membership_is_due(machine, machine->leave_due_ns)) {
        send_leave(machine);
        machine->leave_due_ns = machine->now_ns + LEAVE_INTERVAL_NS;
        muster_membership_is_due(machine, machine->leave_due_ns);
    }
}

/* A revision from before a view of a member would name another version of the key, so an unknown one is sent
 * as 0. */
void muster_membership_send_commit(struct muster_membership *machine,
                                   const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_COMMIT};

    if (machine->view == NULL)
        return;
    control.view = machine->view;
    control.revision = machine->is_revision_known ? machine->revision : 0;
    muster_membership_send(machine, peer, &control);
}
