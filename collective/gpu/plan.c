/* The next communicator when the members have changed: the same on all, from facts that all have.
 * Pure. Keeping costs nothing, a shrunk or grown communicator less than a new one; setup.c carries the plan out. */
#include "collective/gpu/setup.h"

#include "collective/gpu/nccl_library.h"

/* All have the same parent, in rising ranks of it, and at least as quiet as `least`: READY, or revoked as well. Ranks
 * and counts are the word of other processes, and setup_make.c lists the ranks that are left out by them: a rank that
 * the parent cannot have, or another count, means that there is no common parent. */
static bool have_parent(const struct muster_gpu_standing *standings, uint32_t count,
                        enum muster_gpu_parent least)
{
    for (uint32_t i = 0; i < count; i++)
        if (standings[i].parent == MUSTER_GPU_PARENT_NONE ||
            (least == MUSTER_GPU_PARENT_READY && standings[i].parent != MUSTER_GPU_PARENT_READY) ||
            standings[i].parent_key != standings[0].parent_key ||
            standings[i].parent_count != standings[0].parent_count ||
            standings[i].parent_rank >= standings[0].parent_count ||
            (i > 0 && standings[i].parent_rank <= standings[i - 1].parent_rank))
            return false;
    return true;
}

static bool have_feature(const struct muster_gpu_standing *standings, uint32_t count,
                         unsigned feature)
{
    for (uint32_t i = 0; i < count; i++)
        if ((standings[i].features & feature) == 0)
            return false;
    return true;
}

/* New ranks come after the old ones, so the old ones must be the first. */
static bool can_grow(const struct muster_gpu_standing *standings, uint32_t count)
{
    uint32_t old = standings[0].parent_count;

    if (standings[0].parent == MUSTER_GPU_PARENT_NONE || old >= count ||
        !have_parent(standings, old, MUSTER_GPU_PARENT_READY))
        return false;
    for (uint32_t i = old; i < count; i++)
        if (standings[i].parent != MUSTER_GPU_PARENT_NONE &&
            standings[i].parent_key == standings[0].parent_key)
            return false;
    return have_feature(standings, count, MUSTER_NCCL_GROW);
}

/* A member with another version of NCCL: versions do not talk to each other reliably. */
static bool find_stranger(const struct muster_gpu_standing *standings, uint32_t count,
                          struct muster_error *ret_error)
{
    for (uint32_t i = 1; i < count; i++) {
        if (standings[i].version == standings[0].version)
            continue;
        muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                         "rank %u has NCCL %u, rank 0 %u: all need the same", i,
                         standings[i].version, standings[0].version);
        return true;
    }
    return false;
}

struct muster_gpu_plan muster_gpu_plan_make(const struct muster_gpu_standing *standings,
                                            uint32_t count)
{
    struct muster_gpu_plan plan = {.kind = MUSTER_GPU_PLAN_INIT};
    uint32_t old;

    MUSTER_ASSERT(count > 0);
    old = standings[0].parent_count;
    if (find_stranger(standings, count, &plan.error)) {
        plan.kind = MUSTER_GPU_PLAN_REFUSE;
    } else if (can_grow(standings, count)) {
        plan.kind = MUSTER_GPU_PLAN_GROW;
        plan.old_count = old;
    } else if (have_parent(standings, count, MUSTER_GPU_PARENT_READY) && old == count) {
        plan.kind = MUSTER_GPU_PLAN_KEEP;
    } else if (have_parent(standings, count, MUSTER_GPU_PARENT_REVOKED) && old > count &&
               have_feature(standings, count, MUSTER_NCCL_SHRINK)) {
        plan.kind = MUSTER_GPU_PLAN_SHRINK;
    }
    return plan;
}
