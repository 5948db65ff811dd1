/* One operation through boards, from its announcement to its end: its place and slot on the board, its input, who
 * has announced it, and when all are complete. executor.c hands these functions to the lane; progress.c calls
 * muster_shm_work at each look. Moving the data is left to exchange.c and chunks.c. */
#include "collective/group/shm/pieces.h"

#include <muster/base.h>

#include <string.h>

/* Slots up to this size are fetched for writing ahead of time: a page of prefetches costs less than the misses. */
#define OWNED_BYTES_MAX 4096u

/* --- Beginning --- */

/* One buffer of the pool holds the run, its knowledge of each participant, and run->heard. */
static void take_memory(struct muster_run *run, uint8_t *memory, uint32_t n)
{
    struct muster_shm_run *shm = (struct muster_shm_run *)(void *)memory;
    uint32_t streams = run->plan.algorithm == MUSTER_ALGORITHM_HOST ? n : 0;

    shm->participants = (struct muster_shm_participant *)(void *)(shm + 1);
    shm->sources = (const void **)(void *)(shm->participants + n);
    shm->weights = (uint64_t *)(void *)(shm->sources + n);
    shm->streams = (struct muster_shm_stream *)(void *)(shm->weights + n);
    run->heard = (uint8_t *)(shm->streams + streams);
    run->memory = memory;
    run->ops = &muster_shm_executor;
    run->executor = shm;
}

size_t muster_shm_table_bytes(const struct muster_plan *plan)
{
    size_t n = plan->n, streams = plan->algorithm == MUSTER_ALGORITHM_HOST ? n : 0;

    return sizeof(struct muster_shm_run) +
           n * (sizeof(struct muster_shm_participant) + sizeof(void *) + sizeof(uint64_t) + 1) +
           streams * sizeof(struct muster_shm_stream);
}

/* The memory of a peer stays mapped while the run has its reference to the link, also after the peer's death. */
static void meet_participant(struct muster_run *run, struct muster_shm *link, uint32_t index)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_shm_participant *participant = &shm->participants[index];
    const struct muster_shm_board *board;

    participant->rank = muster_op_participant_rank(run->group, &run->id, index);
    participant->peer = link->peers[participant->rank];
    participant->board =
        participant->peer != NULL ? participant->peer->memory : link->board->memory;
    participant->board_bytes =
        participant->peer != NULL ? participant->peer->memory_bytes : link->board->memory_bytes;
    board = (const struct muster_shm_board *)(const void *)participant->board;
    participant->lane = &board->lanes[MUSTER_LANE_INDEX(run->id.lane)];
    participant->entry = &board->entries[MUSTER_LANE_INDEX(run->id.lane)][shm->entry_index];
}

static bool take_slot(struct muster_run *run, struct muster_board *board)
{
    struct muster_shm_run *shm = run->executor;
    size_t bytes = muster_shm_slot_bytes(&run->plan, muster_shm_input_bytes(run));

    if (bytes == 0)
        return true;
    shm->slot = muster_shm_heap_take(board, bytes, &shm->slot_class);
    /* Slots of dropped operations go last: a member that still reads one ends without a result. */
    if (shm->slot == NULL && muster_shm_kept_give_all(board))
        shm->slot = muster_shm_heap_take(board, bytes, &shm->slot_class);
    if (shm->slot == NULL)
        return false;
    shm->slot_bytes = bytes;
    shm->marks_offset = muster_shm_chunk_slot_bytes(&run->plan);
    shm->entry->slot_at = (uint32_t)((size_t)(shm->slot - board->memory) / SHM_LINE_BYTES);
    return true;
}

enum muster_prepared muster_shm_prepare(struct muster_run *run)
{
    struct muster_shm *link = run->group->shm;
    struct muster_shm_board *board = muster_shm_board_of(link->board);
    uint32_t n = run->plan.n, entry = muster_shm_entry_index(&run->id);
    size_t bytes = muster_shm_table_bytes(&run->plan);
    struct muster_shm_run *shm;
    uint8_t *memory;

