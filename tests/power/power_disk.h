/* A disk whose power is cut: it records what a program does to the files of one folder, and shows
 * what may be left of them.
 *
 * Linked into a test it takes the place of libc's calls that change files (open, write, pwrite,
 * ftruncate, fsync, fdatasync, unlink, rename, link, mkostemp, close), for libraries too. What was
 * synced is kept; what was not is kept, dropped or torn (sectors of 512 bytes), each piece by
 * itself: writes and lengths until their file is synced, names until their folder is. */
#ifndef MUSTER_TEST_POWER_DISK_H
#define MUSTER_TEST_POWER_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Seeds of power_disk_cut; any other keeps and drops at random. */
#define POWER_KEEPS_NOTHING 0
#define POWER_KEEPS_ALL     1

/** From now on; what lies in the folder is on the disk already. */
void power_disk_begin(const char *folder);

/** Stop recording, and check that no change of a file went unseen. */
void power_disk_end(void);

/** Steps recorded so far: the power may be cut after each, and before the first. */
size_t power_disk_steps(void);

/** The last of these steps was a sync of a file or of the folder. */
bool power_disk_is_sync(size_t steps);

/** Syncs of files recorded so far. */
size_t power_disk_syncs(void);

/** From now on `after` calls on the recorded folder that make, change or sync something succeed,
 * and the `count` next fail with this errno; 0: none fails any more. */
void power_disk_fail(size_t after, size_t count, int sys);

/** Some could fail: so many calls were made. */
bool power_disk_has_failed(void);

/** Set the room that all file systems report to users; UINT64_MAX: the true one again. */
void power_disk_set_room(uint64_t bytes);

/** Make the files of the folder `to`, and no others, those that a disk may hold whose power was cut
 * after the first `steps` steps. */
void power_disk_cut(size_t steps, uint64_t seed, const char *to);

/** Print the steps, one per line, on standard error. */
void power_disk_print(size_t from, size_t to);

/** Forget everything. */
void power_disk_free(void);

/** Delete the files of a folder, or the folder with them. */
void power_disk_empty(const char *folder);
void power_disk_remove(const char *folder);

#endif
