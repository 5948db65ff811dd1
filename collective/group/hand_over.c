/* The verdicts of a new view are carried out on the operations that the change interrupted. The cluster layer calls
 * this once the next group is open; the old one is empty after it, but for runs that linger. The meaning of each
 * verdict is in docs/protocol.md. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

static struct muster_run *pop_run(struct muster_list *list)
{
    struct muster_list *node = muster_list_pop(list);

    return node != NULL ? MUSTER_CONTAINER_OF(node, struct muster_run, node) : NULL;
}

static enum muster_rc aborted_rc(const struct muster_run *run)
{
    return run->abort_why == MUSTER_OK ? MUSTER_ABORTED : run->abort_why;
}

/* --- One operation each --- */

static void abort_run(struct muster_run *run, const struct muster_group *next)
{
    enum muster_rc rc = aborted_rc(run);

    muster_run_restore(run);
    run->result.verdict = MUSTER_VERDICT_ABORTED;
    muster_run_explain_abort(run, rc, next->view->reason);
    muster_run_end(run, rc);
}

/* The lane of `next` counts the cost of a run that holds memory: MUSTER_LANE_COST_MAX is a limit of each group. */
static void move_run(struct muster_run *run, struct muster_group *next)
{
    struct muster_lane *from = &run->group->lanes[MUSTER_LANE_INDEX(run->id.lane)];
    struct muster_lane *to = &next->lanes[MUSTER_LANE_INDEX(run->id.lane)];

    if (run->memory != NULL) {
        uint32_t cost = muster_run_cost(run);

        from->cost -= cost;
        to->cost += cost;
    }
    muster_run_move(run, next);
    muster_list_append(&to->runs, &run->node);
}

/* From its input, with the plan of the next epoch: nothing of the old one may show through. */
static void retry_run(struct muster_run *run, struct muster_group *next)
{
    muster_run_restore(run);
    muster_run_drop_memory(run);
    run->result.verdict = MUSTER_VERDICT_RETRY;
    run->result.contributor_count = 0;
    run->has_sent_mismatch = false;
    if (muster_run_is_adopting(run))
        muster_run_set_mode(run, MUSTER_RUN_ORDINARY);
    muster_run_move_to(run, MUSTER_RUN_QUEUED);
    move_run(run, next);
    muster_run_join_epoch(run);
    muster_run_make_plan(run);
    /* A run that was adopted for the members of one epoch may come to be run again in another. */
    if (!muster_run_is_refused(run, muster_view_verdict(next->view, &run->id)))
        muster_run_propose_again(run);
}

/* With the plan of the old epoch, in whose chunks the verdict's sources count. A proposal of its abort is void: the
 * members have a result. */
static void adopt_run(struct muster_run *run, struct muster_group *next,
                      const struct muster_verdict *verdict)
{
    run->result.verdict = MUSTER_VERDICT_ADOPT;
    move_run(run, next);
    muster_run_join_epoch(run);
    run->abort_why = MUSTER_OK;
    if (run->op != NULL)
        muster_run_start_deadline(run);
    muster_run_conclude(run, muster_run_adopt(run, verdict));
}

/* A view comes from another process. One that lets this member join later than the step of an operation that it has
 * started, or a color function that has changed its mind, leaves the operation without this member: it ends here. */
static bool takes_part(const struct muster_run *run, const struct muster_group *next)
{
    return muster_op_participant_index(next, &run->id, next->rank) != UINT32_MAX;
}

/* A run without an operation is kept for the others only, and no verdict says that nobody lacks its result. */
static void carry_out(struct muster_run *run, struct muster_group *next)
{
    const struct muster_verdict *verdict = muster_view_verdict(next->view, &run->id);

    if (run->state == MUSTER_RUN_ENDED || (run->op == NULL && verdict == NULL))
        muster_run_free(run);
    else if (run->mode == MUSTER_RUN_CONTRADICTED)
        muster_run_end_contradicted(run);
    else if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ADOPT && takes_part(run, next))
        adopt_run(run, next, verdict);
    else if (muster_run_is_left_out(run, next->view))
        muster_run_end_left_out(run, next->view);
    else if (verdict == NULL || verdict->kind == MUSTER_VERDICT_ABORTED || !takes_part(run, next))
        abort_run(run, next);
    else
        retry_run(run, next);
}

