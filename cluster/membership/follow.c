/* Following: freeze, vote, and enter (or drop out of) a committed view. Every process runs this, the leader
 * too: it enters its own view by the same way as the others. */
#include <stdio.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "cluster/membership/progress_proto.h"
#include "cluster/membership/view_options.h"
#include "runtime/value/backoff.h"

/* A Join is repeated because the leader may be new, or may not have had the link yet. Three of them fit into
 * the time after which an unreachable pair of a joiner is forgotten (UNREACHED_NS in unreachable_pair.c). */
#define JOIN_INTERVAL_NS (200 * MUSTER_NS_PER_MS)

/* A change freezes all members, so one that only keeps the leaver again must not be repeated in a tight loop
 * (docs/protocol.md, "The decision"). */
static const struct muster_backoff leave_hold = {
    .first_ns = 20 * MUSTER_NS_PER_MS, .max_ns = 5 * MUSTER_NS_PER_S, .growth_permille = 2000};

/* The vote is the frozen progress, which does not change before the next view: a second leader gets the same
 * answer, and either of them may decide with it. */
void muster_membership_answer_freeze(struct muster_membership *machine,
                                     struct membership_peer *peer)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_PROGRESS};

    peer->has_asked = machine->progress == NULL;
    if (peer->has_asked)
        return;
    control.change_id = peer->asked_change_id;
    control.progress = machine->progress;
    control.is_resigning = muster_membership_votes_resigning(machine);
    muster_membership_send(machine, peer, &control);
}

/* Leaders that asked while the group was being frozen get their answer now. */
void muster_membership_on_frozen(struct muster_membership *machine,
                                 struct muster_progress *progress)
{
    MUSTER_ASSERT(progress != NULL);
    muster_progress_free(machine->retired);
    machine->retired = machine->progress;
    machine->progress = progress;
    machine->frozen_ns = machine->now_ns;
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].has_asked)
            muster_membership_answer_freeze(machine, &machine->peers[i]);
}

/* --- leaving --- */

/* Open operations end CANCELLED: no view will give a verdict on them to a process that is not in it. */
void muster_membership_finish_leaving(struct muster_membership *machine)
{
    struct muster_membership_action *action =
        muster_membership_act(machine, MUSTER_ACTION_ABORT_ALL);

    muster_error_set(&action->error, MUSTER_CANCELLED, "this process has left the job");
    muster_membership_act(machine, MUSTER_ACTION_TELL_LEFT);
    muster_membership_move(machine, MUSTER_MEMBERSHIP_LEFT);
}

/* A process that is not a member leaves at once, when the machine settles; a member waits until a view without
 * it is committed, because the others count on its vote. Its record is deleted first (see
 * muster_membership_must_remove). */
void muster_membership_leave(struct muster_membership *machine, bool is_done, uint32_t calls)
{
    if (!machine->is_leaving)
        muster_membership_act(machine, MUSTER_ACTION_DEREGISTER);
    machine->is_leaving = true;
    machine->is_done = is_done;
    machine->done_calls = calls;
    machine->leave_due_ns = 0;
    if (machine->state == MUSTER_MEMBERSHIP_IDLE)
        muster_membership_finish_leaving(machine);
}

/* The leader waits for the vote of each member that it believes alive. This one votes no more, and says so:
 * on its host it would be believed alive until evict_after. */
void muster_membership_quit(struct muster_membership *machine)
{
    if (muster_membership_is_member(machine))
        muster_membership_send_quit(machine);
    muster_membership_finish_leaving(machine);
}

/* --- a newer view --- */

/* A member hands its frozen operations over to the group of the new view; a joiner has none. */
static void enter_view(struct muster_membership *machine, bool is_hand_over)
{
    struct muster_membership_action *action =
        muster_membership_act(machine, MUSTER_ACTION_OPEN_GROUP);

    MUSTER_ASSERT(muster_membership_is_member(machine));
    action->view = muster_view_ref(machine->view);
    action->is_hand_over = is_hand_over;
    machine->is_ready = false;
    machine->has_seen_members = true;
    muster_membership_move(machine, MUSTER_MEMBERSHIP_STEADY);
}

/* Results that were delivered here since the freeze may differ from the others', so nothing of this process
 * counts any more: it comes back as a joiner and catches up. committed_step is 0 again for the same reason. */
