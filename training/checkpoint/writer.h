/* A shard on its way to the disk, by a thread, while the program goes on.
 *
 * A thread copies chunk by chunk into memory, which is faster than a disk; the thread of run follows, hashes the copies
 * and writes them. It takes a chunk out of the tensors where nobody has copied it yet, or no copy has room: the first
 * ones. Before the program changes a tensor it calls detach, which copies what is left, from the last chunk on. */
#ifndef MUSTER_TRAINING_CHECKPOINT_WRITER_H
#define MUSTER_TRAINING_CHECKPOINT_WRITER_H

#include "training/checkpoint/shard.h"

struct muster_checkpoint_writer;
struct muster_far_memory;

/** `tensors` in their order are the state. */
struct muster_checkpoint_writer_options {
    struct muster_mem *mem;
    const char *folder;
    struct muster_checkpoint_name name;
    const struct muster_tensor *tensors;
    struct muster_far_memory *const
        *memories; /* of each; an entry NULL, or all of it: the host's */
    size_t tensor_count;
    uint32_t shard, shard_count;
    uint8_t *copies;   /* room for copies of chunks */
    size_t copy_bytes; /* of it: as many whole chunks are copied, at most, or the shard */
};

/** Copies folder and tensors' descriptions; borrows the tensors' data until detach or cancel, and copies until free.
 * Gives. Errors: RESOURCE_EXHAUSTED,
 * INVALID_ARGUMENT (a path that is too long). */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_writer_new(
    const struct muster_checkpoint_writer_options *options,
    struct muster_checkpoint_writer **ret_writer);
/** After run has returned. NULL is accepted. */
void muster_checkpoint_writer_free(struct muster_checkpoint_writer *writer);

/** Write the file, and sync its name; once, in any thread. Errors: CANCELLED, those of the system: error tells. A file
 * that cannot be written is followed by one that says so. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_writer_run(
    struct muster_checkpoint_writer *writer);
const struct muster_error *muster_checkpoint_writer_error(
    const struct muster_checkpoint_writer *writer);

/** Copy chunks, as far as there is room for copies; beside run, in one thread of the program's own priority: detach
 * waits for it. Returns the bytes that it copied. */
uint64_t muster_checkpoint_writer_copy(struct muster_checkpoint_writer *writer);
/** As copy; where *ret_is_done the tensors may change from its return on. Where not, the rest has no room: call it
 * again later, until run has taken that. Beside run and copy. */
uint64_t muster_checkpoint_writer_detach(struct muster_checkpoint_writer *writer,
                                         bool *ret_is_done);
/** From its return on the tensors may change, and run ends soon with CANCELLED, unless it has ended. Beside run. */
void muster_checkpoint_writer_cancel(struct muster_checkpoint_writer *writer);

#endif
