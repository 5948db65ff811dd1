/* The manifest's bytes, little endian: a head of 96, the schemas, 40 for each shard, and the root hash. */
#include "params/snapshot/manifest.h"

#include <string.h>

#include "params/store/region.h"
#include "params/wire/frame.h"

#define MANIFEST_MAGIC 0x4d534d50u /* "PMSM" */

struct packed_head {
    uint32_t magic;
    uint32_t version;
    uint64_t cut;
    uint64_t clock;
    uint32_t shard_count;
    uint32_t table_count;
    char job[MUSTER_JOB_NAME_BYTES];
};
_Static_assert(sizeof(struct packed_head) == 96, "no padding");
_Static_assert(sizeof(struct muster_params_snapshot_shard) == 40, "no padding");

static bool counts_are_valid(uint32_t shards, uint32_t tables)
{
    return shards > 0 && shards <= MUSTER_PARAMS_SHARD_COUNT_MAX && (shards & (shards - 1)) == 0 &&
           tables <= MUSTER_PARAMS_TABLES_MAX;
}

static size_t packed_bytes(uint32_t shards, uint32_t tables)
{
    return sizeof(struct packed_head) + (size_t)tables * MUSTER_PARAMS_SCHEMA_BYTES +
           (size_t)shards * sizeof(struct muster_params_snapshot_shard) + MUSTER_HASH128_BYTES;
}

/* Names lead into the packed schemas. */
static enum muster_rc schemas_read(struct muster_params_snapshot_manifest *manifest,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < manifest->table_count && rc == MUSTER_OK; i++) {
        rc = muster_params_schema_unpack(
            manifest->packed_schemas + (size_t)i * MUSTER_PARAMS_SCHEMA_BYTES,
            MUSTER_PARAMS_SCHEMA_BYTES, &manifest->schemas[i], ret_error);
        if (rc == MUSTER_OK)
            rc = muster_params_schema_check(&manifest->schemas[i], ret_error);
    }
    return rc;
}

static enum muster_rc manifest_new(struct muster_mem *mem, uint32_t table_count,
                                   uint32_t shard_count,
                                   struct muster_params_snapshot_manifest *ret_manifest)
{
    *ret_manifest = (struct muster_params_snapshot_manifest){
        .mem = mem,
        .shard_count = shard_count,
        .table_count = table_count,
        .schemas = muster_mem_alloc_zero(mem, table_count + 1, sizeof(*ret_manifest->schemas)),
        .packed_schemas = muster_mem_alloc_zero(mem, table_count + 1, MUSTER_PARAMS_SCHEMA_BYTES),
        .shards = muster_mem_alloc_zero(mem, shard_count, sizeof(*ret_manifest->shards))};
    if (ret_manifest->schemas != NULL && ret_manifest->packed_schemas != NULL &&
        ret_manifest->shards != NULL)
        return MUSTER_OK;
    muster_params_snapshot_manifest_fini(ret_manifest);
    return MUSTER_RESOURCE_EXHAUSTED;
}

enum muster_rc muster_params_snapshot_manifest_init(
    struct muster_params_snapshot_manifest *manifest, struct muster_mem *mem,
    const struct muster_params_schema *schemas, uint32_t table_count, uint32_t shard_count,
    struct muster_error *ret_error)
{
    struct muster_params_snapshot_manifest made;
    enum muster_rc rc;

    if (!counts_are_valid(shard_count, table_count))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a cut cannot have %u shards and %u tables", shard_count,
                                table_count);
    rc = manifest_new(mem, table_count, shard_count, &made);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a manifest");
    for (uint32_t i = 0; i < table_count; i++)
        muster_params_schema_pack(&schemas[i],
                                  made.packed_schemas + (size_t)i * MUSTER_PARAMS_SCHEMA_BYTES);
    rc = schemas_read(&made, ret_error);
    if (rc != MUSTER_OK) {
        muster_params_snapshot_manifest_fini(&made);
        return rc;
    }
    *manifest = made;
    return MUSTER_OK;
}

