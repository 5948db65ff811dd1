/* Freeze: nothing of the epoch moves any more; the progress vector says where everything stands. The leader of the
 * cluster layer decides by the vectors of all members, and hand_over.c carries its verdicts out. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

static const char *phase_name(enum muster_op_phase phase)
{
    static const char *const names[] = {
        [MUSTER_PHASE_REDUCE] = "reduce",
        [MUSTER_PHASE_GATHER] = "gather",
        [MUSTER_PHASE_COMPLETE] = "complete",
        [MUSTER_PHASE_DELIVERED] = "complete",
    };

    return names[phase];
}

static bool is_known_everywhere(const struct muster_run *run)
{
    return run->complete_count == run->participant_count;
}

/* A complete reduce_scatter holds its own part only. "Complete" would offer the others' parts too,
 * so it says so only when nobody needs any. */
static bool holds_whole_result(const struct muster_run *run)
{
    bool is_scatter = run->plan.kind == MUSTER_OP_REDUCE_SCATTER ||
                      run->plan.kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN;

    return !is_scatter || run->plan.algorithm == MUSTER_ALGORITHM_DIRECT ||
           muster_run_is_shared(run) || is_known_everywhere(run);
}

static enum muster_op_phase phase_of(const struct muster_run *run)
{
    if (run->state == MUSTER_RUN_DELIVERED)
        return MUSTER_PHASE_DELIVERED;
    if (run->state == MUSTER_RUN_COMPLETE && holds_whole_result(run))
        return MUSTER_PHASE_COMPLETE;
    if (muster_run_is_shared(run))
        return run->ops->shared->is_ready(run) ? MUSTER_PHASE_GATHER : MUSTER_PHASE_REDUCE;
    return run->memory != NULL && run->final_count > 0 ? MUSTER_PHASE_GATHER : MUSTER_PHASE_REDUCE;
}

static void stop_run(struct muster_run *run, uint64_t now_ns)
{
    if (muster_run_is_shared(run))
        run->ops->shared->freeze(run);
    run->phase = phase_of(run);
    if (run->state >= MUSTER_RUN_DELIVERED || run->result.is_interrupted)
        return;
    run->result.is_interrupted = true;
    run->result.interrupted_ns = now_ns;
    run->result.phase = phase_name(run->phase);
}

void muster_group_stop(struct muster_group *group)
{
    if (group->is_frozen)
        return;
    /* First the mark, which keeps all below from sending; then what is on its way, out and in; the runs last, since
     * half-received chunks are rolled back before their phase is read. */
    group->is_frozen = true;
    group->frozen_ns = muster_loop_now_ns(group->env->loop);
    group->frozen_begun_step = group->begun_step;
    group->frozen_committed_step = group->committed_step;
    muster_group_parts_freeze(group);
    muster_wire_recall(group->wire, group->view->epoch + 1);
    muster_group_abandon_receiving(group, NULL);
    muster_group_drop_early(group);
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        MUSTER_LIST_EACH(&group->lanes[lane].runs, run, struct muster_run, node)
            stop_run(run, group->frozen_ns);
}

/* --- The vector --- */

static uint32_t count_runs(const struct muster_group *group)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        MUSTER_LIST_EACH(&group->lanes[lane].runs, run, const struct muster_run, node)
            count++;
    return count;
}

/* The root alone needs chunks of a reduce: over the wire there is nothing to fetch. */
static uint32_t shown_chunks(const struct muster_run *run)
{
    return run->plan.kind == MUSTER_OP_REDUCE && !muster_run_is_shared(run) ? 0
                                                                            : run->plan.chunk_count;
}

/* Flips a bit in the descriptor of an operation that already failed here with a call mismatch. It then
 * equals no other member's descriptor, so the next epoch fails it too, even if the mismatching member
 * is gone. */
#define MISMATCH_BIT (UINT64_C(1) << 62)

/* An operation that all on one host have announced will be final, whatever process dies. */
static bool is_final(const struct muster_run *run, uint32_t c)
{
    if (muster_run_is_shared(run))
        return run->phase != MUSTER_PHASE_REDUCE;
    return (run->chunks[c] & MUSTER_CHUNK_FINAL) != 0;
}

/* One entry of the vector. An operation that has ended here counts as not begun, with a descriptor of its own. */
static enum muster_rc show_run(const struct muster_run *run, struct muster_mem *mem,
                               struct muster_progress_op *op)
{
    bool is_ended = run->state == MUSTER_RUN_ENDED;

