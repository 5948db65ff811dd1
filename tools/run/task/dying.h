/* A death is told when the threads of a worker end. The kernel takes down the memory of its process after that, and the
 * process can be reaped, and closes its sockets, only then: 60 ms later for a program that has imported PyTorch. */
#ifndef MUSTER_RUN_DYING_H
#define MUSTER_RUN_DYING_H

#include "run/state/run.h"

/** After run_places_open. What cannot be opened or started is not watched: its death is told when it is reaped. */
void run_dying_open(struct run *run);
/** Before run_places_close. */
void run_dying_close(struct run *run);
/** The task has opened a strategy: wait in a thread for its death, once in each life. */
void run_dying_watch(struct run_task *task);
/** Its process has been taken down: end the thread. */
void run_dying_end(const struct run_task *task);

#endif
