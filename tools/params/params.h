/* muster params NAME: servers of parameters. */
#ifndef MUSTER_TOOLS_PARAMS_H
#define MUSTER_TOOLS_PARAMS_H

#include <muster/options.h>

extern const struct muster_options params_cut_options, params_drain_options, params_inspect_options,
    params_serve_options;

int command_params(int argc, char **argv);

int params_cut(int argc, char **argv);
int params_drain(int argc, char **argv);
int params_inspect(int argc, char **argv);
int params_serve(int argc, char **argv);

#endif
