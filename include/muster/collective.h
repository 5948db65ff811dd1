/* Collective operations on a group: one epoch's members, immutable. */
#ifndef MUSTER_COLLECTIVE_H
#define MUSTER_COLLECTIVE_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>
#include <muster/view.h>

MUSTER_BEGIN

struct muster_group;
struct muster_op;

/** Elements of tensors. The numbers travel between processes: new ones come at the end. */
enum muster_dtype {
    MUSTER_F32,
    MUSTER_F64,
    MUSTER_I32,
    MUSTER_I64,
    MUSTER_U8,
    MUSTER_F16,  /* IEEE binary16, as uint16_t: <muster/half.h> */
    MUSTER_BF16, /* the upper half of an f32, as uint16_t */
    MUSTER_I8,
    MUSTER_U32,
    MUSTER_U64,
    MUSTER_BOOL, /* one byte; any but 0 is true, a reduction of two or more members gives 0 or 1 */
};

/**
 * What a reduction does with two elements; the same bits on every machine.
 *
 * SUM, PROD  floats round to nearest, ties to even; f16 and bf16 are added in f32 and rounded after
 *            each member. Integers wrap around. Not for bool.
 * MEAN       SUM, divided by the number of contributing members; integers (whose sum wraps around
 *            first) towards zero. Not for bool.
 * MIN, MAX   of floats: NaN when either is NaN; -0 is below +0. Of bool: AND and OR.
 * AND, OR, XOR  of the bits of integers, of the truth of bool. Not for floats.
 *
 * A NaN that comes out is the quiet one without payload (0x7FC00000 for f32), whatever went in.
 */
enum muster_reduction {
    MUSTER_SUM,
    MUSTER_MEAN,
    MUSTER_MIN,
    MUSTER_MAX,
    MUSTER_PROD,
    MUSTER_AND,
    MUSTER_OR,
    MUSTER_XOR,
};

/** Bytes of one element; 0 for no type. */
MUSTER_API size_t muster_dtype_bytes(enum muster_dtype dtype);
/** "bf16". Static text, also for no type. */
MUSTER_API const char *muster_dtype_name(enum muster_dtype dtype);
/** "sum". Static text, also for no reduction. */
MUSTER_API const char *muster_reduction_name(enum muster_reduction reduction);
/** INVALID_ARGUMENT: the pair has no meaning; the error names both, and what has. What the _start
 * of a reduction checks (it logs the text). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduction_check(enum muster_dtype dtype,
                                                                   enum muster_reduction reduction,
                                                                   struct muster_error *ret_error);

/** Contiguous memory of the caller. The struct itself is read during the call only. */
struct muster_tensor {
    void *data;     /* aligned to its element; borrowed by what it is given to, as said there */
    uint64_t count; /* elements */
    enum muster_dtype dtype;
};

enum muster_op_kind {
    MUSTER_OP_ALL_REDUCE,
    MUSTER_OP_BROADCAST,
    MUSTER_OP_ALL_GATHER,
    MUSTER_OP_REDUCE_SCATTER,
    MUSTER_OP_BARRIER,
};

typedef void muster_op_fn(struct muster_op *op, enum muster_rc rc);

/** Who contributed to a delivered operation. */
struct muster_op_result {
    uint64_t epoch;                   /* in which it was delivered */
    uint32_t contributor_count;       /* the divisor of MEAN */
    enum muster_verdict_kind verdict; /* of its last interruption */
    bool is_interrupted;     /* a change of view fell into it, or was under way when it started */
    uint64_t interrupted_ns; /* loop time of the freeze, 0 = not interrupted */
    const char *phase;       /* where this member stood at the freeze ("start", "reduce", "gather",
                                "complete") */
};

/** One operation. Caller's memory, borrowed from start to done. */
struct muster_op {
    void *data;
    /* set before start */
    uint32_t lane;        /* operations of one lane complete in order; 0 by default */
    uint64_t deadline_ns; /* absolute loop time; required */
    /* valid in done */
    struct muster_op_id id;
    struct muster_error error; /* names the culprit ("rank 3 has not called all_reduce #812") */
    struct muster_op_result result;
    /* private */
    muster_op_fn *done;
    struct muster_list node;
    void *impl;
};

/**
 * Reduce `tensor` over all members, in place.
 *
 * Shape:   count elements of dtype, contiguous; equal on every rank.
 * Units:   op->deadline_ns is loop time, absolute.
 * Owns:    borrows op and the tensor's memory until done.
 * Errors:  returned INVALID_ARGUMENT (also a reduction that the type does not have:
 *          muster_reduction_check), FAILED_PRECONDITION (group closed); by done ABORTED,
 *          INVALID_ARGUMENT (another rank called something else: error names both),
 *          DEADLINE_EXCEEDED, CANCELLED.
 * Order:   all ranks start the same operations of a lane in the same order.
 * Thread:  loop only.
 * Source:  Patarasuk & Yuan 2009 (large: ring, 2(n-1)/n of the bytes per rank); direct exchange
 *          of the inputs (small).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    enum muster_reduction reduction, muster_op_fn *done);

/** tensor of `root` (rank in the group's view) to all. Same rules as muster_all_reduce_start.
 * ABORTED on all also when the root has gone, or members started it by the ranks of different
 * views. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_broadcast_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    uint32_t root, muster_op_fn *done);

/** output->count = n * input->count; part r is rank r's input. Borrows the memory of both until
 * done; otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_gather_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, muster_op_fn *done);

/** input->count = n * output->count; rank r receives part r of the reduction. Borrows the memory
 * of both until done; otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction, muster_op_fn *done);

/** done when all members have started it. Otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_barrier_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 muster_op_fn *done);

/** done still comes, with CANCELLED unless the operation was delivered before; proposes ABORTED to
 * all. */
MUSTER_API void muster_op_cancel(struct muster_op *op);

/** "direct" or "ring": how an operation on a whole vector of `count` elements would run now. Static
 * text. */
MUSTER_API const char *muster_group_algorithm(const struct muster_group *group,
                                              enum muster_op_kind kind, uint64_t count,
                                              enum muster_dtype dtype);

/** This member's position in the view. */
MUSTER_API uint32_t muster_group_rank(const struct muster_group *group);
/** Members of the view. */
MUSTER_API uint32_t muster_group_size(const struct muster_group *group);
/** Borrowed while the group is open. */
MUSTER_API const struct muster_view *muster_group_view(const struct muster_group *group);

MUSTER_END

#endif
