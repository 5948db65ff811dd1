/* The manifest of a cut, without files. */
#include "params_manifest.h"

#include "test_env.h"

#include "params/snapshot/snapshot.h"
#include "runtime/system/folder_system.h"

void params_manifest_save(const char *folder, const char *job, uint32_t shard_count, uint64_t cut)
{
    const struct muster_params_schema schema = {
        .name = "counters", .row_elements = 1, .wire_dtype = MUSTER_F32};
    const struct muster_params_snapshot snapshot = {.files = muster_files_system(),
                                                    .mem = muster_mem_system(),
                                                    .folder = folder,
                                                    .sync_folder = muster_folder_sync};
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;

    assert_int_equal(muster_params_snapshot_manifest_init(&manifest, snapshot.mem, &schema, 1,
                                                          shard_count, &error),
                     MUSTER_OK);
    manifest.cut = cut;
    snprintf(manifest.job, sizeof(manifest.job), "%s", job);
    assert_int_equal(muster_params_snapshot_save_manifest(&snapshot, &manifest, &error), MUSTER_OK);
    muster_params_snapshot_manifest_fini(&manifest);
}
