/* Restoring from a cut: shard by shard, between turns of the loop, so that the registry hears of the server
 * meanwhile. */
#include "params/server/state/restore.h"

#include <stdatomic.h>
#include <string.h>

#include <muster/hash.h>

#include "params/server/core/server_internal.h"
#include "params/snapshot/snapshot.h"
#include "runtime/system/folder_system.h"

struct muster_params_restore {
    struct muster_params_server *server;
    muster_params_failed_fn *failed;
    muster_params_map_ready_fn *ready;
    muster_params_server_fn *restored;
    struct muster_params_snapshot snapshot;
    struct muster_params_snapshot_manifest manifest;
    struct muster_params_map *map; /* the newest; NULL: none has come */
    bool is_wanted[MUSTER_PARAMS_SHARD_COUNT_MAX];
    uint32_t shard; /* that is read next */
    struct muster_task step;
    char folder[];
};

void muster_params_restore_close(struct muster_params_server *server)
{
    struct muster_params_restore *restore = server->restore;

    server->restore = NULL;
    if (restore == NULL)
        return;
    muster_task_cancel(&restore->step);
    muster_params_snapshot_manifest_fini(&restore->manifest);
    muster_mem_free(server->env->mem, restore->map);
    muster_mem_free(server->env->mem, restore);
}

static bool shard_is_wanted(const void *data, uint32_t shard)
{
    const struct muster_params_restore *restore = data;

    return restore->is_wanted[shard];
}

static bool shard_is_next(const void *data, uint32_t shard)
{
    const struct muster_params_restore *restore = data;

    return shard == restore->shard;
}

/* Restore the next shard. Where the cut has another number of shards, the rows of one may be in any
 * file: then all shards are restored at once. */
static enum muster_rc next_restore(struct muster_params_restore *restore,
                                   struct muster_error *ret_error)
{
    struct muster_params_region *region = restore->server->region;
    bool has_same_shards = restore->manifest.shard_count == region->head->shard_count;
    enum muster_rc rc = MUSTER_OK;

    if (!has_same_shards) {
        restore->shard = region->head->shard_count;
        return muster_params_snapshot_restore(&restore->snapshot, &restore->manifest, region,
                                              shard_is_wanted, restore, ret_error);
    }
    if (restore->is_wanted[restore->shard])
        rc = muster_params_snapshot_restore(&restore->snapshot, &restore->manifest, region,
                                            shard_is_next, restore, ret_error);
    restore->shard++;
    return rc;
}

static void restoring_set(struct muster_params_server *server,
                          enum muster_params_restoring restoring)
{
    MUSTER_PARAMS_STORE(&server->region->head->restoring, restoring);
}

static void restored_log(const struct muster_params_restore *restore)
{
    struct muster_params_stats stats;

    muster_params_server_stats(restore->server, &stats);
    MUSTER_LOG(restore->server->env, INFO, "params_restored", "folder", restore->folder, "cut",
               restore->manifest.cut, "clock", restore->manifest.clock, "rows", stats.rows);
}

void muster_params_restore_refuse(struct muster_params_server *server,
                                  const struct muster_error *error)
{
    MUSTER_LOG(server->env, ERROR, "params_restore_failed", "reason", error->text);
    if (server->restore->failed != NULL)
        server->restore->failed(server, error);
}

void muster_params_restore_cut(const struct muster_params_server *server, uint64_t *ret_cut,
                               uint32_t *ret_hash)
{
    const struct muster_params_snapshot_manifest *manifest;
    uint64_t hash;

    *ret_cut = *ret_hash = 0;
    if (server->restore == NULL)
        return;
    manifest = &server->restore->manifest;
    hash = muster_hash64(manifest->shards, manifest->shard_count * sizeof(manifest->shards[0]),
                         manifest->cut);
    *ret_cut = manifest->cut;
    *ret_hash = (uint32_t)hash != 0 ? (uint32_t)hash : 1;
}

/* A process that dies from here on leaves nothing to restore. */
static void restore_end(struct muster_params_restore *restore)
{
    struct muster_params_server *server = restore->server;
    muster_params_server_fn *restored = restore->restored;

    restoring_set(server, MUSTER_PARAMS_RESTORING_DONE);
    muster_params_restore_close(server);
    if (restored != NULL)
        restored(server);
}

/* Files that are not whole have older ones beside them. */
static enum muster_rc cut_refuse(enum muster_rc rc, struct muster_error *ret_error)
{
    struct muster_error error;

    if (rc != MUSTER_DATA_LOSS && rc != MUSTER_NOT_FOUND)
        return rc;
    error = *ret_error;
    return muster_error_set(ret_error, rc,
                            "%.160s; restore another cut: older ones of a folder are its "
                            "manifest-NUMBER",
                            error.text);
}

static void on_step(struct muster_task *task)
{
    struct muster_params_restore *restore = task->data;
    struct muster_params_server *server = restore->server;
    muster_params_map_ready_fn *ready = restore->ready;
    struct muster_params_map *map;
    struct muster_error error;

    if (cut_refuse(next_restore(restore, &error), &error) != MUSTER_OK) {
        muster_params_restore_refuse(server, &error);
        return; /* it has no map, so it serves nobody */
    }
    if (restore->shard < server->region->head->shard_count) {
        muster_task_post(&restore->step, server->env->loop);
        return;
    }
    restored_log(restore);
    map = restore->map;
    restore->map = NULL;
    restore_end(restore);
    ready(server, map);
}

