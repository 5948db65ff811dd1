/* Groups that are left while others still read the memory of an operation: it is held until they are
 * through, and the group closes behind it. */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

/* Operations of the next groups may wait for its place on the board. */
static void advance_other_groups(struct muster_shm *link)
{
    for (struct muster_list *node = link->node.next; node != &link->node; node = node->next) {
        struct muster_group *group = MUSTER_CONTAINER_OF(node, struct muster_shm, node)->group;

        if (group == NULL || group->is_left)
            continue;
        for (uint32_t lane = 0; lane < group->lane_count; lane++)
            muster_lane_advance(group, &group->lanes[lane]);
    }
}

void muster_shm_end_lingering(struct muster_run *run)
{
    struct muster_shm *link = muster_shm_ref(muster_shm_of(run)->link);
    bool is_whole = run->state >= MUSTER_RUN_COMPLETE;

    MUSTER_ASSERT(muster_run_is_shared(run));
    MUSTER_ASSERT(muster_run_is_lingering(run));
    for (uint32_t i = 0; is_whole && i < muster_shm_of(run)->n; i++)
        if (!muster_shm_is_through(run, i))
            muster_shm_leave(run, i);
    if (!is_whole)
        run->result.verdict = MUSTER_VERDICT_ABORTED;
    muster_run_end(run, is_whole ? MUSTER_OK : run->linger_rc);
    advance_other_groups(link);
    muster_shm_unref(link);
}

void muster_shm_release(struct muster_lane *lane)
{
    struct muster_list *node = lane->runs.next;

    while (node != &lane->runs) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);

        node = node->next;
        if (muster_run_is_lingering(run) && muster_shm_is_released(run))
            muster_shm_end_lingering(run);
    }
}

static struct muster_group *find_left(const struct muster_board *board)
{
    struct muster_shm *first = board != NULL ? board->events_data : NULL, *shm = first;

    while (shm != NULL) {
        if (shm->group != NULL && shm->group->is_left)
            return shm->group;
        shm = MUSTER_CONTAINER_OF(shm->node.next, struct muster_shm, node);
        if (shm == first)
            return NULL;
    }
    return NULL;
}

bool muster_group_is_awaited(const struct muster_board *board)
{
    return find_left(board) != NULL;
}

void muster_group_close_left(struct muster_board *board)
{
    struct muster_group *group;

    while ((group = find_left(board)) != NULL) {
        muster_group_end_lingering(group);
        muster_group_finish(group);
    }
}
