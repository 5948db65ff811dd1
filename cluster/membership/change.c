/* Leading a change of view: causes, whose turn it is, collecting votes, deciding. Nothing here needs a
 * single leader to be safe: two leaders get the same votes, and the swap lets one of them win (propose.c).
 * The rules about whose turn it is only make that rare. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "cluster/membership/view_decide.h"
#include "runtime/value/backoff.h"

/* After suspicions rank k waits k steps: time for a lower rank's Freeze to arrive. */
#define TAKEOVER_STEP_NS (30 * MUSTER_NS_PER_MS)
/* A frozen member takes the lead over after this long, one rank after the other. A change takes milliseconds
 * unless it waits for a vote, and the new leader would wait for the same one. */
#define STALL_NS           (5 * MUSTER_NS_PER_S)
#define STALL_STEP_NS      (500 * MUSTER_NS_PER_MS)
#define FREEZE_INTERVAL_NS (100 * MUSTER_NS_PER_MS)
/* The hold times bound how long a change that could begin is put off for operations under way
 * (docs/protocol.md, "Causes"). */
#define JOIN_HOLD_MAX_NS (1 * MUSTER_NS_PER_S)
#define WORK_HOLD_MAX_NS (20 * MUSTER_NS_PER_MS)

/* A data link that is lost again and again would otherwise change the view all the time. */
static const struct muster_backoff refresh_backoff = {
    .first_ns = 100 * MUSTER_NS_PER_MS, .max_ns = 10 * MUSTER_NS_PER_S, .growth_permille = 2000};

static uint32_t own_rank(const struct muster_membership *machine)
{
    uint32_t rank = 0;

    muster_view_find(machine->view, &machine->options.self.incarnation, &rank);
    return rank;
}

/* --- causes --- */

/* A leaver that was kept for what it holds is not asked again before (follow.c). */
static bool may_leave(struct muster_membership *machine)
{
    return muster_membership_is_due(machine, machine->leave_hold_ns);
}

/* A member that only its peer has lost: the same members get new links in the next epoch, at most once per
 * refresh_backoff. */
static bool has_accused(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (machine->peers[i].accused_epoch == machine->view->epoch)
            return muster_membership_is_due(machine, machine->refresh_due_ns);
    return false;
}

/* True while the change is to wait for the end of an operation: until one has ended since the hold began,
 * for max_ns at most. */
static bool hold_change(struct muster_membership *machine, struct membership_hold *hold,
                        bool is_wanted, uint64_t max_ns)
{
    if (hold->since_ns == 0) {
        hold->since_ns = machine->now_ns > 0 ? machine->now_ns : 1;
        hold->ended_count = machine->work.ended_count;
    }
    return is_wanted && machine->work.ended_count == hold->ended_count &&
           !muster_membership_is_due(machine, hold->since_ns + max_ns);
}

/* A join alone must not interrupt an operation: it would begin again for a process that takes no part in it. */
static bool holds_joiners(struct muster_membership *machine)
{
    return hold_change(machine, &machine->join_hold, machine->work.is_busy, JOIN_HOLD_MAX_NS);
}

/* Every member records the requests that reach it; the one whose turn it is acts on them. The hold ends when
 * the last joiner is gone, so that the next one has its full time. */
static bool has_request(struct muster_membership *machine)
{
    uint64_t epoch = machine->view->epoch;
    bool is_leave = muster_membership_must_remove(machine), is_join = false;

    if (machine->abort_epoch == epoch || muster_membership_is_stop_wanted(machine))
        return true;
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (peer->abort_epoch == epoch)
            return true;
        is_join = is_join || muster_membership_is_admissible(machine, peer);
        is_leave = is_leave || peer->leave_epoch == epoch;
    }
    if (!is_join)
        machine->join_hold.since_ns = 0;
    return (is_join && !holds_joiners(machine)) || (is_leave && may_leave(machine));
}

/* --- whose turn --- */

