/* Lanes: operations are activated, completed and delivered in order. Here alone an executor's outcome
 * becomes a state of its run. */
#include "collective/group/group_internal.h"
#include "collective/kernel/combine.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

static struct muster_lane *lane_of(struct muster_run *run)
{
    return &run->group->lanes[MUSTER_LANE_INDEX(run->id.lane)];
}

/* --- Plans --- */

/* Most operations of a step are like the one before: their plan need not be made again. Offsets are compared by
 * nobody, so a call with counts of its own is never remembered. */
static bool is_remembered(const struct muster_plan_memo *memo,
                          const struct muster_plan_input *input, bool is_shm)
{
    const struct muster_plan_input *last = &memo->input;

    return memo->is_set && memo->is_shm == is_shm && last->kind == input->kind &&
           last->n == input->n && last->index == input->index && last->root == input->root &&
           last->count == input->count && last->offsets == NULL && input->offsets == NULL &&
           last->element_bytes == input->element_bytes && last->is_in_order == input->is_in_order &&
           last->is_weighted == input->is_weighted && last->host_count == input->host_count;
}

static void plan_by(struct muster_run *run, const struct muster_plan_input *input)
{
    struct muster_plan_memo *memo = &run->group->plan_memo;
    bool is_shm = run->group->boards == MUSTER_BOARDS_USED;

    if (!is_remembered(memo, input, is_shm)) {
        memo->input = *input;
        memo->plan = is_shm ? muster_shm_plan_make(input) : muster_plan_make(input);
        memo->is_shm = is_shm;
        memo->is_set = true;
    }
    run->plan = memo->plan;
}

void muster_run_make_plan(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_plan_input input = {
        .kind = run->call.kind,
        .n = run->participant_count,
        .index = run->self_index,
        .count = run->call.count,
        .offsets = run->call.offsets,
        .host_count = muster_group_topology(group, &run->id)->host_count,
        .element_bytes = muster_call_element_bytes(&run->call),
        .is_in_order = run->call.user.reduce != NULL && !run->call.user.is_commutative,
        .is_weighted = run->call.is_weighted,
        .parameters = group->view->plan,
    };
    uint32_t root;

    MUSTER_ASSERT(run->memory == NULL);
    if (muster_op_kind_has_root(run->call.kind) &&
        muster_view_find(group->view, &run->call.root.incarnation, &root))
        input.root = muster_op_participant_index(group, &run->id, root);
    if (input.root >= input.n)
        input.root = 0;
    plan_by(run, &input);
}

/* --- Turns --- */

/* False: no room for now. The operations after it wait, too: a lane activates in order on all members, so that
 * two members never hold room for different operations and wait for each other. */
static bool activate_shared(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = lane_of(run);

    switch (muster_shm_executor.shared->prepare(run)) {
    case MUSTER_PREPARED:
        break;
    case MUSTER_PREPARE_LATER:
        return false;
    case MUSTER_PREPARE_NEVER:
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return true;
    }
    muster_run_move_to(run, MUSTER_RUN_ACTIVE);
    muster_run_conclude(run, run->ops->start(run));
    if (run->state == MUSTER_RUN_COMPLETE)
        muster_lane_settle(group, lane);
    return true;
}

static void activate_run(struct muster_run *run)
{
    if (!muster_run_take_memory(run)) {
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return;
    }
    muster_run_move_to(run, MUSTER_RUN_ACTIVE);
    run->result.contributor_count = run->plan.n;
    run->result.total_weight = 0;
    run->heard[run->self_index] = MUSTER_HEARD_ISSUED;
    muster_run_conclude(run, run->ops->start(run));
}

/* The members have agreed on boards since it was issued. Its memory is that of a plan over TCP, but what the others
 * have said of a mismatch is kept. */
static void plan_for_shm(struct muster_run *run)
{
    if (run->plan.n == 1 || (muster_plan_is_shm(&run->plan) && run->memory == NULL))
        return;
    for (uint32_t i = 0; run->memory != NULL && i < run->plan.n; i++)
        if ((run->heard[i] & MUSTER_HEARD_MISMATCH) != 0)
            run->heard_over |= UINT64_C(1) << i;
    muster_run_drop_memory(run);
    muster_run_make_plan(run);
}

