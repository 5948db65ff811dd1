/* All-reduce beyond one tensor and the built-in reductions: by weight, and by a function of the
 * program's own. */
#ifndef MUSTER_ALL_REDUCE_H
#define MUSTER_ALL_REDUCE_H

#include <muster/base.h>
#include <muster/collective.h>

MUSTER_BEGIN

/**
 * The mean of all members' `tensor` by weight, in place: sum(weight * x) / sum(weight). The weight is
 * that of this member, the number of its examples for one; it travels with the operation.
 * op->result.total_weight is the divisor: of those who contributed, also after a change of view. The
 * values of a member with weight 0 are ignored, whatever they are; all 0: the result is 0.
 *
 * Computed in f64 and rounded where partial results travel or end: the same bits on all members.
 * Over the ring partial means travel, so nothing overflows that fits the type.
 *
 * Errors:  returned INVALID_ARGUMENT also for integers and bool.
 *          Otherwise as muster_all_reduce_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_weighted_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    uint64_t weight, muster_op_fn *done);

/** into[i] = into[i] (op) from[i] for count elements, from the result so far and the element of a
 * later member. The same input must give the same bytes everywhere. On the loop; must not call
 * muster. */
typedef void muster_reduce_fn(void *data, void *into, const void *from, size_t count);

#define MUSTER_USER_ELEMENT_BYTES_MAX 4096u

/** A reduction of the program's own, on elements that the library does not look into. */
struct muster_user_reduction {
    const char *name;     /* the same on all members: members with different ones are told both */
    size_t element_bytes; /* 1 … MUSTER_USER_ELEMENT_BYTES_MAX */
    /* false: only algorithms that reduce in the order of ranks are used */
    bool is_commutative;
    muster_reduce_fn *reduce; /* associative */
    void *data;
};

/**
 * Reduce `count` elements at `elements` over all members, in place, by the program's function.
 *
 * Owns:    borrows elements, and what reduction points to, until done; the struct is copied.
 * Errors:  returned INVALID_ARGUMENT also for a reduction without name or function.
 *          Otherwise as muster_all_reduce_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_user_start(
    struct muster_op *op, struct muster_group *group, void *elements, uint64_t count,
    const struct muster_user_reduction *reduction, muster_op_fn *done);

MUSTER_END

#endif
