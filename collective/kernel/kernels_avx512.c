/* Kernels of x86 processors with the AVX-512 of servers since 2017: F, BW, DQ, VL. */
#include "collective/kernel/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL_PATH   "avx512"
#define KERNEL_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define F16_LANES     16

typedef __m256i f16_raw;
typedef __m512 f16_wide;

static inline KERNEL_TARGET f16_raw f16_load(const void *at)
{
    return _mm256_loadu_si256(at);
}

static inline KERNEL_TARGET void f16_store(void *at, f16_raw raw)
{
    _mm256_storeu_si256(at, raw);
}

static inline KERNEL_TARGET f16_wide f16_widen(f16_raw raw)
{
    return _mm512_cvtph_ps(raw);
}

static inline KERNEL_TARGET f16_wide f16_splat(float value)
{
    return _mm512_set1_ps(value);
}

static inline KERNEL_TARGET f16_raw f16_narrow(f16_wide wide)
{
    /* The conversion keeps the payload of a NaN; every path must give the same one. */
    const __mmask16 is_nan = _mm512_cmp_ps_mask(wide, wide, _CMP_UNORD_Q);

    wide = _mm512_mask_mov_ps(wide, is_nan, f16_splat(__builtin_nanf("")));
    return _mm512_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#include "collective/kernel/kernels_f16.h"
#include "collective/kernel/kernels_loops.h"

const struct muster_kernels *muster_kernels_avx512(void)
{
    const bool is_there = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

    return is_there ? &loops : NULL;
}
#else
const struct muster_kernels *muster_kernels_avx512(void)
{
    return NULL;
}
#endif
