/* The progress vector as a value. */
#include "collective/progress.h"

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
