/* Tables of a region: schemas, the index from keys to rows, and how a row comes to be. */
#ifndef MUSTER_PARAMS_TABLE_H
#define MUSTER_PARAMS_TABLE_H

#include "params/store/region.h"
#include "params/wire/hash.h"

/** Tables of the server's own have this in their names, after the name of the table whose rounds they
 * keep; clients may not make such. */
#define MUSTER_PARAMS_ROUND_MARK "#"
#define MUSTER_PARAMS_ROUND_NAME_BYTES 46u /* the mark and 16 hexadecimal digits have room after it */

/** Equal schemas have equal descriptors; defaults count as what they stand for. */
uint64_t muster_params_schema_descriptor(const struct muster_params_schema *schema);

/** NULL: there is none of this name. */
struct muster_params_store_table *muster_params_table_find(const struct muster_params_region *region,
                                                     const char *name);
/**
 * Open the table of this name, or make it.
 *
 * Errors: INVALID_ARGUMENT (a wrong schema, or another one than the table's: the text names both
 * sides), RESOURCE_EXHAUSTED (tables, memory).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_table_open(
    struct muster_params_region *region, const struct muster_params_schema *schema,
    struct muster_params_store_table **ret_table, struct muster_error *ret_error);
/** INVALID_ARGUMENT: the first part of the schema that differs, as the table has it and as the caller does. */
enum muster_rc muster_params_table_refuse(const struct muster_params_store_table *have,
                                          const struct muster_params_store_table *asked,
                                          struct muster_error *ret_error);
/** The schema that the table was made from. Its name is the table's. */
void muster_params_table_schema(const struct muster_params_store_table *table,
                                struct muster_params_schema *ret_schema);
uint32_t muster_params_table_number(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table);
void muster_params_table_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent);

/** Whether rows of the table come and go as turnover.h says: a push makes no row of itself. */
static inline bool muster_params_table_turns(const struct muster_params_store_table *table)
{
    return table->admit_after > 0 || table->admit_share > 0 || table->ttl_clocks > 0 || table->rows_max > 0;
}

/** Whether rows have a count of their pushes, as the last 4 bytes of their state. */
static inline bool muster_params_table_counts(const struct muster_params_store_table *table)
{
    return table->evict_by == MUSTER_PARAMS_EVICT_LFU;
}

static inline struct muster_params_shard *
muster_params_shard_at(const struct muster_params_region *region,
                       const struct muster_params_store_table *table, uint32_t shard)
{
    struct muster_params_shard *shards = muster_params_at(region, table->shards_offset);

    return &shards[shard];
}

#endif
