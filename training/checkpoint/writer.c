/* A shard on its way to the disk. */
#include "training/checkpoint/writer.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <muster/env.h>

#include "runtime/system/bell_system.h"
#include "runtime/system/file_system.h"
#include "runtime/system/folder_system.h"
#include "runtime/value/far_memory.h"
#include "training/checkpoint/names.h"

#define CHUNK MUSTER_CHECKPOINT_CHUNK_BYTES

/* Each chunk belongs to one thread. Writers: the threads of run, of copy, and of detach. A move away from FREE is by
 * compare-and-swap, so that one of them has it; the store of TAKEN_OVER or COPIED (release) comes after the copy, and
 * is paired with the others' loads (acquire). Nobody takes a chunk over that another thread copies: it would read
 * tensors that the program changes.
 *
 * The program waits in detach for a thread that is amid a chunk. This is mostly that of copy, which is ahead of run:
 * run has less priority, and may be kept from its processor for a long time. */
enum chunk_state {
    CHUNK_FREE,       /* in the tensors */
    CHUNK_READ,       /* run copies it out of the tensors */
    CHUNK_TAKEN_OVER, /* run has it */
    CHUNK_COPYING,    /* copy or detach copies it */
    CHUNK_COPIED,     /* in `copies` */
};

struct muster_checkpoint_writer {
    struct muster_mem *mem;
    char *folder;
    struct muster_tensor *tensors;
    struct muster_far_memory **memories; /* of each tensor; NULL: the host's */
    size_t tensor_count;
    struct muster_checkpoint_shard_head head;
    struct muster_checkpoint_name name;
    uint64_t chunk_count;
    _Atomic uint8_t *states; /* of chunks */
    uint8_t *copies;         /* of the chunks from copy_first on */
    uint64_t copy_first;
    uint8_t *staging; /* of a chunk */
    uint8_t *hashes;  /* of chunks, and of all */
    atomic_bool is_cancelled;
    /* A chunk could not be read: set (release) before the chunk's state, and loaded after it (acquire). */
    atomic_bool has_failed;
    atomic_bool is_over;        /* run has returned (release), and reads no tensor any more */
    struct muster_bell *copied; /* run waits: a chunk is COPIED */
    struct muster_error error;
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
};

static uint64_t state_bytes_of(const struct muster_tensor *tensors, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += tensors[i].count * muster_dtype_bytes(tensors[i].dtype);
    return bytes;
}

static enum muster_rc writer_init(struct muster_checkpoint_writer *writer,
                                  const struct muster_checkpoint_writer_options *options)
{
    struct muster_mem *mem = options->mem;

    writer->mem = mem;
    writer->name = options->name;
    writer->tensor_count = options->tensor_count;
    muster_checkpoint_shard_head_init(&writer->head, &options->name,
                                      state_bytes_of(options->tensors, options->tensor_count),
                                      options->shard, options->shard_count);
    writer->chunk_count = muster_checkpoint_shard_chunks(writer->head.bytes);
    writer->folder = muster_mem_strdup(mem, options->folder);
    writer->tensors =
        muster_mem_alloc_zero(mem, options->tensor_count + 1, sizeof(writer->tensors[0]));
    writer->memories =
        muster_mem_alloc_zero(mem, options->tensor_count + 1, sizeof(writer->memories[0]));
    writer->states = muster_mem_alloc_zero(mem, (size_t)writer->chunk_count + 1, 1);
    writer->copies = options->copies;
    writer->copy_first = writer->chunk_count;
    if (options->copy_bytes >= writer->head.bytes)
        writer->copy_first = 0;
    else /* the last chunk may be a short one, whose room is a whole one's */
        writer->copy_first -= options->copy_bytes / CHUNK;
    writer->staging = muster_mem_alloc(mem, CHUNK);
    writer->hashes =
        muster_mem_alloc_zero(mem, (size_t)writer->chunk_count + 1, MUSTER_HASH128_BYTES);
    if (writer->folder == NULL || writer->tensors == NULL || writer->memories == NULL ||
        writer->states == NULL || writer->staging == NULL || writer->hashes == NULL ||
        muster_bell_open(mem, &writer->copied) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < options->tensor_count; i++) {
        writer->tensors[i] = options->tensors[i];
        writer->memories[i] = options->memories != NULL ? options->memories[i] : NULL;
    }
    return muster_checkpoint_shard_path(options->folder, &options->name, options->shard,
                                        options->shard_count, writer->path)
               ? MUSTER_OK
               : MUSTER_INVALID_ARGUMENT;
}

