/* The process that makes the cuts of `muster params serve --cut-dir`. */
#ifndef MUSTER_TOOLS_CUTTER_H
#define MUSTER_TOOLS_CUTTER_H

#include <sys/types.h>

#include "params/seat.h"

/** Fork it. It ends with this process, which takes no notice of its end. Returns its pid; in the child 0: the
 * child drops what it has of seats, and calls cutter_run. -1: errno says why there is none. */
pid_t cutter_fork(void);
/** Cut the tables of these servers ("HOST:PORT,…") again and again. */
_Noreturn void cutter_run(const struct params_seat_settings *settings, const char *servers);

#endif
