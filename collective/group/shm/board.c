/* Look-ups on a board that every part of an operation needs: places and keys of operations, sizes of slots,
 * whether what was read is valid, and which participants are through. It only reads the boards of others;
 * the files beside it write the own one. */
#include "collective/group/shm/pieces.h"

/* Each member reads the whole input of every other one. So does the owner of a part, in effect, when there is one
 * other; with more of them each reads more than it would of parts. */
#define PIECES_MEMBERS_MAX 2u

struct muster_shm_board *muster_shm_board_of(struct muster_board *board)
{
    return (struct muster_shm_board *)(void *)board->memory;
}

const struct muster_shm_board *muster_shm_board_of_peer(const struct muster_board_peer *peer)
{
    return (const struct muster_shm_board *)(const void *)peer->memory;
}

/* --- Names of operations --- */

/* Rises in a lane, and does not repeat, unlike the key. */
uint64_t muster_shm_ordinal(const struct muster_op_id *id)
{
    return id->step << 32 | id->sequence;
}

/* Never 0; the same again only after 65,535 epochs or 65,536 steps. One word, so that one store announces an
 * operation; readers that must tell repetitions apart compare the ordinal, too. */
uint64_t muster_shm_key(uint64_t epoch, const struct muster_op_id *id)
{
    return (epoch % 65535 + 1) << 48 | (id->step & 0xFFFF) << 32 | id->sequence;
}

/* Alike on all members, whatever they took part in before: a counter of one's own would differ on a member that
 * joined later. The factor keeps the first operations of neighbouring steps apart. */
uint32_t muster_shm_entry_index(const struct muster_op_id *id)
{
    return (uint32_t)(id->step * 7 + id->sequence) % SHM_LANE_ENTRIES;
}

/* --- Failpoints and signals --- */

void muster_group_set_shm_failpoint(struct muster_group *group, muster_shm_point_fn *fn, void *data)
{
    group->shm_point = fn;
    group->shm_point_data = data;
}

void muster_shm_point(const struct muster_run *run, const char *point)
{
    if (run->group->shm_point != NULL)
        run->group->shm_point(run->group->shm_point_data, point);
}

void muster_shm_wake(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    for (uint32_t i = 0; i < shm->n; i++) {
        struct muster_board_peer *peer = shm->participants[i].peer;

        if (peer != NULL && atomic_load_explicit(&muster_shm_board_of_peer(peer)->is_asleep,
                                                 memory_order_relaxed) != 0)
            muster_board_signal(shm->link->board, peer);
    }
}

/* --- Slots --- */

static size_t line_up(size_t bytes)
{
    return (bytes + SHM_LINE_BYTES - 1) / SHM_LINE_BYTES * SHM_LINE_BYTES;
}

size_t muster_shm_marks_bytes(const struct muster_plan *plan)
{
    return (plan->chunk_count + SHM_MARK_BITS - 1) / SHM_MARK_BITS * sizeof(muster_shm_mark_word);
}

size_t muster_shm_chunk_slot_bytes(const struct muster_plan *plan)
{
    return line_up(plan->chunk_elements * plan->element_bytes);
}

size_t muster_shm_slot_bytes(const struct muster_plan *plan, size_t input_bytes)
{
    if (plan->algorithm == MUSTER_ALGORITHM_FLAT)
        return input_bytes;
    return plan->kind == MUSTER_OP_ALL_REDUCE
               ? muster_shm_chunk_slot_bytes(plan) + muster_shm_marks_bytes(plan)
               : 0;
}

/* --- Pieces --- */

bool muster_shm_may_go_by_pieces(const struct muster_run *run)
{
    return run->plan.algorithm == MUSTER_ALGORITHM_HOST && run->call.kind == MUSTER_OP_ALL_REDUCE &&
           run->plan.n <= PIECES_MEMBERS_MAX;
}

/* --- The others --- */

bool muster_shm_is_valid(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    bool is_large = run->plan.algorithm == MUSTER_ALGORITHM_HOST;

    /* The loads of the data come before those of the keys. It pairs with the release fence that an owner puts
     * between taking its key back, or leaving this member behind, and changing the data. */
    atomic_thread_fence(memory_order_acquire);
    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_entry *entry = shm->participants[i].entry;

        if (is_large &&
            (atomic_load_explicit(&entry->left, memory_order_acquire) >> shm->index & 1) != 0)
            return false;
        if (atomic_load_explicit(&entry->ready, memory_order_relaxed) != shm->key)
            return false;
    }
    return true;
}

uint64_t *muster_shm_said_done(const struct muster_run *run,
                               const struct muster_shm_participant *participant)
{
    const struct muster_shm *link = muster_shm_of(run)->link;

    return &link->done[(size_t)MUSTER_LANE_INDEX(run->id.lane) * link->n + participant->rank];
}

/* The participant does not need this process's memory for the operation any more. The cheapest answers come
 * first: a participant that is out, then what announcements have said, then the lines of its board. */
static bool is_complete(const struct muster_run *run,
                        const struct muster_shm_participant *participant)
{
    const struct muster_shm_entry *entry = participant->entry;

    if (participant->peer == NULL || muster_shm_is_out(participant))
        return true;
    if (*muster_shm_said_done(run, participant) > muster_shm_of(run)->ordinal)
        return true;
    if (run->state == MUSTER_RUN_DELIVERED && muster_shm_of(run)->looks % SHM_LOOKS_PER_DONE != 0)
        return false; /* it need not be known at once: leave the line to its owner */
    if (atomic_load_explicit(&participant->lane->done, memory_order_acquire) >
        muster_shm_of(run)->ordinal)
        return true;
    return atomic_load_explicit(&entry->ready, memory_order_acquire) == muster_shm_of(run)->key &&
           atomic_load_explicit(&entry->complete, memory_order_acquire) == muster_shm_of(run)->key;
}

bool muster_shm_is_through(const struct muster_run *run, uint32_t index)
{
    return is_complete(run, &muster_shm_of(run)->participants[index]);
}
