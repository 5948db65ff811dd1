/* Element-wise arithmetic on host memory, in a fixed order per element. */
#ifndef MUSTER_COLLECTIVE_KERNELS_H
#define MUSTER_COLLECTIVE_KERNELS_H

#include <muster/collective.h>

/**
 * into[i] = into[i] (op) from[i] for count elements; MEAN adds. The memory does not overlap and is
 * aligned to the element. Integers wrap around; MIN and MAX of floats take `into` where the
 * comparison with a NaN fails.
 */
void muster_kernel_reduce(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                          const void *from, size_t count);

/** The same, and `from` becomes what `into` was: the copy that undoes it costs no pass of its own. */
void muster_kernel_reduce_swap(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                               void *from, size_t count);

/** into[i] /= divisor (integers: towards zero). divisor > 0. */
void muster_kernel_divide(enum muster_dtype dtype, void *into, uint32_t divisor, size_t count);

#endif
