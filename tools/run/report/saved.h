/* Whether the last step of a run is in the folder of --checkpoint-dir. */
#ifndef MUSTER_RUN_SAVED_H
#define MUSTER_RUN_SAVED_H

#include "run/state/run.h"

/** Tell whether the last step is saved: a member that cannot save only warns, and the training goes on. */
void run_saved_tell(struct run *run, uint64_t last_step);

#endif
