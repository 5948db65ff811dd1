/* Which kernels run: types, reductions and pairs by name, and the fastest path of this machine. All
 * paths give the same bits, so members on different processors may each take their fastest. */
#include "collective/kernel/kernels.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[MUSTER_DTYPE_COUNT] = {
    [MUSTER_F16] = {"f16", 2}, [MUSTER_BF16] = {"bf16", 2},      [MUSTER_F32] = {"f32", 4},
    [MUSTER_F64] = {"f64", 8}, [MUSTER_I8] = {"i8", 1},          [MUSTER_U8] = {"u8", 1},
    [MUSTER_I32] = {"i32", 4}, [MUSTER_U32] = {"u32", 4},        [MUSTER_I64] = {"i64", 8},
    [MUSTER_U64] = {"u64", 8}, [MUSTER_BOOL] = {"bool", 1},      [MUSTER_I16] = {"i16", 2},
    [MUSTER_U16] = {"u16", 2}, [MUSTER_F8_E4M3] = {"f8e4m3", 1}, [MUSTER_F8_E5M2] = {"f8e5m2", 1},
};

static const char *const reductions[MUSTER_REDUCTION_COUNT] = {
    [MUSTER_SUM] = "sum",   [MUSTER_MEAN] = "mean", [MUSTER_MIN] = "min", [MUSTER_MAX] = "max",
    [MUSTER_PROD] = "prod", [MUSTER_AND] = "and",   [MUSTER_OR] = "or",   [MUSTER_XOR] = "xor",
};

size_t muster_dtype_bytes(enum muster_dtype dtype)
{
    return (unsigned)dtype < MUSTER_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *muster_dtype_name(enum muster_dtype dtype)
{
    return (unsigned)dtype < MUSTER_DTYPE_COUNT ? dtypes[dtype].name : "an unknown type";
}

const char *muster_reduction_name(enum muster_reduction reduction)
{
    return (unsigned)reduction < MUSTER_REDUCTION_COUNT ? reductions[reduction]
                                                        : "an unknown reduction";
}

/* The pairs are the same on every path, so the baseline's table stands for all. */
bool muster_reduction_is_defined(enum muster_dtype dtype, enum muster_reduction reduction)
{
    return (unsigned)dtype < MUSTER_DTYPE_COUNT && (unsigned)reduction < MUSTER_REDUCTION_COUNT &&
           muster_kernels_baseline()->reduce[dtype][reduction] != NULL;
}

enum muster_rc muster_reduction_check(enum muster_dtype dtype, enum muster_reduction reduction,
                                      struct muster_error *ret_error)
{
    char choices[64] = "";
    int length = 0;

    if (muster_reduction_is_defined(dtype, reduction))
        return MUSTER_OK;
    if (muster_dtype_bytes(dtype) == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s of type %d: the type must be one of enum muster_dtype",
                                muster_reduction_name(reduction), (int)dtype);
    if (dtype == MUSTER_F8_E4M3 || dtype == MUSTER_F8_E5M2)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "%s of %s has no meaning: 8-bit floats are only moved; convert them "
            "to f16, bf16 or f32 and reduce those",
            muster_reduction_name(reduction), dtypes[dtype].name);
    for (int i = 0; i < MUSTER_REDUCTION_COUNT; i++)
        if (muster_reduction_is_defined(dtype, (enum muster_reduction)i))
            length += snprintf(choices + length, sizeof(choices) - (size_t)length, "%s%s",
                               length > 0 ? ", " : "", reductions[i]);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s of %s has no meaning: use one of %s, or another type%s",
                            muster_reduction_name(reduction), dtypes[dtype].name, choices,
                            dtype == MUSTER_BOOL ? " (u32 to count)" : "");
}

const struct muster_kernels *muster_kernels_at(size_t index)
{
    const struct muster_kernels *const paths[] = {muster_kernels_baseline(), muster_kernels_avx2(),
                                                  muster_kernels_avx512()};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (paths[i] != NULL && index-- == 0)
            return paths[i];
    return NULL;
}

/* Asking the processor again costs a few loads: cheaper than state. */
const struct muster_kernels *muster_kernels_best(void)
{
    const struct muster_kernels *kernels = muster_kernels_avx512();

    if (kernels == NULL)
        kernels = muster_kernels_avx2();
    return kernels != NULL ? kernels : muster_kernels_baseline();
}

void muster_kernel_reduce(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                          const void *from, size_t count)
{
    muster_kernels_best()->reduce[dtype][reduction](into, from, count);
}

void muster_kernel_reduce_swap(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                               void *from, size_t count)
{
    muster_kernels_best()->swap[dtype][reduction](into, from, count);
}

void muster_kernel_reduce_all(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                              const void *const *from, uint32_t n, size_t count)
{
    MUSTER_ASSERT(n > 0);
    if (n > 1)
        muster_kernels_best()->all[dtype][reduction](into, from, n, count);
    else if (into != from[0] && count > 0)
        memcpy(into, from[0], count * muster_dtype_bytes(dtype));
}

void muster_kernel_mean_weighted(enum muster_dtype dtype, void *into, const void *const *from,
                                 const uint64_t *weights, uint32_t n, size_t count)
{
    MUSTER_ASSERT(n > 0);
    muster_kernels_best()->weigh[dtype](into, from, weights, n, count);
}

void muster_kernel_divide(enum muster_dtype dtype, void *into, uint32_t divisor, size_t count)
{
    MUSTER_ASSERT(divisor > 0);
    muster_kernels_best()->divide[dtype](into, divisor, count);
}
