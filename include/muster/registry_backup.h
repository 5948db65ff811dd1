/* Copies of a registry's data, and a registry made from one. */
#ifndef MUSTER_REGISTRY_BACKUP_H
#define MUSTER_REGISTRY_BACKUP_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

/** What a restored registry's revision is ahead of the backup's: more than was ever written since. */
#define MUSTER_REGISTRY_RESTORE_REVISIONS INT64_C(1000000000)

/**
 * Write a backup of the data file `data`, which nobody serves now (of a living registry:
 * muster_registry_snapshot_start). A backup is the data and their SHA-256. It is there whole or not
 * at all, whenever the power fails, and stays once this returns.
 *
 * Errors:  ALREADY_EXISTS (output is there), FAILED_PRECONDITION (somebody has data open), NOT_FOUND,
 *          PERMISSION_DENIED, DATA_LOSS (no registry file, or a damaged one), RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_write(
    struct muster_mem *mem, const char *data, const char *output, struct muster_error *ret_error);

/**
 * Give the file `temporary`, written through fd, the name `path` instead: whole, and to stay when
 * the power fails. For a snapshot of a living registry that was read into a file. After an error
 * the caller deletes it.
 *
 * Shape:   both names in one folder.
 * Errors:  ALREADY_EXISTS (path is there), PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_publish(
    int fd, const char *temporary, const char *path, struct muster_error *ret_error);

struct muster_registry_restored {
    int64_t revision; /* of the registry that was made */
    int64_t keys;
    int64_t leases;
};

/**
 * Make the data file `data` from a backup: all of it, or nothing, as muster_registry_backup_write.
 *
 * The new registry is another cluster, and its revision is MUSTER_REGISTRY_RESTORE_REVISIONS higher,
 * everything older compacted: whoever watched the old one is told to read again instead of
 * believing that nothing has happened. Leases have their full time from the moment it is served.
 *
 * Errors:  ALREADY_EXISTS (data is there), NOT_FOUND, PERMISSION_DENIED, DATA_LOSS (torn, damaged,
 *          or something else), RESOURCE_EXHAUSTED; the text says what and what to do.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_restore(
    struct muster_mem *mem, const char *from, const char *data,
    struct muster_registry_restored *ret_restored, struct muster_error *ret_error);

MUSTER_END

#endif