enum muster_rc muster_checkpoint_writer_new(const struct muster_checkpoint_writer_options *options,
                                            struct muster_checkpoint_writer **ret_writer)
{
    struct muster_checkpoint_writer *writer =
        muster_mem_alloc_zero(options->mem, 1, sizeof(*writer));
    enum muster_rc rc;

    if (writer == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = writer_init(writer, options);
    if (rc != MUSTER_OK)
        muster_checkpoint_writer_free(writer);
    else
        *ret_writer = writer;
    return rc;
}

void muster_checkpoint_writer_free(struct muster_checkpoint_writer *writer)
{
    if (writer == NULL)
        return;
    muster_bell_close(writer->copied);
    muster_mem_free(writer->mem, writer->folder);
    muster_mem_free(writer->mem, writer->tensors);
    muster_mem_free(writer->mem, writer->memories);
    muster_mem_free(writer->mem, (void *)writer->states);
    muster_mem_free(writer->mem, writer->staging);
    muster_mem_free(writer->mem, writer->hashes);
    muster_mem_free(writer->mem, writer);
}

const struct muster_error *muster_checkpoint_writer_error(
    const struct muster_checkpoint_writer *writer)
{
    return &writer->error;
}

/* --- Chunks --- */

static size_t chunk_bytes(const struct muster_checkpoint_writer *writer, uint64_t chunk)
{
    uint64_t rest = writer->head.bytes - chunk * CHUNK;

    return rest < CHUNK ? (size_t)rest : CHUNK;
}

/* A chunk may begin and end amid tensors. */
static void chunk_gather(struct muster_checkpoint_writer *writer, uint64_t chunk, uint8_t *to)
{
    uint64_t at = writer->head.offset + chunk * CHUNK, end = at + chunk_bytes(writer, chunk);
    uint64_t offset = 0; /* of a tensor */

    for (size_t i = 0; i < writer->tensor_count && at < end; i++) {
        const struct muster_tensor *tensor = &writer->tensors[i];
        uint64_t bytes = tensor->count * muster_dtype_bytes(tensor->dtype);

        if (at < offset + bytes) {
            uint64_t stop = offset + bytes < end ? offset + bytes : end;

            if (muster_far_memory_read(writer->memories[i], to,
                                       (const uint8_t *)tensor->data + (at - offset),
                                       (size_t)(stop - at)) != MUSTER_OK)
                atomic_store_explicit(&writer->has_failed, true, memory_order_release);
            to += stop - at;
            at = stop;
        }
        offset += bytes;
    }
}

static bool chunk_take(struct muster_checkpoint_writer *writer, uint64_t chunk,
                       enum chunk_state state)
{
    uint8_t expected = CHUNK_FREE;

