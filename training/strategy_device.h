/* Calls of a strategy on device memory: its GPU backend, and which memory a call is about. */
#ifndef MUSTER_TRAINING_STRATEGY_DEVICE_H
#define MUSTER_TRAINING_STRATEGY_DEVICE_H

#include "training/strategy_call.h"

/** Open NCCL and the device that address is on (NULL: the first), once. Errors: those of muster_gpu_open, with the
 * remedy. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_open_device(struct muster_strategy *strategy,
                                                             const void *address,
                                                             struct muster_error *ret_error);
/** Close the device, after the node, and wait for it. In the seat, or without a runtime. */
void muster_strategy_close_device(struct muster_strategy *strategy);

/** Where a call runs. */
enum muster_strategy_path {
    MUSTER_STRATEGY_PATH_HOST,
    MUSTER_STRATEGY_PATH_DEVICE, /* by the GPU backend */
    MUSTER_STRATEGY_PATH_STAGED, /* in the host's memory, to which its device memory is copied */
};

/** Find out by its tensors and options where the call runs. Errors: INVALID_ARGUMENT, with the remedy. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_choose(struct muster_strategy *strategy,
                                                        const struct muster_strategy_call *call,
                                                        enum muster_strategy_path *ret_path);
/** Run the call, and the commit that tells all members how it went, so that it ends alike on all of them. In the
 * seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_run_on_device(
    struct muster_strategy *strategy, const struct muster_strategy_call *call);

#endif
