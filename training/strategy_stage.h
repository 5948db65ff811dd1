/* A call on device memory that the GPU backend has no form of: its tensors are copied to the host's memory, the call
 * runs there, and what it has written is copied back. */
#ifndef MUSTER_TRAINING_STRATEGY_STAGE_H
#define MUSTER_TRAINING_STRATEGY_STAGE_H

#include "training/strategy_call.h"

struct muster_stage;
/** Copies of a stage have ended, on the loop. */
typedef void muster_stage_fn(void *data, enum muster_rc rc);

/** Wait for the program's stream, unless the call is a request. Not in the seat. Errors: those of opening the device; a
 * failure of it comes with open. */
MUSTER_MUST_CHECK enum muster_rc muster_stage_prepare(struct muster_strategy *strategy,
                                                      const struct muster_strategy_call *call);

/** Copy what the call reads; of a request perhaps while the program computes: muster_stage_is_copying. Gives. Errors:
 * RESOURCE_EXHAUSTED, UNAVAILABLE (the device has failed, and the strategy with it). In the seat, as all below. */
MUSTER_MUST_CHECK enum muster_rc muster_stage_open(struct muster_strategy *strategy,
                                                   const struct muster_strategy_call *call,
                                                   struct muster_stage **ret_stage);
/** The call's tensors, on the host. Borrowed until close. */
const struct muster_tensor *muster_stage_tensors(const struct muster_stage *stage);
/** Whether copies are under way; the owner is told of their end. */
bool muster_stage_is_copying(const struct muster_stage *stage);
void muster_stage_set_owner(struct muster_stage *stage, muster_stage_fn *on_copied, void *data);
/** Copy back what the call writes, and tell the owner. False: it has to be written back by a wait. */
bool muster_stage_start_write_back(struct muster_stage *stage);
/** Copy back what the call writes. Errors: UNAVAILABLE, as open. */
MUSTER_MUST_CHECK enum muster_rc muster_stage_write_back(const struct muster_stage *stage);
/** It waits for copies that are under way, and turns the loop meanwhile. NULL is accepted. */
void muster_stage_close(struct muster_stage *stage);

/** The memory that is kept for later calls goes back. */
void muster_stage_memory_free(struct muster_strategy *strategy);

#endif
