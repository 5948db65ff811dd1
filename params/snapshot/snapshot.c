/* Snapshots in a folder. Files carry the number of their cut in their names, so that the manifest
 * of an earlier cut stays good until the new one replaces it. */
#include "params/snapshot/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "params/store/load.h"
#include "params/wire/hash.h"

#define PATH_BYTES         MUSTER_PARAMS_SNAPSHOT_PATH_BYTES
#define MANIFEST_BYTES_MAX ((size_t)1 << 20)

static void shard_path(const struct muster_params_snapshot *snapshot, uint64_t cut, uint32_t shard,
                       char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/cut-%" PRIu64 "-shard-%04u", snapshot->folder, cut, shard);
}

static void manifest_path(const struct muster_params_snapshot *snapshot, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", snapshot->folder,
             snapshot->manifest != NULL ? snapshot->manifest : "manifest");
}

enum muster_rc muster_params_snapshot_unwritten(enum muster_rc rc, int sys, const char *path,
                                                struct muster_error *ret_error)
{
    return sys != 0 ? muster_error_set_sys(ret_error, rc, sys, "cannot write %.200s", path)
                    : muster_error_set(ret_error, rc, "cannot write %.200s", path);
}

/* The system's files leave the reason in errno, others nothing. */
static enum muster_rc bytes_write(const struct muster_params_snapshot *snapshot, const char *path,
                                  const void *bytes, size_t size, int *ret_sys)
{
    enum muster_rc rc;

    errno = 0;
    rc = muster_files_write(snapshot->files, path, bytes, size);
    *ret_sys = rc != MUSTER_OK ? errno : 0;
    return rc;
}

static enum muster_rc file_write(const struct muster_params_snapshot *snapshot, const char *path,
                                 const void *bytes, size_t size, struct muster_error *ret_error)
{
    int sys;
    enum muster_rc rc = bytes_write(snapshot, path, bytes, size, &sys);

    return rc == MUSTER_OK ? rc : muster_params_snapshot_unwritten(rc, sys, path, ret_error);
}

static enum muster_rc file_read(const struct muster_params_snapshot *snapshot, const char *path,
                                size_t limit, char **ret_bytes, size_t *ret_size,
                                struct muster_error *ret_error)
{
    enum muster_rc rc;
    int sys;

    errno = 0; /* other files than the system's leave no reason */
    rc = muster_files_read(snapshot->files, snapshot->mem, path, limit, ret_bytes, ret_size);
    sys = errno;
    if (rc == MUSTER_OK)
        return rc;
    return sys != 0 ? muster_error_set_sys(ret_error, rc, sys, "cannot read %.200s", path)
                    : muster_error_set(ret_error, rc, "cannot read %.200s: %s", path,
                                       muster_rc_text(rc));
}

enum muster_rc muster_params_snapshot_write(const struct muster_params_snapshot *snapshot,
                                            struct muster_params_snapshot_packing *packing,
                                            char ret_path[PATH_BYTES])
{
    shard_path(snapshot, packing->cut, packing->shard, ret_path);
    muster_params_snapshot_packing_seal(packing);
    return bytes_write(snapshot, ret_path, packing->bytes, (size_t)packing->entry.bytes,
                       &packing->sys);
}

enum muster_rc muster_params_snapshot_save_shard(
    const struct muster_params_snapshot *snapshot, const struct muster_params_region *region,
    uint32_t shard, uint64_t cut, muster_params_snapshot_keep_fn *is_kept, const void *data,
    struct muster_params_snapshot_shard *ret_shard, struct muster_error *ret_error)
{
    struct muster_params_snapshot_packing packing = {
        .mem = snapshot->mem, .is_kept = is_kept, .data = data};
    char path[PATH_BYTES];
    enum muster_rc rc = muster_params_snapshot_packing_begin(&packing, region, shard, cut);

    if (rc != MUSTER_OK) {
        shard_path(snapshot, cut, shard, path);
        rc = muster_error_set(ret_error, rc, "no memory for %.200s", path);
    } else {
        while (muster_params_snapshot_packing_step(&packing, MUSTER_PARAMS_SNAPSHOT_BLOCK_BYTES))
            ;
        rc = muster_params_snapshot_write(snapshot, &packing, path);
        if (rc != MUSTER_OK)
            (void)muster_params_snapshot_unwritten(rc, packing.sys, path, ret_error);
        else
            *ret_shard = packing.entry;
    }
    muster_params_snapshot_packing_fini(&packing);
    return rc;
}

