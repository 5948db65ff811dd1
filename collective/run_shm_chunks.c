/* Large operations through boards: each participant sums the chunks that it owns into its slots,
 * in rank order, and copies everybody's into its own tensor; or copies what others give. */
#include "collective/shm_internal.h"
#include "collective/kernels.h"

#include <string.h>

static bool is_pulled(const struct muster_run *run)
{
    return run->call.kind == MUSTER_OP_ALL_GATHER || run->call.kind == MUSTER_OP_BROADCAST;
}

/* Owners of chunks. */
static uint32_t stream_count(const struct muster_run *run)
{
    return run->plan.block_count;
}

static uint32_t chunk_of(const struct muster_run *run, uint32_t stream, uint32_t j)
{
    return stream * run->plan.chunks_per_block + j;
}

void muster_shm_chunks_begin(struct muster_run *run)
{
    struct muster_shm_run *shm = run->shm;

    shm->stream_count = stream_count(run);
    for (uint32_t s = 0; s < shm->stream_count; s++)
        shm->streams[s].producer = s;
    if (is_pulled(run))
        return;
    shm->productions[0].stream = shm->index;
    shm->production_count = 1;
}

/* --- Summing --- */

static const struct muster_shm_production *production_at(const struct muster_shm_run *shm,
                                                         uint32_t position)
{
    uint32_t i = shm->production_count - 1;

    while (shm->productions[i].base > position)
        i--;
    return &shm->productions[i];
}

/* Chunks of the stream before the result have been copied by all who live. */
static uint32_t count_freed(const struct muster_shm_run *shm, uint32_t stream)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *participant = &shm->participants[i];
        uint32_t copied;

        if (participant->is_dead)
            continue;
        copied = atomic_load_explicit(&participant->entry->copied[stream], memory_order_acquire);
        if (copied < least)
            least = copied;
    }
    return least;
}

static bool is_slot_free(struct muster_shm_run *shm, uint32_t position)
{
    const struct muster_shm_production *production;
    struct muster_shm_stream *stream;
    uint32_t j;

    if (position < shm->entry->slot_count)
        return true;
    position -= shm->entry->slot_count;
    production = production_at(shm, position);
    stream = &shm->streams[production->stream];
    j = production->first + position - production->base;
    if (stream->freed <= j)
        stream->freed = count_freed(shm, production->stream);
    return stream->freed > j;
}

/* The slot's lines are where they were read last. Stores of single registers would fetch each of
 * them from there first, a copy of whole lines does not: sums are made in scratch memory that stays
 * in the first cache, and copied from there to the slot and to the tensor. */
static uint8_t *scratch_for(const struct muster_run *run, size_t bytes)
{
    bool is_useful = run->call.kind == MUSTER_OP_ALL_REDUCE && bytes <= MUSTER_SHM_CHUNK_BYTES;

    return is_useful ? run->shm->link->scratch : NULL;
}

/* False: the inputs are not what they were any more. */
static bool sum(struct muster_run *run, uint32_t c, uint8_t *into)
{
    const struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, c);
    struct muster_shm_run *shm = run->shm;
    size_t bytes = chunk.count * run->plan.element_bytes;
    uint8_t *scratch = scratch_for(run, bytes);

    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = shm->participants[i].input + chunk.first * run->plan.element_bytes;
    muster_shm_reduce_all(run, scratch != NULL ? scratch : into, chunk.count);
    if (scratch != NULL)
        memcpy(into, scratch, bytes);
    shm->link->scratch_slot = scratch != NULL ? into : NULL;
    return muster_shm_is_valid(run);
}

/* A chunk of a reduce_scatter goes to its owner's output; nobody else wants it. */
static uint8_t *place_of(struct muster_run *run, uint32_t c, uint32_t position)
{
    struct muster_shm_run *shm = run->shm;
    size_t bytes;

    if (run->call.kind == MUSTER_OP_REDUCE_SCATTER)
        return muster_run_chunk_at(run, c, &bytes);
    return shm->slots + (size_t)(position % shm->entry->slot_count) * shm->slot_bytes;
}

