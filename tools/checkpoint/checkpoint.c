/* muster checkpoint NAME: picks the command. */
#include "checkpoint/checkpoint.h"

#include "common/command.h"

static const struct command_choice choices[] = {
    {"list", "show the checkpoints of a folder", checkpoint_list},
    {"verify", "read one, or all of a folder, and check each chunk", checkpoint_verify},
    {"show", "show the tensors and the shards of one", checkpoint_show},
    {"export", "write the tensors of one to a safetensors file", checkpoint_export},
    {"import", "make one of a safetensors file", checkpoint_import},
};

static const struct command_group group = {.name = "checkpoint",
                                           .arguments = "NAME FOLDER [options]",
                                           .choices = choices,
                                           .choice_count = sizeof(choices) / sizeof(choices[0])};

int command_checkpoint(int argc, char **argv)
{
    return command_choose(&group, argc, argv);
}
