/* The keeper: a small parent of each resumable worker, which outlives the launcher. */
#ifndef MUSTER_RUN_KEEPER_H
#define MUSTER_RUN_KEEPER_H

#include "run/state/run.h"

/** In a child of the launcher: start the worker, by calling become_worker(data), wait for its end,
 * write it down. Does not return. */
void run_keeper(const struct run_task *task, int failure_fd, void (*become_worker)(void *data),
                void *data);
/** Its process id while it lives, else 0; the worker's, as long as the file is there, else 0. */
int run_keeper_find(const struct run_task *task, int *ret_worker_pid);
/** How the last life of task ended; SIGKILL where nobody could write it down. */
int run_keeper_wait_status(const struct run_task *task, bool *ret_is_known);

#endif
