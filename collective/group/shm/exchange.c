/* Operations through boards in which every member takes its own part of what the others show:
 * copies of it, or its sum. run.c calls these once all have announced the operation; a large all_reduce alone
 * goes by chunks.c instead. Small operations take everything at once, large ones piece by piece. */
#include "collective/group/shm/shm_internal.h"

#include <muster/hash.h>

#include <string.h>

/* --- Inputs that members show, and the parts that the others take of them --- */

static uint64_t whole_bytes(const struct muster_run *run)
{
    return run->call.count * run->plan.element_bytes;
}

static uint64_t part_bytes(const struct muster_run *run)
{
    return run->call.part_count * run->plan.element_bytes;
}

static uint64_t uneven_bytes(const struct muster_run *run, uint32_t participant)
{
    const uint64_t *offsets = run->call.offsets;

    return (offsets[participant + 1] - offsets[participant]) * run->plan.element_bytes;
}

size_t muster_shm_input_bytes(const struct muster_run *run)
{
    const struct muster_op_call *call = &run->call;
    uint32_t self = run->plan.index;
    bool is_root = self == run->plan.root;

    switch (call->kind) {
    case MUSTER_OP_BARRIER:
        return 0;
    case MUSTER_OP_BROADCAST:
    case MUSTER_OP_SCATTER:
        return is_root ? whole_bytes(run) : 0;
    case MUSTER_OP_REDUCE: /* a small one is over before its turn: the root's copy is its input */
        return is_root && run->plan.algorithm == MUSTER_ALGORITHM_HOST ? 0 : whole_bytes(run);
    case MUSTER_OP_GATHER:
        return is_root ? 0 : part_bytes(run);
    case MUSTER_OP_ALL_GATHER:
        return part_bytes(run);
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return uneven_bytes(run, self);
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        return call->offsets[run->plan.n] * run->plan.element_bytes;
    case MUSTER_OP_PERMUTE:
        return call->route.to != MUSTER_RANK_NONE && call->route.to != self ? whole_bytes(run) : 0;
    default:
        return whole_bytes(run);
    }
}

/* The part is nonsense if the giver's board holds nonsense: find_input compares it with the bounds of the memory,
 * muster_shm_part_fits with what is expected. */
static struct muster_shm_part announced_part(const struct muster_run *run, uint32_t giver)
{
    const struct muster_shm_entry *entry = muster_shm_of(run)->participants[giver].entry;
    uint64_t first = entry->parts[muster_shm_of(run)->index],
             end = entry->parts[muster_shm_of(run)->index + 1];

    return (struct muster_shm_part){.first = first * run->plan.element_bytes,
                                    .bytes = (end - first) * run->plan.element_bytes,
                                    .expect_checksum = entry->expect_checksum};
}

struct muster_shm_part muster_shm_part_of(const struct muster_run *run, uint32_t giver)
{
    uint64_t whole = whole_bytes(run), part = part_bytes(run);
    uint32_t self = muster_shm_of(run)->index, root = run->plan.root;

    switch (run->call.kind) {
    case MUSTER_OP_BARRIER:
        return (struct muster_shm_part){.bytes = 0};
    case MUSTER_OP_ALL_REDUCE:
        return (struct muster_shm_part){.bytes = whole};
    case MUSTER_OP_REDUCE:
        return (struct muster_shm_part){.bytes = self == root ? whole : 0};
    case MUSTER_OP_BROADCAST:
        return (struct muster_shm_part){.bytes = giver == root ? whole : 0};
    case MUSTER_OP_ALL_GATHER:
        return (struct muster_shm_part){.bytes = part};
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return (struct muster_shm_part){.bytes = uneven_bytes(run, giver)};
    case MUSTER_OP_GATHER:
        return (struct muster_shm_part){.bytes = self == root ? part : 0};
    case MUSTER_OP_SCATTER:
        return (struct muster_shm_part){.first = self * part, .bytes = giver == root ? part : 0};
    case MUSTER_OP_ALL_TO_ALL:
    case MUSTER_OP_REDUCE_SCATTER:
        return (struct muster_shm_part){.first = self * part, .bytes = part};
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        return (struct muster_shm_part){.first = run->call.offsets[self] * run->plan.element_bytes,
                                        .bytes = uneven_bytes(run, self)};
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
    case MUSTER_OP_PERMUTE:
        return announced_part(run, giver);
    }
    return (struct muster_shm_part){.bytes = 0};
}

