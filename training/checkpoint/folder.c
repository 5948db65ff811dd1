/* A folder of checkpoints. */
#include "training/checkpoint/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/env.h>

#include "runtime/system/file_system.h"
#include "runtime/system/folder_system.h"
#include "runtime/value/array.h"
#include "runtime/value/errno_reason.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/names.h"
#include "training/checkpoint/shard.h"

#define FAILURE_BYTES_MAX 4096u

/* --- The list --- */

struct listing {
    struct muster_mem *mem;
    const char *folder;
    struct muster_checkpoint_entry *entries;
    size_t count, capacity;
};

static struct muster_checkpoint_entry *entry_find(struct listing *listing,
                                                  const struct muster_checkpoint_name *name)
{
    struct muster_checkpoint_entry *entries;

    for (size_t i = listing->count; i-- > 0;)
        if (listing->entries[i].name.step == name->step && listing->entries[i].name.id == name->id)
            return &listing->entries[i];
    entries = muster_array_reserve(listing->mem, listing->entries, listing->count,
                                   &listing->capacity, sizeof(*entries));
    if (entries == NULL)
        return NULL;
    listing->entries = entries;
    entries[listing->count] = (struct muster_checkpoint_entry){.name = *name};
    return &entries[listing->count++];
}

static bool path_join(char path[MUSTER_CHECKPOINT_PATH_BYTES], const char *folder, const char *name)
{
    return snprintf(path, MUSTER_CHECKPOINT_PATH_BYTES, "%s/%s", folder, name) <
           (int)MUSTER_CHECKPOINT_PATH_BYTES;
}

/* "….shard-00001-of-00003" */
static void count_shard(struct muster_checkpoint_entry *entry, const char *text)
{
    static const char of[] = "-of-";
    const char *at = strstr(text, of);
    unsigned long total = at == NULL ? 0 : strtoul(at + sizeof(of) - 1, NULL, 10);

    entry->shard_count++;
    if (total <= MUSTER_CHECKPOINT_SHARDS_MAX && total > entry->shard_total)
        entry->shard_total = (uint32_t)total;
}

static enum muster_rc on_name(void *data, const char *text)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct listing *listing = data;
    struct muster_checkpoint_name name;
    struct muster_checkpoint_entry *entry;
    enum muster_checkpoint_file file;
    uint64_t bytes;

    if (!muster_checkpoint_file_parse(text, &name, &file))
        return MUSTER_OK;
    entry = entry_find(listing, &name);
    if (entry == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    entry->has_manifest |= file == MUSTER_CHECKPOINT_MANIFEST;
    entry->file_count++;
    if (file == MUSTER_CHECKPOINT_SHARD)
        count_shard(entry, text);
    if (path_join(path, listing->folder, text) && muster_file_bytes(path, &bytes) == MUSTER_OK)
        entry->bytes += bytes;
    return MUSTER_OK;
}

static int entries_compare(const void *left, const void *right)
{
    const struct muster_checkpoint_entry *a = left, *b = right;

    if (a->name.step != b->name.step)
        return a->name.step > b->name.step ? -1 : 1;
    return (a->name.id < b->name.id) - (a->name.id > b->name.id);
}

static enum muster_rc list_fail(const char *folder, enum muster_rc rc, int sys,
                                struct muster_error *ret_error)
{
    uint64_t bytes;

    if (rc == MUSTER_NOT_FOUND && muster_file_bytes(folder, &bytes) == MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%.100s is a file, and must be the folder of the checkpoints (that "
                                "of --checkpoint-dir); 'muster checkpoint import' reads a "
                                "safetensors file",
                                folder);
    return muster_error_set(ret_error, rc, "cannot list %s: %s", folder,
                            muster_errno_reason(rc, sys));
}

enum muster_rc muster_checkpoint_list(struct muster_mem *mem, const char *folder,
                                      struct muster_checkpoint_entry **ret_entries,
                                      size_t *ret_count, struct muster_error *ret_error)
{
    struct listing listing = {.mem = mem, .folder = folder};
    enum muster_rc rc = muster_folder_list(folder, on_name, &listing);
    int sys = errno;

    if (rc != MUSTER_OK) {
        muster_mem_free(mem, listing.entries);
        return list_fail(folder, rc, sys, ret_error);
    }
    if (listing.count > 0)
        qsort(listing.entries, listing.count, sizeof(listing.entries[0]), entries_compare);
    *ret_entries = listing.entries;
    *ret_count = listing.count;
    return MUSTER_OK;
}

/* --- The end of a checkpoint --- */

static enum muster_rc failure_read(const struct muster_checkpoint *checkpoint, uint32_t shard,
                                   struct muster_error *ret_error)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES], *text;
    size_t bytes;

    if (!muster_checkpoint_failed_path(checkpoint->folder, &checkpoint->name, shard, path) ||
        muster_files_read(muster_files_system(), checkpoint->mem, path, FAILURE_BYTES_MAX, &text,
                          &bytes) != MUSTER_OK)
        return MUSTER_OK;
    (void)muster_error_set(ret_error, MUSTER_ABORTED, "rank %u: %s", shard, text);
    muster_mem_free(checkpoint->mem, text);
    return MUSTER_ABORTED;
}

