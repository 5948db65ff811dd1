/* The loop of a group works on its operations by a poller, or by tasks and a timer. Anything that may let an
 * operation through boards move calls muster_shm_drive; the work itself, and when it rests, is in progress.c. */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

void muster_shm_set_asleep(struct muster_group *group, bool is_asleep)
{
    if (group->shm != NULL && group->shm->is_used)
        atomic_store_explicit(&muster_shm_board_of(group->shm->board)->is_asleep, is_asleep,
                              memory_order_relaxed);
}

void muster_shm_drive(struct muster_group *group)
{
    group->shm_idle_turns = 0;
    if (group->is_closed)
        return;
    /* A loop that polls looks again and again before it sleeps, so the store of another process is seen without
     * a system call. Simulated loops do not poll. */
    if (group->env->loop->ops->poller_start != NULL) {
        muster_poller_start(&group->shm_poller, group->env->loop);
        return;
    }
    if (muster_timer_is_started(&group->shm_timer)) {
        muster_timer_stop(&group->shm_timer);
        muster_shm_set_asleep(group, false);
    }
    muster_task_post(&group->shm_task, group->env->loop);
}

void muster_shm_stop_driving(struct muster_group *group)
{
    MUSTER_ASSERT(group->shm_poller.data == group);
    muster_poller_stop(&group->shm_poller);
    muster_task_cancel(&group->shm_task);
    muster_timer_stop(&group->shm_timer);
}
