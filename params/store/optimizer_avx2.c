/* Optimizers of x86 processors with AVX2. */
#if defined(__x86_64__)
#define OPTIMIZER_PATH   "avx2"
#define OPTIMIZER_TARGET __attribute__((target("avx2")))

#include "params/store/optimizer_loops.h"

const struct muster_params_optimizers *muster_params_optimizers_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &loops : NULL;
}
#else
#include "params/store/optimizer.h"

const struct muster_params_optimizers *muster_params_optimizers_avx2(void)
{
    return NULL;
}
#endif
