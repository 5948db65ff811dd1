/* The remains of a worker that has ended. */
#ifndef MUSTER_RUN_COLLECT_H
#define MUSTER_RUN_COLLECT_H

#include "run/state/run.h"

/** The process of task is a zombie, or its keeper has written down its end: confirm the death to
 * the registry, end its group, reap it, read its last output. Sets the wait status and the times of
 * task; task.c decides what follows. */
void run_task_collect(struct run_task *task);
/** The threads of task have ended, and the kernel takes down its memory: confirm its death to the registry. How it has
 * ended is not known yet; run_task_collect confirms that. */
void run_task_note_dying(struct run_task *task);

#endif
