/* The member that the open operations of a group wait for, for reports: nothing depends on it. */
#include "collective/group/group_internal.h"

#include <stdio.h>

/* Frames of an operation that came before it was started here count by what they brought. */
static bool has_started(const struct muster_run *run, uint32_t participant)
{
    return (run->heard[participant] &
            (MUSTER_HEARD_ISSUED | MUSTER_HEARD_INPUT | MUSTER_HEARD_COMPLETE)) != 0;
}

/* Plans over TCP hear of some participants only. Data come from the one before, so the search goes
 * backwards from this member. UINT32_MAX: all have started it. */
static uint32_t find_missing(const struct muster_run *run)
{
    uint32_t n = run->participant_count;

    if (run->memory == NULL || run->state != MUSTER_RUN_ACTIVE || muster_run_is_adopting(run) ||
        run->plan.n != n)
        return UINT32_MAX;
    for (uint32_t back = 1; back < n; back++) {
        uint32_t participant = (run->self_index + n - back) % n;

        if (!has_started(run, participant))
            return participant;
    }
    return UINT32_MAX;
}

static bool lane_waits_for(const struct muster_group *group, const struct muster_lane *lane,
                           struct muster_group_wait *ret_wait)
{
    MUSTER_LIST_EACH(&lane->runs, run, const struct muster_run, node) {
        uint32_t participant = find_missing(run);

        if (participant == UINT32_MAX)
            continue;
        ret_wait->rank = muster_op_participant_rank(group, &run->id, participant);
        muster_run_name(run, ret_wait->op, sizeof(ret_wait->op));
        return true;
    }
    return false;
}

/* Queued operations go on when a part of the group has an answer of this member: whether it uses shared memory. */
static bool part_waits_for(const struct muster_group *group, struct muster_group_wait *ret_wait)
{
    const char *what = muster_group_parts_await(group, &ret_wait->rank);

    if (what != NULL)
        (void)snprintf(ret_wait->op, sizeof(ret_wait->op), "%s", what);
    return what != NULL;
}

bool muster_group_waits_for(const struct muster_group *group, struct muster_group_wait *ret_wait)
{
    if (group->is_frozen)
        return false;
    if (muster_group_is_busy(group) && part_waits_for(group, ret_wait))
        return true;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        if (lane_waits_for(group, &group->lanes[lane], ret_wait))
            return true;
    return false;
}
