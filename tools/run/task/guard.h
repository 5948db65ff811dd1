/* A process that ends the workers' process groups when the launcher is killed. */
#ifndef MUSTER_RUN_GUARD_H
#define MUSTER_RUN_GUARD_H

#include "run/state/run.h"

/** Returns the descriptor that feeds the guard, or -1. */
int run_guard_start(struct run *run, pid_t *ret_pid);
void run_guard_add(const struct run *run, const struct run_task *task, pid_t group);
void run_guard_remove(const struct run *run, pid_t group);
/** The place of that launcher in the registry is given back when the launcher is killed. */
void run_guard_claim(const struct run *run, uint64_t launcher);
void run_guard_stop(int fd, pid_t pid);
/** The guard's last work, in its own process: write down the deaths of members, and give the place
 * back, until the registry has taken it, for 5 s at most. */
void run_guard_confirm(struct run *run, uint64_t launcher, const struct muster_incarnation *dead,
                       size_t count);

#endif
