/* The file of a shard: its rows and the positions of sources, with a hash per 256 KiB. Pure. */
#ifndef MUSTER_PARAMS_SNAPSHOT_SHARD_H
#define MUSTER_PARAMS_SNAPSHOT_SHARD_H

#include "params/snapshot/manifest.h"
#include "params/store/row.h"

#define MUSTER_PARAMS_SNAPSHOT_BLOCK_BYTES (256u << 10)

/** Whether the position of a source is kept. NULL: of all. */
typedef bool muster_params_snapshot_keep_fn(const void *data,
                                            const struct muster_params_source *source);

/** The file of a shard, packed by and by. One after another, in the same memory. */
struct muster_params_snapshot_packing {
    struct muster_mem *mem;
    muster_params_snapshot_keep_fn *is_kept; /* NULL: of all */
    const void *data;
    /* Once it is sealed: the file has entry.bytes bytes. */
    uint8_t *bytes;
    struct muster_params_snapshot_shard entry;
    int sys; /* errno of a file that could not be written; 0: not known */
    /* --- Private --- */
    const struct muster_params_region *region;
    uint32_t shard, shard_count;
    uint64_t cut;
    size_t capacity, body_at, used, section_at;
    uint32_t table, section_count, source_count, nameless_count;
    struct muster_params_row_cursor cursor;
};

/** The first two fields and `data` are set, all others were zero before the first one. Borrows region. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_packing_begin(
    struct muster_params_snapshot_packing *packing, const struct muster_params_region *region,
    uint32_t shard, uint64_t cut);
/** Pack about so many bytes more. False: that was all of the shard. Rows may change between two steps where
 * the region is frozen. */
MUSTER_MUST_CHECK bool muster_params_snapshot_packing_step(
    struct muster_params_snapshot_packing *packing, size_t bytes);
/** Add head and hashes. From any thread: it reads nothing of the region. */
void muster_params_snapshot_packing_seal(struct muster_params_snapshot_packing *packing);
void muster_params_snapshot_packing_fini(struct muster_params_snapshot_packing *packing);

/** Functions for each part of a file, in its order; any may be NULL. An error ends the walk. */
struct muster_params_snapshot_visitor {
    void *data;
    /* values: of the row, then of the optimizer's state. */
    enum muster_rc (*on_row)(void *data, uint32_t table, uint64_t key, uint32_t clock,
                             const float *values);
    enum muster_rc (*on_source)(void *data, const struct muster_incarnation *id,
                                uint64_t generation, uint64_t position, bool is_named);
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
