/* Operations through boards with a participant that lives but does not move: the others finish its
 * part, and it ends when nobody reads its memory any more (docs/boards.md, "Stopped, not dead"). */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>
#include <muster/log.h>

/* An announcement that is missing for this part of the grace period (100 ms of 2 s) is gone for good. A member that
 * ends alone takes its own back for a moment only (muster_shm_hold), but it may lose its processor in that moment. So
 * time counts, and not looks: a loop that polls looks a hundred times within a millisecond. */
#define MISSING_PART 20u

/* Only large operations leave participants behind: a small one can be restored from the slots at any time. */
static bool is_large(const struct muster_run *run)
{
    return muster_run_is_shared(run) && run->plan.algorithm == MUSTER_ALGORITHM_HOST;
}

/* --- Leaving a participant behind --- */

void muster_shm_leave(struct muster_run *run, uint32_t index)
{
    struct muster_shm_run *shm = run->executor;
    _Atomic uint64_t *left = &shm->entry->left;
    uint64_t known = atomic_load_explicit(left, memory_order_relaxed);

    MUSTER_ASSERT(index < shm->n && index != shm->index);
    shm->participants[index].is_gone = true;
    if (!is_large(run))
        return;
    muster_board_enter(shm->link->board);
    muster_shm_point(run, "before leave");
    atomic_store_explicit(left, known | UINT64_C(1) << index, memory_order_release);
    /* The bit becomes visible before any input that the participant may still read changes; pairs with the acquire
     * fence of muster_shm_is_valid there. */
    atomic_thread_fence(memory_order_release);
    muster_shm_point(run, "leave");
}

static void be_left_behind(struct muster_run *run)
{
    if (muster_shm_of(run)->is_left_behind)
        return;
    muster_shm_of(run)->is_left_behind = muster_shm_of(run)->is_blocked = true;
}

/* Its place on the board is another operation's: it has ended this one. Relaxed is enough: the answer only makes
 * this process stop reading, and a stale one is corrected by the next look. */
static bool has_gone_on(const struct muster_run *run, uint32_t index)
{
    const struct muster_shm_participant *participant = &muster_shm_of(run)->participants[index];
    uint64_t key = atomic_load_explicit(&participant->entry->ready, memory_order_relaxed);

    return participant->is_ready && key != 0 && key != muster_shm_of(run)->key;
}

/* The participants that it has left behind in this operation, which it may have ended since: its key is 0 then,
 * but the ordinal and the bits stay until the next operation has the place. */
static uint64_t left_by(const struct muster_run *run, uint32_t index)
{
    const struct muster_shm_entry *entry = muster_shm_of(run)->participants[index].entry;
    uint64_t key = atomic_load_explicit(&entry->ready, memory_order_acquire);

    if (key != muster_shm_of(run)->key &&
        (key != 0 || entry->ordinal != muster_shm_of(run)->ordinal))
        return 0;
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&entry->left, memory_order_relaxed);
}

static uint64_t left_by_anybody(const struct muster_run *run)
{
    uint64_t left = 0;

    for (uint32_t i = 0; i < muster_shm_of(run)->n; i++)
        left |= left_by(run, i);
    return left;
}

/* Exclusion is sticky and unanimous: once any member has excluded a participant, every member does. Data
 * it already published stays valid. */
void muster_shm_apply_exclusions(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    /* The bits of all first: a process that is left behind itself must not tell others of more exclusions. */
    uint64_t left = left_by_anybody(run);

    for (uint32_t i = 0; i < shm->n; i++)
        if (has_gone_on(run, i))
            be_left_behind(run);
    if ((left >> shm->index & 1) != 0)
        be_left_behind(run);
    for (uint32_t i = 0; i < shm->n && !shm->is_left_behind; i++)
        if (i != shm->index && (left >> i & 1) != 0 && !shm->participants[i].is_gone)
            muster_shm_leave(run, i);
}

static bool is_announcement_missing(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    for (uint32_t i = 0; i < shm->n; i++)
        if (atomic_load_explicit(&shm->participants[i].entry->ready, memory_order_relaxed) !=
            shm->key)
            return true;
    return false;
}

