/* The activity and the waits of a worker, as it reports them (docs/protocol.md, reports). */
#ifndef MUSTER_RUN_ACTIVITY_H
#define MUSTER_RUN_ACTIVITY_H

#include <muster/json.h>

#include "run/state/run.h"

#define RUN_SILENCE_MAX_NS (10 * MUSTER_NS_PER_S) /* a worker that lives reports more often */

void run_activity_on_report(struct run_task *task, const struct muster_json *report);
uint64_t run_counter_sum(const struct run_counter *counter);
/** In one word what the task does: "computing", "waiting" … (docs/monitoring.md). Static. */
const char *run_activity_state(const struct run_task *task);
/** Since the last report of the process that runs; 0: it has not reported. */
uint64_t run_activity_silent_ns(const struct run_task *task);
/** The task's wait, followed along the chain of tasks that wait themselves. "": for
 * nobody. Borrowed until the next report. */
const char *run_activity_waits_for(const struct run_task *task);
/** Why the job stands still, or false. */
bool run_activity_is_stuck(const struct run *run, char *ret_why, size_t bytes);

#endif