bool muster_params_snapshot_has(const struct muster_params_snapshot *snapshot, uint32_t shard,
                                const struct muster_params_snapshot_shard *entry)
{
    char path[PATH_BYTES];
    uint64_t bytes;

    shard_path(snapshot, entry->cut, shard, path);
    return snapshot->file_bytes != NULL && snapshot->file_bytes(path, &bytes) == MUSTER_OK &&
           bytes == entry->bytes;
}

enum muster_rc muster_params_snapshot_sync(const struct muster_params_snapshot *snapshot,
                                           struct muster_error *ret_error)
{
    enum muster_rc rc = snapshot->sync_folder(snapshot->folder);

    return rc == MUSTER_OK ? rc
                           : muster_error_set(ret_error, rc, "cannot write %s", snapshot->folder);
}

enum muster_rc muster_params_snapshot_save_manifest(
    const struct muster_params_snapshot *snapshot,
    const struct muster_params_snapshot_manifest *manifest, struct muster_error *ret_error)
{
    char path[PATH_BYTES];
    void *bytes;
    size_t size;
    enum muster_rc rc = muster_params_snapshot_manifest_pack(manifest, &bytes, &size);

    manifest_path(snapshot, path);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for %s", path);
    rc = file_write(snapshot, path, bytes, size, ret_error);
    muster_mem_free(manifest->mem, bytes);
    return rc == MUSTER_OK ? muster_params_snapshot_sync(snapshot, ret_error) : rc;
}

enum muster_rc muster_params_snapshot_open(const struct muster_params_snapshot *snapshot,
                                           struct muster_params_snapshot_manifest *ret_manifest,
                                           struct muster_error *ret_error)
{
    struct muster_error cause = {.rc = MUSTER_OK};
    char path[PATH_BYTES], *bytes;
    enum muster_rc rc;
    size_t size;

    manifest_path(snapshot, path);
    rc = file_read(snapshot, path, MANIFEST_BYTES_MAX, &bytes, &size, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_snapshot_manifest_unpack(snapshot->mem, bytes, size, ret_manifest, &cause);
    muster_mem_free(snapshot->mem, bytes);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "%s: %s", path, cause.text);
}

static const char *job_describe(const char *job, char ret_text[MUSTER_JOB_NAME_BYTES + 8])
{
    if (job[0] == '\0')
        return "a job without a name";
    snprintf(ret_text, MUSTER_JOB_NAME_BYTES + 8, "job %s", job);
    return ret_text;
}

enum muster_rc muster_params_snapshot_check_job(const struct muster_params_snapshot *snapshot,
                                                const char *job, struct muster_error *ret_error)
{
    char of[MUSTER_JOB_NAME_BYTES + 8], text[MUSTER_JOB_NAME_BYTES + 8];
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;
    enum muster_rc rc = muster_params_snapshot_open(snapshot, &manifest, &error);

    if (rc == MUSTER_NOT_FOUND || rc == MUSTER_DATA_LOSS || rc == MUSTER_FAILED_PRECONDITION)
        return MUSTER_OK;
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s", error.text);
    if (strcmp(manifest.job, job) != 0)
        rc = muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                              "the folder holds a cut of %s, not of %s: give each job a folder of "
                              "its own, or move the old cut away (%.80s)",
                              job_describe(manifest.job, of), job_describe(job, text),
                              snapshot->folder);
    muster_params_snapshot_manifest_fini(&manifest);
    return rc;
}

enum muster_rc muster_params_snapshot_visit(const struct muster_params_snapshot *snapshot,
                                            const struct muster_params_snapshot_manifest *manifest,
                                            uint32_t shard,
                                            const struct muster_params_snapshot_visitor *visitor,
                                            struct muster_error *ret_error)
{
    struct muster_error cause = {.rc = MUSTER_OK};
    char path[PATH_BYTES], *bytes;
    enum muster_rc rc;
    size_t size;

