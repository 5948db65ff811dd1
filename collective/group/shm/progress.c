/* Work on the operations of a group, from its loop or by a poller. Each turn looks at every run and message that
 * goes through boards, hands what is due to its lane, and stops when nothing is under way. drive.c starts it. */
#include "collective/group/pair.h"
#include "collective/group/shm/shm_internal.h"

/* Loops that do not poll: turns without news before the loop sleeps, and how long it sleeps without a signal. The
 * sleep is as long as that of a loop that polls; it also bounds the cost of a signal that `is_asleep` missed. */
#define IDLE_TURNS_MAX 64u
#define SLEEP_NS       (200 * MUSTER_NS_PER_US)

/* The lane, or the end of a lingering run, can do something with it. */
static bool is_due(const struct muster_run *run)
{
    return muster_shm_is_deliverable(run) ||
           (muster_run_is_lingering(run) && muster_shm_is_released(run)) ||
           (run->state == MUSTER_RUN_DELIVERED && muster_shm_is_stable(run));
}

bool muster_shm_step(struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    enum muster_run_outcome outcome = MUSTER_RUN_GOES_ON;
    bool has_moved = false, was_left_behind = shm->is_left_behind;

    MUSTER_ASSERT(muster_run_is_shared(run));
    if (run->state == MUSTER_RUN_ACTIVE) {
        outcome = muster_shm_work(run, &has_moved);
        muster_run_conclude(run, outcome);
    }
    if (outcome != MUSTER_RUN_HAS_RESULT &&
        (run->state == MUSTER_RUN_COMPLETE || run->state == MUSTER_RUN_DELIVERED))
        has_moved = muster_shm_hear_all_complete(run) || has_moved;
    if (!has_moved)
        muster_shm_look(run);
    if (shm->is_left_behind && !was_left_behind)
        muster_run_conclude(run, MUSTER_RUN_LEFT_BEHIND);
    return has_moved;
}

/* Returns whether something moved; *ret_count: operations that are under way. */
static bool progress_lane(struct muster_group *group, struct muster_lane *lane, uint32_t *ret_count)
{
    bool has_moved = false, has_due = false;

    MUSTER_LIST_EACH(&lane->runs, run, struct muster_run, node) {
        if (!muster_run_is_shared(run) || run->state == MUSTER_RUN_ENDED)
            continue;
        ++*ret_count;
        has_moved = muster_shm_step(run) || has_moved;
        has_due = has_due || is_due(run);
    }
    /* After the loop: both take runs out of the list. */
    if (has_due) {
        muster_shm_release(lane);
        muster_lane_settle(group, lane);
    }
    return has_moved || has_due;
}

/* Operations have waited for a slot of the board; something that moved may have given one back. */
static void advance_all(struct muster_group *group)
{
    group->shm->is_short = false;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        muster_lane_advance(group, &group->lanes[lane]);
}

static bool progress_group(struct muster_group *group, uint32_t *ret_count)
{
    bool has_moved = false;

    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        has_moved = progress_lane(group, &group->lanes[lane], ret_count) || has_moved;
    has_moved = muster_messages_look(group, ret_count) || has_moved;
    if (has_moved && group->shm != NULL && group->shm->is_short)
        advance_all(group);
    return has_moved;
}

/* --- From the loop --- */

/* One look at everything, and what comes next: another turn at once, sleep after many in vain, or nothing. */
static void take_turn(struct muster_group *group)
{
    struct muster_loop *loop = group->env->loop;
    uint32_t count = 0;

    if (progress_group(group, &count))
        group->shm_idle_turns = 0;
    if (count == 0)
        return;
    if (group->shm_idle_turns++ < IDLE_TURNS_MAX) {
        muster_task_post(&group->shm_task, loop);
        return;
    }
    muster_shm_set_asleep(group, true);
    muster_timer_start(&group->shm_timer, loop, muster_loop_after_ns(loop, SLEEP_NS));
}

static void on_task(struct muster_task *task)
{
    take_turn(task->data);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_group *group = timer->data;

    muster_shm_set_asleep(group, false);
    take_turn(group);
}

static bool on_poll(struct muster_poller *poller)
{
    uint32_t count = 0;
    bool has_moved = progress_group(poller->data, &count);

    if (count > 0)
        return has_moved;
    muster_poller_stop(poller);
    return true;
}

static void on_sleep(struct muster_poller *poller, bool is_asleep)
{
    muster_shm_set_asleep(poller->data, is_asleep);
}

void muster_shm_init_driving(struct muster_group *group)
{
    group->shm_poller =
        (struct muster_poller){.data = group, .on_poll = on_poll, .on_sleep = on_sleep};
    muster_task_init(&group->shm_task, on_task, group);
    muster_timer_init(&group->shm_timer, on_timer, group);
}