bool muster_checkpoint_has_shard(const struct muster_checkpoint *checkpoint, uint32_t shard)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    uint64_t bytes;

    return muster_checkpoint_shard_path(checkpoint->folder, &checkpoint->name, shard,
                                        checkpoint->shard_count, path) &&
           muster_file_bytes(path, &bytes) == MUSTER_OK;
}

enum muster_rc muster_checkpoint_make_folder(const char *folder, struct muster_error *ret_error)
{
    enum muster_rc rc = muster_folder_make(folder);
    int sys = errno;

    if (rc == MUSTER_OK)
        return MUSTER_OK;
    if (rc == MUSTER_ALREADY_EXISTS)
        return muster_error_set(
            ret_error, rc, "not a folder, name another one or move that file away: %s", folder);
    return muster_error_set(ret_error, rc, "cannot make the folder (%s%s): %s",
                            muster_errno_reason(rc, sys),
                            rc == MUSTER_NOT_FOUND ? ", its parent must be there" : "", folder);
}

enum muster_rc muster_checkpoint_find_missing(const struct muster_checkpoint *checkpoint,
                                              uint32_t *ret_missing, struct muster_error *ret_error)
{
    uint32_t missing = checkpoint->shard_count;
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = checkpoint->shard_count; i-- > 0 && rc == MUSTER_OK;) {
        if (muster_checkpoint_has_shard(checkpoint, i))
            continue;
        missing = i;
        rc = failure_read(checkpoint, i, ret_error);
    }
    if (rc == MUSTER_OK)
        *ret_missing = missing;
    return rc;
}

struct part_look {
    const char *shard; /* the name of its file */
    bool is_begun;
};

static enum muster_rc on_part(void *data, const char *text)
{
    struct part_look *look = data;
    struct muster_checkpoint_name name;
    enum muster_checkpoint_file file;

    look->is_begun |= strncmp(text, look->shard, strlen(look->shard)) == 0 &&
                      muster_checkpoint_file_parse(text, &name, &file) &&
                      file == MUSTER_CHECKPOINT_PART;
    return MUSTER_OK;
}

bool muster_checkpoint_shard_is_begun(const struct muster_checkpoint *checkpoint, uint32_t shard)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct part_look look = {.shard = path + strlen(checkpoint->folder) + 1};

    return muster_checkpoint_shard_path(checkpoint->folder, &checkpoint->name, shard,
                                        checkpoint->shard_count, path) &&
           muster_folder_list(checkpoint->folder, on_part, &look) == MUSTER_OK && look.is_begun;
}

bool muster_checkpoint_has_manifest(const struct muster_checkpoint *checkpoint)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    uint64_t bytes;

    return muster_checkpoint_manifest_path(checkpoint->folder, &checkpoint->name, path) &&
           muster_file_bytes(path, &bytes) == MUSTER_OK;
}

static enum muster_rc shards_read(struct muster_checkpoint *checkpoint,
                                  struct muster_error *ret_error)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct muster_checkpoint_shard_head head;
    struct muster_file_reader reader;
    enum muster_rc rc = MUSTER_OK;
    uint8_t *hashes;

    for (uint32_t i = 0; i < checkpoint->shard_count && rc == MUSTER_OK; i++) {
        if (!muster_checkpoint_shard_path(checkpoint->folder, &checkpoint->name, i,
                                          checkpoint->shard_count, path))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the path of %.80s is too long", checkpoint->folder);
        muster_checkpoint_shard_head_init(&head, &checkpoint->name, checkpoint->state_bytes, i,
                                          checkpoint->shard_count);
        rc = muster_checkpoint_shard_open(checkpoint->mem, path, &head, &reader, &hashes,
                                          checkpoint->shards[i].hash, ret_error);
        if (rc != MUSTER_OK)
            return rc;
        muster_file_reader_close(&reader);
        muster_mem_free(checkpoint->mem, hashes);
    }
    return rc;
}

