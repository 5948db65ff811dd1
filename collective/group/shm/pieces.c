/* A large all_reduce of two members whose inputs are both copies in staging areas: each copies its input, and sums
 * the copies into its own tensor, piece by piece, so that pieces are read while they are in the caches. The copies
 * stay as they are, so nobody holds or publishes sums, and a tensor that has changed is restored from its copy.
 * run.c calls this until the announcement, and after it; the protocol is in docs/boards.md, "Copies of two
 * members". */
#include "collective/group/shm/pieces.h"

/* So much is copied before the sum of what was copied first: two members that run side by side seldom wait for
 * each other, and it still lies in the second-level cache (1 MiB to 16 MiB: half of it and twice as much are 2 to
 * 13 % slower). */
#define AHEAD_BYTES ((size_t)512 << 10)
/* Pieces of one look, before the loop looks for anything else: 1 MiB of chunks of 64 KiB. */
#define MOVES_MAX 16u

bool muster_shm_goes_by_pieces(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    return shm->open_count == shm->n;
}

static size_t piece_bytes(const struct muster_run *run, uint32_t c)
{
    return muster_plan_chunk(&run->plan, c).count * run->plan.element_bytes;
}

static uint8_t *stage_at(const struct muster_run *run, uint32_t c)
{
    return (uint8_t *)muster_shm_of(run)->stage.at + muster_shm_chunk_offset(run, c);
}

/* --- Showing --- */

void muster_shm_pieces_open(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_shm_entry *entry = shm->entry;

    MUSTER_ASSERT(!shm->is_announced && !shm->is_open && shm->stage.at != NULL);
    entry->input = SHM_INPUT_COPY;
    muster_shm_describe(run);
    atomic_store_explicit(&entry->staged, shm->staged, memory_order_relaxed);
    muster_shm_point(run, "before open");
    /* Last, with release: a member that loads the key with acquire finds the copy and the fields. */
    atomic_store_explicit(&entry->opened, shm->key, memory_order_release);
    shm->is_open = true;
    muster_shm_point(run, "open");
    muster_shm_wake(run);
}

static void stage_piece(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t c = shm->staged;

    muster_shm_stage_copy(run, muster_shm_chunk_offset(run, c), piece_bytes(run, c));
    shm->staged = c + 1;
    if (!shm->is_open)
        return;
    muster_shm_point(run, "before stage");
    atomic_store_explicit(&shm->entry->staged, c + 1, memory_order_release);
    muster_shm_point(run, "stage");
    muster_shm_wake(run);
}

/* --- Summing --- */

/* The participant has copied piece c. Its count is loaded again only when the last one does not say so. */
static bool is_staged_by(const struct muster_run *run, uint32_t i, uint32_t c)
{
    struct muster_shm_participant *participant = &muster_shm_of(run)->participants[i];

    if (participant->peer == NULL)
        return muster_shm_of(run)->staged > c;
    if (participant->staged <= c)
        participant->staged =
            atomic_load_explicit(&participant->entry->staged, memory_order_acquire);
    return participant->staged > c;
}

static bool is_staged_by_all(const struct muster_run *run, uint32_t c)
{
    for (uint32_t i = 0; i < muster_shm_of(run)->n; i++)
        if (!is_staged_by(run, i, c))
            return false;
    return true;
}

/* A sum that goes through the inputs several times must not read the tensor, which becomes the result. */
static const uint8_t *own_input(const struct muster_run *run, uint32_t c)
{
    if (run->call.user.reduce != NULL || run->call.is_weighted)
        return stage_at(run, c);
    return (const uint8_t *)run->call.input + muster_shm_chunk_offset(run, c);
}

/* A copy may be another's by now. So sums count only when all announcements are looked at, after the last. */
static void sum_piece(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t c = shm->summed;
    size_t bytes;
    uint8_t *output = muster_run_chunk_at(run, c, &bytes);

    muster_shm_point(run, "before sum");
    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = i == shm->index
                              ? own_input(run, c)
                              : shm->participants[i].input + muster_shm_chunk_offset(run, c);
    muster_shm_reduce_all(run, output, bytes / run->plan.element_bytes);
    shm->summed = c + 1;
    if (c / run->plan.chunks_per_block == shm->index) /* as if each sent its sums: shm_plan_cost */
        run->result.sent_bytes += bytes;
    muster_shm_point(run, "summed");
}

/* --- All together --- */

/* Copies are so far ahead of sums that the next sum is due; of a short operation by half of it. */
static bool is_ahead(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    uint64_t ahead = AHEAD_BYTES / (run->plan.chunk_elements * run->plan.element_bytes);
    uint32_t count = run->plan.chunk_count, by = shm->staged - shm->summed;

    return by > 0 && (shm->staged == count || by >= ahead || by >= count / 2);
}

/* A member for which the other one is not ready goes on copying. */
static bool move_piece(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    if (is_ahead(run) && muster_shm_goes_by_pieces(run) && is_staged_by_all(run, shm->summed))
        sum_piece(run);
    else if (shm->staged < run->plan.chunk_count)
        stage_piece(run);
    else
        return false;
    return true;
}

bool muster_shm_pieces_are_staged(const struct muster_run *run)
{
    return muster_shm_of(run)->is_open && muster_shm_of(run)->staged == run->plan.chunk_count;
}

/* The announcement comes as soon as it can: the other member may go on without this one from then on. */
static bool may_move(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    return !shm->is_blocked && (shm->is_announced || !muster_shm_pieces_are_staged(run));
}

bool muster_shm_pieces_move(struct muster_run *run)
{
    bool has_moved = false;

    MUSTER_ASSERT(muster_shm_of(run)->stage.at != NULL);
    muster_shm_hear_all_open(run);
    for (unsigned i = 0; i < MOVES_MAX && may_move(run) && move_piece(run); i++)
        has_moved = true;
    return has_moved;
}

bool muster_shm_pieces_are_whole(const struct muster_run *run)
{
    return muster_shm_of(run)->summed == run->plan.chunk_count && muster_shm_is_valid(run);
}

void muster_shm_pieces_restore(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    for (; shm->summed > 0; shm->summed--) {
        size_t bytes;
        uint8_t *output = muster_run_chunk_at(run, shm->summed - 1, &bytes);

        if (run->call.output == run->call.input)
            muster_shm_copy(output, stage_at(run, shm->summed - 1), bytes);
    }
}
