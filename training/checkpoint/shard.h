/* The file of a shard: its bytes. Pure. */
#ifndef MUSTER_TRAINING_CHECKPOINT_SHARD_H
#define MUSTER_TRAINING_CHECKPOINT_SHARD_H

#include <muster/checkpoint.h>

/** The first bytes of the file. After them: the part of the state, then XXH3-128 of each of its chunks, then that
 * of head and hashes. Little endian. */
struct muster_checkpoint_shard_head {
    char magic[8];
    uint32_t version;
    uint32_t chunk_bytes;
    uint64_t step, id;
    uint32_t shard, shard_count;
    uint64_t offset, bytes;
    uint64_t reserved; /* 0 */
};

/** The checkpoint has that name, and its state so many bytes. */
void muster_checkpoint_shard_head_init(struct muster_checkpoint_shard_head *head,
                                       const struct muster_checkpoint_name *name,
                                       uint64_t state_bytes, uint32_t shard, uint32_t shard_count);
/** The chunks of a shard. */
uint64_t muster_checkpoint_shard_chunks(uint64_t bytes);
/** The size of its file. */
uint64_t muster_checkpoint_shard_file_bytes(uint64_t bytes);
/** The hash that the manifest has, of head and hashes of chunks. */
void muster_checkpoint_shard_hash(const struct muster_checkpoint_shard_head *head,
                                  const uint8_t *chunk_hashes,
                                  uint8_t ret_hash[MUSTER_HASH128_BYTES]);

/** The bytes of a chunk, borrowed until the next one is fetched. An error ends the file. */
typedef enum muster_rc muster_checkpoint_fetch_fn(void *data, uint64_t chunk,
                                                  const uint8_t **ret_bytes);
/** Write the bytes of a shard's file, its chunks in order. `hashes` has room for those of all chunks, and one more.
 * Errors: those of fetch and of the file. */
struct muster_file_writer;
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_shard_write(
    struct muster_file_writer *file, const struct muster_checkpoint_shard_head *head,
    uint8_t *hashes, muster_checkpoint_fetch_fn *fetch, void *data);

/** Read head and hashes of a shard's file, which must be that of `head`. Gives *ret_hashes. The last hash of the file
 * is that of the others. Errors: DATA_LOSS (missing, another file, cut short, damaged), FAILED_PRECONDITION (another
 * version), RESOURCE_EXHAUSTED, others of the system; the text names path. */
struct muster_file_reader;
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_shard_open(
    struct muster_mem *mem, const char *path, const struct muster_checkpoint_shard_head *head,
    struct muster_file_reader *ret_reader, uint8_t **ret_hashes,
    uint8_t ret_hash[MUSTER_HASH128_BYTES], struct muster_error *ret_error);

#endif
