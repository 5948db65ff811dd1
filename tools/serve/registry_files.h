/* muster registry backup, muster registry restore. */
#ifndef MUSTER_TOOLS_REGISTRY_FILES_H
#define MUSTER_TOOLS_REGISTRY_FILES_H

#include <muster/options.h>

/** argv[0] is "backup" or "restore". Return the exit code. */
int command_registry_backup(int argc, char **argv);
int command_registry_restore(int argc, char **argv);

extern const struct muster_options registry_backup_options;
extern const struct muster_options registry_restore_options;

#endif
