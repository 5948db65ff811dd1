/* The health of the job: /healthz of the status page, and the state in `muster status`. */
#ifndef MUSTER_RUN_HEALTH_H
#define MUSTER_RUN_HEALTH_H

#include "run/state/run.h"

/** OK, or why the job does not get on. */
enum muster_rc run_health_check(const struct run *run, struct muster_error *ret_error);
/** OK while checkpoints are saved, or none has been tried; OK with a text after a failure; UNAVAILABLE after several in
 * a row: the job gets on, and would lose more and more steps. */
enum muster_rc run_health_check_checkpoints(const struct run *run, struct muster_error *ret_error);

#endif
