/* The table of sub-commands: `muster NAME` calls the function of its row. */
#ifndef MUSTER_TOOLS_COMMANDS_H
#define MUSTER_TOOLS_COMMANDS_H

#include <stddef.h>

#include <muster/options.h>

struct command {
    const char *name;
    const char *summary; /* a few words */
    /** argv[0] is the command's name. Returns the exit code. */
    int (*run)(int argc, char **argv);
    const struct muster_options *options; /* NULL: none */
};

extern const struct command commands[];
extern const size_t command_count;

/** `muster help`: its row calls it, and so does `muster` without arguments. */
int command_help(int argc, char **argv);

#endif
