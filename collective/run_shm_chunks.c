/* A large all_reduce through boards: each participant sums the chunks that it owns, in rank order,
 * to where the others find them, and copies everybody's into its own tensor. */
#include "collective/shm_internal.h"

#include <string.h>

static uint32_t chunk_of(const struct muster_run *run, uint32_t stream, uint32_t j)
{
    return stream * run->plan.chunks_per_block + j;
}

void muster_shm_chunks_begin(struct muster_run *run)
{
    struct muster_shm_run *shm = run->shm;

    shm->stream_count = run->plan.block_count; /* owners of chunks */
    for (uint32_t s = 0; s < shm->stream_count; s++)
        shm->streams[s].producer = s;
}

static size_t offset_of(const struct muster_run *run, uint32_t c)
{
    return muster_plan_chunk(&run->plan, c).first * run->plan.element_bytes;
}

/* --- Summing --- */

/* A chunk's sum that a dead participant had whole when it died, and was about to put into its
 * place: its input may be gone. Else NULL. */
static const uint8_t *find_held(const struct muster_run *run, uint32_t c)
{
    const struct muster_shm_run *shm = run->shm;

    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *participant = &shm->participants[i];
        const struct muster_shm_entry *entry = participant->entry;
        size_t at = (size_t)entry->slot_at * SHM_LINE_BYTES;

        if (participant->is_dead &&
            atomic_load_explicit(&entry->held, memory_order_acquire) == c + 1 &&
            at + shm->slot_bytes <= participant->board_bytes)
            return participant->board + at;
    }
    return NULL;
}

/* False: the inputs are not what they were any more. */
static bool reduce(struct muster_run *run, uint32_t c, uint8_t *into)
{
    struct muster_shm_run *shm = run->shm;

    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = shm->participants[i].input + offset_of(run, c);
    muster_shm_reduce_all(run, into, muster_plan_chunk(&run->plan, c).count);
    return muster_shm_is_valid(run);
}

/* The chunk's place will be overwritten, where its input is: from now on the sum counts. */
static void hold(struct muster_run *run, uint32_t c)
{
    muster_shm_point(run, "before hold");
    atomic_store_explicit(&run->shm->entry->held, c + 1, memory_order_release);
    atomic_thread_fence(memory_order_release); /* before the next stores, too */
    muster_shm_point(run, "hold");
}

/* Sum chunk c into the output, and into the copy of the input that the others read, if there is one:
 * they find it in the place of this process's input. False: as above. */
static bool sum(struct muster_run *run, uint32_t c)
{
    struct muster_shm_run *shm = run->shm;
    const uint8_t *from;
    size_t bytes;
    uint8_t *output = muster_run_chunk_at(run, c, &bytes);

    atomic_thread_fence(memory_order_release); /* what the slot held has been published */
    from = find_held(run, c);
    if (from == NULL) {
        if (!reduce(run, c, shm->slot))
            return false;
        hold(run, c);
        from = shm->slot;
    }
    if (shm->stage.at != NULL)
        memcpy((uint8_t *)shm->stage.at + offset_of(run, c), from, bytes);
    memcpy(output, from, bytes);
    run->result.sent_bytes += bytes;
    return true;
}

static bool produce(struct muster_run *run, uint32_t s, uint32_t j)
{
    struct muster_shm_run *shm = run->shm;

    if (!sum(run, chunk_of(run, s, j))) {
        shm->is_blocked = true;
        return false;
    }
    shm->streams[s].next = j + 1;
    muster_shm_point(run, "before publish");
    atomic_store_explicit(&shm->entry->published[s], j + 1, memory_order_release);
    muster_shm_point(run, "publish");
    muster_shm_wake(run);
    return true;
}

/* --- Copying --- */

static uint32_t published(const struct muster_shm_run *shm, uint32_t producer, uint32_t stream)
{
    return atomic_load_explicit(&shm->participants[producer].entry->published[stream],
                                memory_order_acquire);
}

/* Who has summed chunk j of the stream, or will; its heir when it is dead, in the order of ranks.
 * Everybody finds the same, for the dead store no more. */
static uint32_t find_producer(const struct muster_run *run, uint32_t stream, uint32_t j)
{
    const struct muster_shm_run *shm = run->shm;
    uint32_t producer = stream;

    while (shm->participants[producer].is_dead && published(shm, producer, stream) <= j)
        producer = (producer + 1) % shm->n;
    return producer;
}

static bool copy(struct muster_run *run, uint32_t s, uint32_t j, const uint8_t *from)
{
    struct muster_shm_run *shm = run->shm;
    size_t bytes;
    uint8_t *into = muster_run_chunk_at(run, chunk_of(run, s, j), &bytes);

    muster_shm_point(run, "before copy");
    memcpy(into, from, bytes);
    if (!muster_shm_is_valid(run)) {
        shm->is_blocked = true;
        return false;
    }
    shm->streams[s].next = j + 1;
    muster_shm_point(run, "copy");
    return true;
}

/* --- All together --- */

/* The next chunk of the stream. True: something moved. */
static bool move(struct muster_run *run, uint32_t s)
{
    struct muster_shm_run *shm = run->shm;
    struct muster_shm_stream *stream = &shm->streams[s];

    if (stream->next == run->plan.chunks_per_block)
        return false;
    if (shm->participants[stream->producer].is_dead)
        stream->producer = find_producer(run, s, stream->next);
    if (stream->producer == shm->index)
        return produce(run, s, stream->next);
    return published(shm, stream->producer, s) > stream->next &&
           copy(run, s, stream->next,
                shm->participants[stream->producer].input +
                    offset_of(run, chunk_of(run, s, stream->next)));
}

bool muster_shm_chunks_move(struct muster_run *run)
{
    struct muster_shm_run *shm = run->shm;
    bool has_moved = false;

    for (uint32_t i = 0; i < shm->stream_count && !shm->is_blocked; i++)
        has_moved = move(run, (shm->index + i) % shm->stream_count) || has_moved;
    return has_moved;
}

bool muster_shm_chunks_are_whole(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->shm;

    for (uint32_t s = 0; s < shm->stream_count; s++)
        if (shm->streams[s].next < run->plan.chunks_per_block)
            return false;
    return true;
}
