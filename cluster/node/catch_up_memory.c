/* Chunks read in the memory of members on the same host: no work of the member, and half of the copies that a
 * connection needs. A tensor that the member shares is mapped here already. Other memory the kernel copies, which takes
 * it about as long as a connection, so threads do that; they hash what they have read while it is in their caches. A
 * member may begin to write while its memory is read; the hash shows that, as for chunks that it sends. */
#include <string.h>

#include "cluster/node/catch_up_internal.h"
#include "runtime/system/aside_system.h"

/* A millisecond or two; the loop goes on between two slices. */
#define SHARED_CHUNKS_A_TURN 32
#define READERS              4
#define READER_CHUNKS        32 /* for one thread at a time: 8 MiB */

/* One chunk that a thread reads. */
struct reading {
    struct fetch_source *source;
    struct muster_board_reader by;
    uint64_t from;
    uint32_t chunk, bytes;
    void *to;
    bool is_read;
    uint8_t hash[MUSTER_HASH128_BYTES];
};

struct fetch_reader {
    struct fetch *fetch;
    struct muster_aside *aside; /* NULL: there was no memory for it */
    uint32_t count;             /* under way */
    struct reading readings[READER_CHUNKS];
};

static struct muster_board_peer *peer_of(const struct fetch_source *source)
{
    struct muster_board *board = source->fetch->board;
    struct muster_board_peer *peer;

    if (board == NULL || source->state != FETCH_SOURCE_AGREES || source->is_unreadable ||
        source->tensors == NULL || source->fetch->is_ahead)
        return NULL;
    peer = muster_board_find(board, &source->incarnation);
    return peer != NULL && peer->is_ready ? peer : NULL;
}

static const struct muster_state_tensor *tensor_of(const struct fetch_source *source,
                                                   uint32_t chunk, uint64_t *ret_offset)
{
    return &source->tensors[muster_state_chunk_tensor(source->fetch->chunks, chunk, ret_offset)];
}

/* On both sides the chunk lies in the host's memory. */
static bool is_readable(const struct fetch_source *source, uint32_t chunk)
{
    uint64_t offset;

    return peer_of(source) != NULL && tensor_of(source, chunk, &offset)->address != 0 &&
           muster_state_chunk_memory(source->fetch->chunks, chunk) == NULL;
}

/* One that has not told the hash of chunk, if there is any. */
static struct fetch_source *choose_source(const struct fetch *fetch, uint32_t chunk)
{
    struct fetch_source *hasher = NULL;

    for (size_t i = 0; i < fetch->source_count; i++) {
        struct fetch_source *source = &fetch->sources[(chunk + i) % fetch->source_count];

        if (!is_readable(source, chunk))
            continue;
        if (fetch->hashed_by[chunk] != (uint32_t)(source - fetch->sources))
            return source;
        hasher = source;
    }
    return muster_fetch_hashes_are_in_question(fetch) ? NULL : hasher;
}

bool muster_fetch_has_memory(const struct fetch *fetch)
{
    if (fetch->missing_count == 0 || fetch->board == NULL)
        return false;
    for (size_t i = 0; i < fetch->source_count; i++)
        if (is_readable(&fetch->sources[i], fetch->missing[fetch->missing_count - 1]))
            return true;
    return false;
}

static const uint8_t *shared_at(const struct fetch_source *source, uint32_t chunk, uint32_t bytes)
{
    uint64_t offset;
    const struct muster_state_tensor *tensor = tensor_of(source, chunk, &offset);

    return tensor->share_end > 0 ? muster_board_share_at(peer_of(source), tensor->share_end - 1,
                                                         tensor->share_offset + offset, bytes)
                                 : NULL;
}

static struct fetch_reader *idle_reader(const struct fetch *fetch)
{
    for (unsigned i = 0; fetch->readers != NULL && i < READERS; i++)
        if (fetch->readers[i].aside != NULL && fetch->readers[i].count == 0)
            return &fetch->readers[i];
    return NULL;
}

bool muster_fetch_can_read(const struct fetch *fetch)
{
    uint32_t chunk, bytes;
    const struct fetch_source *source;

    if (!muster_fetch_has_memory(fetch))
        return false;
    chunk = fetch->missing[fetch->missing_count - 1];
    source = choose_source(fetch, chunk);
    (void)muster_state_chunk_at(fetch->chunks, chunk, &bytes);
    return source != NULL && (fetch->readers == NULL || idle_reader(fetch) != NULL ||
                              shared_at(source, chunk, bytes) != NULL);
}

/* --- What has been read --- */

static void give_up_reading(struct fetch_source *source, const char *why)
{
    MUSTER_LOG(source->fetch->env, DEBUG, "state_not_readable", "source", source->name, "reason",
               why);
    source->is_unreadable = true;
}

/* False: they are others than announced. The chunk is missing until that is known, for what follows from it may hand
 * out what is missing, and must not find all there. */
static bool take_read(struct fetch_source *source, uint32_t chunk,
                      const uint8_t hash[MUSTER_HASH128_BYTES])
{
    struct fetch *fetch = source->fetch;
    uint64_t before = fetch->owner->bytes_fetched;
    uint32_t bytes;
    const void *at = muster_state_chunk_at(fetch->chunks, chunk, &bytes);

    fetch->missing[fetch->missing_count++] = chunk;
    if (!muster_fetch_source_take_bytes(source, chunk, at, hash))
        return false;
    fetch->missing_count--;
    fetch->owner->bytes_read += fetch->owner->bytes_fetched - before;
    return true;
}

/* --- Threads --- */

static enum muster_rc read_chunks(void *data)
{
    struct fetch_reader *reader = data;

