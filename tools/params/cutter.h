/* The process that makes the cuts of `muster params serve --cut-dir`. */
#ifndef MUSTER_TOOLS_CUTTER_H
#define MUSTER_TOOLS_CUTTER_H

#include <stdbool.h>
#include <sys/types.h>

#include "params/seat.h"

/** Fork it; it ends with this process. is_again: its predecessor has ended, so it begins a second later.
 * Returns its pid; in the child 0: the child drops what it has of seats, and calls cutter_run. -1: there is
 * none, and the reason has been printed. */
pid_t cutter_fork(bool is_again);
/** Whether the child that has ended with this status (waitpid) is the cutter, and must be started again. How it ended,
 * and what comes of it, is printed. False also where it could not begin, which the next one could not either. */
bool cutter_must_restart(pid_t cutter, pid_t ended, int status);
/** Cut the tables of these servers ("HOST:PORT,…") again and again. */
_Noreturn void cutter_run(const struct params_seat_settings *settings, const char *servers);

#endif
