/* Groups that are left while others still read the memory of an operation: it is held until they are
 * through, and the group closes after it. progress.c ends such runs from the loop; the cluster layer closes what
 * remains when the process ends. The reasons are in docs/boards.md, "Its memory is held". */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

/* Operations of the next groups may wait for the place on the board, or the slot, of a run that has ended. */
static void advance_other_groups(struct muster_shm *link)
{
    MUSTER_LIST_EACH(&link->node, other, struct muster_shm, node) {
        struct muster_group *group = other->group;

        if (group == NULL || group->is_left)
            continue;
        for (uint32_t lane = 0; lane < group->lane_count; lane++)
            muster_lane_advance(group, &group->lanes[lane]);
    }
}

void muster_shm_end_lingering(struct muster_run *run)
{
    /* The run has the last reference when its group is closed: the link must outlive the run here. */
    struct muster_shm *link = muster_shm_ref(muster_shm_of(run)->link);
    bool is_whole = run->state >= MUSTER_RUN_COMPLETE;

    MUSTER_ASSERT(muster_run_is_shared(run));
    MUSTER_ASSERT(muster_run_is_lingering(run));
    /* The memory is the caller's again: those that have not read it yet must find their bit before it changes. */
    for (uint32_t i = 0; is_whole && i < muster_shm_of(run)->n; i++)
        if (!muster_shm_is_through(run, i))
            muster_shm_leave(run, i);
    if (!is_whole) {
        muster_run_restore(run);
        run->result.verdict = MUSTER_VERDICT_ABORTED;
    }
    muster_run_end(run, is_whole ? MUSTER_OK : run->linger_rc);
    advance_other_groups(link);
    muster_shm_unref(link);
}

void muster_shm_release(struct muster_lane *lane)
{
    MUSTER_LIST_EACH_SAFE(&lane->runs, run, struct muster_run, node)
        if (muster_run_is_lingering(run) && muster_shm_is_released(run))
            muster_shm_end_lingering(run);
}

/* Any group of this board that was left and has not closed; NULL: none. The links of a board are a ring without
 * a head, and the board points at one of them. */
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

    /* The first one again and again: closing one changes the ring. */
    while ((group = find_left(board)) != NULL) {
        muster_group_end_lingering(group);
        muster_group_finish(group);
    }
}