void muster_lane_advance(struct muster_group *group, struct muster_lane *lane)
{
    struct muster_list *node = lane->runs.next;

    /* Activations may end any run of the lane, so the list is walked by hand and begun again after each. */
    if (group->is_frozen || group->boards == MUSTER_BOARDS_UNKNOWN)
        return;
    while (node != &lane->runs) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);
        struct muster_op_id id = run->id;

        node = node->next;
        if (run->state != MUSTER_RUN_QUEUED || muster_run_is_unfit(run) ||
            run->abort_why == MUSTER_RESOURCE_EXHAUSTED)
            continue;
        if (group->boards == MUSTER_BOARDS_USED)
            plan_for_shm(run);
        if (lane->cost > 0 && lane->cost + muster_run_cost(run) > MUSTER_LANE_COST_MAX)
            return;
        if (!muster_plan_is_shm(&run->plan))
            activate_run(run);
        else if (!activate_shared(run))
            return;
        group->lane_events->on_activated(group, &id);
        node = lane->runs.next;
    }
}

/* Why no member runs the operation in this epoch, or NULL. */
static const char *abort_reason(const struct muster_run *run, const struct muster_verdict *verdict)
{
    if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ABORTED)
        return "aborted";
    return run->group->view->is_below_min ? "fewer than the minimum of members" : NULL;
}

/* A root that has come back is a joiner: steps that had begun go on without it. */
static bool takes_part(const struct muster_run *run, const struct muster_incarnation *member)
{
    uint32_t rank;

    return muster_view_find(run->group->view, member, &rank) &&
           muster_op_participant_index(run->group, &run->id, rank) != UINT32_MAX;
}

/* Started with a root or a size that this epoch does not have, or NULL. The others may have called
 * it with what fits, and wait: they must be told. */
static const char *misfit_reason(const struct muster_run *run, const struct muster_verdict *verdict)
{
    bool is_adopted = verdict != NULL && verdict->kind == MUSTER_VERDICT_ADOPT;

    if (muster_op_kind_has_root(run->call.kind) && !is_adopted &&
        !takes_part(run, &run->call.root.incarnation))
        return "the root is gone";
    if (run->call.n > 0 && run->call.n != run->participant_count)
        return "the number of members has changed";
    if (run->call.members != 0 &&
        run->call.members != muster_op_participants_hash(run->group, run->group->view, &run->id))
        return "the members have changed";
    return NULL;
}

static void explain_misfit(struct muster_run *run, const char *reason)
{
    char text[192];

    snprintf(text, sizeof(text), "%s (view %llu: %s)", reason,
             (unsigned long long)run->group->view->epoch, run->group->view->reason);
    run->result.verdict = MUSTER_VERDICT_ABORTED;
    muster_run_explain_abort(run, MUSTER_ABORTED, text);
}

bool muster_run_is_refused(struct muster_run *run, const struct muster_verdict *verdict)
{
    const char *reason = misfit_reason(run, verdict);

    if (reason == NULL)
        return false;
    explain_misfit(run, reason);
    muster_run_set_mode(run, MUSTER_RUN_UNFIT); /* the explanation stays */
    muster_run_propose_abort(run, MUSTER_ABORTED);
    return true;
}

