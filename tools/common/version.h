/* `muster version`. */
#ifndef MUSTER_TOOLS_VERSION_H
#define MUSTER_TOOLS_VERSION_H

#include <muster/options.h>

int command_version(int argc, char **argv);
extern const struct muster_options version_options;

/** The commit that was built; the build writes it (cmake/commit.cmake). "unknown" outside of git. */
extern const char muster_commit[];

#endif
