/* The two 16-bit floating-point types: IEEE binary16 (f16) and the upper half of binary32 (bf16).
 * Rounding is to nearest, ties to even; subnormal values are kept; every NaN becomes the one quiet
 * NaN of the type, so that the same bits come out on every machine. */
#ifndef MUSTER_HALF_H
#define MUSTER_HALF_H

#include <muster/base.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

MUSTER_BEGIN

#define MUSTER_F16_NAN  0x7E00u
#define MUSTER_BF16_NAN 0x7FC0u
#define MUSTER_F32_NAN  0x7FC00000u

/* a where `is_a`, else b; without a branch, which would keep compilers from making vectors. */
static inline uint32_t muster_half_select(bool is_a, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)is_a;

    return (a & mask) | (b & ~mask);
}

/** Exact, but for the payload of a NaN. */
static inline float muster_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    uint32_t bits = (magnitude << 13) + (112u << 23);
    float subnormal = (float)(int32_t)magnitude * 5.9604644775390625e-8f; /* 2^-24 */
    uint32_t subnormal_bits;
    float value;

    memcpy(&subnormal_bits, &subnormal, sizeof(subnormal_bits));
    bits = muster_half_select(magnitude < 0x0400u, subnormal_bits, bits);
    bits = muster_half_select(magnitude == 0x7C00u, 0x7F800000u, bits);
    bits = muster_half_select(magnitude > 0x7C00u, MUSTER_F32_NAN, bits | sign);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/** From 65520 on the result is infinite. */
static inline uint16_t muster_f16_from_f32(float value)
{
    uint32_t bits, sign, magnitude, half, subnormal_bits;
    float subnormal;

    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000u;
    magnitude = bits & 0x7FFFFFFFu;
    /* The sum's last place is 2^-24, that of a subnormal f16: the addition rounds. */
    memcpy(&subnormal, &magnitude, sizeof(subnormal));
    subnormal += 0.5f;
    memcpy(&subnormal_bits, &subnormal, sizeof(subnormal_bits));
    half = (magnitude - (112u << 23) + 0x0FFFu + (magnitude >> 13 & 1u)) >> 13;
    half = muster_half_select(magnitude < 113u << 23, subnormal_bits - (126u << 23), half);
    half = muster_half_select(magnitude >= 143u << 23, 0x7C00u, half);
    half = muster_half_select(magnitude > 0x7F800000u, MUSTER_F16_NAN, half | sign);
    return (uint16_t)half;
}

/** Exact, but for the payload of a NaN. */
static inline float muster_bf16_to_f32(uint16_t half)
{
    bool is_nan = (half & 0x7FFFu) > 0x7F80u;
    uint32_t bits = muster_half_select(is_nan, MUSTER_F32_NAN, (uint32_t)half << 16);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint16_t muster_bf16_from_f32(float value)
{
    uint32_t bits, half;

    memcpy(&bits, &value, sizeof(bits));
    half = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    half = muster_half_select((bits & 0x7FFFFFFFu) > 0x7F800000u, MUSTER_BF16_NAN, half);
    return (uint16_t)half;
}

MUSTER_END

#endif
