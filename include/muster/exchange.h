/* Exchanges: collective operations that move parts between members and reduce nothing, or cut by
 * counts of the caller's. */
#ifndef MUSTER_EXCHANGE_H
#define MUSTER_EXCHANGE_H

#include <muster/base.h>
#include <muster/collective.h>

MUSTER_BEGIN

/*
 * What holds for all of them. "Rank" counts the members that take part in the operation: those of
 * the group's view whose from_step is not later than the step that has begun; their number is n.
 *
 * Shape:   contiguous elements; a count of 0 is valid. Input and output lie apart but for the one
 *          place that each function names.
 * Owns:    borrows op and the memory of data until done; counts and structs are read during the
 *          call only.
 * Errors:  returned INVALID_ARGUMENT (shape, alignment, overlap, a rank that there is not),
 *          FAILED_PRECONDITION (group closed), RESOURCE_EXHAUSTED; by done ABORTED (a member has
 *          gone before every other had its whole output; the text names the change),
 *          INVALID_ARGUMENT (another rank called something else, or counts do not fit: on every
 *          rank, naming both sides), DEADLINE_EXCEEDED, CANCELLED, RESOURCE_EXHAUSTED.
 *          After anything but OK inputs are intact and outputs may be partly written.
 * Order:   as muster_all_reduce_start: one order of all operations of a lane on all ranks.
 * Thread:  loop only.
 */

/** Memory that is cut into one part per rank, in rank order, without gaps. */
struct muster_parts {
    void *data;             /* aligned to its element; as of struct muster_tensor */
    const uint64_t *counts; /* elements of each part; 0 is valid */
    uint32_t part_count;    /* must be n */
    enum muster_dtype dtype;
};

/** Where a permute sends to and receives from. */
#define MUSTER_RANK_NONE UINT32_MAX
struct muster_route {
    uint32_t to, from; /* rank, or MUSTER_RANK_NONE */
};

/** Part r of root's output is rank r's input: input->count equal on every rank, output->count = n *
 * input->count. Elsewhere `output` may be NULL and is not looked at. `root` is a rank of the
 * group's view. The root's input may be its part of the output. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gather_start(struct muster_op *op,
                                                                struct muster_group *group,
                                                                const struct muster_tensor *input,
                                                                const struct muster_tensor *output,
                                                                uint32_t root, muster_op_fn *done);

/** Rank r's output is part r of root's input: output->count equal on every rank, input->count = n *
 * output->count. Elsewhere `input` may be NULL and is not looked at. `root` is a rank of the
 * group's view. The root's output may be its part of the input. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_scatter_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 const struct muster_tensor *input,
                                                                 const struct muster_tensor *output,
                                                                 uint32_t root, muster_op_fn *done);

/** muster_all_gather_start with parts of different length: part r of the output is rank r's input;
 * the counts are equal on every rank. The input may be its part of the output. Retried when all
 * members stay; finished from the survivors when all parts are there. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_gather_uneven_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_parts *output, muster_op_fn *done);

/** muster_reduce_scatter_start with parts of different length: rank r's output is part r of the
 * reduction of all inputs; the counts are equal on every rank. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_uneven_start(
    struct muster_op *op, struct muster_group *group, const struct muster_parts *input,
    const struct muster_tensor *output, enum muster_reduction reduction, muster_op_fn *done);

/** Part s of rank r's output is part r of rank s's input. input->count = output->count, divisible
 * by n, equal on every rank. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_to_all_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, muster_op_fn *done);

/** muster_all_to_all_start with parts of different length: input->counts[r] of rank s must be
 * output->counts[s] of rank r; where they differ the operation ends INVALID_ARGUMENT on every rank,
 * and says which two ranks and counts. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_to_all_uneven_start(
    struct muster_op *op, struct muster_group *group, const struct muster_parts *input,
    const struct muster_parts *output, muster_op_fn *done);

/** input goes to the output of rank route->to, output comes from the input of route->from; counts
 * are equal on every rank, and who sends to r is whom r receives from (else INVALID_ARGUMENT on
 * every rank). Where `to` is NONE input->data is not looked at, where `from` is NONE output->data: it
 * stays as it is. To oneself is a copy. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_permute_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, const struct muster_route *route, muster_op_fn *done);

MUSTER_END

#endif