/* The lowest rank that is not believed dead leads. After confirmed deaths the next rank leads at once,
 * since a dead process cannot lead too; after suspicions it waits, because the suspected process may be
 * leading already. */
static bool is_own_turn(struct muster_membership *machine)
{
    uint32_t rank = own_rank(machine);
    bool is_sure = true;

    for (uint32_t i = 0; i < rank; i++) {
        const struct membership_peer *peer =
            muster_membership_peer_find(machine, &machine->view->members[i].incarnation);
        enum muster_belief belief =
            peer == NULL ? MUSTER_BELIEF_ALIVE : muster_membership_peer_belief(machine, peer);

        if (belief < MUSTER_BELIEF_SUSPECTED) {
            machine->takeover_due_ns = 0;
            return false;
        }
        is_sure = is_sure && belief == MUSTER_BELIEF_DEAD;
    }
    if (is_sure)
        return true;
    if (machine->takeover_due_ns == 0)
        machine->takeover_due_ns =
            machine->now_ns + muster_membership_jitter(machine, rank * TAKEOVER_STEP_NS);
    return muster_membership_is_due(machine, machine->takeover_due_ns);
}

/* Frozen for long: whoever leads cannot finish (cut off from the registry, say). Taking over is safe without
 * asking, because the swap settles rivals, and the old leader's votes stay true. */
static bool is_stalled(struct muster_membership *machine)
{
    return machine->state == MUSTER_MEMBERSHIP_FROZEN && machine->progress != NULL &&
           muster_membership_is_due(machine, machine->frozen_ns + STALL_NS +
                                                 own_rank(machine) * STALL_STEP_NS);
}

/* A member that is frozen already keeps its progress and only takes over the lead: freezing again could not
 * tell more.  */
static void start_change(struct muster_membership *machine)
{
    MUSTER_ASSERT(muster_membership_is_member(machine));
    machine->change.id = ++machine->id_last;
    machine->change.below_since_ns = 0;
    machine->change.freeze_due_ns = 0;
    machine->join_hold.since_ns = machine->work_hold.since_ns = 0;
    if (machine->progress == NULL && machine->state == MUSTER_MEMBERSHIP_STEADY)
        muster_membership_act(machine, MUSTER_ACTION_FREEZE);
    muster_membership_move(machine, MUSTER_MEMBERSHIP_COLLECTING);
}

static void space_refreshes(struct muster_membership *machine)
{
    if (machine->now_ns > machine->refresh_due_ns + refresh_backoff.max_ns)
        machine->refresh_backoff_ns = 0;
    machine->refresh_due_ns =
        machine->now_ns + muster_backoff_next(&refresh_backoff, &machine->refresh_backoff_ns, NULL);
}

/* No change begins while the registry is away or the revision is not known: its swap could not be made, and
 * the members would stand frozen for nothing. */
void muster_membership_settle_member(struct muster_membership *machine)
{
    struct muster_incarnation evicted;

    MUSTER_ASSERT(muster_membership_is_member(machine));
    if (!muster_membership_knows_revision(machine) || !machine->is_registry_up)
        return;
    if (is_stalled(machine)) {
        start_change(machine);
        return;
    }
    if (!muster_membership_has_lost_member(machine) && !has_request(machine) &&
        !has_accused(machine) && !muster_membership_find_evicted(machine, &evicted)) {
        machine->work_hold.since_ns = 0;
        return;
    }
    if (!is_own_turn(machine) ||
        hold_change(machine, &machine->work_hold, machine->work.is_finishing, WORK_HOLD_MAX_NS))
        return;
    if (has_accused(machine))
        space_refreshes(machine);
    start_change(machine);
}

/* --- collecting --- */

/* Send Freeze to all that have not voted, the suspected too: a member that answers stays. Evicting less is
 * always safe. Returns whether a vote is waited for. */