/* A server is a copy of a shard because it was in the first map, or because it has learned the shard under
 * maps that have come before. So one whose first map names it has not learned what it lacks. Returns how many
 * there are. */
static uint32_t wanted_find(struct muster_params_restore *restore,
                            const struct muster_params_map *map)
{
    uint32_t place = MUSTER_PARAMS_NOWHERE, count = 0;
    bool is_in_map = muster_params_map_find(map, &restore->server->region->head->id, &place);

    for (uint32_t i = 0; i < map->shard_count; i++) {
        restore->is_wanted[i] = is_in_map && muster_params_map_is_copy(map, i, place);
        count += restore->is_wanted[i];
    }
    return count;
}

bool muster_params_restore_delays(struct muster_params_server *server,
                                  struct muster_params_map *map)
{
    struct muster_params_restore *restore = server->restore;

    if (restore == NULL)
        return false;
    if (restore->map == NULL && wanted_find(restore, map) == 0 &&
        (map->epoch != 1 || !muster_params_map_find(map, &server->region->head->id, NULL))) {
        MUSTER_LOG(server->env, WARN, "params_restore_left_out", "reason",
                   "the job has begun without this server: the cut is not used, and the server "
                   "copies shards from the others",
                   "folder", restore->folder, "cut", restore->manifest.cut, "map", map->epoch);
        restore_end(restore);
        return false;
    }
    if (restore->map == NULL) {
        restoring_set(server, MUSTER_PARAMS_RESTORING_BEGUN);
        muster_task_post(&restore->step, server->env->loop);
    } else if (map->epoch <= restore->map->epoch) {
        muster_mem_free(server->env->mem, map);
        return true;
    }
    muster_mem_free(server->env->mem, restore->map);
    restore->map = map;
    return true;
}

static enum muster_rc files_check(const struct muster_params_restore *restore,
                                  struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < restore->manifest.shard_count && rc == MUSTER_OK; i++)
        rc = muster_params_snapshot_visit(&restore->snapshot, &restore->manifest, i, NULL,
                                          ret_error);
    return rc;
}

static struct muster_params_restore *restore_new(struct muster_params_server *server,
                                                 const char *folder)
{
    size_t bytes = strlen(folder) + 1;
    struct muster_params_restore *restore =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*restore) + bytes);

    if (restore == NULL)
        return NULL;
    restore->server = server;
    memcpy(restore->folder, folder, bytes);
    restore->snapshot = (struct muster_params_snapshot){.files = server->env->files,
                                                        .mem = server->env->mem,
                                                        .folder = restore->folder,
                                                        .sync_folder = muster_folder_sync};
    muster_task_init(&restore->step, on_step, restore);
    return restore;
}

/* A part of a cut is restored again from its begin: the same rows are written once more. */
static enum muster_rc memory_check(const struct muster_params_server *server,
                                   struct muster_error *ret_error)
{
    const struct muster_params_region_head *head = server->region->head;

    if (head->table_count == 0 || head->restoring != MUSTER_PARAMS_RESTORING_NONE)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, MUSTER_FAILED_PRECONDITION,
        "the memory of the seat has tables already, a cut needs fresh memory: open the "
        "server without restore");
}

static enum muster_rc alone_restore(struct muster_params_restore *restore,
                                    struct muster_error *ret_error)
{
    struct muster_params_server *server = restore->server;
    enum muster_rc rc;

    restoring_set(server, MUSTER_PARAMS_RESTORING_BEGUN);
    rc = muster_params_snapshot_restore(&restore->snapshot, &restore->manifest, server->region,
                                        NULL, NULL, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    restored_log(restore);
    restoring_set(server, MUSTER_PARAMS_RESTORING_DONE);
    return MUSTER_OK;
}

static enum muster_rc restore_begin(struct muster_params_server *server,
                                    const struct muster_params_restore_options *options,
                                    struct muster_error *ret_error)
{
    bool is_alone = server->registration == NULL && server->map != NULL;
    struct muster_params_restore *restore = restore_new(server, options->folder);
    enum muster_rc rc;

    if (restore == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory to restore");
    restore->failed = options->failed;
    restore->ready = options->ready;
    restore->restored = options->restored;
    rc = muster_params_snapshot_open(&restore->snapshot, &restore->manifest, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, restore);
        return rc;
    }
    server->restore = restore;
    rc = is_alone ? alone_restore(restore, ret_error) : files_check(restore, ret_error);
    if (rc != MUSTER_OK || is_alone)
        muster_params_restore_close(server);
    return rc;
}

enum muster_rc muster_params_restore_open(struct muster_params_server *server,
                                          const struct muster_params_restore_options *options,
                                          struct muster_error *ret_error)
{
    enum muster_params_restoring restoring = server->region->head->restoring;
    enum muster_rc rc;

    if (options->folder == NULL)
        return restoring != MUSTER_PARAMS_RESTORING_BEGUN
                   ? MUSTER_OK
                   : muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                      "the memory of the seat has a part of a cut: a server died "
                                      "while it restored that; open the next one with restore");
    rc = memory_check(server, ret_error);
    if (rc != MUSTER_OK || restoring == MUSTER_PARAMS_RESTORING_DONE)
        return rc;
    return cut_refuse(restore_begin(server, options, ret_error), ret_error);
}
