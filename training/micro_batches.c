/* Steps of micro-batches: memory for the slots, the nodes of each member, and their sum on all. */
#include <muster/micro_batches.h>

#include <inttypes.h>
#include <string.h>

#include "collective/group/group.h"
#include "collective/kernel/kernels.h"
#include "training/micro/tree.h"
#include "training/strategy_call.h"

#define STATE_NAME "micro_batches"

struct muster_micro_batches {
    struct muster_strategy *strategy;
    struct muster_micro_batches_options options;
    size_t value_bytes; /* of the tensor of a slot */

    /* the members of the step */
    uint32_t rank, size; /* size 0: none yet */
    uint32_t node_max;   /* nodes that each member sends: the most that one has */
    struct muster_micro_range range;

    /* the values of this member: nodes that are summed so far, the slot that is being filled */
    struct muster_tensor own;
    uint64_t own_capacity; /* values */
    struct muster_micro_sum sum;
    uint32_t given; /* slots that next has given */
    bool is_filled; /* the program has the last value */

    struct muster_tensor all; /* node_max values of each member */
    uint64_t all_capacity;
};

static void *value_at(const struct muster_micro_batches *micro, const struct muster_tensor *values,
                      uint64_t i)
{
    return (uint8_t *)values->data + i * micro->value_bytes;
}

/* --- Open and close --- */

static enum muster_rc options_check(const struct muster_micro_batches_options *options,
                                    struct muster_error *ret_error)
{
    if (options->slot_count == 0 || options->slot_count > MUSTER_MICRO_SLOTS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slot_count must be 1 to %u, got %" PRIu32, MUSTER_MICRO_SLOTS_MAX,
                                options->slot_count);
    if (!muster_reduction_is_defined(options->dtype, MUSTER_SUM))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "dtype must be a type that can be summed, got %s",
                                muster_dtype_name(options->dtype));
    if (options->element_count == 0 ||
        options->element_count >
            SIZE_MAX / MUSTER_MICRO_NODES_MAX / muster_dtype_bytes(options->dtype))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "element_count must be above 0 and fit into memory, got %" PRIu64,
                                options->element_count);
    return MUSTER_OK;
}

/* The number of slots as state: members compare the shapes of their tensors before the first step, and so does a
 * restore. The bytes live as long as the strategy, which lends them to joiners. */
static enum muster_rc slots_register(struct muster_strategy *strategy, uint32_t slot_count,
                                     struct muster_error *ret_error)
{
    struct muster_tensor slots = {.count = slot_count, .dtype = MUSTER_U8};
    enum muster_rc rc;

    if (strategy->micro_slots != NULL)
        return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                "the steps of this strategy are in micro-batches already");
    slots.data = muster_mem_alloc_zero(strategy->env->mem, slot_count, 1);
    if (slots.data == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rc = muster_strategy_register(strategy, STATE_NAME, &slots);
    if (rc != MUSTER_OK) {
        muster_mem_free(strategy->env->mem, slots.data);
        return muster_error_set(ret_error, rc, "%s", muster_strategy_error(strategy)->text);
    }
    strategy->micro_slots = slots.data;
    return MUSTER_OK;
}

