/* A safetensors file as a checkpoint: one shard, whose part of the state are the values as they lie in the file. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <muster/env.h>
#include <muster/json.h>

#include "runtime/system/file_system.h"
#include "runtime/system/folder_system.h"
#include "runtime/value/errno_reason.h"
#include "training/checkpoint/folder.h"
#include "training/checkpoint/names.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/shard.h"

#define CHUNK        MUSTER_CHECKPOINT_CHUNK_BYTES
#define LENGTH_BYTES MUSTER_SAFETENSORS_LENGTH_BYTES

/* The file that is read. */
struct source {
    const char *path;
    struct muster_file_reader reader;
    uint64_t data_at; /* of its first value */
    uint64_t data_bytes;
    uint8_t *chunk;    /* room for one */
    enum muster_rc rc; /* of the read that failed */
    int sys;           /* its errno */
};

/* --- The header --- */

static enum muster_rc header_read(struct muster_mem *mem, struct source *source, char **ret_header,
                                  struct muster_error *ret_error)
{
    uint64_t file_bytes = source->reader.bytes, length = 0;
    enum muster_rc rc = file_bytes < LENGTH_BYTES
                            ? MUSTER_OUT_OF_RANGE
                            : muster_file_reader_read(&source->reader, 0, &length, LENGTH_BYTES);
    char *header;

    if (rc == MUSTER_OUT_OF_RANGE || (rc == MUSTER_OK && length > file_bytes - LENGTH_BYTES))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%s: it is cut short, or not a safetensors file: its header would "
                                "end at byte %" PRIu64 ", and it has %" PRIu64,
                                source->path,
                                length > UINT64_MAX - LENGTH_BYTES ? length : length + LENGTH_BYTES,
                                file_bytes);
    if (rc == MUSTER_OK && length > MUSTER_JSON_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "%s: the header has %" PRIu64 " bytes, the most is %u",
                                source->path, length, MUSTER_JSON_BYTES_MAX);
    header = rc == MUSTER_OK ? muster_mem_alloc(mem, (size_t)length + 1) : NULL;
    if (rc == MUSTER_OK)
        rc = header == NULL
                 ? MUSTER_RESOURCE_EXHAUSTED
                 : muster_file_reader_read(&source->reader, LENGTH_BYTES, header, (size_t)length);
    if (rc != MUSTER_OK) {
        int sys = errno;

        muster_mem_free(mem, header);
        return muster_error_set(ret_error, rc, "cannot read %s: %s", source->path,
                                muster_errno_reason(rc, sys));
    }
    source->data_at = LENGTH_BYTES + length;
    source->data_bytes = file_bytes - source->data_at;
    *ret_header = header;
    return MUSTER_OK;
}

static enum muster_rc source_describe(struct muster_mem *mem, struct source *source,
                                      const char *folder, struct muster_checkpoint **ret_checkpoint,
                                      struct muster_error *ret_error)
{
    struct muster_error cause = {.rc = MUSTER_OK};
    char *header = NULL;
    enum muster_rc rc = header_read(mem, source, &header, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_safetensors_parse(
        mem, folder,
        &(struct muster_safetensors_header){.bytes = header,
                                            .size = (size_t)(source->data_at - LENGTH_BYTES),
                                            .data_bytes = source->data_bytes},
        ret_checkpoint, &cause);
    muster_mem_free(mem, header);
    return rc == MUSTER_OK ? rc
                           : muster_error_set(ret_error, rc, "%s: %s", source->path, cause.text);
}

/* --- The folder --- */

static enum muster_rc on_chunk(void *data, uint64_t chunk, const uint8_t **ret_bytes)
{
    struct source *source = data;
    uint64_t at = chunk * CHUNK, rest = source->data_bytes - at;

    source->rc = muster_file_reader_read(&source->reader, source->data_at + at, source->chunk,
                                         rest < CHUNK ? (size_t)rest : CHUNK);
    source->sys = errno;
    *ret_bytes = source->chunk;
    return source->rc;
}

static enum muster_rc file_write(struct source *source, const char *path,
                                 const struct muster_checkpoint_shard_head *head, uint8_t *hashes,
                                 struct muster_error *ret_error)
{
    struct muster_file_writer file;
    enum muster_rc rc = muster_file_writer_open(&file, path);