    /* An older operation has the place: one of this lane, or of an earlier group that lingers. */
    if (board->is_taken[MUSTER_LANE_INDEX(run->id.lane)][entry])
        return MUSTER_PREPARE_LATER;
    MUSTER_ASSERT(run->memory == NULL);
    memory = muster_buffer_get(run->group->pool, bytes);
    if (memory == NULL)
        return MUSTER_PREPARE_NEVER;
    memset(memory, 0, bytes);
    take_memory(run, memory, n);
    shm = run->executor;
    shm->link = muster_shm_ref(link);
    muster_board_enter(link->board);
    muster_board_reading_start(link->board);
    shm->n = n;
    shm->looks =
        1; /* not 0: the first look after the delivery leaves lane.done to its owner (is_complete) */
    shm->index = run->plan.index;
    shm->entry_index = entry;
    shm->key = muster_shm_key(run->group->view->epoch, &run->id);
    shm->ordinal = muster_shm_ordinal(&run->id);
    shm->entry = &board->entries[MUSTER_LANE_INDEX(run->id.lane)][entry];
    for (uint32_t i = 0; i < n; i++)
        run->heard[i] = (run->heard_over >> i & 1) != 0 ? MUSTER_HEARD_MISMATCH : 0;
    board->is_taken[MUSTER_LANE_INDEX(run->id.lane)][entry] = true;
    (void)muster_shm_kept_give(link->board, MUSTER_LANE_INDEX(run->id.lane), entry);
    run->group->lanes[MUSTER_LANE_INDEX(run->id.lane)].cost += muster_run_cost(run);
    if (take_slot(run, link->board))
        return MUSTER_PREPARED;
    link->is_short = true;
    muster_run_drop_memory(run);
    return MUSTER_PREPARE_LATER;
}

/* The others may read a copy before it is whole; the announcement says that it is. */
static enum muster_shm_input_state move_copy(struct muster_run *run)
{
    (void)muster_shm_pieces_move(run);
    return muster_shm_pieces_are_staged(run) ? SHM_INPUT_SHOWN : SHM_INPUT_NOT_YET;
}

static enum muster_shm_input_state show_large(struct muster_run *run, size_t bytes)
{
    enum muster_shm_input_state state = muster_shm_show_input(run, bytes);

    if (muster_shm_of(run)->stage.at == NULL || !muster_shm_may_go_by_pieces(run))
        return state;
    if (state == SHM_INPUT_SHOWN)
        muster_shm_pieces_open(run);
    return move_copy(run);
}

static enum muster_shm_input_state place_input(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_shm_entry *entry = shm->entry;
    struct muster_board *board = shm->link->board;
    size_t bytes = muster_shm_input_bytes(run);

    MUSTER_ASSERT(!shm->is_announced);
    if (shm->is_open) /* the others read the entry */
        return move_copy(run);
    entry->input = SHM_INPUT_NONE;
    muster_shm_show_parts(run);
    if (bytes == 0)
        return SHM_INPUT_SHOWN;
    if (run->plan.algorithm != MUSTER_ALGORITHM_FLAT)
        return show_large(run, bytes);
    memcpy(shm->slot, run->call.input, bytes);
    run->result.sent_bytes += bytes;
    entry->input = SHM_INPUT_BOARD;
    entry->input_offset = (uint64_t)(shm->slot - board->memory);
    return SHM_INPUT_SHOWN;
}

static void announce_run(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_shm_entry *entry = shm->entry;
    const struct muster_shm_board *board = muster_shm_board_of(shm->link->board);

    MUSTER_ASSERT(!shm->is_announced);
    MUSTER_ASSERT(atomic_load_explicit(&entry->ready, memory_order_relaxed) == 0);
    if (!shm->is_open)
        muster_shm_describe(run);
    entry->done_before = atomic_load_explicit(&board->lanes[MUSTER_LANE_INDEX(run->id.lane)].done,
                                              memory_order_relaxed);
    muster_shm_point(run, "before ready");
    /* Last, with release: a member that loads the key with acquire finds the input and the fields above. */
    atomic_store_explicit(&entry->ready, shm->key, memory_order_release);
    muster_shm_point(run, "ready");
    shm->is_announced = true;
    muster_shm_wake(run);
}

static bool is_chunked(const struct muster_run *run)
{
    return run->plan.algorithm == MUSTER_ALGORITHM_HOST && run->call.kind == MUSTER_OP_ALL_REDUCE;
}

/* The place is this operation's from now on, not announced yet. A reader may still be at the operation that had
 * it before, so the old key goes first and the words that it covered change after. */
