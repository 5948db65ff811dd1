/* Deltas on every machine. */
#include <stdint.h>
#include <string.h>

#define DELTA_PATH "baseline"
#define DELTA_TARGET

/* Bytes of 0 or 1, which the compiler gets from its vectors, as 64 bits. */
static inline uint64_t flags_pack(const uint8_t flags[64])
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < 64; i += 8) {
        uint64_t eight;

        memcpy(&eight, flags + i, sizeof(eight));
        bits |= (eight * UINT64_C(0x0102040810204080) >> 56) << i;
    }
    return bits;
}

#define FLAGS_COMPARE(name, type)                                                                  \
    static inline uint64_t name(const uint8_t *base, const uint8_t *range)                         \
    {                                                                                              \
        type old_elements[64], new_elements[64];                                                   \
        uint8_t flags[64];                                                                         \
                                                                                                   \
        memcpy(old_elements, base, sizeof(old_elements));                                          \
        memcpy(new_elements, range, sizeof(new_elements));                                         \
        for (uint32_t i = 0; i < 64; i++)                                                          \
            flags[i] = old_elements[i] != new_elements[i];                                         \
        return flags_pack(flags);                                                                  \
    }

FLAGS_COMPARE(compare_8, uint8_t)
FLAGS_COMPARE(compare_16, uint16_t)
FLAGS_COMPARE(compare_32, uint32_t)

/* Bit i: element i of 64 differs. */
static inline uint64_t elements_compare(const uint8_t *base, const uint8_t *range,
                                        uint32_t element_bytes)
{
    if (element_bytes == 4)
        return compare_32(base, range);
    return element_bytes == 2 ? compare_16(base, range) : compare_8(base, range);
}

#include "params/publication/delta_loops.h"

const struct muster_delta_path *muster_delta_path_baseline(void)
{
    return &loops;
}
