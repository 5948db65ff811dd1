/* The reference of the kernels: values by arithmetic on doubles, integers in 64 bits. */
#include "kernel_reference.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Floating-point types by their widths. */
static const struct layout {
    unsigned bytes, exponent_bits, fraction_bits;
} layouts[] = {
    [MUSTER_F16] = {2, 5, 10},
    [MUSTER_BF16] = {2, 8, 7},
    [MUSTER_F32] = {4, 8, 23},
    [MUSTER_F64] = {8, 11, 52},
};

bool reference_is_float(enum muster_dtype dtype)
{
    return dtype == MUSTER_F16 || dtype == MUSTER_BF16 || dtype == MUSTER_F32 ||
           dtype == MUSTER_F64;
}

static bool is_signed(enum muster_dtype dtype)
{
    return dtype == MUSTER_I8 || dtype == MUSTER_I16 || dtype == MUSTER_I32 || dtype == MUSTER_I64;
}

static uint64_t load_bits(enum muster_dtype dtype, const void *at)
{
    uint64_t bits = 0;

    memcpy(&bits, at, muster_dtype_bytes(dtype)); /* the lowest first, here as on every target */
    return bits;
}

static void store_bits(enum muster_dtype dtype, uint64_t bits, void *at)
{
    memcpy(at, &bits, muster_dtype_bytes(dtype));
}

double reference_decode(enum muster_dtype dtype, const void *at)
{
    const struct layout *layout = &layouts[dtype];
    uint64_t bits = load_bits(dtype, at);
    uint64_t fraction = bits & ((UINT64_C(1) << layout->fraction_bits) - 1);
    int exponent_max = (1 << layout->exponent_bits) - 1, bias = exponent_max / 2;
    int exponent = (int)(bits >> layout->fraction_bits) & exponent_max;
    double sign = bits >> (layout->bytes * 8 - 1) != 0 ? -1.0 : 1.0;

    if (exponent == exponent_max)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        exponent = 1;
    else
        fraction |= UINT64_C(1) << layout->fraction_bits;
    return sign * ldexp((double)fraction, exponent - bias - (int)layout->fraction_bits);
}

void reference_encode(enum muster_dtype dtype, double value, void *at)
{
    const struct layout *layout = &layouts[dtype];
    uint64_t infinity = ((UINT64_C(1) << layout->exponent_bits) - 1) << layout->fraction_bits;
    int bias = (1 << (layout->exponent_bits - 1)) - 1, exponent;
    uint64_t bits;
    double places;

    if (dtype != MUSTER_F64)
        value = (double)(float)value;
    if (isnan(value)) {
        store_bits(dtype, infinity | UINT64_C(1) << (layout->fraction_bits - 1), at);
        return;
    }
    if (isinf(value)) {
        bits = infinity;
    } else {
        frexp(value, &exponent); /* 2^(exponent - 1) <= |value| */
        if (value == 0 || exponent < 2 - bias)
            exponent = 2 - bias;
        /* In units of the last place: to the nearest whole number, ties to even. A carry runs into
         * the exponent, and from the largest into infinity. */
        places = nearbyint(ldexp(fabs(value), (int)layout->fraction_bits - (exponent - 1)));
        bits = (uint64_t)places + ((uint64_t)(exponent - 2 + bias) << layout->fraction_bits);
        bits = bits > infinity ? infinity : bits;
    }
    store_bits(dtype, bits | (uint64_t)signbit(value) % 2 << (layout->bytes * 8 - 1), at);
}

void reference_put(enum muster_dtype dtype, void *tensor, uint64_t i, uint64_t value)
{
    uint8_t *at = (uint8_t *)tensor + i * muster_dtype_bytes(dtype);

    if (reference_is_float(dtype))
        reference_encode(dtype, (double)value, at);
    else
        store_bits(dtype, value, at);
}

double reference_get(enum muster_dtype dtype, const void *tensor, uint64_t i)
{
    const uint8_t *at = (const uint8_t *)tensor + i * muster_dtype_bytes(dtype);

    return reference_is_float(dtype) ? reference_decode(dtype, at) : (double)load_bits(dtype, at);
}

static double reduce_float(enum muster_reduction reduction, double x, double y)
{
    switch (reduction) {
    case MUSTER_SUM:
    case MUSTER_MEAN:
        return x + y;
    case MUSTER_PROD:
        return x * y;
    default:
        break;
    }
    if (isnan(x) || isnan(y))
        return (double)NAN;
    if (x == y) /* zeros may differ in sign */
        return (signbit(x) != 0) == (reduction == MUSTER_MIN) ? x : y;
    return (x < y) == (reduction == MUSTER_MIN) ? x : y;
}

static uint64_t reduce_integer(enum muster_reduction reduction, uint64_t x, uint64_t y,
                               bool is_less)
{
    switch (reduction) {
    case MUSTER_SUM:
    case MUSTER_MEAN:
        return x + y;
    case MUSTER_PROD:
        return x * y;
    case MUSTER_MIN:
        return is_less ? x : y;
    case MUSTER_MAX:
        return is_less ? y : x;
    case MUSTER_AND:
        return x & y;
    case MUSTER_OR:
        return x | y;
    case MUSTER_XOR:
        return x ^ y;
    }
    abort();
}