static void exclude_self(struct muster_membership *machine)
{
    struct muster_error error;
    struct muster_membership_action *action;

    MUSTER_ASSERT(!muster_membership_is_member(machine));
    if (machine->is_leaving) {
        muster_membership_finish_leaving(machine);
        return;
    }
    if (muster_membership_fail_if_over(machine, true))
        return;
    muster_error_set(&error, MUSTER_ABORTED, "left out of view %llu: %s",
                     (unsigned long long)machine->view->epoch, machine->view->reason);
    muster_membership_act(machine, MUSTER_ACTION_ABORT_ALL)->error = error;
    action = muster_membership_act(machine, MUSTER_ACTION_TELL_EXCLUDED);
    action->error = error;
    action->view = muster_view_ref(machine->view);
    machine->is_ready = false;
    machine->committed_step = 0;
    muster_membership_move(machine, MUSTER_MEMBERSHIP_JOINING);
}

/* Still an observer. An empty view after one with members: the job is over, if its work is done. */
static void observe_view(struct muster_membership *machine, bool had_members)
{
    MUSTER_ASSERT(!muster_membership_is_member(machine));
    if (had_members && machine->is_synced)
        machine->has_seen_members = true;
    if (machine->state == MUSTER_MEMBERSHIP_PROPOSING)
        muster_membership_move(machine, MUSTER_MEMBERSHIP_JOINING);
    if (machine->view->member_count == 0)
        muster_membership_fail_if_over(machine, true);
}

/* Called before the view is adopted, since leave_epoch of peers is compared with the old one. */
static bool keeps_leaver(const struct muster_membership *machine, const struct muster_view *next)
{
    MUSTER_ASSERT(machine->view != NULL);
    if (muster_membership_must_remove(machine))
        return true;
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].leave_epoch == machine->view->epoch &&
            muster_view_find(next, &machine->peers[i].member.incarnation, NULL))
            return true;
    return false;
}

/* A leaver that was kept for what it holds is asked again later and later: every change interrupts
 * the others' work. */
static void hold_leavers(struct muster_membership *machine, const struct muster_view *next)
{
    if (machine->view == NULL || !keeps_leaver(machine, next)) {
        machine->leave_hold_span_ns = 0;
        return;
    }
    machine->leave_hold_ns =
        machine->now_ns + muster_backoff_next(&leave_hold, &machine->leave_hold_span_ns, NULL);
}

/* The old progress stays alive for one step (retired): actions of this step may point to it. */
static void adopt_view(struct muster_membership *machine, struct muster_view *view,
                       uint64_t revision)
{
    struct muster_view *old = machine->view;

    MUSTER_ASSERT(old == NULL || view->epoch > old->epoch);
    hold_leavers(machine, view);
    machine->view = muster_view_ref(view);
    machine->revision = revision;
    machine->is_revision_known = revision != 0;
    machine->read_due_ns = 0;
    muster_view_unref(old);
    muster_membership_proposal_fini(machine);
    muster_progress_free(machine->retired);
    machine->retired = machine->progress;
    machine->progress = NULL;
    machine->takeover_due_ns = 0;
    machine->join_hold.since_ns = machine->work_hold.since_ns = 0;
    machine->heartbeat_due_ns = 0;
    machine->join_due_ns = 0;
    muster_membership_peers_follow(machine);
}

/* The view was decided with a vote from before the resignation, and counts on operations that have ended
 * here meanwhile. So this process stands still in it, and resigns again: it is left out of the next one. */
static void enter_resigning(struct muster_membership *machine)
{
    MUSTER_ASSERT(muster_membership_is_member(machine));
    machine->resign_epoch = machine->view->epoch;
    machine->leave_due_ns = 0;
    muster_membership_act(machine, MUSTER_ACTION_FREEZE);
    muster_membership_move(machine, MUSTER_MEMBERSHIP_FROZEN);
}

/* A view that keeps this process must have been built from its vote (invariant 2 of README.md): only then do
 * its verdicts fit what has happened here. A view that skips a number cannot have been. Going on would be
 * silent damage, so it fails. */
static void follow_view(struct muster_membership *machine, struct muster_view *view,
                        uint64_t revision)
{
    bool is_void = machine->is_vote_void;
    bool was = muster_membership_is_member(machine);
    bool is = muster_view_find(view, &machine->options.self.incarnation, NULL);
    bool had_members = machine->view != NULL && machine->view->member_count > 0;

    if (was && is && (machine->progress == NULL || view->epoch != machine->view->epoch + 1)) {
        muster_membership_fail(machine, MUSTER_INTERNAL,
                               "a view counts on this process, which never voted for it: start "
                               "this process again");
        return;
    }
    machine->is_vote_void = false;
    adopt_view(machine, view, revision);
    if (is)
        enter_view(machine, was);
    if (was && is && is_void)
        enter_resigning(machine);
    if (was && !is)
        exclude_self(machine);
    if (!was && !is)
        observe_view(machine, had_members);
}

