/* Splits: operations of one lane among some of the members, by a color that is a function of the
 * member. Data, tensor and pipeline groups are splits of the same members. */
#ifndef MUSTER_SPLIT_H
#define MUSTER_SPLIT_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/view.h>

MUSTER_BEGIN

#define MUSTER_SPLITS_MAX     16u
#define MUSTER_COLOR_MAX      ((1u << 24) - 3)
#define MUSTER_COLOR_NO_GROUP UINT32_MAX /* or any above the maximum: takes part in none of them */

/** The color of a member, from its task for one; not from its rank, which changes. Pure: every
 * member asks for every member, now and in every later view. */
typedef uint32_t muster_color_fn(void *data, const struct muster_member *member);

/** Lanes lane … lane + lane_count - 1 belong to the members of one color each. */
struct muster_split {
    uint32_t lane, lane_count;
    muster_color_fn *color;
    void *data;
};

/**
 * From now on, an operation that is started with op->lane in one of split's lanes is one of the
 * members with this member's color: they alone start it, contribute to it and wait for it. Ranks of
 * roots stay those of the group's view; parts of all_gather and the like are counted within the color
 * (muster_group_lane_rank). Lanes of several splits, and the others', go on independently.
 *
 * Nothing is exchanged: a member joins the others of its color with its first operation. The split
 * lasts over changes of view: who stays keeps its color, who joins has that of its task, and one
 * change of view decides the operations of all subgroups. All members make the same splits,
 * and none of the lane of a GPU backend.
 *
 * Owns:    split is copied; color and data are used as long as the process is a member.
 * Errors:  INVALID_ARGUMENT (no color, lanes outside of 0 … 63),
 *          ALREADY_EXISTS (a lane belongs to a split), FAILED_PRECONDITION (a lane has been used, or
 *          the group is closed), RESOURCE_EXHAUSTED (MUSTER_SPLITS_MAX).
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_group_split(struct muster_group *group,
                                                               const struct muster_split *split);

/** Members that take part in an operation started now on this lane, and this member's place among
 * them. */
MUSTER_API uint32_t muster_group_lane_size(const struct muster_group *group, uint32_t lane);
MUSTER_API uint32_t muster_group_lane_rank(const struct muster_group *group, uint32_t lane);

MUSTER_END

#endif
