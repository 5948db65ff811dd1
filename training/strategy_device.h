/* Calls of a strategy on device memory: its GPU backend, and which memory a call is about. */
#ifndef MUSTER_TRAINING_STRATEGY_DEVICE_H
#define MUSTER_TRAINING_STRATEGY_DEVICE_H

#include "training/strategy_call.h"

/** Open the device and NCCL, once. Errors: those of muster_gpu_open, with the remedy. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_open_device(struct muster_strategy *strategy,
                                                             struct muster_error *ret_error);
/** After the node is closed: wait until it is. In the seat, or without a runtime. */
void muster_strategy_close_device(struct muster_strategy *strategy);

/** By its tensors and options: does the call run on the device? INVALID_ARGUMENT,
 * FAILED_PRECONDITION, UNIMPLEMENTED: the error has the remedy. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_choose(struct muster_strategy *strategy,
                                                        const struct muster_strategy_call *call,
                                                        bool *ret_is_on_device);
/** All of it, and the members' word that it has gone well on all: OK there, or here not. In the
 * seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_run_on_device(
    struct muster_strategy *strategy, const struct muster_strategy_call *call);

#endif