static void begin_entry(struct muster_run *run)
{
    struct muster_shm_entry *entry = muster_shm_of(run)->entry;

    muster_shm_point(run, "before start");
    atomic_store_explicit(&entry->ready, 0, memory_order_relaxed);
    if (atomic_load_explicit(&entry->opened, memory_order_relaxed) != 0)
        atomic_store_explicit(&entry->opened, 0, memory_order_relaxed);
    atomic_thread_fence(
        memory_order_release); /* A reader that still loads an old key has loaded old words. */
    atomic_store_explicit(&entry->complete, 0, memory_order_relaxed);
    if (atomic_load_explicit(&entry->left, memory_order_relaxed) != 0) {
        atomic_store_explicit(&entry->left, 0, memory_order_relaxed);
        atomic_thread_fence(
            memory_order_release); /* The new ordinal comes without old bits (left_by). */
    }
    if (!is_chunked(run))
        return;
    atomic_store_explicit(&entry->published, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->held, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->taken, 0, memory_order_relaxed);
    if (muster_shm_of(run)->slot != NULL)
        memset(muster_shm_of(run)->slot + muster_shm_of(run)->marks_offset, 0,
               muster_shm_marks_bytes(&run->plan));
}

/* --- Announcements of the others --- */

/* True: the participant has announced the operation, and this process knows where its input is. */
static bool hear_ready(struct muster_run *run, uint32_t index)
{
    struct muster_shm_participant *participant = &muster_shm_of(run)->participants[index];
    struct muster_shm_shown_input shown;

    if (!muster_shm_read_entry(run, index, &participant->entry->ready, &shown))
        return false;
    if (shown.descriptor != run->descriptor) {
        muster_run_send_mismatch(run);
        return false;
    }
    if (!muster_shm_part_fits(run, index, &shown.part) ||
        (shown.part.bytes > 0 && shown.at == NULL))
        return false;
    muster_shm_note_input(run, index, &shown);
    muster_shm_of(run)->expect_checksum += shown.part.expect_checksum;
    participant->is_ready = true;
    if (*muster_shm_said_done(run, participant) < shown.done_before)
        *muster_shm_said_done(run, participant) = shown.done_before;
    run->result.total_weight += shown.weight;
    run->heard[index] |= MUSTER_HEARD_ISSUED;
    if (participant->peer != NULL)
        run->result.last_rank = participant->rank;
    muster_shm_of(run)->ready_count++;
    return true;
}

static bool hear_all_ready(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    bool has_moved = false;

    for (uint32_t i = 0; i < shm->n; i++)
        if (!shm->participants[i].is_ready && hear_ready(run, i))
            has_moved = true;
    if (!has_moved || shm->ready_count < shm->n)
        return has_moved;
    run->result.met_ns = muster_loop_now_ns(run->group->env->loop);
    /* Nothing that is read counts before a second look at every announcement (muster_shm_is_valid), which is behind
     * this fence. It pairs with those of muster_shm_hold and muster_shm_withdraw: either this process sees that
     * an announcement was taken back, or the one that took it back sees that all had announced. */
    if (run->plan.algorithm == MUSTER_ALGORITHM_HOST)
        atomic_thread_fence(memory_order_seq_cst);
    return has_moved;
}

static void tell_death(struct muster_group *group, const struct muster_incarnation *peer)
{
    if (!group->is_closed && group->events->on_death != NULL)
        group->events->on_death(group->data, peer);
}

void muster_shm_look(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    if (++shm->looks % SHM_LOOKS_PER_DEATH != 0)
        return;
    for (uint32_t i = 0; i < shm->n; i++) {
        struct muster_shm_participant *participant = &shm->participants[i];

        if (participant->peer == NULL || participant->is_dead ||
            !muster_board_is_dead(participant->peer))
            continue;
        participant->is_dead = true;
        tell_death(run->group, &participant->peer->incarnation);
    }
    if (run->plan.algorithm == MUSTER_ALGORITHM_HOST && run->state == MUSTER_RUN_ACTIVE)
        muster_shm_apply_exclusions(run);
    if (muster_run_is_adopting(run) && run->state == MUSTER_RUN_ACTIVE)
        muster_shm_look_for_closed(run);
}

void muster_shm_hear(struct muster_run *run)
{
    if (run->state == MUSTER_RUN_ACTIVE && !run->group->is_frozen)
        (void)hear_all_ready(run);
}

/* True: nobody goes on with the operation because of this member. False: all had announced it by then, so it is
 * sure, and stands on the board again. */
