/* The summary of a run that was preempted. */
#ifndef MUSTER_RUN_REPORT_PREEMPTION_H
#define MUSTER_RUN_REPORT_PREEMPTION_H

#include <muster/json.h>

#include "run/state/run.h"

/** The worker of this launcher that stopped because the job was preempted, and tells the most; NULL: none has. The same
 * command goes on from there. */
const struct run_task *run_preemption_find(const struct run *run);
/** Name the tasks that have not come to the end of a stop: "worker:1 (computing, after step 57) and 2 more". False:
 * there are none. */
bool run_preemption_waits(const struct run *run, char *ret_text, size_t bytes);
/** False: the run was not preempted, and nothing is told. */
bool run_preemption_tell(struct run *run);
/** {"step": 12, "saved": true}, or null. Gives; NULL: no memory. */
struct muster_json *run_preemption_json(const struct run *run);

#endif
