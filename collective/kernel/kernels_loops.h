/* The loops behind every path, written once: a path defines KERNEL_PATH (its name) and KERNEL_TARGET
 * (the attribute of its instructions) and includes this file, which leaves the table `loops`. A path
 * with instructions for f16 includes kernels_f16.h before, for sum, product and division of f16.
 *
 * A NaN that comes out is always the one quiet NaN of its type: which operand's payload survives,
 * and the sign of the NaN that the processor makes, differ between instructions and machines. */
#ifndef MUSTER_COLLECTIVE_KERNELS_LOOPS_H
#define MUSTER_COLLECTIVE_KERNELS_LOOPS_H

#include "collective/kernel/kernels.h"

#include <muster/collective.h>

#ifndef KERNEL_PATH
#define KERNEL_PATH   "none"
#define KERNEL_TARGET __attribute__((unused))
#endif

/* The caller's elements have types of their own. */
typedef float any_f32 __attribute__((may_alias));
typedef double any_f64 __attribute__((may_alias));
typedef int8_t any_i8 __attribute__((may_alias));
typedef uint8_t any_u8 __attribute__((may_alias));
typedef int16_t any_i16 __attribute__((may_alias));
typedef uint16_t any_u16 __attribute__((may_alias));
typedef int32_t any_i32 __attribute__((may_alias));
typedef uint32_t any_u32 __attribute__((may_alias));
typedef int64_t any_i64 __attribute__((may_alias));
typedef uint64_t any_u64 __attribute__((may_alias));

/* `result` is an expression of x (into) and y (from). */
#define KERNEL(name, type, result)                                                                 \
    static inline KERNEL_TARGET type name##_of(type x, type y)                                     \
    {                                                                                              \
        return (result);                                                                           \
    }                                                                                              \
    static KERNEL_TARGET void name(void *into, const void *from, size_t count)                     \
    {                                                                                              \
        type *restrict a = into;                                                                   \
        const type *restrict b = from;                                                             \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = name##_of(a[i], b[i]);                                                          \
    }                                                                                              \
    static KERNEL_TARGET void name##_swap(void *into, void *from, size_t count)                    \
    {                                                                                              \
        type *restrict a = into;                                                                   \
        type *restrict b = from;                                                                   \
                                                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            const type x = a[i];                                                                   \
                                                                                                   \
            a[i] = name##_of(x, b[i]);                                                             \
            b[i] = x;                                                                              \
        }                                                                                          \
    }

#define DIVIDE(name, type, as, result)                                                             \
    static inline KERNEL_TARGET type name##_of(type x, as d)                                       \
    {                                                                                              \
        return (result);                                                                           \
    }                                                                                              \
    static KERNEL_TARGET void name(void *into, uint32_t divisor, size_t count)                     \
    {                                                                                              \
        type *restrict a = into;                                                                   \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = name##_of(a[i], (as)divisor);                                                   \
    }

static inline KERNEL_TARGET float quiet_f32(float value)
{
    return value != value ? __builtin_nanf("") : value;
}

static inline KERNEL_TARGET double quiet_f64(double value)
{
    return value != value ? __builtin_nan("") : value;
}

/* Integers: two's complement, sums and products wrap around. A product of small ones is made in 32
 * bits, where it cannot overflow into the sign. */