    if (rc == MUSTER_OK) {
        rc = muster_checkpoint_shard_write(&file, head, hashes, on_chunk, source);
        if (rc == MUSTER_OK)
            rc = muster_file_writer_finish(&file);
        else
            muster_file_writer_abandon(&file);
    }
    if (source->rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read %s: %s", source->path,
                                muster_errno_reason(rc, source->sys));
    return rc == MUSTER_OK ? rc
                           : muster_error_set_sys(ret_error, rc, file.sys, "cannot write %s", path);
}

static enum muster_rc shard_write(struct muster_mem *mem, struct source *source,
                                  const struct muster_checkpoint *checkpoint,
                                  struct muster_error *ret_error)
{
    struct muster_checkpoint_shard_head head;
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    uint8_t *hashes;
    enum muster_rc rc;

    if (!muster_checkpoint_shard_path(checkpoint->folder, &checkpoint->name, 0, 1, path))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "the path of %.80s is too long",
                                checkpoint->folder);
    muster_checkpoint_shard_head_init(&head, &checkpoint->name, checkpoint->state_bytes, 0, 1);
    hashes = muster_mem_alloc_zero(mem, (size_t)muster_checkpoint_shard_chunks(head.bytes) + 1,
                                   MUSTER_HASH128_BYTES);
    source->chunk = muster_mem_alloc(mem, CHUNK);
    rc = hashes != NULL && source->chunk != NULL
             ? file_write(source, path, &head, hashes, ret_error)
             : muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory to read %s",
                                source->path);
    muster_mem_free(mem, hashes);
    muster_mem_free(mem, source->chunk);
    return rc;
}

/* A second one of the same step would be as new as the first one. */
static enum muster_rc folder_check(struct muster_mem *mem, const char *folder, uint64_t step,
                                   struct muster_error *ret_error)
{
    struct muster_checkpoint_entry *entries = NULL;
    size_t count = 0;
    enum muster_rc rc = muster_checkpoint_list(mem, folder, &entries, &count, ret_error);

    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        if (entries[i].has_manifest && entries[i].name.step == step)
            rc = muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                  "%s has a checkpoint of step %" PRIu64
                                  ": name another step, or another folder",
                                  folder, step);
    muster_mem_free(mem, entries);
    return rc;
}

/* A job would begin from it, in place of what it saves itself, or delete it by its count. */
static enum muster_rc owner_check(const char *folder, struct muster_error *ret_error)
{
    char job[MUSTER_JOB_NAME_BYTES];

    if (!muster_checkpoint_is_in_use(folder, job))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "the job %s saves to %s: wait until it has ended, or name another "
                            "folder",
                            job, folder);
}

static enum muster_rc checkpoint_save(struct muster_mem *mem, struct source *source,
                                      struct muster_checkpoint *checkpoint,
                                      struct muster_error *ret_error)
{
    enum muster_rc rc = muster_checkpoint_make_folder(checkpoint->folder, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = owner_check(checkpoint->folder, ret_error);
    if (rc == MUSTER_OK)
        rc = folder_check(mem, checkpoint->folder, checkpoint->name.step, ret_error);
    if (rc == MUSTER_OK)
        rc = shard_write(mem, source, checkpoint, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_seal(checkpoint, ret_error);
    return rc;
}

enum muster_rc muster_checkpoint_import(struct muster_mem *mem,
                                        const struct muster_checkpoint_import_options *options,
                                        struct muster_checkpoint_name *ret_name,
                                        struct muster_error *ret_error)
{
    struct muster_checkpoint *checkpoint = NULL;
    struct source source = {.path = options->path};
    enum muster_rc rc = muster_file_reader_open(&source.reader, options->path);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read %s: %s", options->path,
                                muster_errno_reason(rc, errno));
    rc = source_describe(mem, &source, options->folder, &checkpoint, ret_error);
    if (rc == MUSTER_OK && options->step == 0 && checkpoint->name.step == 0)
        rc = muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "%s: its metadata have no step: name one; the job begins with the step after it",
            options->path);
    if (rc == MUSTER_OK) {
        checkpoint->saved_wall_ns = options->saved_wall_ns;
        if (options->step != 0)
            checkpoint->name.step = options->step;
        while (checkpoint->name.id == 0)
            checkpoint->name.id = muster_rng_next(muster_rng_system());
        rc = checkpoint_save(mem, &source, checkpoint, ret_error);
    }
    if (rc == MUSTER_OK)
        *ret_name = checkpoint->name;
    muster_checkpoint_close(checkpoint);
    muster_file_reader_close(&source.reader);
    return rc;
}
