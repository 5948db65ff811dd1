/* Lists of tensors as one operation: small ones travel together. */
#ifndef MUSTER_TENSOR_LIST_H
#define MUSTER_TENSOR_LIST_H

#include <muster/base.h>
#include <muster/collective.h>

MUSTER_BEGIN

struct muster_list_op;

typedef void muster_list_op_fn(struct muster_list_op *op, enum muster_rc rc);

/** One operation on a list. Caller's memory, borrowed from start to done; all zero before its first
 * use. It keeps the library's memory from one use to the next: muster_list_op_fini. */
struct muster_list_op {
    void *data;
    /* set before start */
    uint32_t lane;
    uint64_t deadline_ns; /* absolute loop time; required */
    /* Tensors are taken from the last to the first (gradients of the last layer are ready first);
     * a pack is full when it is larger than this. 0: all in one. The same on all ranks.
     * Source: tf.distribute.experimental.CommunicationOptions. */
    uint64_t bytes_per_pack;
    /* valid in done */
    struct muster_error error; /* of the first part that failed */
    struct muster_op_result
        result; /* of the last part; an interruption of any is one of the list */
    /* private */
    muster_list_op_fn *done;
    void *impl;
};

/**
 * Reduce each of `count` tensors over all members, in place; one completion. Tensors of a pack that
 * have one type travel as one, and need no copy when they lie one after the other in memory (on this
 * rank: the others may copy); else they go through a buffer of the library.
 *
 * Owns:    borrows op, the tensors' memory and the array until done.
 * Errors:  as muster_all_reduce_start, and by done RESOURCE_EXHAUSTED. After an error, tensors that
 *          went through a buffer are as they were; others may hold their result already.
 * Order:   the list is as many operations of its lane as it has parts.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_list_start(
    struct muster_list_op *op, struct muster_group *group, const struct muster_tensor *tensors,
    size_t count, enum muster_reduction reduction, muster_list_op_fn *done);

/** The tensors of `root` (rank in the group's view) to all. Otherwise as above; the tensors of those
 * who are not the root may be partly written after an error. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_broadcast_list_start(
    struct muster_list_op *op, struct muster_group *group, const struct muster_tensor *tensors,
    size_t count, uint32_t root, muster_list_op_fn *done);

/** As muster_op_cancel, of all parts. */
MUSTER_API void muster_list_op_cancel(struct muster_list_op *op);

/** Free what it keeps: after done, and before the environment of its group is closed. */
MUSTER_API void muster_list_op_fini(struct muster_list_op *op);

MUSTER_END

#endif
