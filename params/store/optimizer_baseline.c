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
    const struct muster_params_optimizers *best = muster_params_optimizers_avx512();

    if (best == NULL)
        best = muster_params_optimizers_avx2();
    return best != NULL ? best : &loops;
}
