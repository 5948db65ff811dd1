/* The parts of the reader of `muster run`'s command line. */
#ifndef MUSTER_RUN_OPTIONS_INTERNAL_H
#define MUSTER_RUN_OPTIONS_INTERNAL_H

#include "run/state/settings.h"

/** Check the settings against each other and work out what follows from them. False: told on
 * standard error, *ret_exit says how to end. */
bool run_settings_check(struct run_settings *settings, int *ret_exit);

#endif
