/* Tables of a region: schemas, the index from keys to rows, and how a row comes to be. */
#ifndef MUSTER_PARAMS_TABLE_H
#define MUSTER_PARAMS_TABLE_H

#include "params/store/region.h"

/** Equal schemas have equal descriptors; defaults count as what they stand for. */
uint64_t muster_params_schema_descriptor(const struct muster_params_schema *schema);

/** NULL: there is none of this name. */
struct muster_params_table *muster_params_table_find(const struct muster_params_region *region,
                                                     const char *name);
/**
 * Open the table of this name, or make it.
 *
 * Errors: INVALID_ARGUMENT (a wrong schema, or another one than the table's: the text names both
 * sides), RESOURCE_EXHAUSTED (tables, memory).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_table_open(
    struct muster_params_region *region, const struct muster_params_schema *schema,
    struct muster_params_table **ret_table, struct muster_error *ret_error);
uint32_t muster_params_table_number(const struct muster_params_region *region,
                                    const struct muster_params_table *table);
void muster_params_table_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent);

/**
 * The hash of a key, from which both the shard (upper bits) and the place in the index follow: the
 * finalizer of MurmurHash3, a bijection, so that different keys never have the same hash. Clients
 * compute it too: it is part of the protocol.
 */
static inline uint64_t muster_params_hash(uint64_t seed, uint64_t key)
{
    uint64_t hash = key ^ seed;

    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 33;
}

/** The upper bits of the hash; the index uses the lower ones. */
static inline uint32_t muster_params_shard_of(uint64_t hash, uint32_t shard_count)
{
    return (uint32_t)((hash >> 32) * shard_count >> 32);
}

static inline struct muster_params_shard *
muster_params_shard_at(const struct muster_params_region *region,
                       const struct muster_params_table *table, uint32_t shard)
{
    struct muster_params_shard *shards = muster_params_at(region, table->shards_offset);

    return &shards[shard];
}

#endif
