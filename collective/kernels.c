/* Element-wise arithmetic; plain loops that the compiler turns into vector instructions. */
#include "collective/kernels.h"

typedef void reduce_fn(void *into, const void *from, size_t count);
typedef void swap_fn(void *into, void *from, size_t count);
typedef void divide_fn(void *into, uint32_t divisor, size_t count);

/* Signed sums and products wrap around by way of unsigned arithmetic. */
#define KERNEL(name, type, expression)                                                             \
    static void name(void *into, const void *from, size_t count)                                   \
    {                                                                                              \
        type *restrict a = into;                                                                   \
        const type *restrict b = from;                                                             \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = (expression);                                                                   \
    }                                                                                              \
    static void name##_swap(void *into, void *from, size_t count)                                  \
    {                                                                                              \
        type *restrict a = into;                                                                   \
        type *restrict b = from;                                                                   \
                                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            type before = a[i];                                                                    \
                                                                                                   \
            a[i] = (expression);                                                                   \
            b[i] = before;                                                                         \
        }                                                                                          \
    }
#define KERNELS(suffix, type, wide)                                                                \
    KERNEL(sum_##suffix, type, (type)((wide)a[i] + (wide)b[i]))                                    \
    KERNEL(min_##suffix, type, b[i] < a[i] ? b[i] : a[i])                                          \
    KERNEL(max_##suffix, type, b[i] > a[i] ? b[i] : a[i])                                          \
    KERNEL(prod_##suffix, type, (type)((wide)a[i] * (wide)b[i]))                                   \
    static void divide_##suffix(void *into, uint32_t divisor, size_t count)                        \
    {                                                                                              \
        type *a = into;                                                                            \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = DIVIDE_##suffix(a[i], divisor);                                                 \
    }
#define DIVIDE_f32(a, divisor) ((a) / (float)(divisor))
#define DIVIDE_f64(a, divisor) ((a) / (double)(divisor))
#define DIVIDE_i32(a, divisor) ((int32_t)((int64_t)(a) / (int64_t)(divisor)))
#define DIVIDE_i64(a, divisor) ((a) / (int64_t)(divisor))
#define DIVIDE_u8(a, divisor)  ((uint8_t)((a) / (divisor)))

KERNELS(f32, float, float)
KERNELS(f64, double, double)
KERNELS(i32, int32_t, uint32_t)
KERNELS(i64, int64_t, uint64_t)
KERNELS(u8, uint8_t, uint32_t)

#define ROW(suffix)                                                                                \
    {                                                                                              \
        [MUSTER_SUM] = sum_##suffix, [MUSTER_MEAN] = sum_##suffix, [MUSTER_MIN] = min_##suffix,    \
        [MUSTER_MAX] = max_##suffix, [MUSTER_PROD] = prod_##suffix                                 \
    }

#define SWAP_ROW(suffix)                                                                           \
    {                                                                                              \
        [MUSTER_SUM] = sum_##suffix##_swap, [MUSTER_MEAN] = sum_##suffix##_swap,                   \
        [MUSTER_MIN] = min_##suffix##_swap, [MUSTER_MAX] = max_##suffix##_swap,                    \
        [MUSTER_PROD] = prod_##suffix##_swap                                                       \
    }

void muster_kernel_reduce(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                          const void *from, size_t count)
{
    static reduce_fn *const kernels[][MUSTER_PROD + 1] = {
        [MUSTER_F32] = ROW(f32), [MUSTER_F64] = ROW(f64), [MUSTER_I32] = ROW(i32),
        [MUSTER_I64] = ROW(i64), [MUSTER_U8] = ROW(u8),
    };

    kernels[dtype][reduction](into, from, count);
}

void muster_kernel_reduce_swap(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                               void *from, size_t count)
{
    static swap_fn *const kernels[][MUSTER_PROD + 1] = {
        [MUSTER_F32] = SWAP_ROW(f32), [MUSTER_F64] = SWAP_ROW(f64), [MUSTER_I32] = SWAP_ROW(i32),
        [MUSTER_I64] = SWAP_ROW(i64), [MUSTER_U8] = SWAP_ROW(u8),
    };

    kernels[dtype][reduction](into, from, count);
}

void muster_kernel_divide(enum muster_dtype dtype, void *into, uint32_t divisor, size_t count)
{
    static divide_fn *const kernels[] = {
        [MUSTER_F32] = divide_f32, [MUSTER_F64] = divide_f64, [MUSTER_I32] = divide_i32,
        [MUSTER_I64] = divide_i64, [MUSTER_U8] = divide_u8,
    };

    kernels[dtype](into, divisor, count);
}

size_t muster_dtype_bytes(enum muster_dtype dtype)
{
    switch (dtype) {
    case MUSTER_F32:
    case MUSTER_I32:
        return 4;
    case MUSTER_F64:
    case MUSTER_I64:
        return 8;
    case MUSTER_U8:
        return 1;
    }
    return 0;
}
