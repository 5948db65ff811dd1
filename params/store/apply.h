/* Pushes and pulls on a region. A push is applied row by row; whenever the process dies, recovery
 * leaves each row as it was before or as it is after, and the source's position says which. */
#ifndef MUSTER_PARAMS_APPLY_H
#define MUSTER_PARAMS_APPLY_H

#include "params/store/optimizer.h"
#include "params/store/source.h"
#include "params/store/table.h"

/** The rows of one shard out of one push. Borrowed during the call. */
struct muster_params_run {
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t sequence; /* of the push, at most MUSTER_PARAMS_SEQUENCE_MAX */
    uint32_t clock;
    uint32_t shard;
    const uint64_t *keys; /* all of that shard */
    const float *values;  /* count x row_elements, as the optimizer takes them; any alignment of 4 */
    uint32_t count;       /* 1 to MUSTER_PARAMS_RUN_ROWS_MAX */
};

/** The outcome of a run. */
struct muster_params_applied {
    bool is_duplicate; /* it had been applied before: nothing has changed */
    uint32_t refused;  /* new rows for which there was no memory; all others are applied */
};

/** Apply what is not applied yet. Runs of one source and shard come in the order of their
 * sequences. */
struct muster_params_applied muster_params_run_apply(struct muster_params_region *region,
                                                     const struct muster_params_run *run);

/** Copy rows to ret_values, row_elements each; a key without a row gives its initial values and
 * makes none. */
void muster_params_rows_read(const struct muster_params_region *region,
                             const struct muster_params_store_table *table, const uint64_t *keys,
                             uint32_t count, float *ret_values);

/** The row that a death interrupted, as it was before; for recovery. Idempotent. */
void muster_params_undo_restore(struct muster_params_region *region);

#endif
