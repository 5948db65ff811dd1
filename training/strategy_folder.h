/* The folder of MUSTER_CHECKPOINT_DIR: one job has it, and all of its members see the same one. */
#ifndef MUSTER_TRAINING_STRATEGY_FOLDER_H
#define MUSTER_TRAINING_STRATEGY_FOLDER_H

#include <muster/base.h>
#include <muster/status.h>

struct muster_strategy;
struct muster_strategy_sharers;

/** The members of a new job take the folder, if there is one. In the seat. Errors: INVALID_ARGUMENT (another job that
 * lives has it, or a member does not see what another one has put there), those of the operations. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_folder_take(
    struct muster_strategy *strategy, const struct muster_strategy_sharers *sharers);
/** A member that came later sees the folder of the others, which have it in this life of the job; 0: they have not
 * told. In the seat. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_folder_join(struct muster_strategy *strategy,
                                                             uint64_t life);

#endif
