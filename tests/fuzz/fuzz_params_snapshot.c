/* Files of snapshots: the first byte says whether it is a manifest or the file of a shard. Hashes are made
 * right, so that the parsers behind them are reached. What was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include "params/snapshot/shard.h"

#include "fuzz_kinds.h"

#define SHARD_HEAD_BYTES 64u
#define SHARD_BODY_AT    32u /* in the head: the bytes of the body */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_manifest(uint8_t *bytes, size_t size)
{
    struct muster_params_snapshot_manifest manifest;
    void *packed;
    size_t packed_size;

    if (size >= MUSTER_HASH128_BYTES)
        muster_hash128(bytes, size - MUSTER_HASH128_BYTES, bytes + size - MUSTER_HASH128_BYTES);
    if (muster_params_snapshot_manifest_unpack(muster_mem_system(), bytes, size, &manifest, NULL) !=
        MUSTER_OK)
        return;
    if (muster_params_snapshot_manifest_pack(&manifest, &packed, &packed_size) != MUSTER_OK ||
        packed_size != size || memcmp(packed, bytes, size) != 0)
        abort();
    free(packed);
    muster_params_snapshot_manifest_fini(&manifest);
}

static enum muster_rc on_row(void *data, uint32_t table, uint64_t key, uint32_t clock,
                             const float *values)
{
    (void)key, (void)clock;
    if (table != 0)
        abort();
    ((volatile float *)data)[0] = values[1]; /* a row has two elements */
    return MUSTER_OK;
}

static enum muster_rc on_source(void *data, const struct muster_incarnation *id,
                                uint64_t generation, uint64_t position, bool is_named)
{
    (void)data, (void)position, (void)is_named;
    if (generation == 0 || muster_incarnation_is_zero(id))
        abort();
    return MUSTER_OK;
}

/* The file is that of cut 1, shard 0 of 1, in one block. */
static void read_shard(uint8_t *bytes, size_t size)
{
    const struct muster_params_schema schema = {
        .name = "t", .row_elements = 2, .wire_dtype = MUSTER_F32};
    struct muster_params_snapshot_manifest manifest;
    float last = 0;
    const struct muster_params_snapshot_visitor visitor = {
        .data = &last, .on_row = on_row, .on_source = on_source};
    uint64_t body = size - SHARD_HEAD_BYTES - MUSTER_HASH128_BYTES;

    if (size < SHARD_HEAD_BYTES + MUSTER_HASH128_BYTES)
        return;
    memcpy(bytes + SHARD_BODY_AT, &body, sizeof(body));
    muster_hash128(bytes + size - body, (size_t)body, bytes + SHARD_HEAD_BYTES);
    if (muster_params_snapshot_manifest_init(&manifest, muster_mem_system(), &schema, 1, 1, NULL) !=
        MUSTER_OK)
        abort();
    manifest.cut = 1;
    manifest.shards[0].bytes = size;
    muster_hash128(bytes, size - (size_t)body, manifest.shards[0].hash);
    (void)!muster_params_snapshot_shard_visit(&manifest, 0, bytes, size, &visitor, NULL);
    muster_params_snapshot_manifest_fini(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_kinds_read(bytes, size, read_manifest, read_shard);
    return 0;
}