static int64_t as_signed(enum muster_dtype dtype, uint64_t bits)
{
    unsigned unused = 64 - 8 * (unsigned)muster_dtype_bytes(dtype);

    return (int64_t)(bits << unused) >> unused;
}

static void reduce_one(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                       const void *from)
{
    uint64_t x = load_bits(dtype, into), y = load_bits(dtype, from);
    bool is_less = is_signed(dtype) ? as_signed(dtype, x) < as_signed(dtype, y) : x < y;

    if (reference_is_float(dtype)) {
        reference_encode(
            dtype,
            reduce_float(reduction, reference_decode(dtype, into), reference_decode(dtype, from)),
            into);
        return;
    }
    if (dtype == MUSTER_BOOL) {
        x = x != 0;
        y = y != 0;
        is_less = x < y;
    }
    store_bits(dtype, reduce_integer(reduction, x, y, is_less), into);
}

void reference_reduce(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                      const void *from, size_t count)
{
    size_t bytes = muster_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++)
        reduce_one(dtype, reduction, (uint8_t *)into + i * bytes,
                   (const uint8_t *)from + i * bytes);
}

static enum muster_dtype widened_dtype(enum muster_dtype dtype)
{
    return dtype == MUSTER_F16 || dtype == MUSTER_BF16 ? MUSTER_F32 : dtype;
}

static void widen_element(enum muster_dtype dtype, const void *from, void *into)
{
    if (widened_dtype(dtype) == dtype)
        memcpy(into, from, muster_dtype_bytes(dtype));
    else
        reference_encode(MUSTER_F32, reference_decode(dtype, from), into);
}

void reference_reduce_all(enum muster_dtype dtype, enum muster_reduction reduction, void *into,
                          const void *const *from, uint32_t n, size_t count)
{
    size_t bytes = muster_dtype_bytes(dtype);
    enum muster_dtype wide = widened_dtype(dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t sum = 0, next = 0;
        uint8_t *at = (uint8_t *)into + i * bytes;

        widen_element(dtype, (const uint8_t *)from[0] + i * bytes, &sum);
        for (uint32_t k = 1; k < n; k++) {
            widen_element(dtype, (const uint8_t *)from[k] + i * bytes, &next);
            reduce_one(wide, reduction, &sum, &next);
        }
        if (reduction == MUSTER_MEAN)
            reference_divide(wide, &sum, n, 1);
        if (wide == dtype)
            memcpy(at, &sum, bytes);
        else
            reference_encode(dtype, reference_decode(wide, &sum), at);
    }
}

void reference_divide(enum muster_dtype dtype, void *into, uint32_t divisor, size_t count)
{
    size_t bytes = muster_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)into + i * bytes;
        uint64_t bits = load_bits(dtype, at);

        if (reference_is_float(dtype))
            reference_encode(dtype,
                             reference_decode(dtype, at) /
                                 (dtype == MUSTER_F64 ? (double)divisor : (double)(float)divisor),
                             at);
        else if (is_signed(dtype))
            store_bits(dtype, (uint64_t)(as_signed(dtype, bits) / (int64_t)divisor), at);
        else
            store_bits(dtype, bits / divisor, at);
    }
}

/* splitmix64 */
static uint64_t mix_state(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Where floats change their kind, with either sign and up to one step beside it; for integers: the
 * ends and the middle of the range. */
static uint64_t special_value(enum muster_dtype dtype, uint64_t random)
{
    unsigned bits = 8 * (unsigned)muster_dtype_bytes(dtype);
    uint64_t sign = (random >> 8 & 1) << (bits - 1), step = (random >> 16) % 3 - 1;
    uint64_t top = UINT64_C(1) << (bits - 1), fraction, infinity;

    if (!reference_is_float(dtype))
        return (random & 1) != 0 ? top + step : step;
    fraction = UINT64_C(1) << layouts[dtype].fraction_bits;
    infinity = top - fraction;
    switch (random % 6) {
    case 0: /* zero and the smallest */
        return ((step == UINT64_MAX ? 0 : step)) | sign;
    case 1: /* the largest subnormal, the smallest normal */
        return (fraction + step) | sign;
    case 2: /* one */
        return (infinity / 2 / fraction * fraction + step) | sign;
    case 3: /* the largest, infinity, a signalling NaN */
        return (infinity + step) | sign;
    case 4: /* quiet NaN */
        return (infinity + fraction / 2 + step) | sign;
    default:
        return infinity | sign;
    }
}

void reference_fill(enum muster_dtype dtype, void *at, size_t count, uint64_t seed)
{
    size_t bytes = muster_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t random = mix_state(&seed), value = mix_state(&seed);

        if ((random & 1) != 0)
            value = special_value(dtype, random >> 1);
        store_bits(dtype, value, (uint8_t *)at + i * bytes);
    }
}
