/* muster checkpoint NAME: picks the command. */
#include "checkpoint/checkpoint.h"

#include "common/command.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"list", "show the checkpoints of a folder", checkpoint_list},
    {"verify", "read one, or all of a folder, and check each chunk", checkpoint_verify},
    {"show", "show the tensors and the shards of one", checkpoint_show},
    {"export", "write the tensors of one to a safetensors file", checkpoint_export},
};

static void print_commands(FILE *file)
{
    fprintf(file, "usage: muster checkpoint NAME FOLDER [options]\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "\n'muster checkpoint NAME --help' shows the options of a command.\n");
}

int command_checkpoint(int argc, char **argv)
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
        fprintf(stderr, "muster checkpoint: there is no command '%s'\n", argv[1]);
    print_commands(stderr);
    return EXIT_USAGE;
}
