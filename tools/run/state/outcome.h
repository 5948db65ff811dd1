/* The result of the run, from the results of its workers. */
#ifndef MUSTER_RUN_STATE_OUTCOME_H
#define MUSTER_RUN_STATE_OUTCOME_H

#include "run/state/run.h"

/** A worker that left early has done fewer steps and has other weights: only those with the most steps are compared. */
struct run_outcome {
    uint32_t results; /* of those */
    uint64_t steps, steps_lost;
    bool is_identical;
    bool is_different;
    bool is_stateless; /* their programs have registered nothing that could be compared */
    const struct run_values *values; /* of the first of those */
    double recovery_median_ms, recovery_max_ms;
    double detection_median_ms, detection_max_ms;
};
void run_outcome_gather(struct run *run, struct run_outcome *ret_outcome);
/** Tasks of this launcher that have committed a step, in any of their lives. */
uint32_t run_outcome_took_part(const struct run *run);
bool run_outcome_has_begun(const struct run *run);
/** Some worker has reported, so the program uses muster, and none of them has ever committed a step. */
bool run_outcome_is_idle(const struct run *run);
/** Several workers have died, no worker has ever reported, and each of them is restarted on its own, which the others
 * of a program without muster do not notice. */
bool run_outcome_is_foreign(const struct run *run);
/** The last step that a worker has reported as committed, since the job last began. */
uint64_t run_outcome_committed(const struct run *run);
/** A member of this life has ended with 0, and has said neither that it closes nor that it ends without close. */
bool run_outcome_is_silent(const struct run_task *task);
/** Tasks ended with 0 in the middle of a step, or without a word, and no task has ended its work behind them: nobody
 * has done what the job was for. */
bool run_outcome_is_undone(const struct run *run);
/** The first task that has committed a step without an operation that others waited for; or NULL. The result is then
 * not what all have made. */
const struct run_task *run_outcome_find_skipper(const struct run *run);
/** A task that called an operation which a member that had left by then had not called in that step; NULL: none. */
const struct run_task *run_outcome_find_left_out(const struct run *run);
/** The first task whose work still ran in other processes when it ended with 0; or NULL. */
const struct run_task *run_outcome_find_runaway(const struct run *run);
/** The task that was rank 0 of the last step, if it has died behind that step and before it closed, and no later life
 * of it has closed: what rank 0 does at the end may be missing. NULL: none, or rank 0 was another launcher's. */
const struct run_task *run_outcome_find_unfinished(const struct run *run,
                                                   const struct run_outcome *outcome);
/** The task ended with 0 and without close, in the middle of a step or before the others had done theirs. */
bool run_outcome_has_left_early(const struct run_outcome *outcome, const struct run_task *task);
/** The task has a result, and no task did more steps. */
bool run_outcome_is_final(const struct run_outcome *outcome, const struct run_task *task);

#endif