void muster_shm_look_for_closed(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    const struct muster_loop *loop = run->group->env->loop;

    MUSTER_ASSERT(muster_run_is_adopting(run) && run->state == MUSTER_RUN_ACTIVE);
    if (!is_announcement_missing(run)) {
        shm->is_missing = shm->is_closed = false;
    } else if (!shm->is_missing) {
        shm->is_missing = true;
        shm->missing_until_ns =
            muster_loop_after_ns(loop, run->group->abort_grace_ns / MISSING_PART);
    } else if (!shm->is_closed && muster_loop_now_ns(loop) >= shm->missing_until_ns) {
        shm->is_closed = true;
        be_left_behind(run);
    }
}

bool muster_shm_is_left_behind(const struct muster_run *run)
{
    return muster_shm_of(run)->is_left_behind;
}

bool muster_shm_is_sure(const struct muster_run *run)
{
    if (!is_large(run) || run->state != MUSTER_RUN_ACTIVE)
        return is_large(run) && run->state == MUSTER_RUN_COMPLETE;
    return muster_shm_of(run)->ready_count == muster_shm_of(run)->n &&
           !muster_shm_of(run)->is_blocked && muster_shm_is_valid(run);
}

/* --- Participants that have stalled --- */

void muster_shm_beat(struct muster_run *run)
{
    _Atomic uint64_t *beat = &muster_shm_board_of(muster_shm_of(run)->link->board)->beat;

    atomic_store_explicit(beat, atomic_load_explicit(beat, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Its beat has not moved since the last look, a grace period ago. The first look only notes the beats. */
static bool has_stalled(struct muster_run *run, uint32_t index)
{
    struct muster_shm_participant *participant = &muster_shm_of(run)->participants[index];
    uint64_t before = participant->seen;

    if (participant->peer == NULL || muster_shm_is_through(run, index))
        return false;
    participant->seen = atomic_load_explicit(&muster_shm_board_of_peer(participant->peer)->beat,
                                             memory_order_relaxed);
    return muster_shm_of(run)->has_seen && participant->seen == before;
}

void muster_shm_leave_stalled(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;
    char who[96];

    for (uint32_t i = 0; i < shm->n; i++) {
        if (!has_stalled(run, i))
            continue;
        MUSTER_LOG(run->group->env, WARN, "left_behind", "task",
                   muster_group_rank_name(run->group, shm->participants[i].rank, who, sizeof(who)),
                   "step", run->id.step, "sequence", run->id.sequence);
        muster_shm_leave(run, i);
    }
    shm->has_seen = true;
}

/* --- Ending alone --- */

/* All have announced it, so that outputs may have changed, and somebody is not through with it who can come to a
 * result: nobody can whom any member has left behind, or when the memory of one is gone. */
static bool is_needed(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    uint64_t left = left_by_anybody(run);
    bool is_anybody_left = false;

    if (shm->is_closed)
        return false;
    for (uint32_t i = 0; i < shm->n; i++) {
        const struct muster_shm_participant *participant = &shm->participants[i];
        const struct muster_shm_entry *entry = participant->entry;
        bool is_through =
            muster_shm_is_through(run, i) || has_gone_on(run, i) || (left >> i & 1) != 0;

        if (!is_through)
            is_anybody_left = true;
        if (!participant->is_ready && (participant->is_dead || !is_through) &&
            atomic_load_explicit(&entry->ready, memory_order_acquire) != shm->key)
            return false;
    }
    return is_anybody_left;
}

/* A member that goes on with the operation looks at all announcements after it has seen the last, with a full fence
 * between (hear_all_ready), and so does this: either the other sees that this announcement was taken back, or this
 * sees that all had announced it. */
bool muster_shm_hold(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    if (muster_run_is_lingering(run))
        return true;
    if (!is_large(run) || run->op == NULL || !shm->is_announced)
        return false;
    muster_board_enter(shm->link->board);
    atomic_store_explicit(&shm->entry->ready, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (!is_needed(run) && run->state != MUSTER_RUN_COMPLETE)
        return false;
    atomic_store_explicit(&shm->entry->ready, shm->key, memory_order_release);
    shm->is_blocked = shm->is_left_behind;
    muster_shm_drive(run->group);
    return true;
}

bool muster_shm_is_released(const struct muster_run *run)
{
    return muster_shm_of(run)->is_left_behind && !is_needed(run);
}
