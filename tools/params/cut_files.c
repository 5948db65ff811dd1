/* A file of a shard is of use as long as a manifest names it: one that has not changed belongs to several cuts. */
#include "params/cut_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/env.h>

#include "common/command.h"
#include "params/snapshot/snapshot.h"

#define NUMBERS_MAX (CUTS_KEPT_MAX + 256u)
#define NAME_BYTES  40u

struct kept {
    struct muster_params_snapshot_manifest manifests[CUTS_KEPT_MAX];
    uint32_t count;
};

static void name_manifest(uint64_t number, char ret_name[NAME_BYTES])
{
    snprintf(ret_name, NAME_BYTES, "manifest-%" PRIu64, number);
}

static int newer_first(const void *one, const void *other)
{
    const uint64_t *a = one, *b = other;

    return (*a < *b) - (*a > *b);
}

/* The numbers of manifests, the newest first; it is there, with or without a name of its own. */
static uint32_t numbers_list(DIR *directory, uint64_t newest, uint64_t numbers[NUMBERS_MAX])
{
    const struct dirent *entry;
    uint32_t count = 1;

    numbers[0] = newest;
    rewinddir(directory);
    while (count < NUMBERS_MAX && (entry = readdir(directory)) != NULL) {
        int end = 0;

        if (sscanf(entry->d_name, "manifest-%" SCNu64 "%n", &numbers[count], &end) == 1 &&
            entry->d_name[end] == '\0' && numbers[count] != newest)
            count++;
    }
    qsort(numbers + 1, count - 1, sizeof(numbers[0]), newer_first);
    return count;
}

static struct muster_params_snapshot snapshot_of(const char *folder, const char *manifest)
{
    return (struct muster_params_snapshot){.files = muster_files_system(),
                                           .mem = muster_mem_system(),
                                           .folder = folder,
                                           .manifest = manifest};
}

static bool manifest_is_of_another(const char *folder, const char *name, uint64_t number)
{
    const struct muster_params_snapshot snapshot = snapshot_of(folder, name);
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;
    bool is_of_another;

    if (muster_params_snapshot_open(&snapshot, &manifest, &error) != MUSTER_OK)
        return false;
    is_of_another = manifest.cut != number;
    muster_params_snapshot_manifest_fini(&manifest);
    return is_of_another;
}

/* Another command may have replaced the manifest meanwhile: then this cut has none. */
static enum muster_rc manifest_link(DIR *directory, const char *folder, uint64_t number,
                                    struct muster_error *ret_error)
{
    char name[NAME_BYTES];

    name_manifest(number, name);
    if (linkat(dirfd(directory), "manifest", dirfd(directory), name, 0) != 0 && errno != EEXIST)
        return muster_error_set(ret_error, muster_rc_from_errno(errno), "cannot make %.150s/%s: %s",
                                folder, name, strerror(errno));
    if (manifest_is_of_another(folder, name, number))
        (void)unlinkat(dirfd(directory), name, 0);
    return MUSTER_OK;
}

static enum muster_rc manifests_read(const char *folder, const uint64_t *numbers, uint32_t count,
                                     struct kept *ret_kept, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < count && rc == MUSTER_OK; i++) {
        char name[NAME_BYTES];
        const struct muster_params_snapshot snapshot = snapshot_of(folder, i == 0 ? NULL : name);

        name_manifest(numbers[i], name);
        rc = muster_params_snapshot_open(&snapshot, &ret_kept->manifests[i], ret_error);
        ret_kept->count += rc == MUSTER_OK;
    }
    return rc;
}

static bool file_is_named(const struct kept *kept, uint64_t cut, unsigned shard)
{
    for (uint32_t i = 0; i < kept->count; i++) {
        const struct muster_params_snapshot_manifest *manifest = &kept->manifests[i];

        if (shard < manifest->shard_count && manifest->shards[shard].cut == cut)
            return true;
    }
    return false;
}

/* Files of a younger cut belong to one that is under way. */
static void others_remove(DIR *directory, const struct kept *kept, uint64_t number)
{
    const struct dirent *entry;

    rewinddir(directory);
    while ((entry = readdir(directory)) != NULL) {
        uint64_t cut;
        unsigned shard;
        int end = 0;

        if (sscanf(entry->d_name, "cut-%" SCNu64 "-shard-%u%n", &cut, &shard, &end) == 2 &&
            entry->d_name[end] == '\0' && cut < number && !file_is_named(kept, cut, shard))
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
}

static enum muster_rc older_remove(DIR *directory, const char *folder, uint64_t number,
                                   uint32_t keep_count, struct kept *kept,
                                   struct muster_error *ret_error)
{
    uint64_t numbers[NUMBERS_MAX];
    uint32_t count = numbers_list(directory, number, numbers);
    enum muster_rc rc;

    rc = manifests_read(folder, numbers, count < keep_count ? count : keep_count, kept, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    for (uint32_t i = keep_count; i < count; i++) {
        char name[NAME_BYTES];

        name_manifest(numbers[i], name);
        (void)unlinkat(dirfd(directory), name, 0);
    }
    others_remove(directory, kept, number);
    return MUSTER_OK;
}

static enum muster_rc folder_keep(DIR *directory, const char *folder, uint64_t number,
                                  uint32_t keep_count, struct kept *kept,
                                  struct muster_error *ret_error)
{
    const struct muster_params_snapshot snapshot = snapshot_of(folder, NULL);
    enum muster_rc rc = MUSTER_OK;
    int hold;

    if (keep_count > 1)
        rc = manifest_link(directory, folder, number, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_snapshot_hold_alone(&snapshot, &hold, ret_error);
    if (rc == MUSTER_UNAVAILABLE) /* another cut is about to name files */
        return MUSTER_OK;
    if (rc != MUSTER_OK)
        return rc;
    rc = older_remove(directory, folder, number, keep_count, kept, ret_error);
    muster_params_snapshot_release(&snapshot, hold);
    return rc;
}

enum muster_rc cut_files_keep(const char *folder, uint64_t number, uint32_t keep_count,
                              struct muster_error *ret_error)
{
    struct kept *kept = calloc(1, sizeof(*kept));
    DIR *directory = opendir(folder);
    enum muster_rc rc;

    if (kept == NULL || directory == NULL)
        rc = muster_error_set(ret_error, MUSTER_UNAVAILABLE, "cannot list %.200s", folder);
    else
        rc = folder_keep(directory, folder, number, keep_count, kept, ret_error);
    for (uint32_t i = 0; kept != NULL && i < kept->count; i++)
        muster_params_snapshot_manifest_fini(&kept->manifests[i]);
    if (directory != NULL)
        closedir(directory);
    free(kept);
    return rc;
}

bool cut_folder_open(const char *command, const char *name, const char *folder, int *ret_exit)
{
    struct stat found;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        *ret_exit = command_refuse(command,
                                   "%s: the folder %s cannot be made: %s; make the folder above "
                                   "it, or name another one",
                                   name, folder, strerror(errno));
        return false;
    }
    if (stat(folder, &found) == 0 && !S_ISDIR(found.st_mode)) {
        *ret_exit =
            command_refuse(command, "%s: %s is not a folder; name another path", name, folder);
        return false;
    }
    if (access(folder, W_OK | X_OK) == 0)
        return true;
    *ret_exit = command_refuse(command,
                               "%s: the folder %s cannot be written to: %s; change its mode, or "
                               "name another one",
                               name, folder, strerror(errno));
    return false;
}