void muster_run_issue(struct muster_run *run)
{
    struct muster_lane *lane = lane_of(run);
    const struct muster_verdict *verdict = muster_view_verdict(run->group->view, &run->id);
    struct muster_group *group;
    const char *reason;

    MUSTER_ASSERT(!run->group->is_frozen);
    muster_run_join_epoch(run);
    reason = abort_reason(run, verdict);
    lane->has_issued = true;
    lane->issued_through = run->id;
    muster_run_move_to(run, MUSTER_RUN_QUEUED);
    muster_list_remove(&run->node);
    muster_list_append(&lane->runs, &run->node);
    muster_run_make_plan(run);
    /* A table or a forced algorithm may send it over TCP although the group has boards (muster_run_new). */
    if (run->started_ns == 0 && !muster_plan_is_shm(&run->plan))
        run->started_ns = muster_loop_clock_ns(run->group->env->loop);
    /* The view's reasons end it at once, on all members alike; a misfit is this member's own knowledge, so its end
     * is proposed, and the leader decides. */
    if (reason != NULL) {
        explain_misfit(run, reason);
        muster_run_end(run, MUSTER_ABORTED);
        return;
    }
    if (muster_run_is_left_out(run, run->group->view)) {
        muster_run_end_left_out(run, run->group->view);
        return;
    }
    if (muster_run_is_refused(run, verdict))
        return;
    group = run->group;
    if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ADOPT) {
        if (verdict->descriptor != run->descriptor) {
            muster_run_contradict(run);
            return;
        }
        run->result.verdict = MUSTER_VERDICT_ADOPT;
        muster_run_conclude(run, muster_run_adopt(run, verdict));
        group->lane_events->on_activated(group, &verdict->op);
    }
    muster_lane_advance(group, lane);
}

/* --- Completion --- */

/* A member of a direct operation that has all inputs knows that all have called. A broadcast needs one input only,
 * and must not end a step that a joiner has not reached (docs/protocol.md, "Steps and state"). */
static bool is_deliverable(const struct muster_run *run)
{
    bool has_all_called =
        run->plan.algorithm == MUSTER_ALGORITHM_DIRECT && run->call.kind != MUSTER_OP_BROADCAST;

    if (muster_run_is_shared(run))
        return run->ops->shared->is_deliverable(run);
    return run->state == MUSTER_RUN_COMPLETE &&
           (has_all_called || run->complete_count == run->participant_count);
}

/* Kinds of which no member has the result before all have started them: the time to it tells who was last. */
static bool awaits_all(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_ALL_REDUCE || kind == MUSTER_OP_REDUCE_SCATTER ||
           kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN || kind == MUSTER_OP_ALL_GATHER ||
           kind == MUSTER_OP_ALL_GATHER_UNEVEN || kind == MUSTER_OP_BARRIER;
}

/* Plans over TCP hear the start of their neighbours only, which may have waited themselves. But all have
 * the result at about the same time: the member that has spent the least on it has started last. */
static void find_last(struct muster_run *run)
{
    uint32_t waited_us = run->spent_us > run->least_us ? run->spent_us - run->least_us : 0;

    if (run->plan.algorithm == MUSTER_ALGORITHM_DIRECT || !awaits_all(run->call.kind) ||
        run->least_us == UINT32_MAX || run->spent_us == 0)
        return;
    run->result.met_ns = run->started_ns + waited_us * MUSTER_NS_PER_US;
    run->result.last_rank = muster_op_participant_rank(run->group, &run->id, run->least_by);
}

static void deliver_run(struct muster_run *run)
{
    MUSTER_ASSERT(run->op != NULL || run->state == MUSTER_RUN_COMPLETE);
    if (!muster_run_is_shared(run))
        find_last(run);
    if (run->ops->deliver != NULL)
        run->ops->deliver(run);
    if (!muster_run_is_shared(run) && run->plan.algorithm != MUSTER_ALGORITHM_DIRECT)
        run->group->is_done_late = true;
    muster_run_move_to(run, MUSTER_RUN_DELIVERED);
    muster_run_hand_back(run, MUSTER_OK);
}

/* No member will ask for the result any more, in this epoch or the next. */
static bool is_stable(const struct muster_run *run)
{
    if (run->state == MUSTER_RUN_DELIVERED && muster_run_is_shared(run))
        return run->ops->shared->is_stable(run);
    return (run->state == MUSTER_RUN_DELIVERED || run->state == MUSTER_RUN_ENDED) &&
           run->complete_count == run->participant_count;
}

