/* How long the members stood still after a death. */
#ifndef MUSTER_RUN_RECOVERY_H
#define MUSTER_RUN_RECOVERY_H

#include <muster/json.h>

#include "run/report/epoch.h"

/** A member's report of the change: when it learned of it, and when it went on. */
void run_recovery_note(struct run_epoch *epoch, const struct muster_json *report);
/** A member has delivered its first operation after the change, which is returned; NULL: it is not gathered. */
struct run_epoch *run_recovery_on_delivered(struct run_task *task,
                                            const struct muster_json *report);
/** All members that were interrupted have gone on. */
bool run_recovery_is_known(const struct run_epoch *epoch);
/** Before the change is told: sets recovery_ms and detection_ms. */
void run_recovery_settle(struct run_epoch *epoch);

#endif
