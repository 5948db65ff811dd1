/* The life of each worker, and the consequences of its end. */
#ifndef MUSTER_RUN_TASK_H
#define MUSTER_RUN_TASK_H

#include "run/state/run.h"

void run_task_init(struct run_task *task, struct run *run, uint32_t local_rank);
/** First start of all. */
void run_task_start_all(struct run *run);
/** The process has ended and is a zombie: confirm its death, collect, decide. */
void run_task_on_exit(struct run_task *task);
/** The members' view `epoch` is without it: now its next life is welcome. */
void run_task_on_loss_told(struct run_task *task, uint64_t epoch);
/** Preempted: the workers end by themselves, and none is started again. */
void run_task_leave_all(struct run *run);
/** Tell all to end: signal now, SIGKILL after the grace time. */
void run_task_end_all(struct run *run, int signal);
void run_task_signal_all(struct run *run, int signal);
/** For a successor: start now; go on with the end of all, or of the gang; see what follows. */
void run_task_start_again(struct run_task *task);
void run_task_go_on_ending(struct run *run, bool is_gang_restart);
void run_task_check(struct run *run);
/** The modules of --preload have been imported, or will not be: the tasks that wait for that start. */
void run_task_on_preloaded(struct run *run);

#endif
