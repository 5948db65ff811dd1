/* Command lines of the interop programs: the options of muster/options.h, and the official flags'
 * habit of a separate true or false ("--use_tls false"). */
#ifndef MUSTER_INTEROP_FLAGS_H
#define MUSTER_INTEROP_FLAGS_H

#include <muster/options.h>

/** Fill *settings. False after help or an error, which have been printed; *ret_code is then the
 * exit code. */
bool interop_flags_parse(const struct muster_options *options, int argc, char **argv,
                         void *settings, int *ret_code);

#endif