/* Sum the next chunk of the streams that are this process's. */
static bool produce(struct muster_run *run)
{
    struct muster_shm_run *shm = run->shm;
    struct muster_shm_production *production;
    uint32_t position, c;

    if (shm->production_count == 0)
        return false;
    production = &shm->productions[shm->production_count - 1];
    if (production->first + production->next == run->plan.chunks_per_block)
        return false;
    position = production->base + production->next;
    if (run->call.kind == MUSTER_OP_ALL_REDUCE && !is_slot_free(shm, position))
        return false;
    c = chunk_of(run, production->stream, production->first + production->next);
    if (!sum(run, c, place_of(run, c, position))) {
        shm->is_blocked = true;
        return false;
    }
    production->next++;
    if (run->call.kind == MUSTER_OP_ALL_REDUCE)
        run->result.sent_bytes += muster_plan_chunk(&run->plan, c).count * run->plan.element_bytes;
    muster_shm_point(run, "before publish");
    atomic_store_explicit(&shm->entry->published[production->stream],
                          production->first + production->next, memory_order_release);
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

/* This process sums what the dead owner and its dead heirs have not. */
static void inherit(struct muster_run *run, uint32_t stream, uint32_t first)
{
    struct muster_shm_run *shm = run->shm;
    const struct muster_shm_production *last = &shm->productions[shm->production_count - 1];
    struct muster_shm_production *production = &shm->productions[shm->production_count];

    for (uint32_t i = 0; i < shm->production_count; i++)
        if (shm->productions[i].stream == stream)
            return;
    if (last->first + last->next < run->plan.chunks_per_block)
        return; /* one after another: its slots are needed for its own */
    production->stream = stream;
    production->first = first;
    production->base = last->base + last->next;
    production->next = 0;
    shm->entry->first[stream] = first;
    shm->entry->base[stream] = production->base;
    shm->production_count++;
}

/* Who has summed chunk j of the stream, or will; its heir when it is dead, in the order of ranks.
 * Everybody finds the same, for the dead store no more. */
static uint32_t find_producer(struct muster_run *run, uint32_t stream, uint32_t j)
{
    struct muster_shm_run *shm = run->shm;
    uint32_t first = 0, producer = stream;

    for (uint32_t k = 0; k < shm->n; k++, producer = (producer + 1) % shm->n) {
        uint32_t end;
        bool is_dead = shm->participants[producer].is_dead;

        end = published(shm, producer, stream);
        if (end > j || (!is_dead && producer != shm->index))
            return producer;
        if (first < end)
            first = end;
        if (producer == shm->index) {
            if (producer != stream)
                inherit(run, stream, first);
            return producer;
        }
    }
    return stream;
}

static const uint8_t *slot_of(const struct muster_run *run, uint32_t producer, uint32_t stream,
                              uint32_t j)
{
    const struct muster_shm_run *shm = run->shm;
    const struct muster_shm_participant *participant = &shm->participants[producer];
    const struct muster_shm_entry *entry = participant->entry;
    uint32_t position = entry->base[stream] + j - entry->first[stream];
    size_t at = (size_t)entry->slots_at * SHM_LINE_BYTES;

    if (entry->slot_count == 0)
        return NULL;
    at += (size_t)(position % entry->slot_count) * shm->slot_bytes;
    if (at + shm->slot_bytes > participant->board_bytes)
        return NULL;
    return participant->board + at == shm->link->scratch_slot ? shm->link->scratch
                                                              : participant->board + at;
}

/* Where chunk j of the stream can be read now, or NULL. */
static const uint8_t *find_chunk(struct muster_run *run, uint32_t s, uint32_t j)
{
    struct muster_shm_run *shm = run->shm;
    struct muster_shm_stream *stream = &shm->streams[s];

    if (is_pulled(run)) {
        uint32_t giver = run->call.kind == MUSTER_OP_BROADCAST ? run->plan.root : s;

        return shm->participants[giver].input +
               (size_t)j * run->plan.chunk_elements * run->plan.element_bytes;
    }
    if (published(shm, stream->producer, s) <= j) {
        if (!shm->participants[stream->producer].is_dead && stream->producer != shm->index)
            return NULL;
        stream->producer = find_producer(run, s, j);
        if (published(shm, stream->producer, s) <= j)
            return NULL;
    }
    return slot_of(run, stream->producer, s, j);
}

static bool copy_next(struct muster_run *run, uint32_t s)
{
    struct muster_shm_run *shm = run->shm;
    struct muster_shm_stream *stream = &shm->streams[s];
    const uint8_t *from;
    uint8_t *into;
    size_t bytes;

    if (stream->next == run->plan.chunks_per_block)
        return false;
    from = find_chunk(run, s, stream->next);
    if (from == NULL)
        return false;
    into = muster_run_chunk_at(run, chunk_of(run, s, stream->next), &bytes);
    muster_shm_point(run, "before copy");
    if (into != from)
        memcpy(into, from, bytes);
    if (!muster_shm_is_valid(run)) {
        shm->is_blocked = true;
        return false;
    }
    stream->next++;
    muster_shm_point(run, "copy");
    atomic_store_explicit(&shm->entry->copied[s], stream->next, memory_order_release);
    muster_shm_point(run, "copied");
    return true;
}

/* --- All together --- */

static bool is_wanted(const struct muster_run *run, uint32_t s)
{
    return run->call.kind != MUSTER_OP_REDUCE_SCATTER || s == run->shm->index;
}

bool muster_shm_chunks_move(struct muster_run *run)
{
    struct muster_shm_run *shm = run->shm;
    bool has_moved = produce(run);

    if (run->call.kind == MUSTER_OP_REDUCE_SCATTER)
        return has_moved;
    for (uint32_t i = 0; i < shm->stream_count && !shm->is_blocked; i++)
        has_moved = copy_next(run, (shm->index + i) % shm->stream_count) || has_moved;
    return has_moved;
}

bool muster_shm_chunks_are_whole(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->shm;

    if (run->call.kind == MUSTER_OP_REDUCE_SCATTER)
        return shm->productions[0].next == run->plan.chunks_per_block;
    for (uint32_t s = 0; s < shm->stream_count; s++)
        if (is_wanted(run, s) && shm->streams[s].next < run->plan.chunks_per_block)
            return false;
    return true;
}
