/* Folders of checkpoints, that of MUSTER_CHECKPOINT_DIR and those that the program names: one job has each, and all of
 * its members see the same one. */
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
/** The folder is that of the variable. */
bool muster_strategy_is_scheduled(const struct muster_strategy *strategy, const char *folder);
/** The life of the job in which this member has the folder, be it that of the variable or another; 0: it has not. */
uint64_t muster_strategy_folder_life(struct muster_strategy *strategy, const char *folder);
/** The life in which this member has any; 0: none. */
uint64_t muster_strategy_job_life(const struct muster_strategy *strategy);
/** A member that came later sees the folder of the others, which have it in this life of the job; 0: they have not
 * told. In the seat. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_folder_join(struct muster_strategy *strategy,
                                                             const char *folder, uint64_t life);
/** All members take a folder that the program names, in this life of the job. The first ones of more than
 * MUSTER_STRATEGY_NAMED_FOLDERS are left. In the seat, in a step. Errors: as of muster_strategy_folder_take. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_folder_name(struct muster_strategy *strategy,
                                                             const char *folder, uint64_t life);
/** The marks stay, until another job finds that nobody holds them. */
void muster_strategy_folders_leave(struct muster_strategy *strategy);

#endif
