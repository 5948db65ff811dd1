/* muster params NAME: picks the command. */
#include "params/params.h"

#include "common/command.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"cut", "save all tables to files", params_cut},
    {"drain", "let a server give its shards to others, and end", params_drain},
    {"inspect", "show what a server holds", params_inspect},
    {"serve", "serve tables of parameters", params_serve},
};

static void print_commands(FILE *file)
{
    fprintf(file, "usage: muster params NAME [options]\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "\n'muster params NAME --help' shows the options of a command.\n");
}

int command_params(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_commands(stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; argc >= 2 && i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].name, argv[1]) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (argc >= 2)
        fprintf(stderr, "muster params: there is no command '%s'\n", argv[1]);
    print_commands(stderr);
    return EXIT_USAGE;
}
