/* The replicas of a strategy, shared by training/replicas*.c. */
#ifndef MUSTER_TRAINING_REPLICAS_H
#define MUSTER_TRAINING_REPLICAS_H

#include <muster/replicas.h>

#include "training/strategy_internal.h"

/** Memory that other processes map, of at least so many bytes,
 * kept until the strategy closes; what was in it is lost. RESOURCE_EXHAUSTED: strategy->error. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_reserve(struct muster_strategy *strategy,
                                                         enum muster_replicas_room_of which,
                                                         uint64_t bytes, void **ret_memory);

struct muster_replicas_copy;

/** Reduce each of `count` tensors over the local replicas, in their order: sums has one tensor of the host's memory for
 * each. places says where the tensors are: those of the first replica, then those of the next one. MEAN divides by the
 * local replicas. Errors: those of muster_replicas_wait_copies. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_fold(
    struct muster_strategy *strategy, const char *name, const struct muster_replicas_copy *places,
    const struct muster_tensor *sums, size_t count, enum muster_reduction reduction);

/** The parts that the members of a view give, one after the other, of different length. */
struct muster_replicas_parts {
    const struct muster_view *view;
    const struct muster_tensor *input;
    struct muster_tensor output; /* the whole */
    const uint64_t *counts;      /* elements of each member that takes part */
};
/** Gather them. ABORTED also where the members are not those of the view any more. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_gather_parts(
    struct muster_strategy *strategy, const char *name, const struct muster_replicas_parts *parts);
/** Gather as many elements of each member of a view; output has those of all. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_gather_equal(struct muster_strategy *strategy,
                                                              const char *name,
                                                              const struct muster_view *view,
                                                              const struct muster_tensor *input,
                                                              const struct muster_tensor *output);

#endif
