/* Folds: one element of every source at a time, in order; each source is read once and the result
 * written once. Included by kernels_loops.h, whose nexts `name_of` they apply. */
#ifndef MUSTER_COLLECTIVE_KERNELS_LOOPS_H
#include "collective/kernel/kernels_loops.h" /* which includes this file in its middle */
#endif

#ifndef MUSTER_COLLECTIVE_KERNELS_FOLD_H
#define MUSTER_COLLECTIVE_KERNELS_FOLD_H

/* Intermediate results of more than four sources, in the first cache. */
#define FOLD_BLOCK 512u

/* The result may be one of the sources: elements of one index only meet each other. */
#if defined(__clang__)
#define FOLD_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define FOLD_LOOP _Pragma("GCC ivdep")
#endif

static inline KERNEL_TARGET size_t fold_block(size_t left)
{
    return left < FOLD_BLOCK ? left : FOLD_BLOCK;
}

/* `first` makes a `wide` of an element, `next` goes from a `wide` and an element to a `wide`; `result`
 * is of the last x, and of d, the number of sources. */
#define FOLD(name, type, wide, first, next, as, result)                                            \
    static inline KERNEL_TARGET type name##_end(wide x, as d)                                      \
    {                                                                                              \
        (void)d;                                                                                   \
        return (result);                                                                           \
    }                                                                                              \
    static KERNEL_TARGET void name##_few(type *into, const void *const *from, uint32_t n,          \
                                         size_t count)                                             \
    {                                                                                              \
        const type *const s0 = from[0], *const s1 = from[1];                                       \
        const type *const s2 = from[n > 2 ? 2 : 0], *const s3 = from[n > 3 ? 3 : 0];               \
        const as d = (as)n;                                                                        \
                                                                                                   \
        if (n == 2)                                                                                \
            FOLD_LOOP                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            into[i] = name##_end(next(first(s0[i]), s1[i]), d);                                    \
        else if (n == 3) FOLD_LOOP for (size_t i = 0; i < count; i++) into[i] =                    \
            name##_end(next(next(first(s0[i]), s1[i]), s2[i]), d);                                 \
        else FOLD_LOOP for (size_t i = 0; i < count; i++) into[i] =                                \
            name##_end(next(next(next(first(s0[i]), s1[i]), s2[i]), s3[i]), d);                    \
    }                                                                                              \
    static KERNEL_TARGET void name##_block(type *into, const void *const *from, uint32_t n,        \
                                           const size_t *range)                                    \
    {                                                                                              \
        const size_t begin = range[0], count = range[1];                                           \
        const type *s0 = (const type *)from[0] + begin, *s1 = (const type *)from[1] + begin;       \
        wide sum[FOLD_BLOCK];                                                                      \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            sum[i] = next(first(s0[i]), s1[i]);                                                    \
        for (uint32_t k = 2; k + 1 < n; k += 2) {                                                  \
            s0 = (const type *)from[k] + begin;                                                    \
            s1 = (const type *)from[k + 1] + begin;                                                \
            for (size_t i = 0; i < count; i++)                                                     \
                sum[i] = next(next(sum[i], s0[i]), s1[i]);                                         \
        }                                                                                          \
        s0 = (const type *)from[n - 1] + begin;                                                    \
        if (n % 2 == 1)                                                                            \
            for (size_t i = 0; i < count; i++)                                                     \
                sum[i] = next(sum[i], s0[i]);                                                      \
        for (size_t i = 0; i < count; i++)                                                         \
            into[begin + i] = name##_end(sum[i], (as)n);                                           \
    }                                                                                              \
    static KERNEL_TARGET void name(void *into, const void *const *from, uint32_t n, size_t count)  \
    {                                                                                              \
        if (n <= 4) {                                                                              \
            name##_few(into, from, n, count);                                                      \
            return;                                                                                \
        }                                                                                          \
        for (size_t i = 0; i < count; i += FOLD_BLOCK)                                             \
            name##_block(into, from, n, (const size_t[2]){i, fold_block(count - i)});              \
    }

