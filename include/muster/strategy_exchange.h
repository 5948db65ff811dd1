/* Operations of a strategy on parts of a tensor, one for each member, and messages between two members;
 * their errors, beside those that each names, are those of muster_strategy_all_reduce. */
#ifndef MUSTER_STRATEGY_EXCHANGE_H
#define MUSTER_STRATEGY_EXCHANGE_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

/*
 * These rules hold for all calls below. "Rank" and "size" are those since begin (muster_strategy_rank), or those
 * of the split's group. All members make the same calls in the same order; messages are not part of this order.
 *
 * Shape:   contiguous elements; a count of 0 is valid. Input and output must not overlap, except where a function
 *          says so.
 * Memory:  of a device: NCCL for all_gather, all_to_all and reduce_scatter of all members, copies in host memory for
 *          the others (muster_strategy_all_reduce).
 * Owns:    borrows tensors, counts and their memory during the call.
 * Errors:  ABORTED on all when a member has gone since begin, since each part belongs to a certain member; unless
 *          all others already had their whole output. Run the step again from begin. INVALID_ARGUMENT (shapes, counts
 *          or ranks that do not fit, here; or another rank has called something else: on all, and the text names both
 *          sides), DEADLINE_EXCEEDED.
 *          After an error inputs are as they were, and outputs may be partly written.
 */

/** Rank r's output is part r of the reduction of all inputs: input->count = size * output->count. MEAN
 * divides by those who contributed. See muster_reduce_scatter_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_reduce_scatter(
    struct muster_strategy *strategy, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction);

/** Part r of root's output is rank r's input: output->count = size * input->count. On the other members
 * output may be NULL and is not looked at. The root's input may be its part of the output. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_gather(
    struct muster_strategy *strategy, const struct muster_tensor *input,
    const struct muster_tensor *output, uint32_t root);

/** Rank r's output is part r of root's input: input->count = size * output->count. On the other members
 * input may be NULL and is not looked at. The root's output may be its part of the input. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_scatter(
    struct muster_strategy *strategy, const struct muster_tensor *input,
    const struct muster_tensor *output, uint32_t root);

/** muster_strategy_all_gather with parts of different length: part r of the output is rank r's input. The
 * counts are the same on all members. The input may be its part of the output. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_gather_uneven(
    struct muster_strategy *strategy, const struct muster_tensor *input,
    const struct muster_parts *output);

/** muster_strategy_reduce_scatter with parts of different length; the counts are the same on all members. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_reduce_scatter_uneven(
    struct muster_strategy *strategy, const struct muster_parts *input,
    const struct muster_tensor *output, enum muster_reduction reduction);

/** muster_strategy_all_to_all with parts of different length: input->counts[r] of rank s is output->counts[s]
 * of rank r. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_to_all_uneven(
    struct muster_strategy *strategy, const struct muster_parts *input,
    const struct muster_parts *output);

/**
 * Send tensor to the member with rank `to`; returns when that member has it. The k-th message to a member
 * is the k-th that it receives from this one, whatever else both of them do, and whichever of them comes first.
 * Two members that send to each other at the same time wait for each other: use muster_strategy_exchange.
 *
 * Shape:   count and dtype are the same on both sides.
 * Errors:  ABORTED (that member has gone, or has given the message up), INVALID_ARGUMENT (no such rank, or
 *          this member's own; or shapes differ: on both sides). Another member's death only delays the message.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_send(struct muster_strategy *strategy,
                                                                 const struct muster_tensor *tensor,
                                                                 uint32_t to);
/** The other end of muster_strategy_send. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_receive(
    struct muster_strategy *strategy, const struct muster_tensor *tensor, uint32_t from);
/** Send `output` to member `to` and receive `input` from member `from`, both at once
 * (MUSTER_SPLIT_NOBODY: no such part; its tensor is not read and may be NULL). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_exchange(
    struct muster_strategy *strategy, const struct muster_tensor *output, uint32_t to,
    const struct muster_tensor *input, uint32_t from);

/* Each as its namesake, among the members of this one's group. Errors also: FAILED_PRECONDITION (this
 * member has no group). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_reduce_scatter(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_gather(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output, uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_scatter(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output, uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_gather_uneven(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_parts *output);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_reduce_scatter_uneven(
    struct muster_strategy_split *split, const struct muster_parts *input,
    const struct muster_tensor *output, enum muster_reduction reduction);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_to_all_uneven(
    struct muster_strategy_split *split, const struct muster_parts *input,
    const struct muster_parts *output);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_send(
    struct muster_strategy_split *split, const struct muster_tensor *tensor, uint32_t to);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_receive(
    struct muster_strategy_split *split, const struct muster_tensor *tensor, uint32_t from);

/**
 * The messages of a pipeline: send `output` to member `to` of the group and receive `input` from member
 * `from`, as muster_strategy_exchange.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_exchange(
    struct muster_strategy_split *split, const struct muster_tensor *output, uint32_t to,
    const struct muster_tensor *input, uint32_t from);

MUSTER_END

#endif
