/* Element-wise arithmetic on host memory, in a fixed order per element; the same bits on every
 * path and machine. */
#ifndef MUSTER_COLLECTIVE_KERNELS_H
#define MUSTER_COLLECTIVE_KERNELS_H

#include <muster/collective.h>

#define MUSTER_DTYPE_COUNT     (MUSTER_F8_E5M2 + 1)
#define MUSTER_REDUCTION_COUNT (MUSTER_XOR + 1)

typedef void muster_kernel_reduce_fn(void *into, const void *from, size_t count);
typedef void muster_kernel_swap_fn(void *into, void *from, size_t count);
typedef void muster_kernel_divide_fn(void *into, uint32_t divisor, size_t count);

typedef void muster_kernel_weigh_fn(void *into, const void *const *from, const uint64_t *weights,
                                    uint32_t n, size_t count);
typedef void muster_kernel_fold_fn(void *into, const void *const *from, uint32_t n, size_t count);

/** The kernels of one path; NULL where the pair has no meaning, alike on every path. */
struct muster_kernels {
    const char *name;
    muster_kernel_reduce_fn *reduce[MUSTER_DTYPE_COUNT][MUSTER_REDUCTION_COUNT];
    muster_kernel_swap_fn *swap[MUSTER_DTYPE_COUNT][MUSTER_REDUCTION_COUNT];
    muster_kernel_fold_fn *all[MUSTER_DTYPE_COUNT][MUSTER_REDUCTION_COUNT];
    muster_kernel_weigh_fn *weigh[MUSTER_DTYPE_COUNT];
    muster_kernel_divide_fn *divide[MUSTER_DTYPE_COUNT];
};

/** Compiled for every machine of the architecture (SSE2, NEON). */
const struct muster_kernels *muster_kernels_baseline(void);
/** NULL: not this architecture, or the processor or the system lacks it. */
const struct muster_kernels *muster_kernels_avx2(void);
const struct muster_kernels *muster_kernels_avx512(void);

/** The paths that this machine has, slowest first: NULL from `index` on that there is none. */
const struct muster_kernels *muster_kernels_at(size_t index);
/** The fastest path of this machine. */
const struct muster_kernels *muster_kernels_best(void);

/** Whether reducing elements of this type by this reduction has a meaning. */
bool muster_reduction_is_defined(enum muster_dtype dtype, enum muster_reduction reduction);

/**
 * into[i] = into[i] (op) from[i] for count elements; MEAN adds. The memory does not overlap and is
 * aligned to the element; the pair is defined. What the values become: enum muster_reduction.
 */
void muster_kernel_reduce(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                          const void *from, size_t count);

/** The same, and `from` becomes what `into` was: the copy that undoes it costs no pass of its own. */
void muster_kernel_reduce_swap(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                               void *from, size_t count);

/**
 * into[i] = from[0][i] (op) from[1][i] (op) … from[n - 1][i], in this order, for count elements; MEAN
 * is divided by n. Each source is read once. f16 and bf16 are added, multiplied and divided in f32
 * and rounded once, at the end: other bits than n - 1 times muster_kernel_reduce; all other types
 * have the same. n = 1 copies. `into` may be one of the sources; otherwise the memory does not
 * overlap. Aligned to the element; the pair is defined; n > 0.
 */
void muster_kernel_reduce_all(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                              const void *const *from, uint32_t n, size_t count);

/**
 * into[i] = sum(weights[k] * from[k][i]) / sum(weights), in f64 and rounded once; sources of weight 0
 * are not looked at, all 0 gives 0. `into` may be one of the sources. Floats only; n > 0.
 */
void muster_kernel_mean_weighted(enum muster_dtype dtype, void *into, const void *const *from,
                                 const uint64_t *weights, uint32_t n, size_t count);

/** into[i] /= divisor (integers: towards zero). divisor > 0; dtype has a MEAN. */
void muster_kernel_divide(enum muster_dtype dtype, void *into, uint32_t divisor, size_t count);

#endif
