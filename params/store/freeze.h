/* All rows of a region as they are at one moment, while they go on changing: a row is copied before its first
 * change. */
#ifndef MUSTER_PARAMS_FREEZE_H
#define MUSTER_PARAMS_FREEZE_H

#include <muster/mem.h>

#include "params/store/source.h"

struct muster_params_freeze;

/**
 * From now on region->freeze has the rows and positions as they are now.
 *
 * Owns:    borrows mem until muster_params_freeze_end.
 * Errors:  RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_freeze_begin(struct muster_params_region *region,
                                                            struct muster_mem *mem);
/** Idempotent. Frees all copies, which takes long where there are many. */
void muster_params_freeze_end(struct muster_params_region *region);
/** The region is not frozen any more. Gives the copies, to muster_params_freeze_shrink; NULL: it was not. */
struct muster_params_freeze *muster_params_freeze_take(struct muster_params_region *region);
/** Free so many blocks of copies (1 MiB each). True: there are more. NULL is accepted. */
bool muster_params_freeze_shrink(struct muster_params_freeze *freeze, uint32_t block_count);
/** There was no memory for a row that has changed since: nothing of the freeze is to be trusted. */
bool muster_params_freeze_is_short(const struct muster_params_freeze *freeze);
/** The shard was read: its rows are not copied any more. */
void muster_params_freeze_release(struct muster_params_freeze *freeze, uint32_t shard);
/** Sources that have slots below this one are in the freeze. */
uint64_t muster_params_frozen_sources(const struct muster_params_freeze *freeze);
/** The position in the shard of the source that has this slot, as it was. */
uint64_t muster_params_frozen_position(const struct muster_params_region *region, uint64_t slot,
                                       uint32_t shard);

/* --- Between the files of this folder --- */

/** The row as it was; NULL: it was not there. */
const struct muster_params_row *muster_params_frozen_row(
    const struct muster_params_region *region, const struct muster_params_store_table *table,
    const struct muster_params_row *row);
/** Keep the row of the shard as it is, before it changes; is_new: it is just being made. */
void muster_params_freeze_keep(struct muster_params_region *region,
                               const struct muster_params_store_table *table, uint32_t shard,
                               const struct muster_params_row *row, bool is_new);
/** The row changes: as muster_params_freeze_keep, where there is a freeze. */
static inline void muster_params_row_keep(struct muster_params_region *region,
                                          const struct muster_params_store_table *table,
                                          uint32_t shard, const struct muster_params_row *row,
                                          bool is_new)
{
    if (region->changed != NULL)
        region->changed[shard] = 1;
    if (region->freeze != NULL)
        muster_params_freeze_keep(region, table, shard, row, is_new);
}

#endif
