/* The tree over the slots of a step, by which the micro-batches' tensors are summed. Pure.
 *
 * A node of level l covers the slots from a multiple of 2^l on, 2^l of them, or those that there are. A node whose
 * second half has no slots is its first half. So which sums are made, and in which order, follows from the number of
 * slots alone, and a member that has neighbouring slots has a few whole nodes of the tree. */
#ifndef MUSTER_TRAINING_MICRO_TREE_H
#define MUSTER_TRAINING_MICRO_TREE_H

#include <muster/base.h>
#include <muster/micro_batches.h>

/** The whole nodes that any slots in a row have are fewer than this. */
#define MUSTER_MICRO_NODES_MAX 36u

/** Slots in a row. */
struct muster_micro_range {
    uint32_t first, count;
};

struct muster_micro_node {
    uint32_t first; /* slot */
    uint32_t level;
};

/** The nodes of slots in a row whose values a sum has so far, in order. All zero but for slot_count: none. */
struct muster_micro_sum {
    uint32_t slot_count; /* of the tree */
    uint32_t depth;
    struct muster_micro_node nodes[MUSTER_MICRO_NODES_MAX];
};

/** The slots of member `rank` of `size`: counts of members differ by at most one, and may be 0. */
struct muster_micro_range muster_micro_range_of(uint32_t slot_count, uint32_t rank, uint32_t size);

/** Append the node that follows. Then fold, until it returns false. */
void muster_micro_sum_push(struct muster_micro_sum *sum, struct muster_micro_node node);
/** Whether the last two nodes are the halves of one, which stands in their place then: the caller adds the value
 * at `depth` to the one before it. */
MUSTER_MUST_CHECK bool muster_micro_sum_fold(struct muster_micro_sum *sum);

/** The whole nodes of a range, in order; as many values has the sum over it. ret_nodes may be NULL. */
uint32_t muster_micro_nodes(uint32_t slot_count, struct muster_micro_range range,
                            struct muster_micro_node *ret_nodes);
/** The most values at a time while slots are summed one by one. */
uint32_t muster_micro_depth(uint32_t slot_count, struct muster_micro_range range);

#endif
