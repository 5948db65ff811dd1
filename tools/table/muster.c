/* muster COMMAND [options]: picks the sub-command. Its main also checks that the output has
 * arrived: a full disk or a closed pipe is a failure although the command itself succeeded. */
#include "common/command.h"
#include "common/output.h"
#include "table/commands.h"

#include <string.h>

static int unknown_command(const char *name)
{
    const char *names[64];
    const char *nearest;
    size_t count = 0;

    for (size_t i = 0; i < command_count && count < sizeof(names) / sizeof(names[0]); i++)
        names[count++] = commands[i].name;
    nearest = muster_options_nearest(name, names, count);
    fprintf(stderr, "muster: unknown command '%s'", name);
    if (nearest != NULL)
        fprintf(stderr, "; did you mean '%s'?", nearest);
    fprintf(stderr, " ('muster help' shows all commands)\n");
    return EXIT_USAGE;
}

/* The forms that users try first: no argument, --help and --version are commands, too. */
static int run_command(int argc, char **argv)
{
    char help[] = "help";
    char version[] = "version";
    char *name = argc > 1 ? argv[1] : help;

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = help;
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = version;
    for (size_t i = 0; i < command_count; i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (argc < 2)
            return commands[i].run(argc, argv);
        return commands[i].run(argc - 1, argv + 1);
    }
    return unknown_command(name);
}

int main(int argc, char **argv)
{
    int code;

    output_init();
    code = run_command(argc, argv);
    return output_flush() || code != EXIT_OK ? code : EXIT_OTHER;
}
