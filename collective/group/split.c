/* Splits of a group: which member takes part in an operation of which lane. A split is a function of the member alone,
 * so every member computes the participants of every operation by itself, in any view, without a message. */
#include "collective/group/group_internal.h"

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/hash.h>

#include <string.h>

/* --- Lanes and their numbers --- */

/* The color that an operation's lane names, plus one; 0: it is one of all members. */
static uint32_t color_of(const struct muster_op_id *id)
{
    return id->lane / MUSTER_LANE_COLOR;
}

static const struct muster_split *split_of(const struct muster_group *group, uint32_t lane)
{
    uint32_t split = group->lanes[MUSTER_LANE_INDEX(lane)].split;

    return split == 0 ? NULL : &group->splits[split - 1];
}

/* The color_of an operation that the member takes part in; 0: it takes part in none. */
static uint32_t color_at(const struct muster_split *split, const struct muster_member *member)
{
    uint32_t color = split->color(split->data, member);

    return color > MUSTER_COLOR_MAX ? 0 : color + 1;
}

uint32_t muster_group_lane_number(const struct muster_group *group, uint32_t lane)
{
    const struct muster_split *split = split_of(group, lane);
    uint32_t color;

    if (split == NULL)
        return lane;
    color = color_at(split, &group->view->members[group->rank]);
    return lane + (color == 0 ? MUSTER_COLOR_NONE : color) * MUSTER_LANE_COLOR;
}

/* --- Members that take part --- */

/* All members of the view take part: index and rank are the same, and the loops below can be saved. */
static bool is_of_all(const struct muster_group *group, const struct muster_op_id *id)
{
    return color_of(id) == 0 && id->step >= group->from_step_max;
}

bool muster_op_takes_part(const struct muster_group *group, const struct muster_op_id *id,
                          const struct muster_member *member)
{
    const struct muster_split *split = split_of(group, id->lane);

    if (member->from_step > id->step)
        return false;
    return color_of(id) == 0 || (split != NULL && color_at(split, member) == color_of(id));
}

static bool takes_part(const struct muster_group *group, const struct muster_op_id *id,
                       uint32_t rank)
{
    return muster_op_takes_part(group, id, &group->view->members[rank]);
}

uint32_t muster_op_participants(const struct muster_group *group, const struct muster_op_id *id)
{
    uint32_t count = 0;

    if (is_of_all(group, id))
        return group->view->member_count;
    for (uint32_t rank = 0; rank < group->view->member_count; rank++)
        count += takes_part(group, id, rank);
    return count;
}

uint64_t muster_op_participants_hash(const struct muster_group *group,
                                     const struct muster_view *view, const struct muster_op_id *id)
{
    uint64_t hash = 0;

    for (uint32_t rank = 0; rank < view->member_count; rank++)
        if (muster_op_takes_part(group, id, &view->members[rank]))
            hash = muster_hash64(view->members[rank].incarnation.bytes,
                                 sizeof(view->members[rank].incarnation.bytes), hash);
    return hash;
}

uint32_t muster_op_participant_rank(const struct muster_group *group, const struct muster_op_id *id,
                                    uint32_t index)
{
    if (is_of_all(group, id))
        return index;
    for (uint32_t rank = 0;; rank++) {
        MUSTER_ASSERT(rank < group->view->member_count);
        if (takes_part(group, id, rank) && index-- == 0)
            return rank;
    }
}

uint32_t muster_op_participant_index(const struct muster_group *group,
                                     const struct muster_op_id *id, uint32_t rank)
{
    uint32_t index = 0;

    if (is_of_all(group, id))
        return rank;
    if (!takes_part(group, id, rank))
        return UINT32_MAX;
    for (uint32_t i = 0; i < rank; i++)
        index += takes_part(group, id, i);
    return index;
}

bool muster_group_is_lane_known(const struct muster_group *group, const struct muster_op_id *id)
{
    return color_of(id) == 0 || split_of(group, id->lane) != NULL;
}

struct muster_op_id muster_group_next_id(const struct muster_group *group, uint32_t lane)
{
    uint32_t known = lane < MUSTER_LANES_MAX ? lane : 0; /* no operation starts on another */

    return (struct muster_op_id){.step = group->begun_step,
                                 .lane = muster_group_lane_number(group, known)};
}

uint32_t muster_group_lane_size(const struct muster_group *group, uint32_t lane)
{
    struct muster_op_id id = muster_group_next_id(group, lane);

    return muster_op_participants(group, &id);
}

uint32_t muster_group_lane_rank(const struct muster_group *group, uint32_t lane)
{
    struct muster_op_id id = muster_group_next_id(group, lane);

    return muster_op_participant_index(group, &id, group->rank);
}

/* --- Splits --- */

static enum muster_rc check_split(const struct muster_group *group,
                                  const struct muster_split *split)
{
    if (split->color == NULL || split->lane_count == 0 || split->lane >= MUSTER_LANES_MAX ||
        split->lane_count > MUSTER_LANES_MAX - split->lane)
        return MUSTER_INVALID_ARGUMENT;
    if (group->is_closed || group->is_ended)
        return MUSTER_FAILED_PRECONDITION;
    for (uint32_t lane = split->lane; lane < split->lane + split->lane_count; lane++) {
        if (group->lanes[lane].split != 0)
            return MUSTER_ALREADY_EXISTS;
        if (group->lanes[lane].is_used)
            return MUSTER_FAILED_PRECONDITION;
    }
    return group->split_count < MUSTER_SPLITS_MAX ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

enum muster_rc muster_group_split(struct muster_group *group, const struct muster_split *split)
{
    enum muster_rc rc = check_split(group, split);

    if (rc != MUSTER_OK)
        return rc;
    /* Lanes name their split by its number plus one, which is the count after this. */
    group->splits[group->split_count++] = *split;
    for (uint32_t lane = split->lane; lane < split->lane + split->lane_count; lane++)
        group->lanes[lane].split = group->split_count;
    if (group->lane_count < split->lane + split->lane_count)
        group->lane_count = split->lane + split->lane_count;
    return MUSTER_OK;
}

/* The lanes of `next` have not been used: nothing can fail. */
void muster_group_inherit_splits(struct muster_group *next, const struct muster_group *group)
{
    for (uint32_t i = 0; i < group->split_count; i++) {
        enum muster_rc rc = muster_group_split(next, &group->splits[i]);

        MUSTER_ASSERT(rc == MUSTER_OK);
        (void)rc;
    }
}
