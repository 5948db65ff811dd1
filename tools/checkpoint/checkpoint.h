/* muster checkpoint: looks at folders of checkpoints. */
#ifndef MUSTER_TOOLS_CHECKPOINT_H
#define MUSTER_TOOLS_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include <muster/checkpoint.h>
#include <muster/options.h>

/** muster checkpoint NAME: picks the command. */
int command_checkpoint(int argc, char **argv);

extern const struct muster_options checkpoint_list_options, checkpoint_verify_options,
    checkpoint_show_options, checkpoint_export_options, checkpoint_import_options;
int checkpoint_list(int argc, char **argv);
int checkpoint_verify(int argc, char **argv);
int checkpoint_show(int argc, char **argv);
int checkpoint_export(int argc, char **argv);
int checkpoint_import(int argc, char **argv);

/** The checkpoint of that step, else the newest, with a manifest. Errors: NOT_FOUND and others; the text tells. */
enum muster_rc checkpoint_choose(const char *folder, bool has_step, uint64_t step,
                                 struct muster_checkpoint_name *ret_name,
                                 struct muster_error *ret_error);

#endif
