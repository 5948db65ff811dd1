/* Work on the operations of a group, from its loop or from whoever polls. */
#include "collective/group/pair.h"
#include "collective/group/shm/shm_internal.h"

/* Of loops that do not poll: turns without news before the loop sleeps, and how long it sleeps when
 * nobody signals. */
#define IDLE_TURNS_MAX 64u
#define NAP_NS         (200 * MUSTER_NS_PER_US)

static bool is_due(const struct muster_run *run)
{
    return muster_shm_is_deliverable(run) || (run->is_held && muster_shm_is_released(run)) ||
           (run->state == MUSTER_RUN_DELIVERED && muster_shm_is_stable(run));
}

/* Returns whether something moved; *ret_count: operations that are under way. */
static bool progress_lane(struct muster_group *group, struct muster_lane *lane, uint32_t *ret_count)
{
    bool has_moved = false, has_due = false;

    for (struct muster_list *node = lane->runs.next; node != &lane->runs; node = node->next) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);

        if (run->shm == NULL || run->state == MUSTER_RUN_ENDED)
            continue;
        ++*ret_count;
        has_moved = muster_shm_step(run) || has_moved;
        has_due = has_due || is_due(run);
    }
    if (has_due) {
        muster_lane_release(lane);
        muster_lane_settle(group, lane);
    }
    return has_moved || has_due;
}

static void advance_all(struct muster_group *group)
{
    group->shm->is_short = false;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        muster_lane_advance(group, &group->lanes[lane]);
}

static bool progress(struct muster_group *group, uint32_t *ret_count)
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

static void set_asleep(struct muster_group *group, bool is_asleep)
{
    if (group->shm != NULL && group->shm->is_used)
        atomic_store_explicit(&muster_shm_board_of(group->shm->board)->is_asleep, is_asleep,
                              memory_order_relaxed);
}

static void turn(struct muster_group *group)
{
    struct muster_loop *loop = group->env->loop;
    uint32_t count = 0;

    if (progress(group, &count))
        group->shm_idle_turns = 0;
    if (count == 0)
        return;
    if (group->shm_idle_turns++ < IDLE_TURNS_MAX) {
        muster_task_post(&group->shm_task, loop);
        return;
    }
    set_asleep(group, true);
    muster_timer_start(&group->shm_timer, loop, muster_loop_after_ns(loop, NAP_NS));
}

static void on_task(struct muster_task *task)
{
    turn(task->data);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_group *group = timer->data;

    set_asleep(group, false);
    turn(group);
}

static bool on_poll(struct muster_poller *poller)
{
    uint32_t count = 0;
    bool has_moved = progress(poller->data, &count);

    if (count > 0)
        return has_moved;
    muster_poller_stop(poller);
    return true;
}

static void on_sleep(struct muster_poller *poller, bool is_asleep)
{
    set_asleep(poller->data, is_asleep);
}

void muster_shm_drive(struct muster_group *group)
{
    group->shm_idle_turns = 0;
    if (group->is_closed)
        return;
    if (group->env->loop->ops->poller_start != NULL) {
        muster_poller_start(&group->shm_poller, group->env->loop);
        return;
    }
    if (muster_timer_is_started(&group->shm_timer)) {
        muster_timer_stop(&group->shm_timer);
        set_asleep(group, false);
    }
    muster_task_post(&group->shm_task, group->env->loop);
}

void muster_shm_init_driving(struct muster_group *group)
{
    group->shm_poller =
        (struct muster_poller){.data = group, .on_poll = on_poll, .on_sleep = on_sleep};
    muster_task_init(&group->shm_task, on_task, group);
    muster_timer_init(&group->shm_timer, on_timer, group);
}

void muster_shm_stop_driving(struct muster_group *group)
{
    muster_poller_stop(&group->shm_poller);
    muster_task_cancel(&group->shm_task);
    muster_timer_stop(&group->shm_timer);
}
