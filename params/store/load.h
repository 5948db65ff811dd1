/* A shard that comes from another server: its rows and positions, as they are there. */
#ifndef MUSTER_PARAMS_LOAD_H
#define MUSTER_PARAMS_LOAD_H

#include "params/store/source.h"
#include "params/store/table.h"

/** No source has pushed to the shard, and it has no rows. A process that dies amid the
 * copy of a shard begins it again. */
void muster_params_shard_forget(struct muster_params_region *region, uint32_t shard);
/**
 * A row as another server has it: row_elements + state_elements values, and its clock.
 *
 * Errors: RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_row_load(struct muster_params_region *region,
                                                        struct muster_params_store_table *table,
                                                        uint64_t key, uint32_t clock,
                                                        const float *values);
/** A row of this key will be loaded soon: what leads to it is fetched meanwhile. */
void muster_params_row_load_ahead(const struct muster_params_region *region,
                                  const struct muster_params_store_table *table, uint64_t key);
/** There was no memory for all rows of the shard. Ends with muster_params_shard_forget. */
void muster_params_shard_lacks(struct muster_params_region *region, uint32_t shard);
/** So many rows of the shard were removed by its primaries. */
void muster_params_removals_load(struct muster_params_region *region, uint32_t shard,
                                 uint32_t removals);
/** So much of the source's pushes to the shard is in the rows. */
void muster_params_position_load(struct muster_params_source *source, uint32_t shard,
                                 uint64_t position);

#endif
