/* When a strategy saves its state, and from which checkpoint it begins. */
#ifndef MUSTER_TRAINING_STRATEGY_CHECKPOINT_H
#define MUSTER_TRAINING_STRATEGY_CHECKPOINT_H

#include <muster/env.h>
#include <muster/strategy_checkpoint.h>

struct muster_strategy;

/** The options checkpoint_dir, _every and _keep_count, else MUSTER_CHECKPOINT_DIR, _EVERY, _KEEP. */
struct muster_strategy_schedule {
    char *folder;      /* NULL: nothing is saved without the program */
    uint64_t steps;    /* 0: by time */
    uint64_t every_ns; /* 0: by steps, or at no time */
    uint32_t keep_count;
    uint64_t due_ns;         /* by time: rank 0's counts */
    uint64_t attempted_step; /* the last one that was due + 1; 0: none */
    uint64_t patience_ns;    /* at the end: for members that may not end here */
    uint64_t take_ns; /* at the beginning: for another job's members, which may be about to end */
};

/** Read options and variables. Gives schedule->folder. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_schedule_read(
    struct muster_env *env, const struct muster_strategy_options *options,
    struct muster_strategy_schedule *ret_schedule, struct muster_error *ret_error);
/** An evaluator saves nothing by itself: its steps are not those of the members that train, whose folder it is. */
void muster_strategy_schedule_end(struct muster_env *env,
                                  struct muster_strategy_schedule *schedule);
/** Begin a checkpoint of the committed state, if one is due. In the seat, at the end of begin. What is not final
 * is logged. Errors: those that end the strategy. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_save_if_due(struct muster_strategy *strategy);
/** Save the state of the last commit, where the variables name a folder and nothing has saved it yet, and wait until it
 * is whole: the program ends. The others need not do the same. In the seat. Errors: the last checkpoint, this one or
 * one before it, is not whole; the launcher and the log are told. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_save_last(struct muster_strategy *strategy,
                                                           struct muster_error *ret_error);
/** Agree with all members on a checkpoint of the committed state, and begin it. *ret_is_begun: rank 0 says that it is
 * due. In the seat, in a step; all members call it. Errors: as muster_strategy_checkpoint_start. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_save(
    struct muster_strategy *strategy, bool is_due,
    const struct muster_strategy_checkpoint_options *options, bool *ret_is_begun);
/** A commit: the tensors have changed, which the program must have announced. */
void muster_strategy_check_update(struct muster_strategy *strategy);

/** The members of a new job, by index, compare their states: muster_strategy_share_state. */
struct muster_strategy_sharers {
    const struct muster_view *view;
    uint32_t count, self, giver;
};
/** A member of these; index is below the count. */
const struct muster_member *muster_strategy_sharer_at(const struct muster_strategy_sharers *sharers,
                                                      uint32_t index);
/** Read the newest whole checkpoint of the folder that was named, each member a part, and give the parts to all.
 * *ret_is_restored: there is one; strategy->restored_step is its step. In the seat. Errors: DATA_LOSS,
 * INVALID_ARGUMENT, and those of broadcast. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_restore_values(
    struct muster_strategy *strategy, const struct muster_strategy_sharers *sharers,
    bool *ret_is_restored);

#endif