/* The place in the output for the giver's part. */
static uint8_t *place_of(const struct muster_run *run, uint32_t giver)
{
    const struct muster_op_call *call = &run->call;
    uint8_t *output = call->output;
    size_t bytes = run->plan.element_bytes;

    switch (call->kind) {
    case MUSTER_OP_GATHER:
    case MUSTER_OP_ALL_GATHER:
    case MUSTER_OP_ALL_TO_ALL:
        return output + giver * part_bytes(run);
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return output + call->offsets[giver] * bytes;
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        return output + call->offsets[run->plan.n + 1 + giver] * bytes;
    default:
        return output;
    }
}

/* --- Counts of the caller's: what one has for another is what that one expects --- */

static bool is_checked(const struct muster_run *run)
{
    return run->call.kind == MUSTER_OP_ALL_TO_ALL_UNEVEN || run->call.kind == MUSTER_OP_PERMUTE;
}

static uint64_t sent_count(const struct muster_run *run, uint32_t to)
{
    if (run->call.kind == MUSTER_OP_PERMUTE)
        return run->call.route.to == to ? run->call.count : 0;
    return run->call.offsets[to + 1] - run->call.offsets[to];
}

static uint64_t expected_count(const struct muster_run *run, uint32_t from)
{
    const uint64_t *output = run->call.offsets + run->plan.n + 1;

    if (run->call.kind == MUSTER_OP_PERMUTE)
        return run->call.route.from == from ? run->call.count : 0;
    return output[from + 1] - output[from];
}

/* A hash, so that two counts that are wrong by the same amount do not cancel out in the sum. */
static uint64_t weigh_count(uint32_t from, uint32_t to, uint64_t count)
{
    const uint64_t words[] = {(uint64_t)from << 32 | to, count};

    return count == 0 ? 0 : muster_hash64(words, sizeof(words), 0);
}

void muster_shm_show_parts(struct muster_run *run)
{
    struct muster_shm_entry *entry = muster_shm_of(run)->entry;
    uint32_t self = muster_shm_of(run)->index;

    if (!is_checked(run))
        return;
    MUSTER_ASSERT(!muster_shm_of(run)->is_announced);
    entry->expect_checksum = entry->parts[0] = 0;
    for (uint32_t i = 0; i < muster_shm_of(run)->n; i++) {
        entry->parts[i + 1] = entry->parts[i] + sent_count(run, i);
        entry->expect_checksum += weigh_count(self, i, sent_count(run, i));
        entry->expect_checksum -= weigh_count(i, self, expected_count(run, i));
    }
}

bool muster_shm_part_fits(struct muster_run *run, uint32_t giver,
                          const struct muster_shm_part *part)
{
    const struct muster_shm_run *shm = run->executor;
    size_t bytes = run->plan.element_bytes;

    if (!is_checked(run))
        return true;
    if (part->bytes != expected_count(run, giver) * bytes) {
        muster_run_send_dispute(run, giver, part->bytes / bytes, expected_count(run, giver));
        return false;
    }
    /* With the last participant the checksum is complete. Counts that differ between two others leave this member
     * not ready, and the dispute of one of the two ends the operation here. */
    return shm->ready_count + 1 < shm->n || shm->expect_checksum + part->expect_checksum == 0;
}

/* --- Work --- */

static bool is_summed(const struct muster_run *run)
{
    return run->plan.has_reduction;
}

static uint64_t piece_bytes(const struct muster_run *run)
{
    return run->plan.chunk_elements * run->plan.element_bytes;
}

