/* Reductions: what becomes of the elements of several members. */
#ifndef MUSTER_REDUCTION_H
#define MUSTER_REDUCTION_H

#include <muster/base.h>
#include <muster/status.h>
#include <muster/tensor.h>

MUSTER_BEGIN

/**
 * What a reduction does with two elements; the same bits on every machine.
 *
 * SUM, PROD  floats round to nearest, ties to even. f16 and bf16 are added in f32: by algorithms that
 *            have all inputs in one place ("direct", "flat") rounded once, at the end; by those where
 *            partial sums travel ("ring") after each member. Integers wrap around. Not for bool.
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

/** "sum". Static text, also for no reduction. */
MUSTER_API const char *muster_reduction_name(enum muster_reduction reduction);
/** INVALID_ARGUMENT: the pair has no meaning; the error names both, and what has. What the _start
 * of a reduction checks (it logs the text). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduction_check(enum muster_dtype dtype,
                                                                   enum muster_reduction reduction,
                                                                   struct muster_error *ret_error);

MUSTER_END

#endif
