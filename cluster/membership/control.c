/* Control messages: what each means to the membership machine, and the words it says by itself. */
#include <stdio.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "cluster/membership/progress_proto.h"

#define LEAVE_INTERVAL_NS (50 * MUSTER_NS_PER_MS)

static uint64_t epoch_of(const struct muster_membership *machine)
{
    return machine->view == NULL ? 0 : machine->view->epoch;
}

void muster_membership_request_view(struct muster_membership *machine,
                                    const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_VIEW_REQUEST};

    control.epoch = epoch_of(machine);
    muster_membership_send(machine, peer, &control);
}

/* It gets the view; a Freeze that came before it was for nothing, and is sent again behind it. */
static void bring_up(struct muster_membership *machine, const struct membership_peer *peer)
{
    muster_membership_send_commit(machine, peer);
    machine->change.freeze_due_ns = 0;
}

/* True when both are in the same epoch; else the one that is behind gets the view. */
static bool is_same_epoch(struct muster_membership *machine, const struct membership_peer *peer,
                          uint64_t epoch)
{
    if (epoch < epoch_of(machine))
        bring_up(machine, peer);
    else if (epoch > epoch_of(machine))
        muster_membership_request_view(machine, peer);
    return epoch == epoch_of(machine) && epoch != 0;
}

static bool is_before_self(const struct muster_membership *machine,
                           const struct membership_peer *peer)
{
    uint32_t rank, own;

    return muster_view_find(machine->view, &peer->member.incarnation, &rank) &&
           muster_view_find(machine->view, &machine->options.self.incarnation, &own) && rank < own;
}

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
    if (control->is_confirmed) {
        muster_membership_confirm_dead(machine, accused, control->text);
        return;
    }
    if (control->epoch != epoch_of(machine) || !muster_membership_in_view(machine, accused))
        return;
    if (control->is_silence)
        muster_membership_quarrel(machine, &accuser, &control->accused);
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
        if (control->committed_step > peer->committed_step)
            peer->committed_step = control->committed_step;
    }
}

void muster_membership_control(struct muster_membership *machine, struct membership_peer *peer,
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
        muster_membership_view_put(machine, control->view, control->revision);
        return;
    case MUSTER_CONTROL_VIEW_REQUEST:
        if (control->epoch < epoch_of(machine))
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

/* --- words said by itself --- */

static void send_heartbeats(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_HEARTBEAT};

    control.epoch = epoch_of(machine);
    control.view_digest = machine->view == NULL ? 0 : machine->view->digest;
    control.progress_count = machine->committed_step;
    for (size_t i = 0; i < machine->peer_count; i++)
        muster_membership_send(machine, &machine->peers[i], &control);
}

static void send_suspicion(struct muster_membership *machine, const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT};

    control.epoch = epoch_of(machine);
    control.accused = peer->member.incarnation;
    snprintf(control.text, sizeof(control.text), "data link lost");
    muster_membership_send_members(machine, &control);
}

void muster_membership_send_death(struct muster_membership *machine,
                                  const struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT, .is_confirmed = true};

    control.epoch = epoch_of(machine);
    control.accused = peer->member.incarnation;
    snprintf(control.text, sizeof(control.text), "%s", peer->death);
    muster_membership_send_members(machine, &control);
}

/* The lowest rank that this process hears; NULL: itself, or nobody. */
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

void muster_membership_send_silence(struct muster_membership *machine,
                                    const struct membership_peer *peer)
{
    const struct membership_peer *leader = find_leader(machine);
    struct muster_control control = {.kind = MUSTER_CONTROL_SUSPECT, .is_silence = true};

    control.epoch = epoch_of(machine);
    control.accused = peer->member.incarnation;
    snprintf(control.text, sizeof(control.text), "not heard");
    if (leader != NULL && leader != peer)
        muster_membership_send(machine, leader, &control);
}

static void send_abort(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_ABORT_PROPOSE};

    control.epoch = epoch_of(machine);
    control.op = machine->abort_op;
    control.reason = machine->abort_rc;
    muster_membership_send_members(machine, &control);
}

static void send_leave(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_LEAVE};

    control.epoch = epoch_of(machine);
    control.is_resigning = !machine->is_leaving;
    control.is_done = machine->is_leaving && machine->is_done;
    control.committed_step = machine->committed_step;
    muster_membership_send_members(machine, &control);
}

void muster_membership_propose_abort(struct muster_membership *machine,
                                     const struct muster_membership_event *event)
{
    if (!muster_membership_is_member(machine))
        return;
    machine->abort_epoch = epoch_of(machine);
    machine->abort_op = event->op;
    machine->abort_rc = event->rc;
    send_abort(machine);
}

void muster_membership_suspect(struct muster_membership *machine,
                               const struct muster_membership_event *event)
{
    struct membership_peer *peer = muster_membership_peer_find(machine, &event->peer);

    if (peer == NULL || !muster_membership_is_member(machine) ||
        !muster_membership_in_view(machine, peer))
        return;
    peer->accused_epoch = peer->lost_epoch = epoch_of(machine);
    send_suspicion(machine, peer);
}

/* Proposals are repeated until the view changes: a link may have been down, a leader may be new. */
static void repeat_proposals(struct muster_membership *machine)
{
    if (!muster_membership_is_member(machine))
        return;
    if (machine->abort_epoch == epoch_of(machine))
        send_abort(machine);
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].lost_epoch == epoch_of(machine))
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

void muster_membership_settle_words(struct muster_membership *machine)
{
    if (muster_membership_is_due(machine, machine->heartbeat_due_ns)) {
        send_heartbeats(machine);
        repeat_proposals(machine);
        machine->heartbeat_due_ns =
            machine->now_ns +
            muster_membership_jitter(machine, machine->options.heartbeat_interval_ns);
        muster_membership_is_due(machine, machine->heartbeat_due_ns);
    }
    if (!muster_membership_goes(machine) || !muster_membership_is_member(machine))
        return;
    if (muster_membership_is_due(machine, machine->leave_due_ns)) {
        send_leave(machine);
        machine->leave_due_ns = machine->now_ns + LEAVE_INTERVAL_NS;
        muster_membership_is_due(machine, machine->leave_due_ns);
    }
}
