/* The variables MUSTER_* of the launcher's own environment. */
#ifndef MUSTER_RUN_VARIABLES_H
#define MUSTER_RUN_VARIABLES_H

#include "run/state/run.h"

/** Before the options are read: in a worker of another job, what its launcher has set for that worker alone is no
 * default of options here. */
void run_variables_drop_outer(void);

/** Check what workers would refuse, and warn of what has no effect. False: told. */
bool run_variables_check(struct run *run);

#endif