/* Bytes of the giver's part that are still to be taken, of the next piece; 0: none. */
static size_t next_bytes(const struct muster_run *run, uint32_t giver)
{
    uint64_t at = muster_shm_of(run)->streams[giver].next * piece_bytes(run);
    uint64_t left = muster_shm_of(run)->participants[giver].bytes - at;

    if (at >= muster_shm_of(run)->participants[giver].bytes)
        return 0;
    return left < piece_bytes(run) ? left : piece_bytes(run);
}

/* A piece counts only if no participant has changed its memory since the announcement. */
static bool finish_piece(struct muster_run *run, uint32_t giver)
{
    if (!muster_shm_is_valid(run))
        return false;
    muster_shm_of(run)->streams[giver].next++;
    muster_shm_point(run, "copy");
    return true;
}

static bool copy_piece(struct muster_run *run, uint32_t giver)
{
    uint64_t at = muster_shm_of(run)->streams[giver].next * piece_bytes(run);
    size_t bytes = next_bytes(run, giver);
    const uint8_t *from = muster_shm_of(run)->participants[giver].input + at;
    uint8_t *into = place_of(run, giver) + at;

    if (bytes == 0)
        return false;
    muster_shm_point(run, "before copy");
    if (into != from) /* The own part of an operation in place stands where it belongs. */
        memcpy(into, from, bytes);
    return finish_piece(run, giver);
}

static void sum_range(struct muster_run *run, uint64_t at, size_t bytes)
{
    struct muster_shm_run *shm = run->executor;

    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = shm->participants[i].input + at;
    muster_shm_reduce_all(run, (uint8_t *)run->call.output + at, bytes / run->plan.element_bytes);
}

static bool sum_piece(struct muster_run *run)
{
    size_t bytes = next_bytes(run, 0);

    if (bytes == 0)
        return false;
    /* A piece is summed once, and looked at again until it is valid: the output may be the own input, which a
     * second sum would add twice. */
    if (!muster_shm_of(run)->is_unsure) {
        muster_shm_point(run, "before copy");
        muster_shm_of(run)->is_begun = true;
        sum_range(run, muster_shm_of(run)->streams[0].next * piece_bytes(run), bytes);
    }
    muster_shm_of(run)->is_unsure = !finish_piece(run, 0);
    return !muster_shm_of(run)->is_unsure;
}

bool muster_shm_exchange_move(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    bool has_moved = false;

    if (is_summed(run))
        return sum_piece(run);
    /* Each member begins with the one after it, so that not all read the same memory at once. */
    for (uint32_t i = 1; i <= shm->n && !shm->is_blocked; i++)
        has_moved = copy_piece(run, (shm->index + i) % shm->n) || has_moved;
    return has_moved;
}

bool muster_shm_exchange_is_whole(const struct muster_run *run)
{
    for (uint32_t i = 0; i < (is_summed(run) ? 1 : muster_shm_of(run)->n); i++)
        if (next_bytes(run, i) > 0)
            return false;
    return true;
}

/* All parts in one go: of a small operation. */
static void finish_at_once(struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    if (is_summed(run)) {
        if (shm->participants[0].bytes > 0)
            sum_range(run, 0, shm->participants[0].bytes);
        return;
    }
    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *giver = &shm->participants[i];
        uint8_t *into = place_of(run, i);

        if (giver->bytes > 0 && into != giver->input)
            memcpy(into, giver->input, giver->bytes);
    }
}

/* --- Small operations: every input in a slot of its owner --- */

/* The own slot holds the input until the run is dropped, so a small operation needs no undo copy. */
void muster_shm_flat_restore(struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    bool is_in_place = run->call.kind == MUSTER_OP_ALL_REDUCE || run->call.kind == MUSTER_OP_REDUCE;
    size_t bytes = muster_shm_input_bytes(run);

    if (run->plan.algorithm == MUSTER_ALGORITHM_FLAT && is_in_place && shm->slot != NULL &&
        shm->is_announced && bytes > 0)
        memcpy(run->call.output, shm->slot, bytes);
}

/* False: a slot has been used again, by a member that has gone on without this one. */
bool muster_shm_flat_finish(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    muster_shm_point(run, "before flat");
    finish_at_once(run);
    shm->is_blocked = !muster_shm_is_valid(run);
    return !shm->is_blocked;
}
