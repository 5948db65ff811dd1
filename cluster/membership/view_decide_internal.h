/* The parts of the decision: shared by view_decide.c and view_decide_members.c only. */
#ifndef MUSTER_CLUSTER_VIEW_DECIDE_INTERNAL_H
#define MUSTER_CLUSTER_VIEW_DECIDE_INTERNAL_H

#include "cluster/membership/view_decide.h"

/** A voter that stays, with its place in the new view. */
struct stayer {
    const struct muster_vote *vote;
    uint64_t from_step;
    uint32_t rank;
};

/** A decision under way. */
struct decision {
    const struct muster_decide_input *input;
    struct muster_mem *mem;
    struct stayer *stayers;
    size_t stayer_count;
    struct muster_view fields;
};

/** Fill the members of view E+1, with from_step and rank, and whether the state is lost. */
MUSTER_MUST_CHECK enum muster_rc muster_decide_members(struct decision *decision);

#endif
