/* Optimizers of every machine, and the choice of the fastest path. */
#define OPTIMIZER_PATH "baseline"
#define OPTIMIZER_TARGET

#include "params/store/optimizer_loops.h"

const struct muster_params_optimizers *muster_params_optimizers_baseline(void)
{
    return &loops;
}

const struct muster_params_optimizers *muster_params_optimizers_best(void)
{
    const struct muster_params_optimizers *const paths[] = {
        muster_params_optimizers_avx512(), muster_params_optimizers_avx2(), &loops};
    size_t i = 0;

    while (paths[i] == NULL)
        i++;
    return paths[i];
}
