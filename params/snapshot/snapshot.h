/* A snapshot in a folder: the files of shards, and the manifest, which is replaced last. */
#ifndef MUSTER_PARAMS_SNAPSHOT_H
#define MUSTER_PARAMS_SNAPSHOT_H

#include <muster/env.h>

#include "params/snapshot/shard.h"

#define MUSTER_PARAMS_SNAPSHOT_PATH_BYTES     4096u
#define MUSTER_PARAMS_SNAPSHOT_FILE_BYTES_MAX ((size_t)4 << 30) /* of a shard */

/** Files are read and written whole, through `files`. */
struct muster_params_snapshot {
    struct muster_files *files;
    struct muster_mem *mem;
    const char *folder; /* it is there already */
    const char *manifest; /* its name; NULL: "manifest" */
    /* Names in the folder are on the disk (fsync); muster_files_write syncs only what is in a file. */
    enum muster_rc (*sync_folder)(const char *folder);
    /* The size of a file. NULL: files of earlier cuts are not used again. */
    enum muster_rc (*file_bytes)(const char *path, uint64_t *ret_bytes);
};

/** Seal a file that is packed, and write it; ret_path: its path. From any thread. Errors: those of
 * muster_files_write. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_write(
    const struct muster_params_snapshot *snapshot, struct muster_params_snapshot_packing *packing,
    char ret_path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES]);

/**
 * Pack the file of a shard and write it. Files of other cuts stay as they are.
 *
 * Errors: RESOURCE_EXHAUSTED, and those of muster_files_write; the text names the file.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_save_shard(
    const struct muster_params_snapshot *snapshot, const struct muster_params_region *region,
    uint32_t shard, uint64_t cut, muster_params_snapshot_keep_fn *is_kept, const void *data,
    struct muster_params_snapshot_shard *ret_shard, struct muster_error *ret_error);
/** The error of a file that could not be written. sys: packing->sys. Returns rc. */
enum muster_rc muster_params_snapshot_unwritten(enum muster_rc rc, int sys, const char *path,
                                                struct muster_error *ret_error);
/** Whether the folder has the file of an earlier cut, by its size: a later cut may name it again. */
bool muster_params_snapshot_has(const struct muster_params_snapshot *snapshot, uint32_t shard,
                                const struct muster_params_snapshot_shard *entry);
/** Nobody deletes files of the folder until muster_params_snapshot_release: what a manifest is about to name stays.
 * Errors: UNAVAILABLE (somebody deletes some now: try again soon), those of muster_file_hold_shared; the text names the
 * file. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_hold(
    const struct muster_params_snapshot *snapshot, int *ret_hold, struct muster_error *ret_error);
/** To delete files: nobody else writes a manifest until muster_params_snapshot_release. Errors: UNAVAILABLE (somebody
 * writes one: leave the files to the next cut), those of muster_file_hold_alone; the text names the file. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_hold_alone(
    const struct muster_params_snapshot *snapshot, int *ret_hold, struct muster_error *ret_error);
void muster_params_snapshot_release(const struct muster_params_snapshot *snapshot, int hold);
/** Delete the files of these cuts, which rise, that no manifest of the folder names; where one cannot be read, or
 * somebody holds the folder, none. */
void muster_params_snapshot_sweep(const struct muster_params_snapshot *snapshot,
                                  const uint64_t *cuts, size_t count);
/** Make the names of the written files last; due before anybody is told of them. Errors: those of
 * sync_folder. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_sync(
    const struct muster_params_snapshot *snapshot, struct muster_error *ret_error);
/** Replace the manifest: from now on the folder has this cut. All its shards must be synced.
 * Errors: RESOURCE_EXHAUSTED, those of muster_files_write and sync_folder; the text names the file. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_save_manifest(
    const struct muster_params_snapshot *snapshot,
    const struct muster_params_snapshot_manifest *manifest, struct muster_error *ret_error);

/**
 * Whether a cut of this job may replace what the folder holds: nothing, a cut of the same job, or one that cannot be
 * restored (it is damaged, or of another version).
 *
 * Errors: FAILED_PRECONDITION (a cut of another job; the text names both), those of muster_files_read.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_check_job(
    const struct muster_params_snapshot *snapshot, const char *job, struct muster_error *ret_error);

/** Read the manifest. Gives *ret_manifest (muster_params_snapshot_manifest_fini). Errors: NOT_FOUND
 * (there is no snapshot), DATA_LOSS, FAILED_PRECONDITION (another version), RESOURCE_EXHAUSTED; the
 * text names the file. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_open(
    const struct muster_params_snapshot *snapshot,
    struct muster_params_snapshot_manifest *ret_manifest, struct muster_error *ret_error);
/** Check the file of a shard, then visit it; visitor NULL: check it only. Errors: DATA_LOSS (also:
 * it is missing), FAILED_PRECONDITION (another version), RESOURCE_EXHAUSTED, and those of the
 * visitor. */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_visit(
    const struct muster_params_snapshot *snapshot,
    const struct muster_params_snapshot_manifest *manifest, uint32_t shard,
    const struct muster_params_snapshot_visitor *visitor, struct muster_error *ret_error);
/**
 * Restore the shards of a fresh region that are wanted (is_wanted NULL: all of them). With another number
 * of shards than the snapshot's rows find their new ones, and a source's position is its furthest: a cut
 * has the same pushes in all shards. All files that are needed are checked before the region changes.
 *
 * Errors: as above; RESOURCE_EXHAUSTED (the region is full: throw it away).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_snapshot_restore(
    const struct muster_params_snapshot *snapshot,
    const struct muster_params_snapshot_manifest *manifest, struct muster_params_region *region,
    bool (*is_wanted)(const void *data, uint32_t shard), const void *data,
    struct muster_error *ret_error);

#endif
