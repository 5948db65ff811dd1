/* Ranges of slots, the nodes that they are, and the order of sums. */
#include "training/micro/tree.h"

struct muster_micro_range muster_micro_range_of(uint32_t slot_count, uint32_t rank, uint32_t size)
{
    uint64_t first = (uint64_t)slot_count * rank / size;
    uint64_t end = (uint64_t)slot_count * (rank + 1u) / size;

    MUSTER_ASSERT(rank < size && slot_count > 0 && slot_count <= MUSTER_MICRO_SLOTS_MAX);
    return (struct muster_micro_range){(uint32_t)first, (uint32_t)(end - first)};
}

static uint32_t node_end(struct muster_micro_node node)
{
    return node.first + (1u << node.level);
}

/* Whether it is the first half of the node above it. */
static bool is_first_half(struct muster_micro_node node)
{
    return node.first % (2u << node.level) == 0;
}

/* Whether it is the node above it, too, because the other half of that one has no slots. */
static bool is_only_half(uint32_t slot_count, struct muster_micro_node node)
{
    return node.first > 0 && is_first_half(node) && node_end(node) >= slot_count;
}

void muster_micro_sum_push(struct muster_micro_sum *sum, struct muster_micro_node node)
{
    MUSTER_ASSERT(sum->depth < MUSTER_MICRO_NODES_MAX && node.first < sum->slot_count);
    MUSTER_ASSERT(sum->depth == 0 || node_end(sum->nodes[sum->depth - 1]) == node.first);
    sum->nodes[sum->depth++] = node;
}

bool muster_micro_sum_fold(struct muster_micro_sum *sum)
{
    struct muster_micro_node *last = &sum->nodes[sum->depth - 1], *before = last - 1;

    MUSTER_ASSERT(sum->depth > 0);
    while (is_only_half(sum->slot_count, *last))
        last->level++;
    if (sum->depth == 1 || before->level != last->level || !is_first_half(*before))
        return false;
    before->level++;
    sum->depth--;
    return true;
}

/* The sum of the range's slots without values. Returns the most nodes at a time. */
static uint32_t sum_play(uint32_t slot_count, struct muster_micro_range range,
                         struct muster_micro_sum *sum)
{
    uint32_t depth_max = 0;

    *sum = (struct muster_micro_sum){.slot_count = slot_count};
    for (uint32_t slot = range.first; slot < range.first + range.count; slot++) {
        muster_micro_sum_push(sum, (struct muster_micro_node){slot, 0});
        depth_max = sum->depth > depth_max ? sum->depth : depth_max;
        while (muster_micro_sum_fold(sum))
            ;
    }
    return depth_max;
}

uint32_t muster_micro_nodes(uint32_t slot_count, struct muster_micro_range range,
                            struct muster_micro_node *ret_nodes)
{
    struct muster_micro_sum sum;

    (void)sum_play(slot_count, range, &sum);
    for (uint32_t i = 0; i < sum.depth && ret_nodes != NULL; i++)
        ret_nodes[i] = sum.nodes[i];
    return sum.depth;
}

uint32_t muster_micro_depth(uint32_t slot_count, struct muster_micro_range range)
{
    struct muster_micro_sum sum;

    return sum_play(slot_count, range, &sum);
}
