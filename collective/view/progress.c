/* The progress vector as a value. The group fills it in when it freezes, and the coordinator reads
 * those of all members to decide what becomes of each open operation. */
#include "collective/view/progress.h"

/* Counts become 0: a vector that was emptied may be filled in again, or emptied once more. */
void muster_progress_fini(struct muster_progress *progress)
{
    for (uint32_t i = 0; i < progress->op_count; i++)
        muster_mem_free(progress->mem, progress->ops[i].chunks_final);
    muster_mem_free(progress->mem, progress->ops);
    muster_mem_free(progress->mem, progress->lanes);
    progress->op_count = 0;
    progress->ops = NULL;
    progress->lane_count = 0;
    progress->lanes = NULL;
}

/* Lanes stand at their index; the color in the id tells whether the member takes part there. */
const struct muster_progress_lane *muster_progress_lane_of(const struct muster_progress *progress,
                                                           const struct muster_op_id *id)
{
    uint32_t index = MUSTER_LANE_INDEX(id->lane);

    if (index >= progress->lane_count || progress->lanes[index].lane != id->lane)
        return NULL;
    return &progress->lanes[index];
}

/* A member that has not created this split yet could still pick any color, so it cannot be ruled
 * out. */
bool muster_progress_is_apart(const struct muster_progress *progress, const struct muster_op_id *id)
{
    uint32_t index = MUSTER_LANE_INDEX(id->lane);

    return id->lane >= MUSTER_LANE_COLOR && index < progress->lane_count &&
           progress->lanes[index].lane >= MUSTER_LANE_COLOR &&
           progress->lanes[index].lane != id->lane;
}
