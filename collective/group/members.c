/* Helpers of all files of a group: its participants and their names, the search for a run, and
 * the callbacks that are due. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <stdio.h>

/* --- Participants --- */

/* Ranks are those of the view; indices count the participants of a step only. A member that joined after the step
 * had begun does not take part in it, so the two differ while a step of before the join is open. */

uint32_t muster_group_participants(const struct muster_group *group, uint64_t step)
{
    uint32_t count = 0;

    if (step >= group->from_step_max)
        return group->view->member_count;
    for (uint32_t rank = 0; rank < group->view->member_count; rank++)
        count += group->view->members[rank].from_step <= step;
    return count;
}

uint32_t muster_group_participant_index(const struct muster_group *group, uint64_t step,
                                        uint32_t rank)
{
    uint32_t index = 0;

    if (step >= group->from_step_max)
        return rank;
    if (group->view->members[rank].from_step > step)
        return UINT32_MAX;
    for (uint32_t i = 0; i < rank; i++)
        index += group->view->members[i].from_step <= step;
    return index;
}

const char *muster_group_rank_name(const struct muster_group *group, uint32_t rank, char *ret_text,
                                   size_t size)
{
    const struct muster_member *member = &group->view->members[rank];

    snprintf(ret_text, size, "%s:%u", member->task_type, member->task_index);
    return ret_text;
}

struct muster_run *muster_group_find(const struct muster_group *group,
                                     const struct muster_op_id *id)
{
    MUSTER_LIST_EACH(&group->lanes[MUSTER_LANE_INDEX(id->lane)].runs, run, struct muster_run, node)
        if (muster_op_id_compare(&run->id, id) == 0)
            return run;
    return NULL;
}

struct participants {
    const struct muster_group *group;
    const struct muster_op_id *id;
};

static const char *host_key(const void *data, uint32_t index)
{
    const struct participants *of = data;

    return of->group->view->members[muster_op_participant_rank(of->group, of->id, index)].host_key;
}

/* The participants of a step are those of an earlier one and more: their number identifies them. */
const struct muster_topology *muster_group_topology(struct muster_group *group,
                                                    const struct muster_op_id *id)
{
    const struct participants of = {.group = group, .id = id};
    uint32_t n = muster_op_participants(group, id);
    uint32_t lane = id->lane >= MUSTER_LANE_COLOR ? id->lane : 0;

    if (group->topology.n != n || group->topology_lane != lane)
        muster_topology_make(&group->topology, n, host_key, &of);
    group->topology_lane = lane;
    return &group->topology;
}

/* --- Callbacks --- */

void muster_group_run_done(struct muster_group *group)
{
    struct muster_list *node;

    MUSTER_ASSERT(!group->is_starting); /* a start never calls back */
    /* The first one again and again: a callback may start, cancel or end others. */
    while ((node = muster_list_pop(&group->done)) != NULL) {
        struct muster_op *op = MUSTER_CONTAINER_OF(node, struct muster_op, node);

        MUSTER_ASSERT(op->impl == NULL); /* handed back once */
        op->done(op, op->error.rc);
    }
}
