/* Files of cuts that came to nothing are deleted: those that no manifest of the folder names. */
#include "params/snapshot/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/system/folder_system.h"

#define MANIFESTS_MAX 8u /* that are younger than the oldest of these cuts */

struct sweep {
    const struct muster_params_snapshot *snapshot;
    const uint64_t *cuts; /* rising */
    size_t cut_count;
    struct muster_params_snapshot_manifest manifests[MANIFESTS_MAX];
    uint32_t manifest_count;
};

/* A manifest names no cut that is younger than itself. */
static enum muster_rc manifest_take(struct sweep *sweep, const char *name)
{
    struct muster_params_snapshot snapshot = *sweep->snapshot;
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;
    enum muster_rc rc;

    snapshot.manifest = name;
    rc = muster_params_snapshot_open(&snapshot, &manifest, &error);
    if (rc == MUSTER_NOT_FOUND) /* it has just been deleted */
        return MUSTER_OK;
    if (rc != MUSTER_OK)
        return rc;
    if (manifest.cut < sweep->cuts[0]) {
        muster_params_snapshot_manifest_fini(&manifest);
        return MUSTER_OK;
    }
    if (sweep->manifest_count == MANIFESTS_MAX) {
        muster_params_snapshot_manifest_fini(&manifest);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    sweep->manifests[sweep->manifest_count++] = manifest;
    return MUSTER_OK;
}

static enum muster_rc on_manifest(void *data, const char *name)
{
    uint64_t number;
    int end = 0;

    if (strcmp(name, "manifest") == 0 ||
        (sscanf(name, "manifest-%" SCNu64 "%n", &number, &end) == 1 && name[end] == '\0'))
        return manifest_take(data, name);
    return MUSTER_OK;
}

static int number_compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static bool is_named(const struct sweep *sweep, uint64_t cut, unsigned shard)
{
    for (uint32_t i = 0; i < sweep->manifest_count; i++) {
        if (shard < sweep->manifests[i].shard_count && sweep->manifests[i].shards[shard].cut == cut)
            return true;
    }
    return false;
}

static enum muster_rc on_file(void *data, const char *name)
{
    const struct sweep *sweep = data;
    char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES];
    unsigned shard;
    uint64_t cut;
    int end = 0;

    if (sscanf(name, "cut-%" SCNu64 "-shard-%u%n", &cut, &shard, &end) != 2 || name[end] != '\0' ||
        bsearch(&cut, sweep->cuts, sweep->cut_count, sizeof(cut), number_compare) == NULL ||
        is_named(sweep, cut, shard))
        return MUSTER_OK;
    snprintf(path, sizeof(path), "%s/%s", sweep->snapshot->folder, name);
    return muster_file_remove(path);
}

static void lock_path(const struct muster_params_snapshot *snapshot,
                      char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES])
{
    snprintf(path, MUSTER_PARAMS_SNAPSHOT_PATH_BYTES, "%s/lock", snapshot->folder);
}

static enum muster_rc lock_explain(enum muster_rc rc, const char *path,
                                   const char *what_holder_does, struct muster_error *ret_error)
{
    if (rc == MUSTER_OK)
        return rc;
    return rc == MUSTER_UNAVAILABLE
               ? muster_error_set(ret_error, rc, "a process that %s holds %.150s", what_holder_does,
                                  path)
               : muster_error_set(ret_error, rc, "%.180s cannot be opened: %s", path,
                                  muster_rc_text(rc));
}

enum muster_rc muster_params_snapshot_hold(const struct muster_params_snapshot *snapshot,
                                           int *ret_hold, struct muster_error *ret_error)
{
    char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES];

    lock_path(snapshot, path);
    return lock_explain(muster_file_hold_shared(path, ret_hold), path,
                        "deletes files of older cuts", ret_error);
}

enum muster_rc muster_params_snapshot_hold_alone(const struct muster_params_snapshot *snapshot,
                                                 int *ret_hold, struct muster_error *ret_error)
{
    char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES];

    lock_path(snapshot, path);
    return lock_explain(muster_file_hold_alone(path, ret_hold), path, "writes a manifest",
                        ret_error);
}

void muster_params_snapshot_release(const struct muster_params_snapshot *snapshot, int hold)
{
    char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES];

    lock_path(snapshot, path);
    muster_file_release_last(hold, path);
}

/* A manifest that cannot be read may name them. */
void muster_params_snapshot_sweep(const struct muster_params_snapshot *snapshot,
                                  const uint64_t *cuts, size_t count)
{
    struct sweep sweep = {.snapshot = snapshot, .cuts = cuts, .cut_count = count};
    struct muster_error error;
    enum muster_rc rc;
    int hold;

    if (muster_params_snapshot_hold_alone(snapshot, &hold, &error) != MUSTER_OK)
        return;
    rc = muster_folder_list(snapshot->folder, on_manifest, &sweep);
    if (rc == MUSTER_OK)
        rc = muster_folder_list(snapshot->folder, on_file, &sweep);
    (void)rc; /* what is left takes room on the disk, and nothing more */
    for (uint32_t i = 0; i < sweep.manifest_count; i++)
        muster_params_snapshot_manifest_fini(&sweep.manifests[i]);
    muster_params_snapshot_release(snapshot, hold);
}
