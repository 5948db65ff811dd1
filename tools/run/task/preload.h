/* --preload: a process that has imported modules, from which workers fork. */
#ifndef MUSTER_RUN_PRELOAD_H
#define MUSTER_RUN_PRELOAD_H

#include "run/state/run.h"

/** A worker that has been forked, and runs nothing before run_preload_let_go. */
struct run_preloaded {
    pid_t pid;
    int fd;
};

/** With --preload: start the process. It imports while the loop turns; then on_preloaded is called. */
void run_preload_open(struct run *run);
void run_preload_close(struct run *run);
/** The modules are being imported: no worker starts. */
bool run_preload_is_pending(const struct run *run);
/** Fork a worker for task, a child of this process, with environment, and with fds as standard output,
 * standard error and pipe of reports. False: it must be started directly. */
bool run_preload_fork(struct run_task *task, char **environment, const int fds[3],
                      struct run_preloaded *ret_worker);
/** It is watched now, and may run its program. */
void run_preload_let_go(const struct run_preloaded *worker);
/** A child has ended. True: it was ours, and is reaped. */
bool run_preload_on_child(struct run *run, pid_t pid);

#endif
