/* Steps of micro-batches: memory for the slots, the nodes of each member, and their sum on all.
 *
 * Each member sums one part of all elements: it receives that part of all nodes (all_to_all), adds them by the tree,
 * and gives the sum to all (all_gather). Both end alike on all members, and the step has all of it or nothing. */
#include <muster/micro_batches.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/group/group.h"
#include "collective/kernel/kernels.h"
#include "training/micro/tree.h"
#include "training/strategy_call.h"

struct muster_micro_batches {
    struct muster_strategy *strategy;
    struct muster_micro_batches_options options;

    /* the members of the step */
    uint32_t rank, size; /* size 0: none yet */
    uint32_t node_max;   /* nodes that each member sends: the most that one has */
    uint64_t
        part_count; /* elements that each member sums; a value has `size` parts, zeroes at its end */
    struct muster_micro_range range;

    /* The values of this member: nodes that are summed so far, the slot that is being filled; then the sum of all
     * slots, in place of the first. */
    struct muster_tensor own;
    uint32_t own_rows; /* so many values; behind them, if there are several nodes, these packed */
    struct muster_micro_sum sum;
    uint32_t given; /* slots that next has given */
    bool is_filled; /* the program has the last value */

    struct muster_tensor received; /* of each rank in turn, this member's part of its nodes */
};

static uint64_t value_elements(const struct muster_micro_batches *micro)
{
    return micro->part_count * micro->size;
}

static void *element_at(const struct muster_tensor *tensor, uint64_t i)
{
    return (uint8_t *)tensor->data + i * muster_dtype_bytes(tensor->dtype);
}

static size_t tensor_bytes(const struct muster_tensor *tensor)
{
    return (size_t)tensor->count * muster_dtype_bytes(tensor->dtype);
}

/* Part `part` of value i. */
static struct muster_tensor part_at(const struct muster_micro_batches *micro,
                                    const struct muster_tensor *values, uint64_t i, uint32_t part)
{
    uint64_t first = i * value_elements(micro) + part * micro->part_count;

    return (struct muster_tensor){
        .data = element_at(values, first), .count = micro->part_count, .dtype = values->dtype};
}

/* This member's part of a node of a rank. */
static struct muster_tensor received_at(const struct muster_micro_batches *micro, uint32_t rank,
                                        uint32_t node)
{
    uint64_t first = ((uint64_t)rank * micro->node_max + node) * micro->part_count;

    return (struct muster_tensor){.data = element_at(&micro->received, first),
                                  .count = micro->part_count,
                                  .dtype = micro->received.dtype};
}

static struct muster_tensor value_at(const struct muster_micro_batches *micro,
                                     const struct muster_tensor *values, uint64_t i)
{
    struct muster_tensor value = part_at(micro, values, i, 0);

    value.count = value_elements(micro);
    return value;
}

static void tensor_add(const struct muster_tensor *into, const struct muster_tensor *from)
{
    muster_kernel_reduce(into->dtype, MUSTER_SUM, into->data, from->data, (size_t)into->count);
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
            SIZE_MAX / (2 * MUSTER_MICRO_NODES_MAX) / muster_dtype_bytes(options->dtype))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "element_count must be above 0 and fit into memory, got %" PRIu64,
                                options->element_count);
    return MUSTER_OK;
}

/* The options as state: members compare names and shapes of their tensors before the first step, and so does a
 * restore. The bytes live as long as the strategy, which lends them to joiners. */
static enum muster_rc slots_register(struct muster_strategy *strategy,
                                     const struct muster_micro_batches_options *options,
                                     struct muster_error *ret_error)
{
    struct muster_tensor slots = {.count = options->slot_count, .dtype = MUSTER_U8};
    char name[64];
    enum muster_rc rc;

    if (strategy->micro_slots != NULL)
        return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                "the steps of this strategy are in micro-batches already");
    slots.data = muster_mem_alloc_zero(strategy->env->mem, options->slot_count, 1);
    if (slots.data == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    (void)snprintf(name, sizeof(name), "micro_batches_%" PRIu64 "_x_%s", options->element_count,
                   muster_dtype_name(options->dtype));
    rc = muster_strategy_register(strategy, name, &slots);
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
    rc = slots_register(strategy, options, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(strategy->env->mem, micro);
        return rc;
    }
    micro->strategy = strategy;
    micro->options = *options;
    *ret_micro = micro;
    return MUSTER_OK;
}

void muster_micro_batches_close(struct muster_micro_batches *micro)
{
    if (micro == NULL)
        return;
    muster_strategy_tensor_free(micro->strategy, &micro->own);
    muster_strategy_tensor_free(micro->strategy, &micro->received);
    muster_mem_free(micro->strategy->env->mem, micro);
}

/* --- Begin --- */

/* Room for so many values. What was in it is lost. */
static enum muster_rc values_reserve(struct muster_micro_batches *micro,
                                     struct muster_tensor *values, uint64_t count)
{
    uint64_t elements = count * value_elements(micro);

    if (elements <= values->count)
        return MUSTER_OK;
    muster_strategy_tensor_free(micro->strategy, values);
    values->count = 0;
    return muster_strategy_tensor_new(micro->strategy, micro->options.dtype, elements, values);
}

/* The slots and the memory of a step with other members than the one before. */
static enum muster_rc members_plan(struct muster_micro_batches *micro, uint32_t rank, uint32_t size)
{
    uint32_t slot_count = micro->options.slot_count, depth;
    enum muster_rc rc;

    micro->node_max = 1;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t nodes =
            muster_micro_nodes(slot_count, muster_micro_range_of(slot_count, i, size), NULL);