static bool ask_for_votes(struct muster_membership *machine)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_FREEZE};
    bool is_time = muster_membership_is_due(machine, machine->change.freeze_due_ns);
    bool is_any_awaited = false;

    control.epoch = machine->view->epoch;
    control.change_id = machine->change.id;
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        is_any_awaited = is_any_awaited || muster_membership_is_awaited(machine, peer);
        if (is_time && peer->vote == NULL && muster_membership_in_view(machine, peer))
            muster_membership_send(machine, peer, &control);
    }
    if (is_time) {
        machine->change.freeze_due_ns = machine->now_ns + FREEZE_INTERVAL_NS;
        muster_membership_is_due(machine, machine->change.freeze_due_ns);
    }
    return is_any_awaited;
}

/* --- deciding --- */

static void append_text(char *text, size_t room, const char *format, ...) MUSTER_PRINTF(3, 4);
static void append_text(char *text, size_t room, const char *format, ...)
{
    size_t length = strlen(text);
    va_list args;

    va_start(args, format);
    if (length < room)
        vsnprintf(text + length, room - length, format, args);
    va_end(args);
}

/* A resigned peer has stopped and is removed at once, even with operations pending; a leaving peer only when
 * may_leave(). */
static bool must_remove_peer(struct muster_membership *machine, const struct membership_peer *peer)
{
    return peer->is_vote_resigning ||
           (peer->leave_epoch == machine->view->epoch && !peer->is_resigning && may_leave(machine));
}

static const char *why_lost(const struct muster_membership *machine,
                            const struct membership_peer *peer)
{
    if (muster_membership_is_evicted(machine, &peer->member.incarnation))
        return "another member does not reach it";
    if (peer->suspicion.has_quit)
        return "closed";
    return peer->death[0] == '\0' ? "silent" : peer->death;
}

static void describe_change(struct muster_membership *machine, char *text, size_t room)
{
    if (muster_membership_is_stop_wanted(machine))
        append_text(text, room, "preempted (%s)", machine->preemption);
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];
        const char *separator = text[0] == '\0' ? "" : ", ";

        if (muster_membership_is_admissible(machine, peer))
            append_text(text, room, "%s%s:%u joined", separator, peer->member.task_type,
                        peer->member.task_index);
        else if (!muster_membership_in_view(machine, peer) ||
                 muster_membership_is_self(machine, &peer->member.incarnation))
            continue;
        else if (!muster_membership_is_voter(machine, peer))
            append_text(text, room, "%s%s:%u lost (%s)", separator, peer->member.task_type,
                        peer->member.task_index, why_lost(machine, peer));
        else if (must_remove_peer(machine, peer))
            append_text(text, room, "%s%s:%u left", separator, peer->member.task_type,
                        peer->member.task_index);
    }
    if (muster_membership_must_remove(machine))
        append_text(text, room, "%s%s:%u left", text[0] == '\0' ? "" : ", ",
                    machine->options.self.task_type, machine->options.self.task_index);
}

/* A resignation after the vote is not in it (is_vote_void): the vote that others may have got counts, here
 * too. */
static void fill_own_vote(struct muster_membership *machine, struct muster_vote *vote)
{
    vote->incarnation = machine->options.self.incarnation;
    vote->progress = machine->progress;
    vote->is_done = machine->is_leaving && machine->is_done;
    vote->done_step = machine->committed_step;
    vote->done_calls = machine->done_calls;
    vote->is_leaving = muster_membership_votes_resigning(machine) ||
                       (machine->is_leaving && machine->is_off && may_leave(machine));
}

/* Only votes of members that are not suspected now count: a member may have voted and died since, and nobody
 * could serve what it holds. The own vote comes first: this process may be no peer of its own, after a lack of
 * memory. */