    return atomic_compare_exchange_strong_explicit(&writer->states[chunk], &expected,
                                                   (uint8_t)state, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* Waits while another thread reads the chunk out of the tensors. The state that is returned is the one that was
 * judged: a second look could find a chunk that run has taken since the first one. */
static enum chunk_state chunk_settle(const struct muster_checkpoint_writer *writer, uint64_t chunk)
{
    for (;;) {
        uint8_t state = atomic_load_explicit(&writer->states[chunk], memory_order_acquire);

        if (state != CHUNK_READ && state != CHUNK_COPYING)
            return (enum chunk_state)state;
        (void)sched_yield();
    }
}

static uint8_t *copy_of(const struct muster_checkpoint_writer *writer, uint64_t chunk)
{
    MUSTER_ASSERT(chunk >= writer->copy_first);
    return writer->copies + (chunk - writer->copy_first) * CHUNK;
}

/* Returns the bytes that were copied. */
static uint64_t chunk_copy(struct muster_checkpoint_writer *writer, uint64_t chunk)
{
    if (!chunk_take(writer, chunk, CHUNK_COPYING))
        return 0;
    chunk_gather(writer, chunk, copy_of(writer, chunk));
    atomic_store_explicit(&writer->states[chunk], CHUNK_COPIED, memory_order_release);
    muster_bell_ring(writer->copied);
    return chunk_bytes(writer, chunk);
}

static bool is_over(const struct muster_checkpoint_writer *writer)
{
    return atomic_load_explicit(&writer->is_over, memory_order_acquire);
}

/* Run follows, and detach comes from the other end. */
uint64_t muster_checkpoint_writer_copy(struct muster_checkpoint_writer *writer)
{
    uint64_t copied = 0;

    for (uint64_t i = writer->copy_first; i < writer->chunk_count && !is_over(writer); i++)
        copied += chunk_copy(writer, i);
    return copied;
}

uint64_t muster_checkpoint_writer_detach(struct muster_checkpoint_writer *writer, bool *ret_is_done)
{
    uint64_t copied = 0;
    bool was_over;

    for (uint64_t i = writer->chunk_count; i-- > writer->copy_first && !is_over(writer);)
        copied += chunk_copy(writer, i);
    was_over = is_over(writer);
    *ret_is_done = true;
    for (uint64_t i = 0; i < writer->chunk_count; i++) {
        if (chunk_settle(writer, i) == CHUNK_FREE && !was_over)
            *ret_is_done = false;
    }
    return copied;
}

void muster_checkpoint_writer_cancel(struct muster_checkpoint_writer *writer)
{
    atomic_store(&writer->is_cancelled, true);
    for (uint64_t i = writer->chunk_count; i-- > 0;) {
        (void)chunk_take(writer, i, CHUNK_COPIED); /* nobody reads it */
        (void)chunk_settle(writer, i);
    }
    muster_bell_ring(writer->copied);
}

/* Run's look at the chunk that it needs. */
struct chunk_look {
    struct muster_checkpoint_writer *writer;
    uint64_t chunk;
    bool is_read; /* run has taken it; else there is a copy */
};

static bool is_there(void *data)
{
    struct chunk_look *look = data;

    look->is_read = chunk_take(look->writer, look->chunk, CHUNK_READ);
    return look->is_read || atomic_load_explicit(&look->writer->states[look->chunk],
                                                 memory_order_acquire) == CHUNK_COPIED;
}

/* Out of the tensors, or of their copies. */
static enum muster_rc chunk_fetch(void *data, uint64_t chunk, const uint8_t **ret_bytes)
{
    struct muster_checkpoint_writer *writer = data;
    struct chunk_look look = {.writer = writer, .chunk = chunk};

    muster_bell_await(writer->copied, is_there, &look);
    if (look.is_read) {
        chunk_gather(writer, chunk, writer->staging);
        atomic_store_explicit(&writer->states[chunk], CHUNK_TAKEN_OVER, memory_order_release);
    }
    if (atomic_load(&writer->is_cancelled))
        return MUSTER_CANCELLED;
    if (atomic_load_explicit(&writer->has_failed, memory_order_acquire))
        return MUSTER_UNAVAILABLE;
    *ret_bytes = look.is_read ? writer->staging : copy_of(writer, chunk);
    return MUSTER_OK;
}

/* --- The file --- */

/* The others wait for the shard: they are told why it does not come. Without room for that, either, time tells. */
static void failure_tell(const struct muster_checkpoint_writer *writer)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];

    if (muster_checkpoint_failed_path(writer->folder, &writer->name, writer->head.shard, path))
        (void)!muster_files_write(muster_files_system(), path, writer->error.text,
                                  strlen(writer->error.text));
}

static enum muster_rc shard_write(struct muster_checkpoint_writer *writer)
{
    struct muster_file_writer file;
    enum muster_rc rc = muster_file_writer_open(&file, writer->path);

    if (rc == MUSTER_OK) {
        rc = muster_checkpoint_shard_write(&file, &writer->head, writer->hashes, chunk_fetch,
                                           writer);
        if (rc == MUSTER_OK)
            rc = muster_file_writer_finish(&file);
        else
            muster_file_writer_abandon(&file);
    }
    if (rc == MUSTER_OK)
        rc = muster_folder_sync(writer->folder);
    if (rc == MUSTER_OK)
        return rc;
    if (rc == MUSTER_CANCELLED)
        return muster_error_set(&writer->error, rc, "cancelled");
    if (atomic_load(&writer->has_failed))
        (void)muster_error_set(&writer->error, rc, "the state cannot be read from its device");
    else
        (void)muster_error_set_sys(&writer->error, rc, file.sys, "cannot write %s", writer->path);
    failure_tell(writer);
    return rc;
}

enum muster_rc muster_checkpoint_writer_run(struct muster_checkpoint_writer *writer)
{
    enum muster_rc rc = shard_write(writer);

    atomic_store_explicit(&writer->is_over, true, memory_order_release);
    return rc;
}
