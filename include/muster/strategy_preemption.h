/* Preemption: a job that must give up its machines stops after the same step on all members, saves its state and ends.
 * The same job started again goes on from there. `muster run` does this at SIGTERM (docs/preemption.md). */
#ifndef MUSTER_STRATEGY_PREEMPTION_H
#define MUSTER_STRATEGY_PREEMPTION_H

#include <muster/base.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

/** The exit code of a process that was preempted: start the same job again. Source: TF's TerminationConfig. */
#define MUSTER_EXIT_PREEMPTED 42

/**
 * True as soon as this member knows that the job is preempted. muster_strategy_begin returns OK up to the last step
 * that all members make, then CANCELLED. The state of that step is then in the checkpoint directory of `muster run`
 * (MUSTER_CHECKPOINT_DIR); without one it is in the registered tensors only. Close then, and end with
 * MUSTER_EXIT_PREEMPTED. Each further begin returns CANCELLED again. A begin that cannot save returns another code.
 *
 * Thread:  any.
 */
MUSTER_API bool muster_strategy_is_preempted(const struct muster_strategy *strategy);

/**
 * Ask all members of the job to stop, because this program knows that its machine will be taken away. Does not wait:
 * go on with the steps. cause is for people, and may be NULL; copied.
 *
 * Errors:  FAILED_PRECONDITION (another thread is in a call), and an error that has ended the strategy already.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_preempt(
    struct muster_strategy *strategy, const char *cause);

MUSTER_END

#endif
