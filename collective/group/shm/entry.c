/* The entry of an operation on a board: what this process says of it there, and what it reads from the entries of
 * the others. run.c and pieces.c decide when; the fields and their orders are in layout.h. */
#include "collective/group/shm/pieces.h"

/* --- The own --- */

void muster_shm_describe(struct muster_run *run)
{
    struct muster_shm_entry *entry = muster_shm_of(run)->entry;

    entry->ordinal = muster_shm_of(run)->ordinal;
    entry->descriptor = run->descriptor;
    entry->weight = run->call.weight;
}

/* --- The others' --- */

/* A sum that goes through the inputs several times must read the own one from the slot: the tensor, which becomes
 * the result, has changed by the second time. Other sums write each element after they have read it. */
static bool is_slot_needed(const struct muster_run *run)
{
    return muster_shm_of(run)->slot != NULL && run->plan.algorithm == MUSTER_ALGORITHM_FLAT &&
           (run->call.user.reduce != NULL || run->call.is_weighted);
}

/* NULL: not mapped yet, or it makes no sense. */
static const uint8_t *find_input(const struct muster_run *run, uint32_t index,
                                 const struct muster_shm_part *part)
{
    const struct muster_shm_participant *participant = &muster_shm_of(run)->participants[index];
    const struct muster_shm_entry *entry = participant->entry;
    uint64_t at = entry->input_offset + part->first;

    if (participant->peer == NULL)
        return is_slot_needed(run) ? muster_shm_of(run)->slot
                                   : (const uint8_t *)run->call.input + part->first;
    switch ((enum muster_shm_input)entry->input) {
    case SHM_INPUT_NONE:
        return NULL;
    case SHM_INPUT_BOARD:
        if (at > participant->board_bytes || part->bytes > participant->board_bytes - at)
            return NULL;
        return participant->board + at;
    case SHM_INPUT_SHARE:
    case SHM_INPUT_COPY:
        return muster_board_share_at(participant->peer, entry->input_share, at, part->bytes);
    }
    return NULL;
}

/* The key repeats after 65,536 steps, the ordinal does not. */
static bool is_shown_by(const struct muster_run *run, const struct muster_shm_entry *entry,
                        const _Atomic uint64_t *key)
{
    return atomic_load_explicit(key, memory_order_acquire) == muster_shm_of(run)->key &&
           entry->ordinal == muster_shm_of(run)->ordinal;
}

/* The fields are copied between two looks at the key, since the owner may take the announcement back at any time. */
bool muster_shm_read_entry(const struct muster_run *run, uint32_t index,
                           const _Atomic uint64_t *key, struct muster_shm_shown_input *ret_shown)
{
    const struct muster_shm_entry *entry = muster_shm_of(run)->participants[index].entry;
    struct muster_shm_shown_input shown;

    if (!is_shown_by(run, entry, key))
        return false;
    shown.descriptor = entry->descriptor;
    shown.kind = entry->input;
    shown.part = muster_shm_part_of(run, index);
    shown.at = shown.part.bytes > 0 ? find_input(run, index, &shown.part) : NULL;
    shown.weight = entry->weight;
    /* Its owner writes this one field after the store to `opened`. */
    shown.done_before = key == &entry->ready ? entry->done_before : 0;
    atomic_thread_fence(memory_order_acquire);
    /* Else it was taken back, and may be another operation's by now. */
    if (!is_shown_by(run, entry, key))
        return false;
    *ret_shown = shown;
    return true;
}

void muster_shm_note_input(struct muster_run *run, uint32_t index,
                           const struct muster_shm_shown_input *shown)
{
    struct muster_shm_participant *participant = &muster_shm_of(run)->participants[index];

    participant->input = shown->at;
    participant->bytes = shown->part.bytes;
    muster_shm_of(run)->weights[index] = shown->weight;
    if (shown->kind != SHM_INPUT_COPY || participant->is_open)
        return;
    participant->is_open = true;
    muster_shm_of(run)->open_count++;
}

void muster_shm_hear_all_open(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_shm_shown_input shown;

    for (uint32_t i = 0; shm->open_count < shm->n && i < shm->n; i++)
        if (!shm->participants[i].is_open &&
            muster_shm_read_entry(run, i, &shm->participants[i].entry->opened, &shown) &&
            shown.descriptor == run->descriptor && shown.at != NULL)
            muster_shm_note_input(run, i, &shown);
}
