/* The command line of `muster run`, read and checked. */
#ifndef MUSTER_RUN_OPTIONS_H
#define MUSTER_RUN_OPTIONS_H

#include "run/state/settings.h"

extern const struct muster_options run_options;

/** Parse and check the command line. False: *ret_exit says how to end. */
bool run_settings_read(struct run_settings *settings, int argc, char **argv, int *ret_exit);

/** With --resolver: ask it, and let its answer stand for the options that were not given. False:
 * told on standard error, *ret_exit says how to end. */
bool run_place_read(struct run_settings *settings, int *ret_exit);

/** Look up the name in --listen, and check it against workers and registry. False: as above. */
bool run_listen_read(struct run_settings *settings, int *ret_exit);
/** As many ports of --listen as there are workers are free right now. False: as above. */
bool run_listen_has_ports(const struct run_settings *settings, int *ret_exit);

#endif
