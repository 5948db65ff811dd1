/* Which shard a key belongs to. Clients and servers compute it alike: it is part of the protocol. */
#ifndef MUSTER_PARAMS_HASH_H
#define MUSTER_PARAMS_HASH_H

#include <string.h>

#include <muster/hash.h>
#include <muster/incarnation.h>

/** The id of a named source: the same whatever door its processes come through. */
static inline struct muster_incarnation muster_params_source_id(const char *name)
{
    struct muster_incarnation id;

    muster_hash128(name, strlen(name), id.bytes);
    return id;
}

/** The seed of a table's keys: equal keys of different tables fall into different shards. */
static inline uint64_t muster_params_hash_seed(const char *table_name)
{
    return muster_hash64(table_name, strlen(table_name), 0);
}

/**
 * The hash of a key: the finalizer of MurmurHash3. It is a bijection, so that different keys never
 * have the same hash.
 */
static inline uint64_t muster_params_hash(uint64_t seed, uint64_t key)
{
    uint64_t hash = key ^ seed;

    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 33;
}

/** The upper bits of the hash; the server's index uses the lower ones. */
static inline uint32_t muster_params_shard_of(uint64_t hash, uint32_t shard_count)
{
    return (uint32_t)((hash >> 32) * shard_count >> 32);
}

/** The key of which muster_params_hash makes this hash. */
static inline uint64_t muster_params_hash_key(uint64_t seed, uint64_t hash)
{
    hash = (hash ^ hash >> 33) * UINT64_C(0x9cb4b2f8129337db);
    hash = (hash ^ hash >> 33) * UINT64_C(0x4f74430c22a54005);
    return (hash ^ hash >> 33) ^ seed;
}

#define MUSTER_PARAMS_EXTENT_BLOCKS 64u

/**
 * The key of a block of a tensor. Keys of different blocks differ, and the blocks of an extent have hashes in
 * a row: they are of one shard, and stand together in the index.
 */
static inline uint64_t muster_params_block_key(uint64_t seed, uint64_t block)
{
    const uint64_t mask = UINT64_MAX / MUSTER_PARAMS_EXTENT_BLOCKS;
    uint64_t extent = (block / MUSTER_PARAMS_EXTENT_BLOCKS ^ seed) & mask;

    /* Each step is a bijection of 58 bits. */
    extent = (extent ^ extent >> 29) * UINT64_C(0xff51afd7ed558ccd) & mask;
    extent = (extent ^ extent >> 29) * UINT64_C(0xc4ceb9fe1a85ec53) & mask;
    extent ^= extent >> 29;
    return muster_params_hash_key(seed, extent * MUSTER_PARAMS_EXTENT_BLOCKS +
                                            block % MUSTER_PARAMS_EXTENT_BLOCKS);
}

/** The shard whose primary gives a source its generation: a source is opened there first. */
static inline uint32_t muster_params_source_home(const struct muster_incarnation *id,
                                                 uint32_t shard_count)
{
    return muster_params_shard_of(muster_hash64(id->bytes, sizeof(id->bytes), 0), shard_count);
}

#endif
