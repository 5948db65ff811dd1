/* What a plan costs a member: bytes to others, library memory. */
#include "collective/group/group_internal.h"

/* Received partial sums that have not gone on: at most so many are in the air (collective/README.md,
 * "Flow control"). */
#define STAGED_CHUNKS_MAX 32u

static uint64_t ring_sent_bytes(const struct muster_plan *plan)
{
    uint64_t elements = 0;

    for (uint32_t c = 0; c < plan->chunk_count; c++) {
        struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);

        if (chunk.reduce == MUSTER_REDUCE_START || chunk.reduce == MUSTER_REDUCE_PASS)
            elements += chunk.count;
        if (chunk.gather == MUSTER_GATHER_SOURCE || chunk.gather == MUSTER_GATHER_PASS)
            elements += chunk.count;
    }
    return elements * plan->element_bytes;
}

/* Partial sums that have gone on and are not known to have arrived. */
static uint64_t untold_chunks(const struct muster_plan *plan)
{
    uint64_t most = 1 + MUSTER_LINK_UNTOLD_BYTES / (plan->chunk_elements * plan->element_bytes + 1);
    uint64_t passed = 0;

    for (uint32_t c = 0; c < plan->chunk_count; c++)
        passed += muster_plan_chunk(plan, c).reduce == MUSTER_REDUCE_PASS;
    return passed < most ? passed : most;
}

static uint64_t ring_memory_bytes(const struct muster_plan *plan)
{
    bool has_undo = plan->kind == MUSTER_OP_ALL_REDUCE || plan->kind == MUSTER_OP_REDUCE;
    uint64_t staged = plan->chunk_count < STAGED_CHUNKS_MAX ? plan->chunk_count : STAGED_CHUNKS_MAX;
    uint64_t chunks = (has_undo ? plan->chunk_count : 0) +
                      (plan->has_reduction ? staged + untold_chunks(plan) : 0);

    return chunks * muster_buffer_bytes(plan->chunk_elements * plan->element_bytes);
}

/* One member's input to an operation in which all members' inputs go to all. */
static uint64_t direct_input_bytes(const struct muster_plan *plan)
{
    uint64_t bytes = plan->kind == MUSTER_OP_BARRIER ? 0 : plan->count * plan->element_bytes;

    return plan->kind == MUSTER_OP_ALL_GATHER ? bytes / plan->n : bytes;
}

static struct muster_op_cost direct_cost(const struct muster_plan *plan)
{
    uint64_t input = direct_input_bytes(plan);
    uint64_t receivers = plan->n - 1;
    uint64_t givers = plan->kind == MUSTER_OP_BROADCAST ? 1 : plan->n;
    bool is_giver = plan->kind != MUSTER_OP_BROADCAST || plan->index == plan->root;
    bool has_result = input > 0 && plan->kind != MUSTER_OP_BROADCAST;
    struct muster_op_cost cost = {.sent_bytes = 0};

    if (plan->kind == MUSTER_OP_REDUCE)
        receivers = plan->index == plan->root ? 0 : 1;
    cost.sent_bytes = is_giver ? receivers * input : 0;
    if (plan->n == 1 || input == 0)
        return cost;
    cost.memory_bytes = givers * muster_buffer_bytes(input);
    if (has_result)
        cost.memory_bytes += muster_buffer_bytes(plan->count * plan->element_bytes);
    return cost;
}

/* Straight from and into the caller's memory. What members share out unevenly, or by a route, is
 * the call's and not the plan's. */
static uint64_t exchange_sent_bytes(const struct muster_plan *plan)
{
    uint64_t part = plan->count / plan->n * plan->element_bytes;

    switch (plan->kind) {
    case MUSTER_OP_GATHER:
        return plan->index == plan->root ? 0 : part;
    case MUSTER_OP_SCATTER:
        return plan->index == plan->root ? (plan->n - 1) * part : 0;
    case MUSTER_OP_ALL_TO_ALL:
        return (plan->n - 1) * part;
    default:
        return 0;
    }
}

struct muster_op_cost muster_plan_cost(const struct muster_plan *plan,
                                       const struct muster_topology *topology)
{
    struct muster_op_cost cost = {.sent_bytes = 0};

    switch (plan->algorithm) {
    case MUSTER_ALGORITHM_DIRECT:
        cost = direct_cost(plan);
        break;
    case MUSTER_ALGORITHM_RING:
        cost.sent_bytes = ring_sent_bytes(plan);
        cost.memory_bytes = ring_memory_bytes(plan);
        break;
    case MUSTER_ALGORITHM_EXCHANGE:
        cost.sent_bytes = exchange_sent_bytes(plan);
        cost.memory_bytes = muster_buffer_bytes(plan->n * sizeof(struct muster_exchange_peer));
        break;
    case MUSTER_ALGORITHM_FLAT:
    case MUSTER_ALGORITHM_HOST:
        return muster_shm_cost(plan);
    default:
        cost = muster_steps_cost(plan, topology);
        break;
    }
    cost.memory_bytes += muster_buffer_bytes(sizeof(struct muster_run)) +
                         muster_buffer_bytes(muster_run_table_bytes(plan)) +
                         muster_buffer_bytes(0); /* a note that comes in */
    return cost;
}
