/* How the members of a view come to a communicator: they show each other what they have, decide
 * alike (keep, shrink, grow, or begin anew), make it, and tell each other whether it is up. */
#ifndef MUSTER_COLLECTIVE_GPU_SETUP_H
#define MUSTER_COLLECTIVE_GPU_SETUP_H

#include <muster/op_id.h>
#include <muster/status.h>

struct muster_gpu_group;
struct muster_gpu_setup;

enum muster_gpu_parent {
    MUSTER_GPU_PARENT_NONE,
    MUSTER_GPU_PARENT_READY,
    MUSTER_GPU_PARENT_REVOKED
};

/** The standing of a member. */
struct muster_gpu_standing {
    uint32_t version, features; /* of NCCL */
    uint32_t parent;            /* enum muster_gpu_parent: a communicator that is quiet */
    uint32_t parent_rank, parent_count;
    uint32_t attempt;
    uint64_t parent_key; /* names it */
};

enum muster_gpu_plan_kind {
    MUSTER_GPU_PLAN_KEEP,
    MUSTER_GPU_PLAN_SHRINK,
    MUSTER_GPU_PLAN_GROW,
    MUSTER_GPU_PLAN_INIT,
    MUSTER_GPU_PLAN_REFUSE, /* nothing can come of it */
};

struct muster_gpu_plan {
    enum muster_gpu_plan_kind kind;
    uint32_t old_count;        /* grow: the first so many have the parent */
    struct muster_error error; /* refuse */
};

/** Pure: all members decide alike. standings in the order of participants. */
struct muster_gpu_plan muster_gpu_plan_make(const struct muster_gpu_standing *standings,
                                            uint32_t count);

/** Begin, on the occasion of that operation (the same on all). Ends in muster_gpu_group_set_up. NULL:
 * no memory. */
struct muster_gpu_setup *muster_gpu_setup_start(struct muster_gpu_group *group,
                                                const struct muster_op_id *occasion);
/** Forget it: its communicator is aborted, set_up is not called. */
void muster_gpu_setup_drop(struct muster_gpu_setup *setup);
/** A member has failed before the round of that id: what is under way here will not come up, and the round
 * need not wait for init_timeout_ns. */
void muster_gpu_setup_hear_alarm(struct muster_gpu_setup *setup);
/** The group's communicator, which it may wait for, has come to rest. */
void muster_gpu_setup_proceed(struct muster_gpu_setup *setup);

#endif