static size_t collect_votes(struct muster_membership *machine, struct muster_vote *votes)
{
    size_t count = 0;

    MUSTER_ASSERT(machine->progress != NULL);
    fill_own_vote(machine, &votes[count++]);
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (!muster_membership_is_voter(machine, peer))
            continue;
        votes[count].incarnation = peer->member.incarnation;
        votes[count].progress = peer->vote;
        votes[count].is_done =
            peer->leave_epoch == machine->view->epoch && !peer->is_resigning && peer->is_done;
        votes[count].done_step = peer->committed_step;
        votes[count].done_calls = peer->done_calls;
        votes[count++].is_leaving = must_remove_peer(machine, peer);
    }
    MUSTER_ASSERT(count <= machine->peer_count + 1); /* the room */
    return count;
}

/* A resigning member comes back by catch-up; one that also leaves does not. */
static bool means_to_come_back(const struct muster_membership *machine,
                               const struct muster_vote *vote)
{
    const struct membership_peer *peer;

    if (muster_membership_is_self(machine, &vote->incarnation))
        return !machine->is_leaving;
    peer = muster_membership_peer_find(machine, &vote->incarnation);
    return peer != NULL && peer->is_vote_resigning &&
           (peer->leave_epoch != machine->view->epoch || peer->is_resigning);
}

/* Committed steps come first: only a committed state can be served. */
static bool is_further(const struct muster_progress *a, const struct muster_progress *b)
{
    if (a->committed_step != b->committed_step)
        return a->committed_step > b->committed_step;
    return a->begun_step > b->begun_step;
}

static bool has_issued(const struct muster_progress *progress, const struct muster_op_id *id)
{
    const struct muster_progress_lane *lane = muster_progress_lane_of(progress, id);

    return lane != NULL && lane->has_issued && muster_op_id_compare(&lane->issued_through, id) >= 0;
}

/* The first rank that has not issued an operation for which an abort is proposed. */
static bool find_late_rank(const struct muster_membership *machine, const struct muster_vote *votes,
                           size_t count, const struct muster_op_id *id, uint32_t *ret_rank)
{
    bool is_found = false;

    for (size_t i = 0; i < count; i++) {
        uint32_t rank = 0;

        if (has_issued(votes[i].progress, id) ||
            !muster_view_find(machine->view, &votes[i].incarnation, &rank) ||
            machine->view->members[rank].from_step > id->step || (is_found && rank > *ret_rank))
            continue;
        *ret_rank = rank;
        is_found = true;
    }
    return is_found;
}

/* Format the reason of an abort: the first member that never called the operation. It is shown on members whose own
 * deadline has not expired. */
static void describe_abort(const struct muster_membership *machine, const struct muster_vote *votes,
                           size_t count, char *text, size_t room)
{
    for (size_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < votes[i].progress->op_count; k++) {
            const struct muster_progress_op *op = &votes[i].progress->ops[k];
            const struct muster_member *member;
            uint32_t rank = 0;

            if (!op->is_abort_proposed || !find_late_rank(machine, votes, count, &op->id, &rank))
                continue;
            member = &machine->view->members[rank];
            snprintf(text, room, "rank %u (%s:%u) had not called operation #%u of step %llu", rank,
                     member->task_type, member->task_index, op->id.sequence,
                     (unsigned long long)op->id.step);
            return;
        }
}

/* When no member with the training state would remain, the resigning member that is furthest stays: the
 * others come back to its state (docs/protocol.md, "Operations without a verdict"). A leaver is not kept,
 * since it would go with the next view. */
static void keep_one_with_state(const struct muster_membership *machine, struct muster_vote *votes,
                                size_t count)
{
    struct muster_vote *best = NULL;

    for (size_t i = 0; i < count; i++) {
        if (votes[i].progress->lacks_state)
            continue;
        if (!votes[i].is_leaving)
            return;
        if (means_to_come_back(machine, &votes[i]) &&
            (best == NULL || is_further(votes[i].progress, best->progress)))
            best = &votes[i];
    }
    if (best != NULL)
        best->is_leaving = false;
}

/* The reason of the view is made for people: joined, lost, left; else the abort that was asked for. It is
 * described before keep_one_with_state, so a member that is kept may be named as left. */
