/* A bit for each shard, or for each slot. */
#ifndef MUSTER_PARAMS_SERVER_BITS_H
#define MUSTER_PARAMS_SERVER_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool muster_params_bit_is_set(const uint8_t *bits, uint32_t i)
{
    return (bits[i / 8] & 1u << i % 8) != 0;
}

static inline void muster_params_bit_set(uint8_t *bits, uint32_t i)
{
    bits[i / 8] |= (uint8_t)(1u << i % 8);
}

static inline void muster_params_bit_clear(uint8_t *bits, uint32_t i)
{
    bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

#endif