#define FOLD_SAME(x)           (x)
#define FOLD_PLAIN(name, type) FOLD(name##_all, type, type, FOLD_SAME, name##_of, uint32_t, x)
#define FOLD_MEAN(suffix, type, bits, bits_type, as)                                               \
    static inline KERNEL_TARGET type mean_##suffix##_next(type x, type y)                          \
    {                                                                                              \
        return (type)sum_##bits##_of((bits_type)x, (bits_type)y);                                  \
    }                                                                                              \
    FOLD(mean_##suffix##_all, type, type, FOLD_SAME, mean_##suffix##_next, as,                     \
         divide_##suffix##_of(x, d))
#define FOLD_BITS(suffix, type)                                                                    \
    FOLD_PLAIN(sum_##suffix, type)                                                                 \
    FOLD_PLAIN(prod_##suffix, type)                                                                \
    FOLD_PLAIN(and_##suffix, type)                                                                 \
    FOLD_PLAIN(or_##suffix, type)                                                                  \
    FOLD_PLAIN(xor_##suffix, type)
#define FOLD_ORDER(suffix, type)                                                                   \
    FOLD_PLAIN(min_##suffix, type)                                                                 \
    FOLD_PLAIN(max_##suffix, type)

FOLD_BITS(b8, any_u8)
FOLD_BITS(b16, any_u16)
FOLD_BITS(b32, any_u32)
FOLD_BITS(b64, any_u64)
FOLD_ORDER(i8, any_i8)
FOLD_ORDER(u8, any_u8)
FOLD_ORDER(i16, any_i16)
FOLD_ORDER(u16, any_u16)
FOLD_ORDER(i32, any_i32)
FOLD_ORDER(u32, any_u32)
FOLD_ORDER(i64, any_i64)
FOLD_ORDER(u64, any_u64)
FOLD_ORDER(f16, any_i16)
FOLD_ORDER(bf16, any_i16)
FOLD_ORDER(f32, any_i32)
FOLD_ORDER(f64, any_i64)
FOLD_MEAN(i8, any_i8, b8, any_u8, float)
FOLD_MEAN(u8, any_u8, b8, any_u8, float)
FOLD_MEAN(i16, any_i16, b16, any_u16, float)
FOLD_MEAN(u16, any_u16, b16, any_u16, float)
FOLD_MEAN(i32, any_i32, b32, any_u32, double)
FOLD_MEAN(u32, any_u32, b32, any_u32, double)
FOLD_MEAN(i64, any_i64, b64, any_u64, int64_t)
FOLD_MEAN(u64, any_u64, b64, any_u64, uint64_t)
FOLD_PLAIN(and_bool, any_u8)
FOLD_PLAIN(or_bool, any_u8)
FOLD_PLAIN(xor_bool, any_u8)
FOLD_PLAIN(sum_f32, any_f32)
FOLD_PLAIN(prod_f32, any_f32)
FOLD_MEAN(f32, any_f32, f32, any_f32, float)
FOLD_PLAIN(sum_f64, any_f64)
FOLD_PLAIN(prod_f64, any_f64)
FOLD_MEAN(f64, any_f64, f64, any_f64, double)

/* The small floats: widened once, rounded once. */
#ifndef KERNEL_F16
#define F16_SUM(x, y)  ((x) + muster_f16_to_f32(y))
#define F16_PROD(x, y) ((x)*muster_f16_to_f32(y))

FOLD(sum_f16_all, any_u16, float, muster_f16_to_f32, F16_SUM, float, muster_f16_from_f32(x))
FOLD(mean_f16_all, any_u16, float, muster_f16_to_f32, F16_SUM, float, muster_f16_from_f32(x / d))
FOLD(prod_f16_all, any_u16, float, muster_f16_to_f32, F16_PROD, float, muster_f16_from_f32(x))
#endif

/* bf16 by two, as above. */
struct fold_pair {
    float upper, lower;
};

static inline KERNEL_TARGET struct fold_pair fold_pair_first(uint32_t pair)
{
    return (struct fold_pair){upper_as_f32(pair), upper_as_f32(pair << 16)};
}

#define FOLD_BF16(name, operation, result)                                                         \
    static inline KERNEL_TARGET struct fold_pair name##_next(struct fold_pair x, uint32_t pair)    \
    {                                                                                              \
        x.upper = x.upper operation upper_as_f32(pair);                                            \
        x.lower = x.lower operation upper_as_f32(pair << 16);                                      \
        return x;                                                                                  \
    }                                                                                              \
    static inline KERNEL_TARGET float name##_round(float x, float d)                               \
    {                                                                                              \
        (void)d;                                                                                   \
        return (result);                                                                           \
    }                                                                                              \
    FOLD(name##_all_pairs, any_pair, struct fold_pair, fold_pair_first, name##_next, float,        \
         rounded_to_upper(name##_round(x.upper, d)) |                                              \
             rounded_to_upper(name##_round(x.lower, d)) >> 16)                                     \
    static KERNEL_TARGET void name##_all(void *into, const void *const *from, uint32_t n,          \
                                         size_t count)                                             \
    {                                                                                              \
        const size_t last = count - 1;                                                             \
        float x;                                                                                   \
                                                                                                   \
        name##_all_pairs(into, from, n, count / 2);                                                \
        if (count % 2 == 0)                                                                        \
            return;                                                                                \
        x = muster_bf16_to_f32(((const any_u16 *)from[0])[last]);                                  \
        for (uint32_t k = 1; k < n; k++)                                                           \
            x = x operation muster_bf16_to_f32(((const any_u16 *)from[k])[last]);                  \
        ((any_u16 *)into)[last] = muster_bf16_from_f32(name##_round(x, (float)n));                 \
    }

FOLD_BF16(sum_bf16, +, x)
FOLD_BF16(mean_bf16, +, x / d)
FOLD_BF16(prod_bf16, *, x)

/* By weight: in f64, of those that have one. */
#define WEIGH(suffix, type, as_f64, rounded)                                                       \
    static KERNEL_TARGET void weigh_##suffix##_block(type *into, const void *const *from,          \
                                                     const uint64_t *weights, uint32_t n,          \
                                                     const size_t *range)                          \
    {                                                                                              \
        const size_t begin = range[0], count = range[1];                                           \
        double sum[FOLD_BLOCK], total = 0;                                                         \
                                                                                                   \
        memset(sum, 0, sizeof(sum));                                                               \
        for (uint32_t k = 0; k < n; k++) {                                                         \
            const type *const s = (const type *)from[k] + begin;                                   \
            const double weight = (double)weights[k];                                              \
                                                                                                   \
            if (weights[k] == 0)                                                                   \
                continue;                                                                          \
            for (size_t i = 0; i < count; i++)                                                     \
                sum[i] += as_f64(s[i]) * weight;                                                   \
            total += weight;                                                                       \
        }                                                                                          \
        total = total > 0 ? total : 1;                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            const double x = sum[i] / total;                                                       \
                                                                                                   \
            into[begin + i] = (rounded);                                                           \
        }                                                                                          \
    }                                                                                              \
    static KERNEL_TARGET void weigh_##suffix(void *into, const void *const *from,                  \
                                             const uint64_t *weights, uint32_t n, size_t count)    \
    {                                                                                              \
        for (size_t i = 0; i < count; i += FOLD_BLOCK)                                             \
            weigh_##suffix##_block(into, from, weights, n,                                         \
                                   (const size_t[2]){i, fold_block(count - i)});                   \
    }

#define F16_AS_F64(x)  ((double)muster_f16_to_f32(x))
#define BF16_AS_F64(x) ((double)muster_bf16_to_f32(x))

WEIGH(f16, any_u16, F16_AS_F64, muster_f16_from_f32((float)x))
WEIGH(bf16, any_u16, BF16_AS_F64, muster_bf16_from_f32((float)x))
WEIGH(f32, any_f32, (double), quiet_f32((float)x))
WEIGH(f64, any_f64, (double), quiet_f64(x))

#endif
