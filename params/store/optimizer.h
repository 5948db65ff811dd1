/* Optimizers apply a push to a row. The same bits on every path: each element is computed by the same
 * IEEE operations in the same order, without contraction. */
#ifndef MUSTER_PARAMS_OPTIMIZER_H
#define MUSTER_PARAMS_OPTIMIZER_H

#include "params/store/region.h"

/** Apply one push: `values` and `state` of the row, `gradient` of row_elements. None of them
 * overlap. */
typedef void muster_params_apply_fn(const struct muster_params_store_table *table, float *values,
                                    float *state, const float *gradient);

/** The functions of one path. */
struct muster_params_optimizers {
    const char *name;
    muster_params_apply_fn *apply[MUSTER_PARAMS_OPTIMIZER_COUNT];
};

/** The compiler's vectors of the architecture's baseline. */
const struct muster_params_optimizers *muster_params_optimizers_baseline(void);
/** NULL: not this architecture, or the processor lacks the instructions. */
const struct muster_params_optimizers *muster_params_optimizers_avx2(void);
const struct muster_params_optimizers *muster_params_optimizers_avx512(void);
/** The fastest of this machine. */
const struct muster_params_optimizers *muster_params_optimizers_best(void);

#endif
