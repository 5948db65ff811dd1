/* Preemption: a job that must give its machines up stops behind one step on all members, saves its state and ends; the
 * same job started again goes on from there. What `muster run` does at SIGTERM (docs/preemption.md). */
#ifndef MUSTER_STRATEGY_PREEMPTION_H
#define MUSTER_STRATEGY_PREEMPTION_H

#include <muster/base.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

/** The exit code of a process that was preempted: start the same job again. Source: TF's TerminationConfig. */
#define MUSTER_EXIT_PREEMPTED 42

/**
 * True from when this member knows that the job is preempted. muster_strategy_begin returns OK up to the step behind
 * which all members stop, then CANCELLED: the state of that step is in the checkpoint directory of `muster run`
 * (MUSTER_CHECKPOINT_DIR), or, without one, in the registered tensors alone. Close then, and end with
 * MUSTER_EXIT_PREEMPTED. Each further begin returns CANCELLED again. A begin that cannot save returns another code.
 *
 * Thread:  any.
 */
MUSTER_API bool muster_strategy_is_preempted(const struct muster_strategy *strategy);

/**
 * Ask all members of the job to stop, because this program knows that its machine will be taken away. Does not wait:
 * go on with the steps. cause is for people, and may be NULL; copied.
 *
 * Errors:  FAILED_PRECONDITION (another thread is in a call); what is final in begin.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_preempt(
    struct muster_strategy *strategy, const char *cause);

MUSTER_END

#endif
