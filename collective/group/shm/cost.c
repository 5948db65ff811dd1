/* What an operation through boards costs a member. */
#include "collective/group/shm/shm_internal.h"

/* Inputs that others want. Of uneven parts: at most. */
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
struct muster_op_cost muster_shm_plan_cost(const struct muster_plan *plan,
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
