/* Sparse gradients: rows of a larger tensor, summed over all replicas. Every member has the same bits in the end,
 * whichever rows arrive first: rows of equal index are added in the order of the replicas, and within one replica in
 * the order in which they stand. */
#ifndef MUSTER_SLICES_H
#define MUSTER_SLICES_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/mem.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

/** Row i of values belongs to row indices[i] of the larger tensor. Indices stand in any order, and several times.
 * Source: tf.IndexedSlices. */
struct muster_slices {
    const uint64_t *indices;
    const void *values; /* count * row_elements of dtype, aligned to it */
    uint64_t count;
    uint64_t row_elements;
    enum muster_dtype dtype;
};

/** Equal on all members. */
struct muster_slices_options {
    uint64_t row_count; /* rows of the larger tensor: indices must be smaller. 0: not known */
    /* Where the members' rows together are more than this percentage of row_count, the larger tensor is summed as a
     * whole. 0: 50; above 100: never. */
    uint32_t dense_percent;
    /* The result has all rows of all replicas, one after the other, and adds none, as TensorFlow does. */
    bool is_concatenated;
};

/** A sum. The memory is the sum's: muster_slices_sum_free. */
struct muster_slices_sum {
    struct muster_slices slices; /* sorted, each index once; is_concatenated: neither */
    bool is_dense;               /* all rows of the larger tensor: indices is NULL */
    uint32_t replica_count;      /* replicas that contributed: the divisor of MEAN */
    /* private */
    struct muster_mem *mem;
    void *memory;
};
/** All zero is accepted. */
MUSTER_API void muster_slices_sum_free(struct muster_slices_sum *sum);

/**
 * Sort rows by their index, and add those that have the same, in their order. f16 and bf16 are added in f32 and
 * rounded once. Pure.
 *
 * Owns:    borrows slices during the call. Gives: muster_slices_sum_free. mem NULL: the C library's heap.
 * Errors:  INVALID_ARGUMENT (a type that cannot be added, data that is NULL or not aligned, more rows than any memory
 *          can hold, an index of row_count or more; with row_count 0 any index is right), RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_slices_combine(
    struct muster_mem *mem, const struct muster_slices *slices, uint64_t row_count,
    struct muster_slices_sum *ret_sum, struct muster_error *ret_error);

/** Add the rows of a sum to a tensor of row_count rows: tensor += sum, of the sum's type. INVALID_ARGUMENT: the
 * types differ, or the tensor has fewer rows. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_slices_add_to(
    const struct muster_slices_sum *sum, const struct muster_tensor *tensor,
    struct muster_error *ret_error);

/**
 * Sum the slices of all replicas, or their mean (of floats) over the replicas that contributed; blocks. Each member
 * combines its own rows, gathers those of all, and combines these. A member that dies meanwhile is left out: the
 * others gather again among themselves, so the call ends as muster_strategy_all_reduce does.
 *
 * Shape:   slices: one for each local replica (muster_replicas_local), of one type and row length on all members.
 * Owns:    borrows slices and options during the call. options NULL: all zero. Gives *ret_sum.
 * Errors:  INVALID_ARGUMENT (as muster_slices_combine; types, row lengths or options that differ: on all members
 *          alike), RESOURCE_EXHAUSTED, otherwise as muster_strategy_all_reduce.
 * Source:  tf.distribute's reduction of IndexedSlices, which is is_concatenated.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_sum_slices(
    struct muster_strategy *strategy, const struct muster_slices *slices,
    enum muster_reduction reduction, const struct muster_slices_options *options,
    struct muster_slices_sum *ret_sum);

MUSTER_END

#endif
