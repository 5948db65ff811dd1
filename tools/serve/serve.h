/* The commands that serve: `muster coordinator`, `muster registry`, `muster server`. */
#ifndef MUSTER_TOOLS_SERVE_H
#define MUSTER_TOOLS_SERVE_H

#include <muster/options.h>

int command_coordinator(int argc, char **argv);
int command_registry(int argc, char **argv);
int command_server(int argc, char **argv);

extern const struct muster_options coordinator_options;
extern const struct muster_options registry_options;
extern const struct muster_options server_options;

#endif
