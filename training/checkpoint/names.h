/* The names of a checkpoint's files. Pure. */
#ifndef MUSTER_TRAINING_CHECKPOINT_NAMES_H
#define MUSTER_TRAINING_CHECKPOINT_NAMES_H

#include <limits.h>

#include <muster/checkpoint.h>

/** Room for the path of any file. */
#define MUSTER_CHECKPOINT_PATH_BYTES PATH_MAX

enum muster_checkpoint_file {
    MUSTER_CHECKPOINT_MANIFEST, /* NAME.manifest */
    MUSTER_CHECKPOINT_SHARD,    /* NAME.shard-00001-of-00003 */
    MUSTER_CHECKPOINT_FAILED,   /* NAME.failed-00001: why a member has not written its shard */
    MUSTER_CHECKPOINT_PART,     /* any of these that is not finished, NAME.… .PID-HOST.new */
};

/** The kind of a file of a folder, and the checkpoint that it belongs to. False: it belongs to none. */
bool muster_checkpoint_file_parse(const char *text, struct muster_checkpoint_name *ret_name,
                                  enum muster_checkpoint_file *ret_file);

/** False: the path is too long. */
MUSTER_MUST_CHECK bool muster_checkpoint_manifest_path(const char *folder,
                                                       const struct muster_checkpoint_name *name,
                                                       char ret_path[MUSTER_CHECKPOINT_PATH_BYTES]);
MUSTER_MUST_CHECK bool muster_checkpoint_shard_path(const char *folder,
                                                    const struct muster_checkpoint_name *name,
                                                    uint32_t shard, uint32_t shard_count,
                                                    char ret_path[MUSTER_CHECKPOINT_PATH_BYTES]);
MUSTER_MUST_CHECK bool muster_checkpoint_failed_path(const char *folder,
                                                     const struct muster_checkpoint_name *name,
                                                     uint32_t shard,
                                                     char ret_path[MUSTER_CHECKPOINT_PATH_BYTES]);

#endif
