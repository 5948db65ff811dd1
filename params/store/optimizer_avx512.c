/* Optimizers of x86 processors with AVX-512. */
#if defined(__x86_64__)
#define OPTIMIZER_PATH   "avx512"
#define OPTIMIZER_TARGET __attribute__((target("avx512f")))

#include "params/store/optimizer_loops.h"

const struct muster_params_optimizers *muster_params_optimizers_avx512(void)
{
    return __builtin_cpu_supports("avx512f") ? &loops : NULL;
}
#else
#include "params/store/optimizer.h"

const struct muster_params_optimizers *muster_params_optimizers_avx512(void)
{
    return NULL;
}
#endif