/* Callbacks come in lane order; what all members have is forgotten. */
void muster_lane_settle(struct muster_group *group, struct muster_lane *lane)
{
    bool has_freed = false;

    MUSTER_LIST_EACH (&lane->runs, run, struct muster_run, node) {
        if (is_deliverable(run))
            deliver_run(run);
        if (run->state < MUSTER_RUN_DELIVERED)
            break;
    }
    while (!muster_list_is_empty(&lane->runs)) {
        struct muster_run *run = MUSTER_CONTAINER_OF(lane->runs.next, struct muster_run, node);

        if (!is_stable(run))
            break;
        lane->has_stable = true;
        lane->stable_through = run->id;
        muster_run_free(run);
        has_freed = true;
    }
    if (has_freed)
        muster_lane_advance(group, lane);
}

/* The lane is settled by the caller: activate_shared, or the look of progress.c. Settling here would free runs that
 * the look still walks over. */
static void complete_shared(struct muster_run *run)
{
    muster_run_move_to(run, MUSTER_RUN_COMPLETE);
    run->final_count = muster_plan_wanted_count(&run->plan);
    run->ops->shared->completed(run);
}

/* One more than the microseconds from the start to the result, for 0 means that it is not known. */
static uint32_t spent_us(const struct muster_run *run)
{
    uint64_t us;

    if (run->started_ns == 0)
        return 0;
    us = (muster_loop_clock_ns(run->group->env->loop) - run->started_ns) / MUSTER_NS_PER_US;
    return us < UINT32_MAX ? (uint32_t)us + 1 : UINT32_MAX;
}

static void complete_run(struct muster_run *run)
{
    muster_run_move_to(run, MUSTER_RUN_COMPLETE);
    muster_group_parts_run_completed(run->group, &run->id);
    run->spent_us = spent_us(run);
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index)
            muster_run_send(run, MUSTER_FRAME_COMPLETE, i, run->spent_us, NULL, 0, NULL);
    muster_run_hear_complete(run, run->self_index);
}

void muster_run_hear_complete(struct muster_run *run, uint32_t participant)
{
    MUSTER_ASSERT(participant < run->participant_count);
    if ((run->heard[participant] & MUSTER_HEARD_COMPLETE) != 0)
        return;
    run->heard[participant] |= MUSTER_HEARD_COMPLETE;
    run->complete_count++;
    /* Members without a result of their own have nothing that tells them of its end but the root's word. */
    if (run->state == MUSTER_RUN_ACTIVE && muster_run_awaits_root(run) &&
        participant == run->plan.root)
        complete_run(run);
    else
        muster_lane_settle(run->group, lane_of(run));
}

void muster_run_conclude(struct muster_run *run, enum muster_run_outcome outcome)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = lane_of(run);

    switch (outcome) {
    case MUSTER_RUN_GOES_ON:
    case MUSTER_RUN_UNEXPECTED: /* the link is refused where the frame came in */
        return;
    case MUSTER_RUN_HAS_RESULT:
        if (muster_run_is_shared(run))
            complete_shared(run);
        else
            complete_run(run);
        return;
    case MUSTER_RUN_HAD_RESULT:
        muster_run_hear_complete(run, run->self_index);
        return;
    case MUSTER_RUN_NO_MEMORY:
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return;
    case MUSTER_RUN_DISPUTED:
        muster_run_end_disputed(run);
        muster_lane_settle(group, lane);
        return;
    case MUSTER_RUN_LEFT_BEHIND:
        muster_run_give_up(run);
        return;
    }
}

/* --- Ends that others do not allow yet --- */

bool muster_run_hold(struct muster_run *run, enum muster_rc rc)
{
    if (!muster_run_is_shared(run) || !run->ops->shared->hold(run))
        return false;
    muster_run_set_mode(run, MUSTER_RUN_LINGERING);
    run->linger_rc = rc;
    run->group->lingering_count++;
    muster_run_await_release(run);
    return true;
}

void muster_group_end_lingering(struct muster_group *group)
{
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        MUSTER_LIST_EACH_SAFE (&group->lanes[lane].runs, run, struct muster_run, node)
            if (muster_run_is_lingering(run))
                run->ops->shared->end_lingering(run);
}
