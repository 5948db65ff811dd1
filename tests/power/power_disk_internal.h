/* Between the calls that are watched and the log of what they did. */
#ifndef MUSTER_TEST_POWER_DISK_INTERNAL_H
#define MUSTER_TEST_POWER_DISK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum power_kind {
    POWER_CREATE,   /* name, file */
    POWER_WRITE,    /* file, offset, bytes */
    POWER_TRUNCATE, /* file, offset: the new length */
    POWER_SYNC,     /* file */
    POWER_LINK,     /* name, file */
    POWER_UNLINK,   /* name */
    POWER_SYNC_FOLDER,
};

/** The name in the recorded folder, or NULL: somewhere else, or nothing is recorded. */
const char *power_log_name(const char *path);
bool power_log_is_folder(const char *path);

/** A file by its name, or by a descriptor; -1: none. */
int power_log_find(const char *name);
int power_log_create(const char *name);

void power_log_write(int file, uint64_t offset, const void *bytes, size_t size);
void power_log_truncate(int file, uint64_t size);
void power_log_sync(int file);
void power_log_sync_folder(void);
/** old_name: the file is renamed; NULL: it has one name more. */
void power_log_link(const char *name, int file, const char *old_name);
void power_log_unlink(const char *name);

#endif
