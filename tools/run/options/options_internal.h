/* The parts of the reader of `muster run`'s command line. */
#ifndef MUSTER_RUN_OPTIONS_INTERNAL_H
#define MUSTER_RUN_OPTIONS_INTERNAL_H

#include "run/state/settings.h"

/** Check the settings against each other and work out what follows from them. False: told on
 * standard error, *ret_exit says how to end. */
bool run_settings_check(struct run_settings *settings, int *ret_exit);

/** With --preload: settings->python from the program. False: as above. */
bool run_preload_read(struct run_settings *settings, int *ret_exit);
/** A dotted name of Python. */
bool run_preload_is_module(const char *text, size_t length);

#endif