bool muster_shm_withdraw(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    bool is_large = run->plan.algorithm == MUSTER_ALGORITHM_HOST;

    if (!is_large || run->state != MUSTER_RUN_ACTIVE || !shm->is_announced || shm->is_blocked)
        return run->state < MUSTER_RUN_COMPLETE || !is_large;
    muster_board_enter(shm->link->board);
    atomic_store_explicit(&shm->entry->ready, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    muster_shm_hear(run);
    if (shm->ready_count < shm->n)
        return true;
    atomic_store_explicit(&shm->entry->ready, shm->key, memory_order_release);
    return false;
}

/* --- The end --- */

/* Operations of the lane end here in any order; the others see up to which one all have. One store answers for
 * many operations, so the others need not load the entry of each. */
static uint64_t advance_done(struct muster_board *board, struct muster_group *group,
                             uint32_t lane_index)
{
    struct muster_shm_lane *own = &muster_shm_board_of(board)->lanes[lane_index];
    uint64_t done = 0;

    MUSTER_LIST_EACH (&group->lanes[lane_index].runs, other, const struct muster_run, node) {
        if (other->state < MUSTER_RUN_COMPLETE)
            break;
        done = muster_shm_ordinal(&other->id) + 1;
    }
    if (done > atomic_load_explicit(&own->done, memory_order_relaxed))
        atomic_store_explicit(&own->done, done, memory_order_release);
    return done;
}

void muster_shm_advance(struct muster_group *group, const struct muster_op_id *id)
{
    if (group->shm == NULL || !group->shm->is_used)
        return;
    muster_board_enter(group->shm->board);
    (void)advance_done(group->shm->board, group, MUSTER_LANE_INDEX(id->lane));
}

void muster_group_start_over(struct muster_group *group)
{
    if (group->shm == NULL || group->shm->board == NULL)
        return;
    muster_board_enter(group->shm->board);
    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++)
        atomic_store_explicit(&muster_shm_board_of(group->shm->board)->lanes[lane].done, 0,
                              memory_order_release);
}

/* The others have read the entry that comes next when it was used last, so its lines are in their caches. Fetching
 * them now keeps the wait out of the next operation's announcement. */
static void own_next_entry(const struct muster_run *run)
{
    struct muster_shm_board *board = muster_shm_board_of(muster_shm_of(run)->link->board);
    struct muster_shm_entry *entry =
        &board->entries[MUSTER_LANE_INDEX(run->id.lane)]
                       [(muster_shm_of(run)->entry_index + 1) % SHM_LANE_ENTRIES];

    muster_shm_own_cache_line(&entry->ready);
    muster_shm_own_cache_line(&entry->complete);
}

/* Complete is sticky, and counted: a participant's lines are loaded until its answer has come, and not after. */
bool muster_shm_hear_all_complete(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    uint32_t before = shm->complete_count;

    if (before == shm->n)
        return false;
    for (uint32_t i = 0; i < shm->n; i++) {
        struct muster_shm_participant *participant = &shm->participants[i];

        if (participant->is_complete || !muster_shm_is_through(run, i))
            continue;
        participant->is_complete = true;
        shm->complete_count++;
    }
    return shm->complete_count > before;
}

/* The run is complete here: tell the others. If lane.done says so already, `complete` need not be written. */
void muster_shm_completed(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    MUSTER_ASSERT(run->state == MUSTER_RUN_COMPLETE);
    muster_shm_point(run, "before complete");
    if (advance_done(shm->link->board, run->group, MUSTER_LANE_INDEX(run->id.lane)) <= shm->ordinal)
        atomic_store_explicit(&shm->entry->complete, shm->key, memory_order_release);
    muster_shm_point(run, "complete");
    muster_shm_wake(run);
    own_next_entry(run);
    (void)muster_shm_hear_all_complete(run);
}

/* --- Work --- */

static bool move_data(struct muster_run *run)
{
    if (muster_shm_goes_by_pieces(run))
        return muster_shm_pieces_move(run);
    return is_chunked(run) ? muster_shm_chunks_move(run) : muster_shm_exchange_move(run);
}

static bool is_whole(const struct muster_run *run)
{
    if (muster_shm_goes_by_pieces(run))
        return muster_shm_pieces_are_whole(run);
    return is_chunked(run) ? muster_shm_chunks_are_whole(run) : muster_shm_exchange_is_whole(run);
}