    shard_path(snapshot, manifest->shards[shard].cut, shard, path);
    rc = file_read(snapshot, path, MUSTER_PARAMS_SNAPSHOT_FILE_BYTES_MAX, &bytes, &size, ret_error);
    if (rc == MUSTER_NOT_FOUND)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%s is missing", path);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_snapshot_shard_visit(manifest, shard, bytes, size, visitor, &cause);
    muster_mem_free(snapshot->mem, bytes);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "%s %s", path, cause.text);
}

/* --- Restoring --- */

struct restoring {
    const struct muster_params_snapshot_manifest *manifest;
    struct muster_params_region *region;
    struct muster_params_store_table **tables; /* of manifest->schemas */
    bool (*is_wanted)(const void *data, uint32_t shard);
    const void *data;
    bool has_same_shards;
    uint32_t shard; /* whose file is read */
};

static bool shard_is_wanted(const struct restoring *restoring, uint32_t shard)
{
    return restoring->is_wanted == NULL || restoring->is_wanted(restoring->data, shard);
}

static enum muster_rc on_row(void *data, uint32_t table, uint64_t key, uint32_t clock,
                             const float *values)
{
    struct restoring *restoring = data;
    struct muster_params_store_table *to = restoring->tables[table];
    uint64_t hash = muster_params_hash(to->seed, key);

    if (!shard_is_wanted(restoring,
                         muster_params_shard_of(hash, restoring->region->head->shard_count)))
        return MUSTER_OK;
    return muster_params_row_load(restoring->region, to, key, clock, values);
}

static enum muster_rc on_source(void *data, const struct muster_incarnation *id,
                                uint64_t generation, uint64_t position, bool is_named)
{
    struct restoring *restoring = data;
    uint32_t count = restoring->region->head->shard_count;
    struct muster_params_source *source;
    uint64_t slot;
    enum muster_rc rc = muster_params_source_learn(
        restoring->region,
        &(struct muster_params_opener){.id = *id, .generation = generation, .is_named = is_named},
        &slot);

    if (rc != MUSTER_OK)
        return rc;
    source = muster_params_source_at(restoring->region, slot);
    for (uint32_t shard = 0; shard < count; shard++) {
        if (shard_is_wanted(restoring, shard) &&
            (!restoring->has_same_shards || shard == restoring->shard) &&
            source->positions[shard] < position)
            muster_params_position_load(source, shard, position);
    }
    return MUSTER_OK;
}

static enum muster_rc shards_visit(const struct muster_params_snapshot *snapshot,
                                   struct restoring *restoring,
                                   const struct muster_params_snapshot_visitor *visitor,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < restoring->manifest->shard_count && rc == MUSTER_OK; i++) {
        if (restoring->has_same_shards && !shard_is_wanted(restoring, i))
            continue;
        restoring->shard = i;
        rc = muster_params_snapshot_visit(snapshot, restoring->manifest, i, visitor, ret_error);
    }
    return rc;
}

static enum muster_rc tables_open(struct restoring *restoring, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < restoring->manifest->table_count && rc == MUSTER_OK; i++)
        rc = muster_params_table_open(restoring->region, &restoring->manifest->schemas[i],
                                      &restoring->tables[i], ret_error);
    return rc;
}

enum muster_rc muster_params_snapshot_restore(
    const struct muster_params_snapshot *snapshot,
    const struct muster_params_snapshot_manifest *manifest, struct muster_params_region *region,
    bool (*is_wanted)(const void *data, uint32_t shard), const void *data,
    struct muster_error *ret_error)
{
    struct restoring restoring = {.manifest = manifest,
                                  .region = region,
                                  .is_wanted = is_wanted,
                                  .data = data,
                                  .has_same_shards =
                                      manifest->shard_count == region->head->shard_count};
    const struct muster_params_snapshot_visitor visitor = {
        .data = &restoring, .on_row = on_row, .on_source = on_source};
    enum muster_rc rc = shards_visit(snapshot, &restoring, NULL, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    restoring.tables = muster_mem_alloc_zero(snapshot->mem, manifest->table_count + 1,
                                             sizeof(struct muster_params_store_table *));
    if (restoring.tables == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for tables");
    rc = tables_open(&restoring, ret_error);
    if (rc == MUSTER_OK)
        rc = shards_visit(snapshot, &restoring, &visitor, ret_error);
    muster_mem_free(snapshot->mem, restoring.tables);
    return rc;
}
