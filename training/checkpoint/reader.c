/* Reading checkpoints: the manifest, then chunks of shards, each checked before it is used. */
#include <errno.h>
#include <string.h>

#include <muster/env.h>

#include "runtime/system/file_system.h"
#include "runtime/value/errno_reason.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/names.h"
#include "training/checkpoint/shard.h"

#define CHUNK              MUSTER_CHECKPOINT_CHUNK_BYTES
#define MANIFEST_BYTES_MAX ((size_t)256 << 20)

enum muster_rc muster_checkpoint_open(struct muster_mem *mem, const char *folder,
                                      const struct muster_checkpoint_name *name,
                                      struct muster_checkpoint **ret_checkpoint,
                                      struct muster_error *ret_error)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES], *bytes;
    struct muster_error cause = {.rc = MUSTER_OK};
    struct muster_checkpoint *made;
    enum muster_rc rc;
    size_t size;

    if (!muster_checkpoint_manifest_path(folder, name, path))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "the path of %.80s is too long",
                                folder);
    rc = muster_files_read(muster_files_system(), mem, path, MANIFEST_BYTES_MAX, &bytes, &size);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read %s: %s", path,
                                muster_errno_reason(rc, errno));
    rc = muster_checkpoint_manifest_unpack(mem, folder, bytes, size, &made, &cause);
    muster_mem_free(mem, bytes);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s %s", path, cause.text);
    if (made->name.step != name->step || made->name.id != name->id) {
        muster_checkpoint_close(made);
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%s belongs to another checkpoint",
                                path);
    }
    *ret_checkpoint = made;
    return MUSTER_OK;
}

/* A walk over a part of one shard. */
struct walk {
    const struct muster_checkpoint *checkpoint;
    uint64_t begin, end; /* in the state */
    muster_checkpoint_visit_fn *visit;
    void *data;
    uint8_t *chunk; /* room for one */
};

/* Chunks that the walk touches are read whole, to be checked. */
static enum muster_rc chunks_visit(const struct walk *walk,
                                   const struct muster_checkpoint_shard_head *head,
                                   const struct muster_file_reader *reader, const uint8_t *hashes,
                                   const char *path, struct muster_error *ret_error)
{
    uint64_t first = walk->begin > head->offset ? (walk->begin - head->offset) / CHUNK : 0;
    uint8_t hash[MUSTER_HASH128_BYTES];

    for (uint64_t i = first; i * CHUNK < head->bytes && head->offset + i * CHUNK < walk->end; i++) {
        uint64_t at = head->offset + i * CHUNK, rest = head->bytes - i * CHUNK;
        size_t bytes = rest < CHUNK ? (size_t)rest : CHUNK;
        uint64_t from = walk->begin > at ? walk->begin - at : 0;
        uint64_t to = walk->end - at < bytes ? walk->end - at : bytes;
        enum muster_rc rc =
            muster_file_reader_read(reader, sizeof(*head) + i * CHUNK, walk->chunk, bytes);

        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc == MUSTER_OUT_OF_RANGE ? MUSTER_DATA_LOSS : rc,
                                    "cannot read %s: %s", path, muster_errno_reason(rc, errno));
        muster_hash128(walk->chunk, bytes, hash);
        if (memcmp(hash, hashes + i * sizeof(hash), sizeof(hash)) != 0)
            return muster_error_set(
                ret_error, MUSTER_DATA_LOSS, "%s is damaged in chunk %llu of %llu", path,
                (unsigned long long)i,
                (unsigned long long)muster_checkpoint_shard_chunks(head->bytes));
        if (walk->visit != NULL)
            rc = walk->visit(walk->data, at + from, walk->chunk + from, (size_t)(to - from));
        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc, "%s", muster_rc_text(rc));
    }
    return MUSTER_OK;
}

static enum muster_rc shard_visit(const struct walk *walk, uint32_t shard,
                                  struct muster_error *ret_error)
{
    const struct muster_checkpoint *checkpoint = walk->checkpoint;
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct muster_checkpoint_shard_head head;
    struct muster_file_reader reader;
    uint8_t *hashes, hash[MUSTER_HASH128_BYTES];
    enum muster_rc rc;

    if (!muster_checkpoint_shard_path(checkpoint->folder, &checkpoint->name, shard,
                                      checkpoint->shard_count, path))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "the path of %.80s is too long",
                                checkpoint->folder);
    muster_checkpoint_shard_head_init(&head, &checkpoint->name, checkpoint->state_bytes, shard,
                                      checkpoint->shard_count);
    rc = muster_checkpoint_shard_open(checkpoint->mem, path, &head, &reader, &hashes, hash,
                                      ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (memcmp(hash, checkpoint->shards[shard].hash, sizeof(hash)) != 0) {
        rc = muster_error_set(ret_error, MUSTER_DATA_LOSS,
                              "%s is not the file that the manifest names", path);
    } else {
        muster_file_reader_read_ahead(&reader);
        rc = chunks_visit(walk, &head, &reader, hashes, path, ret_error);
    }
    muster_file_reader_close(&reader);
    muster_mem_free(checkpoint->mem, hashes);
    return rc;
}

/* The shards that have a part of the walk; with is_all those without bytes, too. */
static enum muster_rc shards_visit(const struct muster_checkpoint *checkpoint, struct walk *walk,
                                   bool is_all, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    walk->chunk = muster_mem_alloc(checkpoint->mem, CHUNK);
    if (walk->chunk == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory to read a checkpoint");
    for (uint32_t i = 0; i < checkpoint->shard_count && rc == MUSTER_OK; i++) {
        const struct muster_checkpoint_shard *shard = &checkpoint->shards[i];

        if (is_all || (shard->offset < walk->end && walk->begin < shard->offset + shard->bytes))
            rc = shard_visit(walk, i, ret_error);
    }
    muster_mem_free(checkpoint->mem, walk->chunk);
    return rc;
}

enum muster_rc muster_checkpoint_read(const struct muster_checkpoint *checkpoint, uint64_t offset,
                                      uint64_t bytes, muster_checkpoint_visit_fn *visit, void *data,
                                      struct muster_error *ret_error)
{
    struct walk walk = {.checkpoint = checkpoint,
                        .begin = offset,
                        .end = offset + bytes,
                        .visit = visit,
                        .data = data};

    if (offset > checkpoint->state_bytes || bytes > checkpoint->state_bytes - offset)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "the state of the checkpoint has %llu bytes",
                                (unsigned long long)checkpoint->state_bytes);
    return bytes == 0 ? MUSTER_OK : shards_visit(checkpoint, &walk, false, ret_error);
}

enum muster_rc muster_checkpoint_verify(const struct muster_checkpoint *checkpoint,
                                        struct muster_error *ret_error)
{
    struct walk walk = {.checkpoint = checkpoint, .end = checkpoint->state_bytes};

    return shards_visit(checkpoint, &walk, true, ret_error);
}
