/* The names in a folder. All of these block, and may be called from any thread. After an error of the system errno is
 * that error. */
#ifndef MUSTER_RUNTIME_FOLDER_SYSTEM_H
#define MUSTER_RUNTIME_FOLDER_SYSTEM_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

/** Names in the folder are on the disk (fsync). muster_files_write syncs only what is in a file. */
MUSTER_MUST_CHECK enum muster_rc muster_folder_sync(const char *folder);
/** Make the folder, whose parent is there; one that is there already is no error. */
MUSTER_MUST_CHECK enum muster_rc muster_folder_make(const char *folder);
/** Names in it can be read, made and deleted, as far as its mode and its file system tell. Errors: those of the
 * system. */
MUSTER_MUST_CHECK enum muster_rc muster_folder_check(const char *folder);
/** Its whole path, from the directory that is current now, without slashes at the end. It need not be there. Gives.
 * Errors: RESOURCE_EXHAUSTED, those of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_folder_absolute(struct muster_mem *mem, const char *folder,
                                                        char **ret_path);
/** Called with each name in a folder, "." and ".." left out. An error ends the walk. */
typedef enum muster_rc muster_folder_visit_fn(void *data, const char *name);
/** Errors: NOT_FOUND and others of the system, those of visit. */
MUSTER_MUST_CHECK enum muster_rc muster_folder_list(const char *folder,
                                                    muster_folder_visit_fn *visit, void *data);

/** Errors: NOT_FOUND and others of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_file_bytes(const char *path, uint64_t *ret_bytes);
/** Hold a file, which says so to others until release or the end of this process and of those that it has forked. It is
 * made, empty, if it must be. Others may hold it, too. Where the file system has no locks it is only opened. Errors:
 * NOT_FOUND and others of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_file_hold(const char *path, bool must_make, int *ret_hold);
/** The same for one that is made, without a wait. Errors: UNAVAILABLE (somebody holds it alone), and those of the
 * system. */
MUSTER_MUST_CHECK enum muster_rc muster_file_hold_shared(const char *path, int *ret_hold);
/** The same, but nobody else holds it meanwhile: muster_file_hold waits. Errors: UNAVAILABLE (somebody holds it), and
 * those of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_file_hold_alone(const char *path, int *ret_hold);
void muster_file_release(int hold);
/** The same, and the file is deleted where nobody else holds it. */
void muster_file_release_last(int hold, const char *path);
/** A living process holds it, as far as the file system can tell. */
bool muster_file_is_held(const char *path);
/** Delete a file. One that is not there is no error. */
MUSTER_MUST_CHECK enum muster_rc muster_file_remove(const char *path);

#endif
