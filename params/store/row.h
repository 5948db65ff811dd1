/* Rows: how one comes to be, and how all of a shard are visited. */
#ifndef MUSTER_PARAMS_ROW_H
#define MUSTER_PARAMS_ROW_H

#include "params/store/index.h"

/**
 * The row of this key, made with its initial values where there is none yet.
 *
 * Errors: RESOURCE_EXHAUSTED (no memory for a new row).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_row_make(struct muster_params_region *region,
                                                        struct muster_params_store_table *table,
                                                        uint64_t key, uint64_t hash,
                                                        struct muster_params_row **ret_row);

/** Whether muster_params_row_make may be short of memory for some of so many new rows, in so many shards. It may say
 * so too early. */
bool muster_params_rows_may_lack(const struct muster_params_region *region,
                                 const struct muster_params_store_table *table, uint32_t row_count,
                                 uint32_t shard_count);

/** The key has no row any more, and the memory of its row is for the next row of the shard. False: it
 * had none. */
bool muster_params_row_remove(struct muster_params_region *region,
                              struct muster_params_store_table *table, uint64_t key);

/** The same by decision of the shard's primary: all copies count it. */
bool muster_params_row_drop(struct muster_params_region *region,
                            struct muster_params_store_table *table, uint64_t key);

/** The shard has no rows any more. */
void muster_params_rows_remove(struct muster_params_region *region,
                               struct muster_params_store_table *table, uint32_t shard);

typedef void muster_params_row_fn(void *data, const struct muster_params_store_table *table,
                                  const struct muster_params_row *row);
/** Call `fn` for each row of the shard, in the order in which they lie: that in which they were made, as
 * long as none was removed. */
void muster_params_rows_visit(const struct muster_params_region *region,
                              const struct muster_params_store_table *table, uint32_t shard,
                              muster_params_row_fn *fn, void *data);

/** The same of a region that is frozen (freeze.h), of a shard that is not released. */
void muster_params_frozen_rows_visit(const struct muster_params_region *region,
                                     const struct muster_params_store_table *table, uint32_t shard,
                                     muster_params_row_fn *fn, void *data);
/** A place among the rows of a shard; zero: before the first. */
struct muster_params_row_cursor {
    uint32_t page, row;
    bool is_begun;
};
/** As muster_params_rows_visit, or as muster_params_frozen_rows_visit where the region is frozen, but from
 * the cursor on and for *left places at most, which are counted down. False: there are no more. */
bool muster_params_rows_step(const struct muster_params_region *region,
                             const struct muster_params_store_table *table, uint32_t shard,
                             struct muster_params_row_cursor *cursor, uint32_t *left,
                             muster_params_row_fn *fn, void *data);
bool muster_params_frozen_rows_step(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table, uint32_t shard,
                                    struct muster_params_row_cursor *cursor, uint32_t *left,
                                    muster_params_row_fn *fn, void *data);
/** Places of rows in the pages of the shard: no fewer than it has rows, or had since it was made. */
uint64_t muster_params_shard_places(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table, uint32_t shard);
/** The row where the hand of the shard stands, which goes on to the next one, round and round. NULL: it is
 * free, or the shard has none. */
const struct muster_params_row *muster_params_row_turn(
    struct muster_params_region *region, const struct muster_params_store_table *table,
    uint32_t shard);

/** The digest of all rows of a table: the same whatever their order, the shards or the servers, and
 * whatever their versions, clocks and counts of pushes. */
struct muster_params_digest {
    uint64_t sums[2];
};
void muster_params_digest_add(struct muster_params_digest *digest,
                              const struct muster_params_store_table *table,
                              const struct muster_params_row *row);
struct muster_params_digest
muster_params_table_digest(const struct muster_params_region *region,
                           const struct muster_params_store_table *table);

void muster_params_segment_complete(struct muster_params_region *region,
                                    const struct muster_params_intent *intent);
void muster_params_page_complete(struct muster_params_region *region,
                                 const struct muster_params_intent *intent);
void muster_params_row_complete(struct muster_params_region *region,
                                const struct muster_params_intent *intent);
void muster_params_reuse_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent);
void muster_params_remove_complete(struct muster_params_region *region,
                                   const struct muster_params_intent *intent);

#endif