    for (uint32_t i = 0; i < reader->count; i++) {
        struct reading *reading = &reader->readings[i];

        reading->is_read = reading->by.read(reading->by.pid, reading->from, reading->to,
                                            reading->bytes) == MUSTER_OK;
        if (reading->is_read)
            muster_hash128(reading->to, reading->bytes, reading->hash);
    }
    return MUSTER_OK;
}

/* That a source has sent wrong bytes is told once: it may have refused, or be gone, since. */
static bool may_take(const struct reading *reading)
{
    return reading->source->state == FETCH_SOURCE_AGREES ||
           memcmp(reading->hash, reading->source->fetch->hashes[reading->chunk],
                  MUSTER_HASH128_BYTES) == 0;
}

static void on_read(void *data, enum muster_rc rc)
{
    struct fetch_reader *reader = data;
    struct fetch *fetch = reader->fetch;

    (void)rc;
    for (uint32_t i = 0; i < reader->count && !fetch->is_finished; i++) {
        const struct reading *reading = &reader->readings[i];

        if (!reading->is_read)
            give_up_reading(reading->source, "it cannot be read there");
        if (reading->is_read && may_take(reading))
            (void)take_read(reading->source, reading->chunk, reading->hash);
        else
            fetch->missing[fetch->missing_count++] = reading->chunk;
    }
    fetch->reading_count -= reader->count;
    reader->count = 0;
    if (!fetch->is_finished)
        fetch->on_changed(fetch);
}

static void open_readers(struct fetch *fetch)
{
    fetch->readers = muster_mem_alloc_zero(fetch->env->mem, READERS, sizeof(*fetch->readers));
    for (unsigned i = 0; fetch->readers != NULL && i < READERS; i++) {
        struct fetch_reader *reader = &fetch->readers[i];

        reader->fetch = fetch;
        if (muster_aside_open(fetch->env, &reader->aside) == MUSTER_OK)
            muster_aside_keep_priority(reader->aside); /* the members wait */
    }
}

void muster_fetch_memory_fini(struct fetch *fetch)
{
    for (unsigned i = 0; fetch->readers != NULL && i < READERS; i++)
        muster_aside_close(fetch->readers[i].aside);
    muster_mem_free(fetch->env->mem, fetch->readers);
}

/* False: this source's memory is not for threads. */
static bool add_reading(struct fetch_reader *reader, struct fetch_source *source, uint32_t chunk)
{
    struct reading *reading = &reader->readings[reader->count];
    uint64_t offset;
    const struct muster_state_tensor *tensor = tensor_of(source, chunk, &offset);

    if (!muster_board_reader_of(peer_of(source), &reading->by))
        return false;
    reading->source = source;
    reading->from = tensor->address + offset;
    reading->chunk = chunk;
    reading->to = muster_state_chunk_at(reader->fetch->chunks, chunk, &reading->bytes);
    muster_state_hashes_forget(reader->fetch->chunks, chunk);
    reader->count++;
    return true;
}

/* Few missing chunks are divided among all threads. */
static uint32_t count_for_one(const struct fetch *fetch)
{
    uint32_t count = (fetch->missing_count + READERS - 1) / READERS;

    return count < READER_CHUNKS ? count : READER_CHUNKS;
}

static void start_reader(struct fetch *fetch, struct fetch_reader *reader)
{
    uint32_t count = count_for_one(fetch);

    while (reader->count < count && fetch->missing_count > 0) {
        uint32_t chunk = fetch->missing[fetch->missing_count - 1];
        struct fetch_source *source = choose_source(fetch, chunk);

        if (source == NULL)
            break;
        if (!add_reading(reader, source, chunk)) {
            give_up_reading(source, "the system does not allow it");
            continue;
        }
        fetch->missing_count--;
    }
    fetch->reading_count += reader->count;
    if (reader->count > 0)
        muster_aside_start(reader->aside, read_chunks, on_read, reader);
}

/* --- Slices --- */

/* There is no memory for threads: the members send what is missing. */
static void give_up_all(struct fetch *fetch)
{
    for (size_t i = 0; i < fetch->source_count; i++)
        give_up_reading(&fetch->sources[i], "no memory for a thread");
}

/* False: the chunk lies in no memory that is mapped here. */
static bool copy_shared(struct fetch_source *source, uint32_t chunk,
                        uint8_t ret_hash[MUSTER_HASH128_BYTES])
{
    struct fetch *fetch = source->fetch;
    uint32_t bytes;
    void *to = muster_state_chunk_at(fetch->chunks, chunk, &bytes);
    const uint8_t *from;

    muster_board_reading_start(fetch->board);
    from = shared_at(source, chunk, bytes);
    if (from != NULL) {
        muster_state_hashes_forget(fetch->chunks, chunk);
        memcpy(to, from, bytes);
        muster_hash128(to, bytes, ret_hash);
    }
    muster_board_reading_stop(fetch->board);
    return from != NULL;
}

void muster_fetch_read_memory(struct fetch *fetch)
{
    for (unsigned i = 0; i < SHARED_CHUNKS_A_TURN && fetch->missing_count > 0; i++) {
        uint32_t chunk = fetch->missing[fetch->missing_count - 1];
        struct fetch_source *source = choose_source(fetch, chunk);
        struct fetch_reader *reader;
        uint8_t hash[MUSTER_HASH128_BYTES];

        if (source == NULL)
            return;
        if (copy_shared(source, chunk, hash)) {
            fetch->missing_count--;
            if (!take_read(source, chunk, hash))
                return;
            continue;
        }
        if (fetch->readers == NULL)
            open_readers(fetch);
        reader = idle_reader(fetch);
        if (reader == NULL && fetch->reading_count == 0)
            give_up_all(fetch);
        if (reader == NULL)
            return;
        start_reader(fetch, reader);
    }
}
