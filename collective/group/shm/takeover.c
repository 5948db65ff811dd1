/* Work stealing after a failure: idle members reduce the chunks that a dead or excluded
 * participant had not published.
 *
 * No member is asked. A process shows on its board which chunk it has taken, so that the others
 * take another; and it marks those whose sum stands in the place of its input. Two that take the
 * same chunk at once sum the same bits, unless one has begun to place them, where the other
 * reads: that one sees it afterwards, and drops its sum. */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

#include <string.h>

/* Looks in vain after which a process takes a chunk that another heir has taken: that heir may be stopped, and
 * `taken` is only a hint. Fewer would sum chunks twice whenever an heir needs a moment longer. */
#define IDLE_LOOKS_MAX 64u

/* NULL: the slot would lie outside of the board. slot_at was read from the participant's memory, which may hold
 * anything. */
static const uint8_t *slot_of(const struct muster_run *run, uint32_t i)
{
    const struct muster_shm_participant *participant = &muster_shm_of(run)->participants[i];
    size_t at = (size_t)participant->entry->slot_at * SHM_LINE_BYTES;

    return at + muster_shm_of(run)->slot_bytes > participant->board_bytes ? NULL
                                                                          : participant->board + at;
}

static bool is_marked(const struct muster_run *run, uint32_t i, uint32_t c)
{
    const uint8_t *slot = slot_of(run, i);
    const muster_shm_mark_word *marks;

    if (slot == NULL)
        return false;
    marks = (const muster_shm_mark_word *)(const void *)(slot + muster_shm_of(run)->marks_offset);
    return (atomic_load_explicit(&marks[c / SHM_MARK_BITS], memory_order_acquire) >>
                c % SHM_MARK_BITS &
            1) != 0;
}

static void mark_chunk(struct muster_run *run, uint32_t c)
{
    struct muster_shm_run *shm = run->executor;
    muster_shm_mark_word *word =
        (muster_shm_mark_word *)(void *)(shm->slot + shm->marks_offset) + c / SHM_MARK_BITS;
    uint64_t marks = atomic_load_explicit(word, memory_order_relaxed);

    MUSTER_ASSERT(c < run->plan.chunk_count && shm->slot != NULL);
    muster_shm_point(run, "before mark");
    /* The owner alone writes its marks, so it needs no read-modify-write. Release: the sum comes first. */
    atomic_store_explicit(word, marks | UINT64_C(1) << c % SHM_MARK_BITS, memory_order_release);
    muster_shm_point(run, "mark");
}

uint32_t muster_shm_find_taken_over(const struct muster_run *run, uint32_t c)
{
    const struct muster_shm_run *shm = run->executor;

    /* The own marks first: the sum is in the output already. */
    for (uint32_t i = 0; i < shm->n; i++) {
        uint32_t participant = (shm->index + i) % shm->n;

        if (is_marked(run, participant, c))
            return participant;
    }
    return shm->n;
}

static bool is_held(const struct muster_shm_participant *participant, uint32_t c)
{
    return atomic_load_explicit(&participant->entry->held, memory_order_acquire) == c + 1;
}

/* Another heir is at it. One that holds the chunk is waited for however long it takes: its place may be half
 * overwritten, and only a participant that is out gives up its slot (find_held). */
static bool is_in_hand(const struct muster_run *run, uint32_t c)
{
    const struct muster_shm_run *shm = run->executor;

    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *participant = &shm->participants[i];

        if (i == shm->index || muster_shm_is_out(participant))
            continue;
        if (is_held(participant, c) ||
            (shm->idle < IDLE_LOOKS_MAX &&
             atomic_load_explicit(&participant->entry->taken, memory_order_relaxed) == c + 1))
            return true;
    }
    return false;
}

/* The sum stands in somebody's tensor: the owner's, who has published it, or an heir's. */
static bool is_shown(const struct muster_run *run, uint32_t c)
{
    const struct muster_shm_entry *owner =
        muster_shm_of(run)->participants[c / run->plan.chunks_per_block].entry;

    return muster_shm_find_taken_over(run, c) < muster_shm_of(run)->n ||
           atomic_load_explicit(&owner->published, memory_order_acquire) >
               c % run->plan.chunks_per_block;
}

/* Somebody has begun to overwrite inputs with the sum. `held` is loaded first: a participant that holds another
 * chunk by now has shown this one before, and the loads of is_shown come after and see that. */
static bool is_begun(const struct muster_run *run, uint32_t c)
{
    for (uint32_t i = 0; i < muster_shm_of(run)->n; i++)
        if (is_held(&muster_shm_of(run)->participants[i], c))
            return true;
    return is_shown(run, c);
}

/* The sum of a participant that is out and was about to place it: its input may be gone, so the chunk cannot be
 * summed anew. One that lives may go on meanwhile: false when it has shown its sum and its slot may have
 * another. The copy counts only if the slot still holds the chunk after it, as with a seqlock. */
static bool take_held(struct muster_run *run, uint32_t i, uint32_t c)
{
    const uint8_t *slot = slot_of(run, i);

    atomic_thread_fence(memory_order_release); /* what the own slot held has been shown */
    if (slot == NULL)
        return false;
    muster_shm_point(run, "before take");
    memcpy(muster_shm_of(run)->slot, slot, muster_shm_of(run)->marks_offset);
    return muster_shm_is_valid(run) && is_held(&muster_shm_of(run)->participants[i], c) &&
           !is_shown(run, c);
}

/* True: the own slot has the sum of the chunk. */
static bool find_held(struct muster_run *run, uint32_t c)
{
    for (uint32_t i = 0; i < muster_shm_of(run)->n; i++)
        if (muster_shm_is_out(&muster_shm_of(run)->participants[i]) &&
            is_held(&muster_shm_of(run)->participants[i], c))
            return take_held(run, i, c);
    return false;
}

/* True: chunk *ret_c is to be summed. Members copy the chunks of a participant in order, so its earliest one that
 * nobody shows is the one that they wait for. */
static bool find_left(const struct muster_run *run, uint32_t *ret_c)
{
    const struct muster_shm_run *shm = run->executor;

    for (uint32_t s = 0; s < shm->stream_count; s++)
        for (uint32_t j = shm->streams[s].next;
             muster_shm_is_out(&shm->participants[s]) && j < run->plan.chunks_per_block; j++) {
            uint32_t c = s * run->plan.chunks_per_block + j;

            if (is_shown(run, c) || is_in_hand(run, c))
                continue;
            *ret_c = c;
            return true;
        }
    return false;
}

/* Into the slot. False: the inputs are not what they were any more. The question whether somebody has begun
 * must come after the sum: an input that changed during it would be in the sum else. */
static bool sum_chunk(struct muster_run *run, uint32_t c)
{
    return muster_shm_reduce_chunk(run, c) && !is_begun(run, c);
}

bool muster_shm_take_over(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t c;

    MUSTER_ASSERT(shm->slot != NULL && shm->ready_count == shm->n);
    if (!find_left(run, &c)) {
        shm->idle++;
        return false;
    }
    shm->idle = 0;
    atomic_store_explicit(&shm->entry->taken, c + 1, memory_order_relaxed);
    muster_shm_point(run, "taken");
    if (!find_held(run, c) && !sum_chunk(run, c))
        return false;
    /* Held before placed, and marked after: an heir may die between any two, and the next one finds the sum in
     * the slot or in the place (docs/boards.md, "In place"). */
    muster_shm_hold_chunk(run, c);
    muster_shm_place_chunk(run, c, shm->slot);
    mark_chunk(run, c);
    muster_shm_wake(run);
    return true;
}