    if (run->memory != NULL) /* else it has not begun: the plan may still change */
        op->chunk_count = shown_chunks(run);
    op->chunks_final = muster_mem_alloc_zero(mem, (op->chunk_count + 7) / 8, 1);
    if (op->chunks_final == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    op->id = run->id;
    op->descriptor = is_ended ? run->descriptor ^ MISMATCH_BIT : run->descriptor;
    op->participant_count = run->participant_count;
    op->kind = run->call.kind;
    op->phase = is_ended ? MUSTER_PHASE_REDUCE : run->phase;
    /* Changes that a device began with the inputs have not been undone: it is never run again from them. */
    op->has_inputs = !is_ended && run->call.device.kind == MUSTER_DEVICE_NONE;
    op->is_abort_proposed = run->abort_why != MUSTER_OK;
    op->root = run->call.root.incarnation;
    if (run->memory == NULL || is_ended)
        return MUSTER_OK;
    if (muster_run_is_shared(run))
        op->has_inputs =
            op->has_inputs && op->phase == MUSTER_PHASE_REDUCE && run->ops->shared->has_input(run);
    for (uint32_t c = 0; c < op->chunk_count; c++)
        if (is_final(run, c))
            op->chunks_final[c / 8] |= (uint8_t)(1u << (c % 8));
    return MUSTER_OK;
}

static enum muster_rc show_lanes(const struct muster_group *group, struct muster_progress *progress)
{
    progress->lanes =
        muster_mem_alloc_zero(progress->mem, group->lane_count, sizeof(*progress->lanes));
    if (progress->lanes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    progress->lane_count = group->lane_count;
    for (uint32_t i = 0; i < group->lane_count; i++) {
        progress->lanes[i].lane = muster_group_lane_number(group, i);
        progress->lanes[i].has_issued = group->lanes[i].has_issued;
        progress->lanes[i].has_stable = group->lanes[i].has_stable;
        progress->lanes[i].issued_through = group->lanes[i].issued_through;
        progress->lanes[i].stable_through = group->lanes[i].stable_through;
    }
    return MUSTER_OK;
}

static enum muster_rc show_runs(const struct muster_group *group, struct muster_progress *progress)
{
    progress->ops = muster_mem_alloc_zero(progress->mem, count_runs(group), sizeof(*progress->ops));
    if (progress->ops == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        MUSTER_LIST_EACH(&group->lanes[lane].runs, run, const struct muster_run, node) {
            enum muster_rc rc = MUSTER_OK;

            if (run->mode != MUSTER_RUN_CONTRADICTED) /* it ends alone: the adopted one stands */
                rc = show_run(run, progress->mem, &progress->ops[progress->op_count++]);
            if (rc != MUSTER_OK)
                return rc;
        }
    return MUSTER_OK;
}

enum muster_rc muster_group_freeze(struct muster_group *group, struct muster_progress *ret_progress)
{
    struct muster_progress progress = {.mem = group->env->mem};
    enum muster_rc rc;

    muster_group_stop(group);
    progress.epoch = group->view->epoch;
    progress.begun_step = group->frozen_begun_step;
    progress.committed_step = group->frozen_committed_step;
    rc = show_lanes(group, &progress);
    if (rc == MUSTER_OK)
        rc = show_runs(group, &progress);
    if (rc != MUSTER_OK) {
        muster_progress_fini(&progress);
        return rc;
    }
    *ret_progress = progress;
    return MUSTER_OK;
}

bool muster_group_is_frozen(const struct muster_group *group)
{
    return group->is_frozen;
}

/* --- Giving up --- */

static void end_list(struct muster_list *runs, const struct muster_error *why,
                     struct muster_run *first, enum muster_rc first_rc)
{
    MUSTER_ASSERT(why->rc != MUSTER_OK);
    MUSTER_LIST_EACH_SAFE(runs, run, struct muster_run, node) {
        enum muster_rc rc = run == first ? first_rc : why->rc;

        if (muster_run_is_lingering(run))
            continue;
        if (run->op != NULL && run != first)
            run->op->error = *why;
        /* Held runs keep their memory: others still read it. All others give the caller's input back first. */
        if (muster_run_hold(run, rc))
            continue;
        muster_run_restore(run);
        run->result.verdict = MUSTER_VERDICT_ABORTED;
        muster_run_end(run, rc);
    }
}

void muster_group_end_all(struct muster_group *group, const struct muster_error *why,
                          struct muster_run *first, enum muster_rc first_rc)
{
    muster_group_stop(group);
    group->is_ended = true;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        end_list(&group->lanes[lane].runs, why, first, first_rc);
    end_list(&group->pending, why, first, first_rc);
    muster_group_parts_end(group, why);
}

void muster_group_abort_all(struct muster_group *group, const struct muster_error *why)
{
    muster_group_end_all(group, why, NULL, why->rc);
}
