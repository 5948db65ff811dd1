/* The manifest of a snapshot: which tables it has, and how the file of each shard must look. Pure. */
#ifndef MUSTER_PARAMS_SNAPSHOT_MANIFEST_H
#define MUSTER_PARAMS_SNAPSHOT_MANIFEST_H

#include <muster/hash.h>
#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/params.h>
#include <muster/status.h>

#define MUSTER_PARAMS_SNAPSHOT_VERSION 4u

/** How a shard's file must look. */
struct muster_params_snapshot_shard {
    uint64_t cut; /* that has saved it: part of the name of the file */
    uint64_t bytes;
    uint64_t rows;                      /* of all tables */
    uint8_t hash[MUSTER_HASH128_BYTES]; /* of its head and the hashes of its blocks */
};

struct muster_params_snapshot_manifest {
    struct muster_mem *mem;
    uint64_t cut;   /* its number */
    uint64_t clock; /* steps that all sources had completed */
    char job[MUSTER_JOB_NAME_BYTES]; /* "": it has no name */
    uint32_t shard_count, table_count;
    struct muster_params_schema *schemas; /* table_count; names lead into `packed_schemas` */
    uint8_t *packed_schemas;
    struct muster_params_snapshot_shard *shards; /* shard_count */
};

/** Copies schemas; the shards are zero. Errors: INVALID_ARGUMENT (a schema, a count), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_manifest_init(
    struct muster_params_snapshot_manifest *manifest, struct muster_mem *mem,
    const struct muster_params_schema *schemas, uint32_t table_count, uint32_t shard_count,
    struct muster_error *ret_error);
void muster_params_snapshot_manifest_fini(struct muster_params_snapshot_manifest *manifest);
/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_manifest_pack(
    const struct muster_params_snapshot_manifest *manifest, void **ret_bytes, size_t *ret_size);
/** Errors: DATA_LOSS (not what was written), FAILED_PRECONDITION (another version),
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_manifest_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_params_snapshot_manifest *ret_manifest, struct muster_error *ret_error);

#endif