void muster_params_snapshot_manifest_fini(struct muster_params_snapshot_manifest *manifest)
{
    muster_mem_free(manifest->mem, manifest->schemas);
    muster_mem_free(manifest->mem, manifest->packed_schemas);
    muster_mem_free(manifest->mem, manifest->shards);
    *manifest = (struct muster_params_snapshot_manifest){0};
}

enum muster_rc muster_params_snapshot_manifest_pack(
    const struct muster_params_snapshot_manifest *manifest, void **ret_bytes, size_t *ret_size)
{
    struct packed_head head = {.magic = MANIFEST_MAGIC,
                               .version = MUSTER_PARAMS_SNAPSHOT_VERSION,
                               .cut = manifest->cut,
                               .clock = manifest->clock,
                               .shard_count = manifest->shard_count,
                               .table_count = manifest->table_count};
    size_t size = packed_bytes(manifest->shard_count, manifest->table_count);
    size_t schemas = (size_t)manifest->table_count * MUSTER_PARAMS_SCHEMA_BYTES;
    uint8_t *bytes = muster_mem_alloc_zero(manifest->mem, 1, size);

    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(head.job, manifest->job, sizeof(head.job));
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + sizeof(head), manifest->packed_schemas, schemas);
    memcpy(bytes + sizeof(head) + schemas, manifest->shards,
           manifest->shard_count * sizeof(manifest->shards[0]));
    muster_hash128(bytes, size - MUSTER_HASH128_BYTES, bytes + size - MUSTER_HASH128_BYTES);
    *ret_bytes = bytes;
    *ret_size = size;
    return MUSTER_OK;
}

static enum muster_rc head_read(const void *bytes, size_t size, struct packed_head *ret_head,
                                struct muster_error *ret_error)
{
    if (size < sizeof(*ret_head))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "the manifest of a cut is cut short");
    memcpy(ret_head, bytes, sizeof(*ret_head));
    if (ret_head->magic != MANIFEST_MAGIC)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "this is not the manifest of a cut");
    if (ret_head->version != MUSTER_PARAMS_SNAPSHOT_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the cut has version %u, this program reads %u", ret_head->version,
                                MUSTER_PARAMS_SNAPSHOT_VERSION);
    if (!counts_are_valid(ret_head->shard_count, ret_head->table_count) ||
        size != packed_bytes(ret_head->shard_count, ret_head->table_count))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "the manifest of a cut has another size than it says");
    if (ret_head->job[sizeof(ret_head->job) - 1] != '\0')
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "the manifest of a cut has a job whose name does not end");
    return MUSTER_OK;
}

enum muster_rc muster_params_snapshot_manifest_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_params_snapshot_manifest *ret_manifest, struct muster_error *ret_error)
{
    struct muster_params_snapshot_manifest made;
    uint8_t hash[MUSTER_HASH128_BYTES];
    const uint8_t *at = bytes;
    struct packed_head head;
    enum muster_rc rc = head_read(bytes, size, &head, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    muster_hash128(bytes, size - sizeof(hash), hash);
    if (memcmp(hash, at + size - sizeof(hash), sizeof(hash)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "the manifest of a cut is damaged");
    rc = manifest_new(mem, head.table_count, head.shard_count, &made);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a manifest");
    made.cut = head.cut;
    made.clock = head.clock;
    memcpy(made.job, head.job, sizeof(made.job));
    memcpy(made.packed_schemas, at + sizeof(head),
           (size_t)head.table_count * MUSTER_PARAMS_SCHEMA_BYTES);
    memcpy(made.shards, at + sizeof(head) + (size_t)head.table_count * MUSTER_PARAMS_SCHEMA_BYTES,
           head.shard_count * sizeof(made.shards[0]));
    if (schemas_read(&made, NULL) != MUSTER_OK) {
        muster_params_snapshot_manifest_fini(&made);
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "the manifest of a cut has a schema that is not valid");
    }
    *ret_manifest = made;
    return MUSTER_OK;
}