#define BITS(suffix, type, wide)                                                                   \
    KERNEL(sum_##suffix, type, (type)((wide)x + (wide)y))                                          \
    KERNEL(prod_##suffix, type, (type)((wide)x * (wide)y))                                         \
    KERNEL(and_##suffix, type, (type)(x & y))                                                      \
    KERNEL(or_##suffix, type, (type)(x | y))                                                       \
    KERNEL(xor_##suffix, type, (type)(x ^ y))

#define ORDER(suffix, type)                                                                        \
    KERNEL(min_##suffix, type, y < x ? y : x)                                                      \
    KERNEL(max_##suffix, type, y > x ? y : x)

BITS(b8, any_u8, uint32_t)
BITS(b16, any_u16, uint32_t)
BITS(b32, any_u32, uint32_t)
BITS(b64, any_u64, uint64_t)
ORDER(i8, any_i8)
ORDER(u8, any_u8)
ORDER(i16, any_i16)
ORDER(u16, any_u16)
ORDER(i32, any_i32)
ORDER(u32, any_u32)
ORDER(i64, any_i64)
ORDER(u64, any_u64)

/* Quotients of whole numbers of up to 24 (53) bits, cut off after a division in f32 (f64), are
 * exact: the next whole number is farther away than the rounding. */
DIVIDE(divide_i8, any_i8, float, (int8_t)(int32_t)((float)x / d))
DIVIDE(divide_u8, any_u8, float, (uint8_t)(int32_t)((float)x / d))
DIVIDE(divide_i16, any_i16, float, (int16_t)(int32_t)((float)x / d))
DIVIDE(divide_u16, any_u16, float, (uint16_t)(int32_t)((float)x / d))
DIVIDE(divide_i32, any_i32, double, (int32_t)((double)x / d))
DIVIDE(divide_u32, any_u32, double, (uint32_t)((double)x / d))
DIVIDE(divide_i64, any_i64, int64_t, x / d)
DIVIDE(divide_u64, any_u64, uint64_t, x / d)

/* Truth: any byte but 0 is true, results are 0 and 1. */
KERNEL(and_bool, any_u8, (uint8_t)((x != 0) & (y != 0)))
KERNEL(or_bool, any_u8, (uint8_t)((x | y) != 0))
KERNEL(xor_bool, any_u8, (uint8_t)((x != 0) ^ (y != 0)))

KERNEL(sum_f32, any_f32, quiet_f32(x + y))
KERNEL(prod_f32, any_f32, quiet_f32(x *y))
DIVIDE(divide_f32, any_f32, float, quiet_f32(x / d))
KERNEL(sum_f64, any_f64, quiet_f64(x + y))
KERNEL(prod_f64, any_f64, quiet_f64(x *y))
DIVIDE(divide_f64, any_f64, double, quiet_f64(x / d))

/* bf16 by two: each half of 32 bits is, with zeros below it, an f32. No element changes its place,
 * which costs more than the arithmetic. */
typedef uint32_t any_pair __attribute__((may_alias, aligned(2)));

static inline KERNEL_TARGET float upper_as_f32(uint32_t pair)
{
    const uint32_t bits = pair & 0xFFFF0000u;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline KERNEL_TARGET uint32_t rounded_to_upper(float value)
{
    uint32_t bits;

    value = quiet_f32(value);
    memcpy(&bits, &value, sizeof(bits));
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
}

#define BF16_KERNEL(name, operation)                                                               \
    static inline KERNEL_TARGET uint32_t name##_pair(uint32_t x, uint32_t y)                       \
    {                                                                                              \
        const uint32_t upper = rounded_to_upper(upper_as_f32(x) operation upper_as_f32(y));        \
                                                                                                   \
        x <<= 16;                                                                                  \
        y <<= 16;                                                                                  \
        return upper | rounded_to_upper(upper_as_f32(x) operation upper_as_f32(y)) >> 16;          \
    }                                                                                              \
    KERNEL(name##_pairs, any_pair, name##_pair(x, y))                                              \
    KERNEL(name##_last, any_u16, (uint16_t)name##_pair(x, y))                                      \
    static KERNEL_TARGET void name(void *into, const void *from, size_t count)                     \
    {                                                                                              \
        const size_t paired = count & ~(size_t)1;                                                  \
                                                                                                   \
        name##_pairs(into, from, paired / 2);                                                      \
        name##_last((uint16_t *)into + paired, (const uint16_t *)from + paired, count - paired);   \
    }                                                                                              \
    static KERNEL_TARGET void name##_swap(void *into, void *from, size_t count)                    \
    {                                                                                              \
        const size_t paired = count & ~(size_t)1;                                                  \
                                                                                                   \
        name##_pairs_swap(into, from, paired / 2);                                                 \
        name##_last_swap((uint16_t *)into + paired, (uint16_t *)from + paired, count - paired);    \
    }

BF16_KERNEL(sum_bf16, +)
BF16_KERNEL(prod_bf16, *)
DIVIDE(divide_bf16, any_u16, float, muster_bf16_from_f32(muster_bf16_to_f32(x) / d))

#ifndef KERNEL_F16
#define F16(value) muster_f16_to_f32(value)
KERNEL(sum_f16, any_u16, muster_f16_from_f32(F16(x) + F16(y)))
KERNEL(prod_f16, any_u16, muster_f16_from_f32(F16(x) * F16(y)))
DIVIDE(divide_f16, any_u16, float, muster_f16_from_f32(F16(x) / d))
#endif

/* Floats in order of their bits, the negative ones turned round: -0 is below +0. */
#define KEY(value, type, max)        ((type)((value) ^ ((value) >> (sizeof(type) * 8 - 1) & (max))))
#define IS_NAN(value, max, infinity) (((value) & (max)) > (infinity))
/* By masks: with branches, compilers make no vectors of several in a row. */
#define MASK(is, type) ((type) - (type)(is))
#define PICK(is_y, type, max, infinity, nan)                                                       \
    (type)((type)(MASK(IS_NAN(x, max, infinity) | IS_NAN(y, max, infinity), type) & (type)(nan)) | \
           (type)(~MASK(IS_NAN(x, max, infinity) | IS_NAN(y, max, infinity), type) &               \
                  (x ^ (MASK(is_y, type) & (x ^ y)))))
#define FLOAT_ORDER(suffix, type, max, infinity, nan)                                              \
    KERNEL(min_##suffix, type,                                                                     \
           PICK(KEY(y, type, max) < KEY(x, type, max), type, max, infinity, nan))                  \
    KERNEL(max_##suffix, type,                                                                     \
           PICK(KEY(y, type, max) > KEY(x, type, max), type, max, infinity, nan))

FLOAT_ORDER(f16, any_i16, 0x7FFF, 0x7C00, MUSTER_F16_NAN)
FLOAT_ORDER(bf16, any_i16, 0x7FFF, 0x7F80, MUSTER_BF16_NAN)
FLOAT_ORDER(f32, any_i32, INT32_MAX, 0x7F800000, MUSTER_F32_NAN)
FLOAT_ORDER(f64, any_i64, INT64_MAX, 0x7FF0000000000000, 0x7FF8000000000000)

#include "collective/kernel/kernels_fold.h"

/* MEAN before the division; of a fold, with it. */
#define MEAN_OF(bits, order)      sum_##bits
#define MEAN_OF_swap(bits, order) sum_##bits##_swap
#define MEAN_OF_all(bits, order)  mean_##order##_all

#define ARITHMETIC(bits, order, end)                                                               \
    [MUSTER_SUM] = sum_##bits##end, [MUSTER_MEAN] = MEAN_OF##end(bits, order),                     \
    [MUSTER_PROD] = prod_##bits##end, [MUSTER_MIN] = min_##order##end,                             \
    [MUSTER_MAX] = max_##order##end
#define LOGIC(bits, end)                                                                           \
    [MUSTER_AND] = and_##bits##end, [MUSTER_OR] = or_##bits##end, [MUSTER_XOR] = xor_##bits##end

/* Which pairs have a meaning. MIN and MAX of truth are AND and OR. */
#define PAIRS(end)                                                                                 \
    {                                                                                              \
        [MUSTER_F16] = {ARITHMETIC(f16, f16, end)}, [MUSTER_BF16] = {ARITHMETIC(bf16, bf16, end)}, \
        [MUSTER_F32] = {ARITHMETIC(f32, f32, end)}, [MUSTER_F64] = {ARITHMETIC(f64, f64, end)},    \
        [MUSTER_I8] = {ARITHMETIC(b8, i8, end), LOGIC(b8, end)},                                   \
        [MUSTER_U8] = {ARITHMETIC(b8, u8, end), LOGIC(b8, end)},                                   \
        [MUSTER_I16] = {ARITHMETIC(b16, i16, end), LOGIC(b16, end)},                               \
        [MUSTER_U16] = {ARITHMETIC(b16, u16, end), LOGIC(b16, end)},                               \
        [MUSTER_I32] = {ARITHMETIC(b32, i32, end), LOGIC(b32, end)},                               \
        [MUSTER_U32] = {ARITHMETIC(b32, u32, end), LOGIC(b32, end)},                               \
        [MUSTER_I64] = {ARITHMETIC(b64, i64, end), LOGIC(b64, end)},                               \
        [MUSTER_U64] = {ARITHMETIC(b64, u64, end), LOGIC(b64, end)},                               \
        [MUSTER_BOOL] = {                                                                          \
            [MUSTER_MIN] = and_bool##end, [MUSTER_MAX] = or_bool##end, LOGIC(bool, end)},          \
    }

static const struct muster_kernels loops = {
    .name = KERNEL_PATH,
    .reduce = PAIRS(),
    .swap = PAIRS(_swap),
    .all = PAIRS(_all),
    .weigh = {[MUSTER_F16] = weigh_f16,
              [MUSTER_BF16] = weigh_bf16,
              [MUSTER_F32] = weigh_f32,
              [MUSTER_F64] = weigh_f64},
    .divide = {[MUSTER_F16] = divide_f16,
               [MUSTER_BF16] = divide_bf16,
               [MUSTER_F32] = divide_f32,
               [MUSTER_F64] = divide_f64,
               [MUSTER_I8] = divide_i8,
               [MUSTER_U8] = divide_u8,
               [MUSTER_I16] = divide_i16,
               [MUSTER_U16] = divide_u16,
               [MUSTER_I32] = divide_i32,
               [MUSTER_U32] = divide_u32,
               [MUSTER_I64] = divide_i64,
               [MUSTER_U64] = divide_u64},
};

#endif
