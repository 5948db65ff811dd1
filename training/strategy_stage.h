/* A call on device memory that the GPU backend has no form of: its tensors are copied to the host's memory, the call
 * runs there, and what it has written is copied back. */
#ifndef MUSTER_TRAINING_STRATEGY_STAGE_H
#define MUSTER_TRAINING_STRATEGY_STAGE_H

#include "training/strategy_call.h"

/** Wait for the program's stream. Not in the seat. Errors: those of opening the device; a failure of it comes with
 * open. */
MUSTER_MUST_CHECK enum muster_rc muster_stage_prepare(struct muster_strategy *strategy,
                                                      const struct muster_strategy_call *call);

/** Copy what the call reads. Gives. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE (the device has failed, and the strategy
 * with it). In the seat, as all below. */
MUSTER_MUST_CHECK enum muster_rc muster_stage_open(struct muster_strategy *strategy,
                                                   const struct muster_strategy_call *call,
                                                   struct muster_stage **ret_stage);
/** The call's tensors, on the host. Borrowed until close. */
const struct muster_tensor *muster_stage_tensors(const struct muster_stage *stage);
/** Copy back what the call writes. Errors: UNAVAILABLE, as open. */
MUSTER_MUST_CHECK enum muster_rc muster_stage_write_back(const struct muster_stage *stage);
/** NULL is accepted. */
void muster_stage_close(struct muster_stage *stage);

/** The memory that is kept for later calls goes back. */
void muster_stage_memory_free(struct muster_strategy *strategy);

#endif
