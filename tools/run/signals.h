/* Signals to the launcher. */
#ifndef MUSTER_RUN_SIGNALS_H
#define MUSTER_RUN_SIGNALS_H

#include <stdbool.h>

struct run;

bool run_signals_open(struct run *run);
void run_signals_close(struct run *run);

#endif