enum muster_rc muster_micro_batches_open(struct muster_strategy *strategy,
                                         const struct muster_micro_batches_options *options,
                                         struct muster_micro_batches **ret_micro,
                                         struct muster_error *ret_error)
{
    struct muster_micro_batches *micro;
    enum muster_rc rc = options_check(options, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    micro = muster_mem_alloc_zero(strategy->env->mem, 1, sizeof(*micro));
    if (micro == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rc = slots_register(strategy, options->slot_count, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(strategy->env->mem, micro);
        return rc;
    }
    micro->strategy = strategy;
    micro->options = *options;
    micro->value_bytes = (size_t)options->element_count * muster_dtype_bytes(options->dtype);
    *ret_micro = micro;
    return MUSTER_OK;
}

void muster_micro_batches_close(struct muster_micro_batches *micro)
{
    if (micro == NULL)
        return;
    muster_strategy_tensor_free(micro->strategy, &micro->own);
    muster_strategy_tensor_free(micro->strategy, &micro->all);
    muster_mem_free(micro->strategy->env->mem, micro);
}

/* --- Begin --- */

/* Room for so many values. What was in it is lost. */
static enum muster_rc values_reserve(struct muster_micro_batches *micro,
                                     struct muster_tensor *values, uint64_t *capacity,
                                     uint64_t count)
{
    enum muster_rc rc;

    if (count <= *capacity)
        return MUSTER_OK;
    muster_strategy_tensor_free(micro->strategy, values);
    *capacity = 0;
    if (count > UINT64_MAX / micro->options.element_count)
        return muster_error_set(&micro->strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "micro_batches: out of memory for %" PRIu64 " partial sums", count);
    rc = muster_strategy_tensor_new(micro->strategy, micro->options.dtype,
                                    count * micro->options.element_count, values);
    if (rc == MUSTER_OK)
        *capacity = count;
    return rc;
}

/* The slots and the memory of a step with other members than the one before. */
static enum muster_rc members_plan(struct muster_micro_batches *micro, uint32_t rank, uint32_t size)
{
    uint32_t slot_count = micro->options.slot_count, depth, node_max = 1;
    enum muster_rc rc;

    for (uint32_t i = 0; i < size; i++) {
        uint32_t nodes =
            muster_micro_nodes(slot_count, muster_micro_range_of(slot_count, i, size), NULL);

        node_max = nodes > node_max ? nodes : node_max;
    }
    micro->size = 0;
    micro->range = muster_micro_range_of(slot_count, rank, size);
    depth = muster_micro_depth(slot_count, micro->range);
    rc = values_reserve(micro, &micro->own, &micro->own_capacity,
                        depth > node_max ? depth : node_max);
    if (rc == MUSTER_OK)
        rc = values_reserve(micro, &micro->all, &micro->all_capacity, (uint64_t)node_max * size);
    if (rc != MUSTER_OK)
        return rc;
    micro->rank = rank;
    micro->size = size;
    micro->node_max = node_max;
    return MUSTER_OK;
}

enum muster_rc muster_micro_batches_begin(struct muster_micro_batches *micro,
                                          struct muster_dataset_shares *ret_shares)
{
    struct muster_strategy *strategy = micro->strategy;
    uint32_t rank, size;
    enum muster_rc rc = muster_strategy_check_step(strategy, "micro_batches_begin");

    if (rc != MUSTER_OK)
        return rc;
    rank = muster_strategy_rank(strategy);
    size = muster_strategy_size(strategy);
    if (rank != micro->rank || size != micro->size)
        rc = members_plan(micro, rank, size);
    if (rc != MUSTER_OK)
        return rc;
    micro->sum = (struct muster_micro_sum){.slot_count = micro->options.slot_count};
    micro->given = 0;
    micro->is_filled = false;
    *ret_shares = (struct muster_dataset_shares){micro->range.first, micro->range.count,
                                                 micro->options.slot_count};
    return MUSTER_OK;
}

/* --- Slots --- */

static void values_add(const struct muster_micro_batches *micro, void *into, const void *from)
{
    muster_kernel_reduce(micro->options.dtype, MUSTER_SUM, into, from,
                         (size_t)micro->options.element_count);
}

/* The program has filled the last value. */
static void slot_fold(struct muster_micro_batches *micro)
{
    struct muster_micro_sum *sum = &micro->sum;

    if (!micro->is_filled)
        return;
    micro->is_filled = false;
    while (muster_micro_sum_fold(sum))
        values_add(micro, value_at(micro, &micro->own, sum->depth - 1),
                   value_at(micro, &micro->own, sum->depth));
}

bool muster_micro_batches_next(struct muster_micro_batches *micro, uint32_t *ret_slot,
                               struct muster_tensor *ret_tensor)
{
    uint32_t slot = micro->range.first + micro->given;
    void *value;

    slot_fold(micro);
    if (micro->size == 0 || micro->given == micro->range.count)
        return false;
    micro->given++;
    value = value_at(micro, &micro->own, micro->sum.depth);
    memset(value, 0, micro->value_bytes);
    muster_micro_sum_push(&micro->sum, (struct muster_micro_node){slot, 0});
    micro->is_filled = true;
    *ret_slot = slot;
    *ret_tensor = (struct muster_tensor){
        .data = value, .count = micro->options.element_count, .dtype = micro->options.dtype};
    return true;
}

/* --- The sum --- */

static enum muster_rc start_gather(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

/* The nodes of all members, by rank. */
static enum muster_rc nodes_gather(struct muster_micro_batches *micro)
{
    struct muster_tensor tensors[] = {micro->own, micro->all};

    tensors[0].count = micro->node_max * micro->options.element_count;
    tensors[1].count = micro->size * tensors[0].count;
    return muster_strategy_run(micro->strategy,
                               &(struct muster_strategy_call){.name = "micro_batches_sum",
                                                              .tensors = tensors,
                                                              .count = 1,
                                                              .view = micro->strategy->view,
                                                              .by = MUSTER_COMMUNICATION_RING,
                                                              .start = start_gather});
}

/* Add the nodes of all members by the tree. Returns the root: in the place of the first node, which is not rank 0's
 * where there are more members than slots. */
static void *nodes_sum(struct muster_micro_batches *micro)
{
    uint32_t slot_count = micro->options.slot_count;
    struct muster_micro_sum sum = {.slot_count = slot_count};
    struct muster_micro_node nodes[MUSTER_MICRO_NODES_MAX];
    uint64_t places[MUSTER_MICRO_NODES_MAX];

    for (uint32_t rank = 0; rank < micro->size; rank++) {
        uint32_t count = muster_micro_nodes(
            slot_count, muster_micro_range_of(slot_count, rank, micro->size), nodes);

        for (uint32_t i = 0; i < count; i++) {
            places[sum.depth] = (uint64_t)rank * micro->node_max + i;
            muster_micro_sum_push(&sum, nodes[i]);
            while (muster_micro_sum_fold(&sum))
                values_add(micro, value_at(micro, &micro->all, places[sum.depth - 1]),
                           value_at(micro, &micro->all, places[sum.depth]));
        }
    }
    MUSTER_ASSERT(sum.depth == 1);
    return value_at(micro, &micro->all, places[0]);
}

enum muster_rc muster_micro_batches_sum(struct muster_micro_batches *micro,
                                        struct muster_tensor *ret_tensor)
{
    struct muster_strategy *strategy = micro->strategy;
    enum muster_rc rc = muster_strategy_check_step(strategy, "micro_batches_sum");

    if (rc != MUSTER_OK)
        return rc;
    if (micro->size == 0 || micro->given < micro->range.count)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "micro_batches_sum: %" PRIu32 " of %" PRIu32
                                " slots are filled; call muster_micro_batches_next until it "
                                "returns false",
                                micro->given, micro->range.count);
    slot_fold(micro);
    rc = nodes_gather(micro);
    if (rc != MUSTER_OK)
        return rc;
    *ret_tensor = (struct muster_tensor){.data = nodes_sum(micro),
                                         .count = micro->options.element_count,
                                         .dtype = micro->options.dtype};
    return MUSTER_OK;
}
