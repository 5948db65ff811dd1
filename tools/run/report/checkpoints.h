/* The count of the checkpoints that the job has saved, and of those that failed. */
#ifndef MUSTER_RUN_REPORT_CHECKPOINTS_H
#define MUSTER_RUN_REPORT_CHECKPOINTS_H

#include <muster/json.h>

#include "run/state/run.h"

/** A member tells of the end of a checkpoint. */
void run_checkpoints_on_report(struct run *run, const struct muster_json *report);
/** The job begins anew, and its steps are counted from the first. What was saved before stays in the totals. */
void run_checkpoints_forget(struct run *run);

#endif
