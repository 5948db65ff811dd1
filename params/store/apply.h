/* Pushes and pulls on a region. A push is applied row by row; whenever the process dies, recovery
 * leaves each row as it was before or as it is after, and the source's position says which. */
#ifndef MUSTER_PARAMS_APPLY_H
#define MUSTER_PARAMS_APPLY_H

#include "params/store/optimizer.h"
#include "params/store/source.h"
#include "params/store/table.h"
#include "params/wire/run.h"

/** A push, cut into runs, with its values as f32. Borrowed during the call. */
struct muster_params_update {
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t sequence; /* 1 to MUSTER_PARAMS_SEQUENCE_MAX */
    uint32_t clock;
    uint32_t run_count;                   /* at least 1 */
    const struct muster_params_run *runs; /* of different shards */
    const uint64_t *keys;                 /* the rows of all runs: each of its run's shard */
    const float *values; /* row_elements per key, as the optimizer takes them; alignment of 4 */
    bool makes_no_rows;  /* those that it is to have are there (turnover.h) */
};

/** The outcome of a push. */
struct muster_params_applied {
    uint32_t duplicate_runs; /* had been applied before: they have changed nothing */
    uint32_t duplicate_rows; /* of these */
    uint32_t refused;        /* rows that there are not: no memory, or turnover.h has not made them; all
                              * others are applied */
};

/** Apply what is not applied yet. The pushes of one source come to each shard in the order of their
 * sequences. */
struct muster_params_applied muster_params_update_apply(struct muster_params_region *region,
                                                        const struct muster_params_update *update);

/** Copy rows to ret_values, row_elements each; a key without a row gives its initial values and
 * makes none. */
void muster_params_rows_read(const struct muster_params_region *region,
                             const struct muster_params_store_table *table, const uint64_t *keys,
                             uint32_t count, float *ret_values);

/** How many of the keys have no row. */
uint32_t muster_params_rows_missing(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table,
                                    const uint64_t *keys, uint32_t count);

/** The row that a death interrupted, as it was before; for recovery. Idempotent. */
void muster_params_undo_restore(struct muster_params_region *region);

#endif
