/* The values of one member in a step of micro-batches: its slots' tensors, summed to the nodes of its range, and its
 * part of the sum over all slots. Memory and messages are the caller's. */
#ifndef MUSTER_TRAINING_MICRO_VALUES_H
#define MUSTER_TRAINING_MICRO_VALUES_H

#include <muster/collective.h>

#include "training/micro/tree.h"

/** A member calls plan, begin, then next until it returns false, exchange, gather, sum. */
struct muster_micro_values {
    /* the caller's, before the first plan */
    uint32_t slot_count;
    uint64_t element_count; /* of a slot's tensor */

    /* the members of the step */
    uint32_t rank, size; /* size 0: none yet */
    uint32_t node_max;   /* nodes that each member sends: the most that one has */
    uint64_t
        part_count; /* elements that each member sums; a value has `size` parts, zeroes at its end */
    struct muster_micro_range range;

    /* The values of this member: nodes that are summed so far, the slot that is being filled; then the sum of all
     * slots, in place of the first. The caller's memory, after plan. */
    struct muster_tensor own;
    uint32_t own_rows; /* so many values; after them, if there are several nodes, these packed */
    struct muster_micro_sum sum;
    uint32_t given; /* slots that next has given */
    bool is_filled; /* the program has the last value */

    struct muster_tensor received; /* of each rank in turn, this member's part of its nodes */
};

/** The members of a step, and the elements that `own` and `received` must have room for. */
void muster_micro_values_plan(struct muster_micro_values *values, uint32_t rank, uint32_t size,
                              uint64_t *ret_own_elements, uint64_t *ret_received_elements);
/** No slot is filled. */
void muster_micro_values_begin(struct muster_micro_values *values);
/** The next slot of this member, and its tensor, whose elements are 0. False: all are filled. */
MUSTER_MUST_CHECK bool muster_micro_values_next(struct muster_micro_values *values,
                                                uint32_t *ret_slot,
                                                struct muster_tensor *ret_tensor);
/** All slots are filled: what this member sends in the all_to_all, and where it receives. */
void muster_micro_values_exchange(struct muster_micro_values *values,
                                  struct muster_tensor *ret_input,
                                  struct muster_tensor *ret_output);
/** All have been received: what this member sends in the all_gather, its part of the sum, and where it receives. */
void muster_micro_values_gather(const struct muster_micro_values *values,
                                struct muster_tensor *ret_input, struct muster_tensor *ret_output);
/** All have been gathered: the sum. */
struct muster_tensor muster_micro_values_sum(const struct muster_micro_values *values);

#endif
