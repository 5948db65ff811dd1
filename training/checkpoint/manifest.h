/* The manifest's bytes. Pure. */
#ifndef MUSTER_TRAINING_CHECKPOINT_MANIFEST_H
#define MUSTER_TRAINING_CHECKPOINT_MANIFEST_H

#include <muster/checkpoint.h>

/** A description without shards' hashes: names are copied, offsets are set. Gives. Errors: INVALID_ARGUMENT
 * (a count), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_new(
    struct muster_mem *mem, const char *folder, const struct muster_checkpoint_tensor *tensors,
    uint32_t tensor_count, uint32_t shard_count, struct muster_checkpoint **ret_checkpoint);

/** Gives *ret_bytes (checkpoint->mem). Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_manifest_pack(
    const struct muster_checkpoint *checkpoint, void **ret_bytes, size_t *ret_size);
/** Gives. Errors: DATA_LOSS, FAILED_PRECONDITION (another version), RESOURCE_EXHAUSTED; the text follows the name of
 * the file. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_manifest_unpack(
    struct muster_mem *mem, const char *folder, const void *bytes, size_t size,
    struct muster_checkpoint **ret_checkpoint, struct muster_error *ret_error);

/** The part of the state that shard `shard` of `shard_count` has: whole chunks, but for the state's last one. */
void muster_checkpoint_cut(uint64_t state_bytes, uint32_t shard, uint32_t shard_count,
                           uint64_t *ret_offset, uint64_t *ret_bytes);

#endif