static enum muster_rc decide_view(struct muster_membership *machine, bool is_abort_all,
                                  struct muster_view **ret_view, uint32_t *ret_leaver_count)
{
    struct muster_mem *mem = machine->options.mem;
    char reason[sizeof(machine->view->reason)] = "";
    struct muster_vote *votes = muster_mem_alloc_zero(mem, machine->peer_count + 1, sizeof(*votes));
    struct muster_member *joiners =
        muster_mem_alloc_zero(mem, machine->peer_count, sizeof(*joiners));
    struct muster_decide_input input = {.mem = mem, .view = machine->view, .votes = votes};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (votes != NULL && joiners != NULL) {
        describe_change(machine, reason, sizeof(reason));
        input.vote_count = collect_votes(machine, votes);
        if (reason[0] == '\0')
            describe_abort(machine, votes, input.vote_count, reason, sizeof(reason));
        if (reason[0] == '\0')
            append_text(reason, sizeof(reason), "links renewed or an operation aborted");
        keep_one_with_state(machine, votes, input.vote_count);
        input.joiners = joiners;
        input.joiner_count = muster_membership_joiners(machine, joiners);
        input.is_preempted = muster_membership_is_stop_wanted(machine);
        input.is_abort_all = is_abort_all;
        input.reason = reason;
        rc = muster_view_decide(&input, ret_view);
    }
    *ret_leaver_count = 0;
    for (size_t i = 0; i < input.vote_count; i++)
        if (votes[i].is_leaving)
            ++*ret_leaver_count;
    muster_mem_free(mem, joiners);
    muster_mem_free(mem, votes);
    return rc;
}

/* Fewer than min_members would remain (members that leave by their own wish do not count as lost): wait for
 * a return, if there is something to return to. The decision is made again with each event, so a joiner that
 * comes is in the view that ends the wait. */
static bool must_wait(struct muster_membership *machine, const struct muster_view *next,
                      uint32_t leaver_count)
{
    bool is_over = next->member_count == 0 || next->is_state_lost || next->is_stopping;

    if (is_over || next->member_count + leaver_count >= machine->options.min_members) {
        machine->change.below_since_ns = 0;
        return false;
    }
    if (machine->change.below_since_ns == 0)
        machine->change.below_since_ns = machine->now_ns;
    if (machine->state == MUSTER_MEMBERSHIP_COLLECTING)
        muster_membership_move(machine, MUSTER_MEMBERSHIP_WAITING);
    return true;
}

static bool has_waited(struct muster_membership *machine)
{
    return muster_membership_is_due(machine, machine->change.below_since_ns +
                                                 machine->options.min_members_timeout_ns);
}

/* Nothing is decided while a vote is awaited (its sender may have delivered what others would abort), the
 * own group is not frozen, or the registry cannot be asked. A state that only a silent member may hold is
 * waited for without a limit: giving it up cannot be undone. */
void muster_membership_settle_change(struct muster_membership *machine)
{
    struct muster_view *view = NULL;
    uint32_t leaver_count;
    enum muster_rc rc;

    MUSTER_ASSERT(muster_membership_is_member(machine));
    if (ask_for_votes(machine) || machine->progress == NULL || !machine->is_registry_up ||
        !muster_membership_knows_revision(machine))
        return;
    machine->change.has_evicted = muster_membership_find_evicted(machine, &machine->change.evicted);
    if (muster_membership_is_state_at_stake(machine))
        return;
    rc = decide_view(machine, false, &view, &leaver_count);
    if (rc == MUSTER_OK && must_wait(machine, view, leaver_count)) {
        muster_view_unref(view);
        if (!has_waited(machine))
            return;
        rc = decide_view(machine, true, &view, &leaver_count);
    }
    if (rc != MUSTER_OK) {
        machine->rc = rc;
        return;
    }
    muster_membership_propose(machine, view);
}
