/* Slots' tensors, the nodes of a member, its part of the sum. */
#include "training/micro/values.h"

#include <string.h>

#include "collective/kernel/kernels.h"

static uint64_t value_elements(const struct muster_micro_values *values)
{
    return values->part_count * values->size;
}

static void *element_at(const struct muster_tensor *tensor, uint64_t i)
{
    return (uint8_t *)tensor->data + i * muster_dtype_bytes(tensor->dtype);
}

static size_t tensor_bytes(const struct muster_tensor *tensor)
{
    return (size_t)tensor->count * muster_dtype_bytes(tensor->dtype);
}

static struct muster_tensor elements_of(const struct muster_tensor *tensor, uint64_t first,
                                        uint64_t count)
{
    return (struct muster_tensor){
        .data = element_at(tensor, first), .count = count, .dtype = tensor->dtype};
}

/* Part `part` of value i. */
static struct muster_tensor part_at(const struct muster_micro_values *values, uint64_t i,
                                    uint32_t part)
{
    return elements_of(&values->own, i * value_elements(values) + part * values->part_count,
                       values->part_count);
}

static struct muster_tensor value_at(const struct muster_micro_values *values, uint64_t i)
{
    return elements_of(&values->own, i * value_elements(values), value_elements(values));
}

/* This member's part of a node of a rank. */
static struct muster_tensor received_at(const struct muster_micro_values *values, uint32_t rank,
                                        uint32_t node)
{
    uint64_t row = (uint64_t)rank * values->node_max + node;

    return elements_of(&values->received, row * values->part_count, values->part_count);
}

static void tensor_add(const struct muster_tensor *into, const struct muster_tensor *from)
{
    muster_kernel_reduce(into->dtype, MUSTER_SUM, into->data, from->data, (size_t)into->count);
}

/* --- The members --- */

void muster_micro_values_plan(struct muster_micro_values *values, uint32_t rank, uint32_t size,
                              uint64_t *ret_own_elements, uint64_t *ret_received_elements)
{
    uint32_t depth;

    values->node_max = 1;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t nodes = muster_micro_nodes(
            values->slot_count, muster_micro_range_of(values->slot_count, i, size), NULL);

        values->node_max = nodes > values->node_max ? nodes : values->node_max;
    }
    values->rank = rank;
    values->size = size;
    values->part_count = (values->element_count + size - 1) / size;
    values->range = muster_micro_range_of(values->slot_count, rank, size);
    depth = muster_micro_depth(values->slot_count, values->range);
    values->own_rows = depth > 1 ? depth : 1; /* the sum, if there is no slot */
    *ret_own_elements =
        value_elements(values) * (values->own_rows + (values->node_max > 1 ? values->node_max : 0));
    *ret_received_elements = value_elements(values) * values->node_max;
}

/* --- Slots --- */

void muster_micro_values_begin(struct muster_micro_values *values)
{
    values->sum = (struct muster_micro_sum){.slot_count = values->slot_count};
    values->given = 0;
    values->is_filled = false;
}

/* The program has filled the last value. */
static void slot_fold(struct muster_micro_values *values)
{
    struct muster_micro_sum *sum = &values->sum;

    if (!values->is_filled)
        return;
    values->is_filled = false;
    while (muster_micro_sum_fold(sum)) {
        struct muster_tensor into = value_at(values, sum->depth - 1);
        struct muster_tensor from = value_at(values, sum->depth);

        tensor_add(&into, &from);
    }
}

bool muster_micro_values_next(struct muster_micro_values *values, uint32_t *ret_slot,
                              struct muster_tensor *ret_tensor)
{
    uint32_t slot = values->range.first + values->given;
    struct muster_tensor value;

    slot_fold(values);
    if (values->size == 0 || values->given == values->range.count)
        return false;
    values->given++;
    value = value_at(values, values->sum.depth);
    memset(value.data, 0, tensor_bytes(&value));
    muster_micro_sum_push(&values->sum, (struct muster_micro_node){slot, 0});
    values->is_filled = true;
    *ret_slot = slot;
    value.count = values->element_count;
    *ret_tensor = value;
    return true;
}

/* --- The sum --- */

/* The nodes part by part: part s of each of them, for rank s. A single node is so already. */
static struct muster_tensor nodes_pack(const struct muster_micro_values *values)
{
    struct muster_tensor packed;

    if (values->node_max == 1)
        return value_at(values, 0);
    packed = value_at(values, values->own_rows);
    packed.count *= values->node_max;
    for (uint32_t rank = 0; rank < values->size; rank++)
        for (uint32_t i = 0; i < values->sum.depth; i++) {
            struct muster_tensor from = part_at(values, i, rank);
            uint64_t first = ((uint64_t)rank * values->node_max + i) * values->part_count;

            memcpy(element_at(&packed, first), from.data, tensor_bytes(&from));
        }
    return packed;
}

void muster_micro_values_exchange(struct muster_micro_values *values,
                                  struct muster_tensor *ret_input, struct muster_tensor *ret_output)
{
    slot_fold(values);
    *ret_input = nodes_pack(values);
    *ret_output = values->received;
    ret_output->count = ret_input->count;
}

/* Add the parts by the tree. Returns the root, in the place of the first node: not rank 0's where there are more
 * members than slots. */
static struct muster_tensor parts_sum(const struct muster_micro_values *values)
{
    struct muster_micro_sum sum = {.slot_count = values->slot_count};
    struct muster_micro_node nodes[MUSTER_MICRO_NODES_MAX];
    struct muster_tensor parts[MUSTER_MICRO_NODES_MAX];

    for (uint32_t rank = 0; rank < values->size; rank++) {
        uint32_t count = muster_micro_nodes(
            values->slot_count, muster_micro_range_of(values->slot_count, rank, values->size),
            nodes);

        for (uint32_t i = 0; i < count; i++) {
            parts[sum.depth] = received_at(values, rank, i);
            muster_micro_sum_push(&sum, nodes[i]);
            while (muster_micro_sum_fold(&sum))
                tensor_add(&parts[sum.depth - 1], &parts[sum.depth]);
        }
    }
    MUSTER_ASSERT(sum.depth == 1);
    return parts[0];
}

/* The parts of the sum, in place of the nodes of this member. */
void muster_micro_values_gather(const struct muster_micro_values *values,
                                struct muster_tensor *ret_input, struct muster_tensor *ret_output)
{
    *ret_input = parts_sum(values);
    *ret_output = value_at(values, 0);
}

struct muster_tensor muster_micro_values_sum(const struct muster_micro_values *values)
{
    struct muster_tensor sum = value_at(values, 0);

    sum.count = values->element_count;
    return sum;
}
