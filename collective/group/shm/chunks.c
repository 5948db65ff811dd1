/* A large all_reduce through boards: each participant sums the chunks that it owns, in rank order,
 * to where the others find them, and copies everybody's into its own tensor. run.c calls it for each look;
 * chunks of participants that are out are takeover.c's. The protocol is in docs/boards.md, "In place". */
#include "collective/group/shm/shm_internal.h"

#include <string.h>

/* So much is summed before copying begins: in turns both are slower (1 MiB: 3 to 5 %). */
#define AHEAD_BYTES ((size_t)512 << 10)
/* Rounds of one look, before the loop looks for anything else: 1 MiB of chunks of 64 KiB for each stream. */
#define MOVES_MAX 16u

static uint32_t chunk_of(const struct muster_run *run, uint32_t stream, uint32_t j)
{
    return stream * run->plan.chunks_per_block + j;
}

void muster_shm_chunks_begin(struct muster_run *run)
{
    muster_shm_of(run)->stream_count = run->plan.block_count; /* owners of chunks */
}

/* --- Summing --- */

/* The next chunk of its own. */
static bool produce_chunk(struct muster_run *run, uint32_t j)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t c = chunk_of(run, shm->index, j);

    if (!muster_shm_reduce_chunk(run, c))
        return false;
    /* Sum, hold, place, publish, in this order: wherever the owner dies, the sum or the whole input is left. */
    muster_shm_hold_chunk(run, c);
    muster_shm_place_chunk(run, c, shm->slot);
    shm->streams[shm->index].next = j + 1;
    muster_shm_point(run, "before publish");
    atomic_store_explicit(&shm->entry->published, j + 1, memory_order_release);
    muster_shm_point(run, "publish");
    muster_shm_wake(run);
    return true;
}

/* --- Copying --- */

static bool copy_chunk(struct muster_run *run, uint32_t s, uint32_t j, const uint8_t *from)
{
    struct muster_shm_run *shm = run->executor;
    size_t bytes;
    uint8_t *into = muster_run_chunk_at(run, chunk_of(run, s, j), &bytes);

    muster_shm_point(run, "before copy");
    shm->is_begun = true;
    memcpy(into, from, bytes);
    /* The source may have gone on without this process, and its tensor be the next operation's. */
    if (!muster_shm_is_valid(run))
        return false;
    shm->streams[s].next = j + 1;
    muster_shm_point(run, "copy");
    return true;
}

/* The participant that shows the sum of chunk j of the stream; n: none yet. Heirs take only chunks of those that
 * are out, so the marks of a stream whose owner works are not looked at. */
static uint32_t find_sum(const struct muster_run *run, uint32_t s, uint32_t j)
{
    const struct muster_shm_participant *owner = &muster_shm_of(run)->participants[s];

    if (atomic_load_explicit(&owner->entry->published, memory_order_acquire) > j)
        return s;
    return muster_shm_is_out(owner) ? muster_shm_find_taken_over(run, chunk_of(run, s, j))
                                    : muster_shm_of(run)->n;
}

/* --- All together --- */

/* The next chunk of the stream. True: something moved. */
static bool move_stream(struct muster_run *run, uint32_t s)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t j = shm->streams[s].next, from;

    if (j == run->plan.chunks_per_block)
        return false;
    if (s == shm->index)
        return produce_chunk(run, j);
    from = find_sum(run, s, j);
    if (from == shm->n)
        return false;
    if (from == shm->index) { /* where it was placed when it was summed */
        shm->streams[s].next++;
        return true;
    }
    return copy_chunk(run, s, j,
                      shm->participants[from].input +
                          muster_shm_chunk_offset(run, chunk_of(run, s, j)));
}

/* The others have enough to copy, so this process may copy, too. Its own sums are what they wait for. */
static bool has_sums_to_spare(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    uint64_t chunk_bytes = run->plan.chunk_elements * run->plan.element_bytes;
    uint32_t next = shm->streams[shm->index].next;

    return next == run->plan.chunks_per_block ||
           next > shm->streams[(shm->index + 1) % shm->n].next + AHEAD_BYTES / chunk_bytes;
}

static bool move_once(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    bool has_moved = false;

    if (!has_sums_to_spare(run))
        return move_stream(run, shm->index);
    for (uint32_t i = 0; i < shm->stream_count && !shm->is_blocked; i++)
        has_moved = move_stream(run, (shm->index + i) % shm->stream_count) || has_moved;
    return has_moved;
}

bool muster_shm_chunks_move(struct muster_run *run)
{
    bool has_moved = false;

    MUSTER_ASSERT(muster_shm_of(run)->ready_count == muster_shm_of(run)->n);
    for (unsigned i = 0; i < MOVES_MAX && !muster_shm_of(run)->is_blocked && move_once(run); i++)
        has_moved = true;
    /* Only a process that has nothing else to do takes over: its own chunks and its copies come first. */
    return has_moved || (!muster_shm_of(run)->is_blocked && muster_shm_take_over(run));
}

bool muster_shm_chunks_are_whole(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    for (uint32_t s = 0; s < shm->stream_count; s++)
        if (shm->streams[s].next < run->plan.chunks_per_block)
            return false;
    return true;
}
