/* Kernels of x86 processors with AVX2 and F16C. */
#include "collective/kernel/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL_PATH   "avx2"
#define KERNEL_TARGET __attribute__((target("avx2,f16c")))
#define F16_LANES     8

typedef __m128i f16_raw;
typedef __m256 f16_wide;

static inline KERNEL_TARGET f16_raw f16_load(const void *at)
{
    return _mm_loadu_si128(at);
}

static inline KERNEL_TARGET void f16_store(void *at, f16_raw raw)
{
    _mm_storeu_si128(at, raw);
}

static inline KERNEL_TARGET f16_wide f16_widen(f16_raw raw)
{
    return _mm256_cvtph_ps(raw);
}

static inline KERNEL_TARGET f16_wide f16_splat(float value)
{
    return _mm256_set1_ps(value);
}

static inline KERNEL_TARGET f16_raw f16_narrow(f16_wide wide)
{
    /* The conversion keeps the payload of a NaN; every path must give the same one. */
    const f16_wide is_nan = _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q);

    wide = _mm256_blendv_ps(wide, f16_splat(__builtin_nanf("")), is_nan);
    return _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#include "collective/kernel/kernels_f16.h"
#include "collective/kernel/kernels_loops.h"

/* Older clangs cannot ask for F16C; a processor that has AVX2 has it. */
#if defined(__clang__) && __clang_major__ < 19
#define HAS_F16C true
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif

const struct muster_kernels *muster_kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && HAS_F16C ? &loops : NULL;
}
#else
const struct muster_kernels *muster_kernels_avx2(void)
{
    return NULL;
}
#endif
