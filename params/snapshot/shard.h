/* The file of a shard: its rows and the positions of sources, with a hash per 256 KiB. Pure. */
#ifndef MUSTER_PARAMS_SNAPSHOT_SHARD_H
#define MUSTER_PARAMS_SNAPSHOT_SHARD_H

#include "params/snapshot/manifest.h"
#include "params/store/region.h"

#define MUSTER_PARAMS_SNAPSHOT_BLOCK_BYTES (256u << 10)

/** Whether the position of a source is kept. NULL: of all. */
typedef bool muster_params_snapshot_keep_fn(const void *data,
                                            const struct muster_params_source *source);

/**
 * The bytes of the file.
 *
 * Owns:    gives *ret_bytes.
 * Errors:  RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_shard_pack(
    const struct muster_params_region *region, uint32_t shard, uint64_t cut,
    muster_params_snapshot_keep_fn *is_kept, const void *data, struct muster_mem *mem,
    void **ret_bytes, struct muster_params_snapshot_shard *ret_shard);

/** Functions for each part of a file, in its order; any may be NULL. An error ends the walk. */
struct muster_params_snapshot_visitor {
    void *data;
    /* values: of the row, then of the optimizer's state. */
    enum muster_rc (*on_row)(void *data, uint32_t table, uint64_t key, uint32_t clock,
                             const float *values);
    enum muster_rc (*on_source)(void *data, const struct muster_incarnation *id,
                                uint64_t generation, uint64_t position);
};

/**
 * Check the bytes against the manifest, whole, and only then visit what they have; table is a place in
 * manifest->schemas.
 *
 * Errors:  DATA_LOSS (not what was written; the text says which block), FAILED_PRECONDITION (another
 *          version), and those of the visitor.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_shard_visit(
    const struct muster_params_snapshot_manifest *manifest, uint32_t shard, const void *bytes,
    size_t size, const struct muster_params_snapshot_visitor *visitor,
    struct muster_error *ret_error);

#endif
