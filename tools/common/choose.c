/* The commands after one word of `muster`: finds the one that is named, or shows them all. */
#include "common/command.h"

#include <stdio.h>
#include <string.h>

static void print_choices(const struct command_group *group, FILE *file)
{
    fprintf(file, "usage: muster %s %s\n\n", group->name, group->arguments);
    for (size_t i = 0; i < group->choice_count; i++)
        fprintf(file, "  %-12s %s\n", group->choices[i].name, group->choices[i].summary);
    fprintf(file, "\n'muster %s NAME --help' shows the options of a command.\n", group->name);
}

int command_choose(const struct command_group *group, int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_choices(group, stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; argc >= 2 && i < group->choice_count; i++) {
        if (strcmp(group->choices[i].name, argv[1]) == 0)
            return group->choices[i].run(argc - 1, argv + 1);
    }
    if (argc >= 2)
        fprintf(stderr, "muster %s: unknown command '%s'\n", group->name, argv[1]);
    print_choices(group, stderr);
    return EXIT_USAGE;
}
