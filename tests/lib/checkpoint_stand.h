/* Checkpoints for tests: a folder, and a state whose values are a function of the step. */
#ifndef MUSTER_TEST_CHECKPOINT_STAND_H
#define MUSTER_TEST_CHECKPOINT_STAND_H

#include "test_env.h"

#include <muster/checkpoint.h>

#define CHECKPOINT_TENSORS 4u

struct checkpoint_stand {
    struct muster_mem *mem;
    char folder[64];
    struct muster_tensor tensors[CHECKPOINT_TENSORS];
    struct muster_checkpoint_tensor described[CHECKPOINT_TENSORS];
    uint64_t state_bytes; /* three chunks and a part of one */
    bool is_small;        /* some bytes only */
};

void checkpoint_stand_open(struct checkpoint_stand *stand, struct muster_mem *mem, bool is_small);
/** Deletes the folder. */
void checkpoint_stand_close(struct checkpoint_stand *stand);

/** The tensors get the values of that step. */
void checkpoint_stand_fill(struct checkpoint_stand *stand, uint64_t step);
/** Fails the case when the tensors have other values than those of the step. */
void checkpoint_stand_check(const struct checkpoint_stand *stand, uint64_t step);

/** Write one shard of the tensors, as they are. */
enum muster_rc checkpoint_stand_write(struct checkpoint_stand *stand,
                                      const struct muster_checkpoint_name *name, uint32_t shard,
                                      uint32_t shard_count, struct muster_error *ret_error);
/** Write the manifest. */
enum muster_rc checkpoint_stand_seal(struct checkpoint_stand *stand,
                                     const struct muster_checkpoint_name *name,
                                     uint32_t shard_count, struct muster_error *ret_error);
/** All shards and the manifest. */
enum muster_rc checkpoint_stand_save(struct checkpoint_stand *stand,
                                     const struct muster_checkpoint_name *name,
                                     uint32_t shard_count, struct muster_error *ret_error);
/** The tensors get the values of the checkpoint. */
enum muster_rc checkpoint_stand_load(struct checkpoint_stand *stand, const char *folder,
                                     const struct muster_checkpoint_name *name,
                                     struct muster_error *ret_error);

#endif
