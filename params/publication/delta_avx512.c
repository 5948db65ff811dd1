/* Deltas on x86 processors with AVX-512. */
#include "params/publication/delta.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define DELTA_PATH    "avx512"
#define DELTA_TARGET  __attribute__((target("avx512f,avx512bw,bmi,popcnt")))
#define VECTOR_INLINE static inline __attribute__((always_inline)) DELTA_TARGET

VECTOR_INLINE __m512i vector_load(const uint8_t *at, uint32_t vector)
{
    return _mm512_loadu_si512(at + 64 * vector);
}

/* Bit i: element i of 64 differs. */
VECTOR_INLINE uint64_t elements_compare(const uint8_t *base, const uint8_t *range,
                                        uint32_t element_bytes)
{
    uint64_t bits = 0;

    if (element_bytes == 1)
        return _mm512_cmpneq_epi8_mask(vector_load(base, 0), vector_load(range, 0));
    for (uint32_t vector = 0; vector < element_bytes; vector++) {
        __m512i a = vector_load(base, vector), b = vector_load(range, vector);

        if (element_bytes == 2)
            bits |= (uint64_t)_mm512_cmpneq_epi16_mask(a, b) << 32 * vector;
        else
            bits |= (uint64_t)_mm512_cmpneq_epi32_mask(a, b) << 16 * vector;
    }
    return bits;
}

#include "params/publication/delta_loops.h"

const struct muster_delta_path *muster_delta_path_avx512(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("bmi") &&
                   __builtin_cpu_supports("popcnt")
               ? &loops
               : NULL;
}
#else
const struct muster_delta_path *muster_delta_path_avx512(void)
{
    return NULL;
}
#endif
