/* Operations through boards as an executor: the tables, and what of them is about results and costs. The lane and
 * the run call boards through these tables alone; executors of frames leave `shared` NULL. */
#include "collective/group/shm/pieces.h"

/* Bytes of this member's input that others want; for uneven parts an upper bound, since the plan does not know
 * the counts. */
static uint64_t shown_bytes(const struct muster_plan *plan)
{
    uint64_t whole = plan->count * plan->element_bytes;
    bool is_root = plan->index == plan->root;

    switch (plan->kind) {
    case MUSTER_OP_BARRIER:
        return 0;
    case MUSTER_OP_BROADCAST:
    case MUSTER_OP_SCATTER:
        return is_root ? whole : 0;
    case MUSTER_OP_GATHER:
        return is_root ? 0 : whole / plan->n;
    case MUSTER_OP_ALL_GATHER:
        return whole / plan->n;
    default:
        return whole;
    }
}

/* Through boards the others read what a member has written for them: its input (flat), or the sums of
 * its own block. Memory that the others do not map is copied for them besides. */
static struct muster_op_cost shm_plan_cost(const struct muster_plan *plan,
                                           const struct muster_topology *topology)
{
    struct muster_op_cost cost = {.sent_bytes = 0};
    uint64_t first = (uint64_t)plan->index * plan->chunks_per_block;

    (void)topology;
    if (plan->algorithm == MUSTER_ALGORITHM_FLAT)
        cost.sent_bytes = shown_bytes(plan);
    else if (plan->kind == MUSTER_OP_ALL_REDUCE)
        for (uint32_t i = 0; i < plan->chunks_per_block; i++)
            cost.sent_bytes +=
                muster_plan_chunk(plan, (uint32_t)(first + i)).count * plan->element_bytes;
    cost.memory_bytes = muster_shm_slot_bytes(plan, cost.sent_bytes);
    return cost;
}

/* The board's and the staging's memory, which the run does not count among its own buffers. */
static size_t shm_held_bytes(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    return (shm->slot != NULL ? shm->slot_bytes : 0) +
           (shm->stage.at != NULL ? shm->stage.bytes : 0);
}

static const char *input_name(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    if (!shm->is_announced)
        return "none";
    switch ((enum muster_shm_input)shm->entry->input) {
    case SHM_INPUT_BOARD:
        return "slot";
    case SHM_INPUT_SHARE:
    case SHM_INPUT_COPY:
        return shm->stage.at != NULL ? "staged" : "mapped";
    case SHM_INPUT_NONE:
        break;
    }
    return "none";
}

static void shm_show_result(const struct muster_run *run, enum muster_rc rc,
                            struct muster_op_result *result)
{
    /* Without a result, and something of a tensor in place has changed (docs/boards.md, is_torn). */
    result->is_torn =
        rc != MUSTER_OK && run->state < MUSTER_RUN_COMPLETE && !muster_shm_has_input(run);
    result->wire = "shm";
    result->input = input_name(run);
    result->memory_bytes += shm_held_bytes(run);
}

static void shm_restore(struct muster_run *run)
{
    muster_shm_flat_restore(run);
    muster_shm_pieces_restore(run);
}

static uint32_t shm_cost(const struct muster_run *run)
{
    return run->plan.algorithm == MUSTER_ALGORITHM_FLAT ? MUSTER_FLAT_COST : MUSTER_RING_COST;
}

static const struct muster_shared_ops shared_ops = {
    .prepare = muster_shm_prepare,
    .is_deliverable = muster_shm_is_deliverable,
    .is_stable = muster_shm_is_stable,
    .is_ready = muster_shm_is_ready,
    .is_sure = muster_shm_is_sure,
    .is_left_behind = muster_shm_is_left_behind,
    .has_input = muster_shm_has_input,
    .freeze = muster_shm_freeze,
    .adopt = muster_shm_adopt,
    .completed = muster_shm_completed,
    .hear = muster_shm_hear,
    .leave_stalled = muster_shm_leave_stalled,
    .revoke = muster_shm_revoke,
    .withdraw = muster_shm_withdraw,
    .hold = muster_shm_hold,
    .end_lingering = muster_shm_end_lingering,
    .show_result = shm_show_result,
};

const struct muster_executor_ops muster_shm_executor = {
    .name = "shm",
    .cost = shm_cost,
    .state_bytes = muster_shm_table_bytes,
    .plan_cost = shm_plan_cost,
    .start = muster_shm_start,
    .restore = shm_restore,
    .finish = muster_shm_finish,
    .shared = &shared_ops,
};