/* A run that has ended here stays where it lingers. */
static void carry_out_all(struct muster_list *runs, struct muster_group *next)
{
    MUSTER_LIST_EACH_SAFE (runs, run, struct muster_run, node) {
        if (muster_run_is_lingering(run))
            continue;
        muster_list_remove(&run->node);
        carry_out(run, next);
    }
}

/* --- All of them --- */

static void inherit_lane(struct muster_lane *to, const struct muster_lane *from)
{
    to->is_used = from->is_used;
    to->has_issued = from->has_issued;
    to->has_stable = from->has_stable;
    to->issued_through = from->issued_through;
    to->stable_through = from->stable_through;
    to->step = from->step;
    to->next_sequence = from->next_sequence;
    to->step_before = from->step_before;
    to->count_before = from->count_before;
    to->first_sequence = from->first_sequence;
    to->first_before = from->first_before;
}

static void inherit_done(struct muster_group *next, struct muster_group *group)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&group->done)) != NULL)
        muster_list_append(&next->done, node);
    muster_task_cancel(&group->task);
}

static void inherit_group(struct muster_group *next, struct muster_group *group)
{
    if (next->begun_step < group->begun_step)
        next->begun_step = group->begun_step;
    if (next->committed_step < group->committed_step)
        next->committed_step = group->committed_step;
    muster_group_inherit_splits(next, group);
    next->lane_count = group->lane_count;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        inherit_lane(&next->lanes[lane], &group->lanes[lane]);
    inherit_done(next, group);
    muster_task_post(&next->task, next->env->loop);
}

/* Somebody may still wait to hear that this member has the result, or needs none. */
static void confirm_ended(struct muster_group *next)
{
    const struct muster_view *view = next->view;

    for (uint32_t i = 0; i < view->verdict_count; i++) {
        const struct muster_verdict *verdict = &view->verdicts[i];
        const struct muster_lane *lane;
        struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                             .type = MUSTER_FRAME_COMPLETE,
                                             .epoch = view->epoch,
                                             .op = verdict->op,
                                             .descriptor = verdict->descriptor};

        if (MUSTER_LANE_INDEX(verdict->op.lane) >= next->lane_count ||
            muster_op_participant_index(next, &verdict->op, next->rank) == UINT32_MAX ||
            verdict->kind != MUSTER_VERDICT_ADOPT)
            continue;
        lane = &next->lanes[MUSTER_LANE_INDEX(verdict->op.lane)];
        if (!lane->has_issued || muster_op_id_compare(&verdict->op, &lane->issued_through) > 0 ||
            muster_group_find(next, &verdict->op) != NULL)
            continue;
        for (uint32_t rank = 0; rank < view->member_count; rank++)
            if (rank != next->rank &&
                muster_op_participant_index(next, &verdict->op, rank) != UINT32_MAX)
                muster_wire_send(next->wire, rank, &header, NULL, NULL);
    }
}

static void issue_pending(struct muster_group *next, struct muster_group *group)
{
    struct muster_run *run;

    while ((run = pop_run(&group->pending)) != NULL) {
        if (!takes_part(run, next)) {
            abort_run(run, next);
            continue;
        }
        muster_run_move(run, next);
        muster_run_issue(run);
    }
}

void muster_group_hand_over(struct muster_group *group, struct muster_group *next)
{
    MUSTER_ASSERT(group->is_frozen && !next->is_frozen);
    inherit_group(next, group);
    /* Interrupted operations before pending ones: a lane keeps its order. Callbacks come from next's task. */
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        carry_out_all(&group->lanes[lane].runs, next);
    confirm_ended(next);
    for (uint32_t lane = 0; lane < next->lane_count; lane++)
        muster_lane_settle(next, &next->lanes[lane]);
    for (uint32_t lane = 0; lane < next->lane_count; lane++)
        muster_lane_advance(next, &next->lanes[lane]);
    issue_pending(next, group);
    group->is_ended = true;
    muster_group_parts_hand_over(group, next);
    inherit_done(next, group);
}
