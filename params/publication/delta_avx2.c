/* Deltas on x86 processors with AVX2. */
#include "params/publication/delta.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define DELTA_PATH    "avx2"
#define DELTA_TARGET  __attribute__((target("avx2,bmi,popcnt")))
#define VECTOR_INLINE static inline __attribute__((always_inline)) DELTA_TARGET

VECTOR_INLINE __m256i vector_load(const uint8_t *at, uint32_t vector)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(at + 32 * vector));
}

/* Bytes of two vectors whose elements of 16 bits are equal, in their order. */
VECTOR_INLINE uint32_t equal_16(const uint8_t *base, const uint8_t *range, uint32_t vector)
{
    __m256i low = _mm256_cmpeq_epi16(vector_load(base, vector), vector_load(range, vector));
    __m256i high =
        _mm256_cmpeq_epi16(vector_load(base, vector + 1), vector_load(range, vector + 1));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);

    return (uint32_t)_mm256_movemask_epi8(packed);
}

VECTOR_INLINE uint32_t equal_8(const uint8_t *base, const uint8_t *range, uint32_t vector)
{
    __m256i equal = _mm256_cmpeq_epi8(vector_load(base, vector), vector_load(range, vector));

    return (uint32_t)_mm256_movemask_epi8(equal);
}

VECTOR_INLINE uint32_t equal_32(const uint8_t *base, const uint8_t *range, uint32_t vector)
{
    __m256i equal = _mm256_cmpeq_epi32(vector_load(base, vector), vector_load(range, vector));

    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(equal));
}

/* Bit i: element i of 64 differs. */
VECTOR_INLINE uint64_t elements_compare(const uint8_t *base, const uint8_t *range,
                                        uint32_t element_bytes)
{
    uint64_t equal = 0;

    if (element_bytes == 1)
        return ~(equal_8(base, range, 0) | (uint64_t)equal_8(base, range, 1) << 32);
    if (element_bytes == 2)
        return ~(equal_16(base, range, 0) | (uint64_t)equal_16(base, range, 2) << 32);
    for (uint32_t vector = 0; vector < 8; vector++)
        equal |= (uint64_t)equal_32(base, range, vector) << 8 * vector;
    return ~equal;
}

#include "params/publication/delta_loops.h"

const struct muster_delta_path *muster_delta_path_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                   __builtin_cpu_supports("popcnt")
               ? &loops
               : NULL;
}
#else
const struct muster_delta_path *muster_delta_path_avx2(void)
{
    return NULL;
}
#endif