static enum muster_run_outcome show_and_announce(struct muster_run *run, bool *ret_has_moved)
{
    const struct muster_shm_run *shm = run->executor;
    uint32_t before = shm->staged + shm->summed;

    switch (place_input(run)) {
    case SHM_INPUT_SHOWN:
        announce_run(run);
        *ret_has_moved = true;
        return MUSTER_RUN_GOES_ON;
    case SHM_INPUT_NOT_YET:
        *ret_has_moved = shm->staged + shm->summed != before;
        return MUSTER_RUN_GOES_ON;
    case SHM_INPUT_NO_MEMORY:
        return MUSTER_RUN_NO_MEMORY;
    }
    return MUSTER_RUN_GOES_ON;
}

enum muster_run_outcome muster_shm_work(struct muster_run *run, bool *ret_has_moved)
{
    struct muster_shm_run *shm = run->executor;
    enum muster_run_outcome outcome = MUSTER_RUN_GOES_ON;

    *ret_has_moved = false;
    MUSTER_ASSERT(run->state == MUSTER_RUN_ACTIVE);
    muster_board_enter(shm->link->board);
    muster_shm_beat(run);
    if (shm->is_blocked)
        return MUSTER_RUN_GOES_ON;
    if (!shm->is_announced)
        outcome = show_and_announce(run, ret_has_moved);
    if (!shm->is_announced)
        return outcome;
    if (shm->ready_count < shm->n) {
        *ret_has_moved = hear_all_ready(run) || *ret_has_moved;
        if (shm->ready_count < shm->n && shm->is_open)
            *ret_has_moved = muster_shm_pieces_move(run) || *ret_has_moved;
        if (shm->ready_count < shm->n)
            return MUSTER_RUN_GOES_ON;
    }
    if (run->plan.algorithm == MUSTER_ALGORITHM_FLAT) {
        if (!muster_shm_flat_finish(run))
            return MUSTER_RUN_GOES_ON;
        *ret_has_moved = true;
        return MUSTER_RUN_HAS_RESULT;
    }
    *ret_has_moved = move_data(run) || *ret_has_moved;
    if (shm->is_blocked || !is_whole(run))
        return MUSTER_RUN_GOES_ON;
    *ret_has_moved = true;
    return MUSTER_RUN_HAS_RESULT;
}

/* The first look of a run that starts, or goes on in another epoch. */
static enum muster_run_outcome begin_work(struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    enum muster_run_outcome outcome;
    bool has_moved;

    outcome = muster_shm_work(run, &has_moved);
    if (!has_moved)
        muster_shm_look(run);
    if (outcome == MUSTER_RUN_GOES_ON && shm->is_left_behind)
        outcome = MUSTER_RUN_LEFT_BEHIND;
    muster_shm_drive(run->group);
    return outcome;
}

enum muster_run_outcome muster_shm_start(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    MUSTER_ASSERT(!shm->is_announced && shm->ready_count == 0);
    muster_board_enter(shm->link->board);
    for (uint32_t i = 0; i < shm->n; i++)
        meet_participant(run, shm->link, i);
    begin_entry(run);
    if (is_chunked(run))
        muster_shm_chunks_begin(run);
    run->result.contributor_count = run->plan.n;
    run->result.total_weight = 0;
    run->heard[shm->index] |= MUSTER_HEARD_ISSUED;
    return begin_work(run);
}

/* For flat plans a locally complete result may be delivered at once: every member holds all inputs and
 * can finish without us. Chunked plans must wait until every member has the result. */
bool muster_shm_is_deliverable(const struct muster_run *run)
{
    return run->state == MUSTER_RUN_COMPLETE &&
           (run->plan.algorithm == MUSTER_ALGORITHM_FLAT || muster_shm_is_stable(run));
}

bool muster_shm_is_stable(const struct muster_run *run)
{
    return muster_shm_of(run)->complete_count == muster_shm_of(run)->n;
}

void muster_shm_revoke(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    if (!shm->is_announced && !shm->is_open)
        return;
    muster_board_enter(shm->link->board);
    atomic_store_explicit(&shm->entry->ready, 0, memory_order_relaxed);
    atomic_store_explicit(&shm->entry->opened, 0, memory_order_relaxed);
    /* The caller's next store to its memory comes after; pairs with the fence of muster_shm_is_valid. */
    atomic_thread_fence(memory_order_release);
    shm->is_blocked = true;
}

