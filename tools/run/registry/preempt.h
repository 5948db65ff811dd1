/* The key by which a job is asked to stop (docs/protocol.md, "Preemption"). */
#ifndef MUSTER_RUN_REGISTRY_PREEMPT_H
#define MUSTER_RUN_REGISTRY_PREEMPT_H

#include "run/state/run.h"

/** Ask the members of the job to stop, and again for each view that comes, until run_preempt_key_close. The first cause
 * stays in run->preempt_cause, also for a successor of this launcher. */
void run_preempt_key_open(struct run *run, const char *cause);
/** NULL is accepted; a write that is under way ends with the client of the registry. */
void run_preempt_key_close(struct run *run);

#endif
