/* muster params NAME: picks the command. */
#include "params/params.h"

#include "common/command.h"

static const struct command_choice choices[] = {
    {"cut", "save all tables to files", params_cut},
    {"drain", "let a server give its shards to others, and end", params_drain},
    {"inspect", "show what a server holds", params_inspect},
    {"serve", "serve tables of parameters", params_serve},
};

static const struct command_group group = {.name = "params",
                                           .arguments = "NAME [options]",
                                           .choices = choices,
                                           .choice_count = sizeof(choices) / sizeof(choices[0])};

int command_params(int argc, char **argv)
{
    return command_choose(&group, argc, argv);
}
