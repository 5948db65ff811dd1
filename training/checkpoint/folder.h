/* A folder of checkpoints: when one is complete, and which ones are kept. All of these block. */
#ifndef MUSTER_TRAINING_CHECKPOINT_FOLDER_H
#define MUSTER_TRAINING_CHECKPOINT_FOLDER_H

#include <muster/checkpoint.h>

/** Make the folder, if it is not there. Errors: those of the system; the text names the folder. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_make_folder(const char *folder,
                                                               struct muster_error *ret_error);
/** Whether all shards are there, and no member has failed. *ret_missing: the first that is not there yet. Errors:
 * ABORTED (a member could not write its shard: the text is its own). */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_find_missing(
    const struct muster_checkpoint *checkpoint, uint32_t *ret_missing,
    struct muster_error *ret_error);
bool muster_checkpoint_has_shard(const struct muster_checkpoint *checkpoint, uint32_t shard);
/** A member writes that shard: the file that becomes it is there. */
bool muster_checkpoint_shard_is_begun(const struct muster_checkpoint *checkpoint, uint32_t shard);
/** The manifest is there. */
bool muster_checkpoint_has_manifest(const struct muster_checkpoint *checkpoint);

/** All shards are there: look at their heads and hashes, and write the manifest. The checkpoint is whole when this
 * returns, whenever the power fails from then on. Two members may do this at the same time. Errors: DATA_LOSS (a
 * shard is not what a member has written), those of the system; the text names the file. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_seal(struct muster_checkpoint *checkpoint,
                                                        struct muster_error *ret_error);

/** Delete the oldest whole checkpoints of steps up to that of `last`, which is kept, until `keep_count` are left (0:
 * all are), and all half-written ones of these steps: their members are not there any more. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_sweep(struct muster_mem *mem, const char *folder,
                                                         const struct muster_checkpoint_name *last,
                                                         uint32_t keep_count,
                                                         struct muster_error *ret_error);

/** Before the files of `next` are written: delete what half-written ones of steps up to its own have left. On a disk
 * that is full they would keep every later one from being written. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_clear(struct muster_mem *mem, const char *folder,
                                                         const struct muster_checkpoint_name *next,
                                                         struct muster_error *ret_error);

#endif
