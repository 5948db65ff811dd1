/* The terminal of a single worker: a debugger in it reads keys and gets Ctrl-C as if it had been
 * started without a launcher. */
#ifndef MUSTER_RUN_TERMINAL_H
#define MUSTER_RUN_TERMINAL_H

#include "run/state/run.h"

/** Before the first worker starts: whether the terminal is lent. */
void run_terminal_open(struct run *run);
/** In the child, in its own process group: become the terminal's foreground group. False: nothing
 * is lent, and the standard streams are the launcher's to give. */
bool run_terminal_take(const struct run_task *task);
/** At SIGCHLD: a worker that was stopped (Ctrl-Z) stops the launcher, too; both go on together. */
void run_terminal_on_child(struct run *run);
/** The worker has ended: the terminal is the launcher's again. True: it ended by the user's Ctrl-C
 * or Ctrl-\\, which only the worker got. */
bool run_terminal_return(struct run *run, int wait_status);

#endif