/* Views come by three ways (watch, members, reads), in any order and repeated: only a higher number is news,
 * so a late copy of an old view never takes a member back. Equal numbers must mean equal bytes, since the
 * registry commits one view per number; the same view again may still bring the revision that a member did
 * not know. */
static void handle_view(struct muster_membership *machine, struct muster_view *view,
                        uint64_t revision)
{
    if (machine->state == MUSTER_MEMBERSHIP_LEFT || machine->state == MUSTER_MEMBERSHIP_IDLE)
        return;
    if (strcmp(view->job, machine->job) != 0) {
        muster_membership_fail(machine, MUSTER_FAILED_PRECONDITION,
                               "the view under this job's key is of another job: the registry's "
                               "keys are mixed up; use another MUSTER_JOB");
        return;
    }
    if (machine->view == NULL || view->epoch > machine->view->epoch) {
        follow_view(machine, view, revision);
        return;
    }
    if (view->epoch < machine->view->epoch)
        return;
    if (view->digest != machine->view->digest) {
        muster_membership_fail(machine, MUSTER_DATA_LOSS,
                               "two different views have the same number: the registry has lost "
                               "writes (restored from a backup?); start the job again");
        return;
    }
    if (revision != 0) {
        machine->revision = revision;
        machine->is_revision_known = true;
    }
}

void muster_membership_follow_recorded_view(struct muster_membership *machine)
{
    struct muster_view *view = machine->seen_view;

    if (view == NULL)
        return;
    machine->seen_view = NULL;
    handle_view(machine, view, machine->seen_revision);
    muster_view_unref(view);
}

/* --- an observer --- */

/* A joiner needs a connection to every member. Returns true once each one is connected, dead, or has failed
 * a connection attempt; failures are reported to the leader, which decides who stays. The backoff is 0 until
 * the first attempt has failed. */
static bool has_tried_all(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (muster_membership_in_view(machine, peer) && !peer->suspicion.is_dead &&
            peer->link != MEMBERSHIP_LINK_UP && peer->connect_backoff_ns == 0)
            return false;
    }
    return true;
}

static void tell_unreached(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (muster_membership_in_view(machine, peer) && !peer->suspicion.is_dead &&
            (peer->link != MEMBERSHIP_LINK_UP ||
             muster_membership_peer_belief(machine, peer) >= MUSTER_BELIEF_SUSPECTED))
            muster_membership_send_silence(machine, peer);
    }
}

/* A process whose options contradict those of the view does not ask to join: its node gives up. */
static bool is_unfit(const struct muster_membership *machine)
{
    const struct muster_view_demands demands = {.communication = machine->options.communication,
                                                .is_reproducible =
                                                    machine->options.plan.is_reproducible,
                                                .data_protection = machine->options.data_protection,
                                                .is_fixed_size = machine->options.is_fixed_size};
    struct muster_option_difference difference;

    return muster_view_differs(machine->view, &demands, &difference);
}

static bool is_linked_to_member(const struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].link == MEMBERSHIP_LINK_UP &&
            muster_membership_in_view(machine, &machine->peers[i]))
            return true;
    return false;
}

/* The Join names the view that the joiner knows. That proves to the leader that the joiner knows that it is
 * not a member, so no operation of it is open (docs/protocol.md, "Control messages"). */
void muster_membership_settle_joining(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_JOIN};

    MUSTER_ASSERT(machine->state == MUSTER_MEMBERSHIP_JOINING && machine->view != NULL);
    if (muster_membership_is_view_dead(machine)) {
        machine->forming_since_ns = machine->now_ns;
        muster_membership_move(machine, MUSTER_MEMBERSHIP_FORMING);
        return;
    }
    machine->has_seen_members = machine->has_seen_members || is_linked_to_member(machine);
    if (muster_membership_fail_if_stopping(machine))
        return;
    if (!machine->is_ready || is_unfit(machine) ||
        !muster_membership_is_due(machine, machine->join_due_ns))
        return;
    control.epoch = machine->view->epoch;
    control.member = machine->options.self;
    control.committed_step = machine->committed_step;
    control.is_ready = has_tried_all(machine);
    if (control.is_ready)
        tell_unreached(machine);
    muster_membership_send_members(machine, &control);
    machine->join_due_ns = machine->now_ns + JOIN_INTERVAL_NS;
    muster_membership_is_due(machine, machine->join_due_ns);
}
