/* The remains of a worker that has ended. */
#ifndef MUSTER_RUN_COLLECT_H
#define MUSTER_RUN_COLLECT_H

#include "run/state/run.h"

/** The process of task is a zombie, or its keeper has written down its end: confirm the death to
 * the registry, end its group, reap it, read its last output. Sets the wait status and the times of
 * task; task.c decides what follows. */
void run_task_collect(struct run_task *task);

#endif