        micro->node_max = nodes > micro->node_max ? nodes : micro->node_max;
    }
    micro->rank = rank;
    micro->size = size;
    micro->part_count = (micro->options.element_count + size - 1) / size;
    micro->range = muster_micro_range_of(slot_count, rank, size);
    depth = muster_micro_depth(slot_count, micro->range);
    micro->own_rows = depth > 1 ? depth : 1; /* the sum, if there is no slot */
    rc = values_reserve(micro, &micro->own,
                        micro->own_rows + (micro->node_max > 1 ? micro->node_max : 0));
    if (rc == MUSTER_OK)
        rc = values_reserve(micro, &micro->received, micro->node_max);
    if (rc != MUSTER_OK)
        micro->size = 0; /* the next call tries again */
    return rc;
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

/* The program has filled the last value. */
static void slot_fold(struct muster_micro_batches *micro)
{
    struct muster_micro_sum *sum = &micro->sum;

    if (!micro->is_filled)
        return;
    micro->is_filled = false;
    while (muster_micro_sum_fold(sum)) {
        struct muster_tensor into = value_at(micro, &micro->own, sum->depth - 1);
        struct muster_tensor from = value_at(micro, &micro->own, sum->depth);

        tensor_add(&into, &from);
    }
}

bool muster_micro_batches_next(struct muster_micro_batches *micro, uint32_t *ret_slot,
                               struct muster_tensor *ret_tensor)
{
    uint32_t slot = micro->range.first + micro->given;
    struct muster_tensor value;

    slot_fold(micro);
    if (micro->size == 0 || micro->given == micro->range.count)
        return false;
    micro->given++;
    value = value_at(micro, &micro->own, micro->sum.depth);
    memset(value.data, 0, tensor_bytes(&value));
    muster_micro_sum_push(&micro->sum, (struct muster_micro_node){slot, 0});
    micro->is_filled = true;
    *ret_slot = slot;
    value.count = micro->options.element_count;
    *ret_tensor = value;
    return true;
}

/* --- The sum --- */

static enum muster_rc start_exchange(const struct muster_strategy_call *call, size_t i,
                                     struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_to_all_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

static enum muster_rc start_gather(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

/* One operation, in host memory also where the strategy's other operations are on a device. */
static struct muster_strategy_call call_of(const struct muster_micro_batches *micro,
                                           const struct muster_tensor *pair)
{
    return (struct muster_strategy_call){.name = "micro_batches_sum",
                                         .tensors = pair,
                                         .count = 1,
                                         .view = micro->strategy->view,
                                         .by = MUSTER_COMMUNICATION_RING};
}

/* The nodes part by part: part s of each of them, for rank s. A single node is so already. */
static struct muster_tensor nodes_pack(const struct muster_micro_batches *micro)
{
    struct muster_tensor packed;

    if (micro->node_max == 1)
        return value_at(micro, &micro->own, 0);
    packed = value_at(micro, &micro->own, micro->own_rows);
    packed.count *= micro->node_max;
    for (uint32_t rank = 0; rank < micro->size; rank++)
        for (uint32_t i = 0; i < micro->sum.depth; i++) {
            struct muster_tensor from = part_at(micro, &micro->own, i, rank);
            uint64_t first = ((uint64_t)rank * micro->node_max + i) * micro->part_count;

            memcpy(element_at(&packed, first), from.data, tensor_bytes(&from));
        }
    return packed;
}

/* This member's part of the nodes of all. One operation, however many nodes there are: members that begin a step in
 * different views have other nodes, and must have started as many operations when it ends ABORTED. */
static enum muster_rc nodes_exchange(struct muster_micro_batches *micro)
{
    struct muster_tensor pair[] = {nodes_pack(micro), micro->received};
    struct muster_strategy_call call = call_of(micro, pair);

    pair[1].count = pair[0].count;
    call.start = start_exchange;
    return muster_strategy_run(micro->strategy, &call);
}

/* Add the parts by the tree. Returns the root, in the place of the first node: not rank 0's where there are more
 * members than slots. */
static struct muster_tensor parts_sum(const struct muster_micro_batches *micro)
{
    uint32_t slot_count = micro->options.slot_count;
    struct muster_micro_sum sum = {.slot_count = slot_count};
    struct muster_micro_node nodes[MUSTER_MICRO_NODES_MAX];
    struct muster_tensor parts[MUSTER_MICRO_NODES_MAX];

    for (uint32_t rank = 0; rank < micro->size; rank++) {
        uint32_t count = muster_micro_nodes(
            slot_count, muster_micro_range_of(slot_count, rank, micro->size), nodes);

        for (uint32_t i = 0; i < count; i++) {
            parts[sum.depth] = received_at(micro, rank, i);
            muster_micro_sum_push(&sum, nodes[i]);
            while (muster_micro_sum_fold(&sum))
                tensor_add(&parts[sum.depth - 1], &parts[sum.depth]);
        }
    }
    MUSTER_ASSERT(sum.depth == 1);
    return parts[0];
}

/* The parts of the sum, in place of the nodes of this member. */
static enum muster_rc parts_gather(struct muster_micro_batches *micro)
{
    struct muster_tensor pair[] = {parts_sum(micro), value_at(micro, &micro->own, 0)};
    struct muster_strategy_call call = call_of(micro, pair);

    call.start = start_gather;
    return muster_strategy_run(micro->strategy, &call);
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
    rc = nodes_exchange(micro);
    if (rc == MUSTER_OK)
        rc = parts_gather(micro);
    if (rc != MUSTER_OK)
        return rc;
    *ret_tensor = value_at(micro, &micro->own, 0);
    ret_tensor->count = micro->options.element_count;
    return MUSTER_OK;
}
