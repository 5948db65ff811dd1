/* Expected results of reductions, one element at a time and by other means than the kernels. */
#ifndef MUSTER_TEST_KERNEL_REFERENCE_H
#define MUSTER_TEST_KERNEL_REFERENCE_H

#include <muster/collective.h>

/** The value of an element of a floating-point type; every f16, bf16 and f32 is one of f64. */
double reference_decode(enum muster_dtype dtype, const void *at);
/** Rounded to f32 first where the type is narrower than f64, then to the type. */
void reference_encode(enum muster_dtype dtype, double value, void *at);

bool reference_is_float(enum muster_dtype dtype);
/** Element i of a tensor of any type as a whole number. */
void reference_put(enum muster_dtype dtype, void *tensor, uint64_t i, uint64_t value);
double reference_get(enum muster_dtype dtype, const void *tensor, uint64_t i);

/** into[i] = into[i] (op) from[i]. */
void reference_reduce(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                      const void *from, size_t count);
/** into[i] = from[0][i] (op) from[1][i] (op) …; MEAN is divided by n; f16 and bf16 in f32, rounded
 * at the end. `into` may be one of the sources. */
void reference_reduce_all(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                          const void *const *from, uint32_t n, size_t count);
void reference_divide(enum muster_dtype dtype, void *into, uint32_t divisor, size_t count);

/** Random elements (a seed each), about half of them special: zeros, infinities, NaN, subnormal,
 * the largest and the smallest, and their neighbours. */
void reference_fill(enum muster_dtype dtype, void *at, size_t count, uint64_t seed);

#endif
