/* The file of a shard. */
#include "training/checkpoint/shard.h"

#include <errno.h>
#include <string.h>

#include "runtime/system/file_system.h"
#include "runtime/value/errno_reason.h"
#include "training/checkpoint/manifest.h"

#define MAGIC "MUSTERSH"
#define CHUNK MUSTER_CHECKPOINT_CHUNK_BYTES
_Static_assert(sizeof(struct muster_checkpoint_shard_head) == 64, "no padding");

void muster_checkpoint_shard_head_init(struct muster_checkpoint_shard_head *head,
                                       const struct muster_checkpoint_name *name,
                                       uint64_t state_bytes, uint32_t shard, uint32_t shard_count)
{
    *head = (struct muster_checkpoint_shard_head){.version = MUSTER_CHECKPOINT_VERSION,
                                                  .chunk_bytes = CHUNK,
                                                  .step = name->step,
                                                  .id = name->id,
                                                  .shard = shard,
                                                  .shard_count = shard_count};
    memcpy(head->magic, MAGIC, sizeof(head->magic));
    muster_checkpoint_cut(state_bytes, shard, shard_count, &head->offset, &head->bytes);
}

uint64_t muster_checkpoint_shard_chunks(uint64_t bytes)
{
    return bytes / CHUNK + (bytes % CHUNK != 0);
}

uint64_t muster_checkpoint_shard_file_bytes(uint64_t bytes)
{
    return sizeof(struct muster_checkpoint_shard_head) + bytes +
           (muster_checkpoint_shard_chunks(bytes) + 1) * MUSTER_HASH128_BYTES;
}

void muster_checkpoint_shard_hash(const struct muster_checkpoint_shard_head *head,
                                  const uint8_t *chunk_hashes,
                                  uint8_t ret_hash[MUSTER_HASH128_BYTES])
{
    struct muster_hash_stream stream;

    muster_hash_stream_init(&stream);
    muster_hash_stream_add(&stream, head, sizeof(*head));
    muster_hash_stream_add(&stream, chunk_hashes,
                           (size_t)muster_checkpoint_shard_chunks(head->bytes) *
                               MUSTER_HASH128_BYTES);
    muster_hash_stream_hash128(&stream, ret_hash);
}

enum muster_rc muster_checkpoint_shard_write(struct muster_file_writer *file,
                                             const struct muster_checkpoint_shard_head *head,
                                             uint8_t *hashes, muster_checkpoint_fetch_fn *fetch,
                                             void *data)
{
    uint64_t count = muster_checkpoint_shard_chunks(head->bytes);
    enum muster_rc rc = muster_file_writer_add(file, head, sizeof(*head));

    for (uint64_t i = 0; i < count && rc == MUSTER_OK; i++) {
        uint64_t rest = head->bytes - i * CHUNK;
        size_t bytes = rest < CHUNK ? (size_t)rest : CHUNK;
        const uint8_t *from = NULL;

        rc = fetch(data, i, &from);
        if (rc != MUSTER_OK)
            return rc;
        muster_hash128(from, bytes, hashes + i * MUSTER_HASH128_BYTES);
        rc = muster_file_writer_add(file, from, bytes);
    }
    if (rc != MUSTER_OK)
        return rc;
    muster_checkpoint_shard_hash(head, hashes, hashes + count * MUSTER_HASH128_BYTES);
    return muster_file_writer_add(file, hashes, (size_t)(count + 1) * MUSTER_HASH128_BYTES);
}

static enum muster_rc head_check(const struct muster_file_reader *reader,
                                 const struct muster_checkpoint_shard_head *head, const char *path,
                                 struct muster_error *ret_error)
{
    struct muster_checkpoint_shard_head found;
    enum muster_rc rc = reader->bytes < sizeof(found)
                            ? MUSTER_OUT_OF_RANGE
                            : muster_file_reader_read(reader, 0, &found, sizeof(found));

    if (rc == MUSTER_OUT_OF_RANGE)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%s is cut short", path);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read %s: %s", path,
                                muster_errno_reason(rc, errno));
    if (memcmp(found.magic, head->magic, sizeof(found.magic)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%s is not a shard of a checkpoint",
                                path);
    if (found.version != head->version)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s has version %u, this program reads %u", path, found.version,
                                head->version);
    if (memcmp(&found, head, sizeof(found)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%s belongs to another checkpoint, or its head is damaged", path);
    if (reader->bytes != muster_checkpoint_shard_file_bytes(head->bytes))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%s is damaged: it must have %llu bytes, and has %llu", path,
                                (unsigned long long)muster_checkpoint_shard_file_bytes(head->bytes),
                                (unsigned long long)reader->bytes);
    return MUSTER_OK;
}

/* The table of hashes, and the hash of the whole after it. */
static enum muster_rc hashes_read(struct muster_mem *mem, const struct muster_file_reader *reader,
                                  const struct muster_checkpoint_shard_head *head, const char *path,
                                  uint8_t **ret_hashes, uint8_t ret_hash[MUSTER_HASH128_BYTES],
                                  struct muster_error *ret_error)
{
    size_t bytes = (size_t)(muster_checkpoint_shard_chunks(head->bytes) + 1) * MUSTER_HASH128_BYTES;
    uint8_t *hashes = muster_mem_alloc(mem, bytes), hash[MUSTER_HASH128_BYTES];
    enum muster_rc rc;

    if (hashes == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for %s", path);
    rc = muster_file_reader_read(reader, sizeof(*head) + head->bytes, hashes, bytes);
    if (rc != MUSTER_OK) {
        int sys = errno;

        muster_mem_free(mem, hashes);
        return muster_error_set(ret_error, rc, "cannot read %s: %s", path,
                                muster_errno_reason(rc, sys));
    }
    muster_checkpoint_shard_hash(head, hashes, hash);
    if (memcmp(hash, hashes + bytes - sizeof(hash), sizeof(hash)) != 0) {
        muster_mem_free(mem, hashes);
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%s is damaged in its hashes", path);
    }
    memcpy(ret_hash, hash, sizeof(hash));
    *ret_hashes = hashes;
    return MUSTER_OK;
}

enum muster_rc muster_checkpoint_shard_open(struct muster_mem *mem, const char *path,
                                            const struct muster_checkpoint_shard_head *head,
                                            struct muster_file_reader *ret_reader,
                                            uint8_t **ret_hashes,
                                            uint8_t ret_hash[MUSTER_HASH128_BYTES],
                                            struct muster_error *ret_error)
{
    struct muster_file_reader reader;
    enum muster_rc rc = muster_file_reader_open(&reader, path);

    if (rc == MUSTER_NOT_FOUND)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%s is missing", path);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read %s: %s", path,
                                muster_errno_reason(rc, errno));
    rc = head_check(&reader, head, path, ret_error);
    if (rc == MUSTER_OK)
        rc = hashes_read(mem, &reader, head, path, ret_hashes, ret_hash, ret_error);
    if (rc == MUSTER_OK)
        *ret_reader = reader;
    else
        muster_file_reader_close(&reader);
    return rc;
}
