/* The files of a folder with several cuts: which of them are still of use. */
#ifndef MUSTER_TOOLS_PARAMS_CUT_FILES_H
#define MUSTER_TOOLS_PARAMS_CUT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include <muster/status.h>

#define CUTS_KEPT_MAX 64u

/**
 * The cut of this number is the folder's newest: keep so many, and delete files that only older ones name.
 * Older ones keep a manifest of their own, manifest-NUMBER. While another cut writes its manifest nothing is deleted:
 * the next cut does it.
 *
 * Errors: those of reading manifests and of link(2); then nothing is deleted.
 */
MUSTER_MUST_CHECK enum muster_rc cut_files_keep(const char *folder, uint64_t number,
                                                uint32_t keep_count,
                                                struct muster_error *ret_error);

/** The folder of cuts, for files of this process; made, if the one above it is there. False: told on standard error, as
 * that of `name`, an option or a word. */
bool cut_folder_open(const char *command, const char *name, const char *folder, int *ret_exit);

#endif
