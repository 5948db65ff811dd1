/* Processes of workers: started, signalled, reaped. */
#ifndef MUSTER_RUN_CHILD_H
#define MUSTER_RUN_CHILD_H

#include "run/state/run.h"

/** Start the program for task. 0, or errno of what failed (ENOENT: no such program). */
int run_child_start(struct run_task *task);
/** Take over the present life of task from a launcher that has died; keeper 0: it has ended. */
void run_child_adopt(struct run_task *task, pid_t keeper);
/** Signal the task's whole process group. */
void run_child_signal(const struct run_task *task, int signal);
/** Reap children that are not the process of a task; tasks that ended are handed to
 * run_control.on_exit. */
void run_child_reap(struct run *run);

#endif