/* Small slots are likely the next operation's: as own_next_entry. */
static void own_slots(const struct muster_run *run)
{
    size_t bytes = run->plan.count * run->plan.element_bytes;

    if (run->plan.algorithm != MUSTER_ALGORITHM_FLAT || bytes > OWNED_BYTES_MAX)
        return;
    for (size_t at = 0; at < bytes; at += SHM_LINE_BYTES)
        muster_shm_own_cache_line(muster_shm_of(run)->slot + at);
}

/* A participant that was left out of the view, or left behind, but lives: it may still read. */
static bool is_anybody_gone(const struct muster_shm_run *shm)
{
    for (uint32_t i = 0; i < shm->n; i++)
        if (shm->participants[i].is_gone && !shm->participants[i].is_dead)
            return true;
    return false;
}

/* A member that leaves right after its result has come drops operations that others have not read
 * yet. The heap would write its list into the slot, and the next operation its input. */
static void drop_slot(struct muster_run *run, bool is_revoked)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_board *board = shm->link->board;

    if (shm->slot == NULL)
        return;
    if (!is_revoked)
        (void)muster_shm_hear_all_complete(run);
    if (!is_revoked && !muster_shm_is_stable(run)) {
        muster_shm_kept_set(board, MUSTER_LANE_INDEX(run->id.lane), shm->entry_index, shm->slot,
                            shm->slot_class);
        return;
    }
    own_slots(run);
    muster_shm_heap_give(board, shm->slot, shm->slot_class);
}

void muster_shm_finish(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    struct muster_shm *link = shm->link;
    bool is_revoked = run->state < MUSTER_RUN_COMPLETE || is_anybody_gone(shm);

    MUSTER_ASSERT(shm->entry != NULL);
    /* The key first, then the memory: readers notice by the key that the memory is another's. */
    if (is_revoked)
        muster_shm_revoke(run);
    muster_shm_hide_input(run);
    drop_slot(run, is_revoked);
    muster_shm_board_of(link->board)->is_taken[MUSTER_LANE_INDEX(run->id.lane)][shm->entry_index] =
        false;
    muster_board_reading_stop(link->board);
    muster_shm_unref(link);
}

/* --- A change of view --- */

bool muster_shm_is_ready(const struct muster_run *run)
{
    return muster_shm_of(run)->ready_count == muster_shm_of(run)->n && muster_shm_is_valid(run);
}

bool muster_shm_has_input(const struct muster_run *run)
{
    bool is_in_place = run->plan.has_reduction && run->call.input == run->call.output;

    if (run->plan.algorithm != MUSTER_ALGORITHM_HOST || !is_in_place)
        return true;
    return !muster_shm_of(run)->is_begun;
}

/* A last look for announcements: what all have announced goes on while the view changes (docs/boards.md,
 * "Deaths"), and what is not announced by all must not begin any more. */
void muster_shm_freeze(struct muster_run *run)
{
    if (run->state != MUSTER_RUN_ACTIVE)
        return;
    (void)hear_all_ready(run);
    muster_shm_of(run)->is_blocked = !muster_shm_is_ready(run);
}

/* Go on in the group of the next epoch, among the participants of the old one. */
enum muster_run_outcome muster_shm_adopt(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    const struct muster_view *view = run->group->view;

    shm->is_blocked = false;
    /* A member that the view has left out may live and go on: its bit comes before anything changes. */
    for (uint32_t i = 0; i < shm->n; i++) {
        struct muster_shm_participant *participant = &shm->participants[i];

        if (participant->peer != NULL &&
            !muster_view_find(view, &participant->peer->incarnation, NULL))
            muster_shm_leave(run, i);
    }
    if (run->state == MUSTER_RUN_ACTIVE)
        return begin_work(run);
    /* Runs before it may have been aborted by the change of view: then `done` says that it is complete, also when its
     * entry is taken back in this turn, before the others have looked. */
    muster_board_enter(shm->link->board);
    (void)advance_done(shm->link->board, run->group, MUSTER_LANE_INDEX(run->id.lane));
    if (!muster_shm_hear_all_complete(run))
        muster_shm_look(run);
    muster_shm_drive(run->group);
    return shm->is_left_behind ? MUSTER_RUN_LEFT_BEHIND : MUSTER_RUN_GOES_ON;
}