/* The names of the shards come before the manifest, which comes before the return. */
enum muster_rc muster_checkpoint_seal(struct muster_checkpoint *checkpoint,
                                      struct muster_error *ret_error)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    enum muster_rc rc = shards_read(checkpoint, ret_error);
    void *bytes = NULL;
    size_t size;
    int sys;

    if (rc != MUSTER_OK)
        return rc;
    if (!muster_checkpoint_manifest_path(checkpoint->folder, &checkpoint->name, path))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "the path of %.80s is too long",
                                checkpoint->folder);
    rc = muster_folder_sync(checkpoint->folder);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_manifest_pack(checkpoint, &bytes, &size);
    if (rc == MUSTER_OK)
        rc = muster_files_write(muster_files_system(), path, bytes, size);
    if (rc == MUSTER_OK)
        rc = muster_folder_sync(checkpoint->folder);
    sys = errno;
    muster_mem_free(checkpoint->mem, bytes);
    return rc == MUSTER_OK ? rc
                           : muster_error_set(ret_error, rc, "cannot write %s: %s", path,
                                              muster_errno_reason(rc, sys));
}

/* --- Keeping the last ones --- */

struct sweep {
    const char *folder;
    struct muster_checkpoint_name name;
    bool is_manifest; /* delete this one's manifest, or all that is left of it */
};

static enum muster_rc on_swept(void *data, const char *text)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    const struct sweep *sweep = data;
    struct muster_checkpoint_name name;
    enum muster_checkpoint_file file;

    if (!muster_checkpoint_file_parse(text, &name, &file) || name.step != sweep->name.step ||
        name.id != sweep->name.id || (sweep->is_manifest && file != MUSTER_CHECKPOINT_MANIFEST) ||
        !path_join(path, sweep->folder, text))
        return MUSTER_OK;
    return muster_file_remove(path);
}

/* The manifest goes first, for good, so that what is left is never taken for whole. */
static enum muster_rc checkpoint_remove(const char *folder,
                                        const struct muster_checkpoint_entry *entry)
{
    struct sweep sweep = {.folder = folder, .name = entry->name, .is_manifest = true};
    enum muster_rc rc = MUSTER_OK;

    if (entry->has_manifest) {
        rc = muster_folder_list(folder, on_swept, &sweep);
        if (rc == MUSTER_OK)
            rc = muster_folder_sync(folder);
    }
    sweep.is_manifest = false;
    return rc == MUSTER_OK ? muster_folder_list(folder, on_swept, &sweep) : rc;
}

/* It has a step up to that of `last`, and is not `last` itself. */
static bool is_before(const struct muster_checkpoint_entry *entry,
                      const struct muster_checkpoint_name *last)
{
    return entry->name.step < last->step ||
           (entry->name.step == last->step && entry->name.id != last->id);
}

enum muster_rc muster_checkpoint_sweep(struct muster_mem *mem, const char *folder,
                                       const struct muster_checkpoint_name *last,
                                       uint32_t keep_count, struct muster_error *ret_error)
{
    struct muster_checkpoint_entry *entries;
    uint32_t kept = 1; /* the last */
    size_t count;
    int sys;
    enum muster_rc rc = muster_checkpoint_list(mem, folder, &entries, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++) {
        const struct muster_checkpoint_entry *entry = &entries[i];

        if (!is_before(entry, last))
            continue;
        if (entry->has_manifest && (keep_count == 0 || kept < keep_count))
            kept++;
        else
            rc = checkpoint_remove(folder, entry);
    }
    sys = errno;
    muster_mem_free(mem, entries);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "cannot delete old checkpoints in %s: %s", folder,
                                  muster_errno_reason(rc, sys));
}

enum muster_rc muster_checkpoint_clear(struct muster_mem *mem, const char *folder,
                                       const struct muster_checkpoint_name *next,
                                       struct muster_error *ret_error)
{
    struct muster_checkpoint_entry *entries;
    size_t count;
    int sys;
    enum muster_rc rc = muster_checkpoint_list(mem, folder, &entries, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        if (!entries[i].has_manifest && is_before(&entries[i], next))
            rc = checkpoint_remove(folder, &entries[i]);
    sys = errno;
    muster_mem_free(mem, entries);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "cannot delete half-written checkpoints in %s: %s",
                                  folder, muster_errno_reason(rc, sys));
}
