/* Each system call of a cut, and of what is restored from one, fails in turn: an error or success, the folder has
 * the cut before or the new one whole, a region that could not be restored can be filled again, and no file or
 * descriptor is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_calls.h"
#include "params_stand.h"
#include "region_stand.h"
#include "torture_calls.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/server/seat/seat.h"
#include "params/snapshot/snapshot.h"
#include "runtime/system/folder_system.h"

#define REGION_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define SHARDS       2u
#define ROWS         20u
#define AGAIN_MAX    20u
#define TURNS        8
#define RUNS_MAX     16 /* of a server, whose calls of files are those of the other scenarios */
#define FILES        (SHARDS + 1) /* of a cut: those of the shards, and the manifest */

struct scene {
    struct torture *torture;
    char folder[64];
    size_t descriptors; /* before it was opened */
    struct muster_params_digest digests[3]; /* of the rows, by cut */
};

static void scene_open(struct scene *scene, struct torture *torture)
{
    memset(scene, 0, sizeof(*scene));
    scene->torture = torture;
    scene->descriptors = torture_count_descriptors();
    strcpy(scene->folder, "/tmp/params_calls.XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
}

static void scene_close(struct scene *scene)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", scene->folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(torture_count_descriptors(), scene->descriptors);
}

static size_t count_files(const struct scene *scene)
{
    DIR *folder = opendir(scene->folder);
    size_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count - 2; /* "." and ".." */
}

/* A read or a write that was interrupted, or was short, is no error. */
static void check_outcome(const struct scene *scene, enum muster_rc rc,
                          const struct muster_error *error)
{
    if (rc == MUSTER_OK)
        return;
    assert_true(scene->torture->refused > 0 && error->text[0] != '\0');
    if (torture_call_was_harmless())
        fail_msg("%s", error->text);
}

static struct muster_params_digest digest_of(const struct muster_params_region *region)
{
    const struct muster_params_store_table *table = muster_params_table_find(region, "counters");

    assert_non_null(table);
    return muster_params_table_digest(region, table);
}

/* --- Files --- */

static struct muster_params_snapshot snapshot_of(const struct scene *scene)
{
    return (struct muster_params_snapshot){.files = muster_files_system(),
                                           .mem = muster_mem_system(),
                                           .folder = scene->folder,
                                           .sync_folder = muster_folder_sync,
                                           .file_bytes = muster_file_bytes};
}

static void region_fill(struct region_stand *stand, uint64_t sequence)
{
    const struct muster_params_schema schema =
        region_schema("counters", 3, MUSTER_PARAMS_MOMENTUM);
    uint64_t keys[ROWS];
    float values[ROWS * 3];

    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < ROWS * 3; i++)
        values[i] = (float)i + 1;
    (void)region_push(stand, region_table(stand, &schema), region_source(stand, 1), sequence, keys,
                      values, ROWS, NULL);
}

static enum muster_rc cut_save(const struct scene *scene, const struct region_stand *stand,
                               uint64_t cut, struct muster_error *ret_error)
{
    const struct muster_params_snapshot snapshot = snapshot_of(scene);
    struct muster_params_snapshot_manifest manifest;
    struct muster_params_schema schema;
    enum muster_rc rc;

    muster_params_table_schema(&stand->region.head->tables[0], &schema);
    rc = muster_params_snapshot_manifest_init(&manifest, snapshot.mem, &schema, 1, SHARDS,
                                              ret_error);
    assert_int_equal(rc, MUSTER_OK);
    manifest.cut = cut;
    for (uint32_t i = 0; i < SHARDS && rc == MUSTER_OK; i++)
        rc = muster_params_snapshot_save_shard(&snapshot, &stand->region, i, cut, NULL, NULL,
                                               &manifest.shards[i], ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_snapshot_sync(&snapshot, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_snapshot_save_manifest(&snapshot, &manifest, ret_error);
    muster_params_snapshot_manifest_fini(&manifest);
    return rc;
}

static enum muster_rc cut_restore(const struct scene *scene, struct region_stand *stand,
                                  struct muster_error *ret_error)
{
    const struct muster_params_snapshot snapshot = snapshot_of(scene);
    struct muster_params_snapshot_manifest manifest;
    enum muster_rc rc = muster_params_snapshot_open(&snapshot, &manifest, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_snapshot_restore(&snapshot, &manifest, &stand->region, NULL, NULL,
                                        ret_error);
    muster_params_snapshot_manifest_fini(&manifest);
    return rc;
}

/* Returns which cut the folder has, by its rows. */
static uint32_t check_folder(const struct scene *scene)
{
    struct muster_params_digest digest;
    struct muster_error error;
    struct region_stand stand;
    uint32_t cut = 1;

    region_stand_open(&stand, REGION_BYTES, SHARDS);
    if (cut_restore(scene, &stand, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    digest = digest_of(&stand.region);
    while (memcmp(&digest, &scene->digests[cut], sizeof(digest)) != 0)
        assert_true(++cut <= 2);
    region_stand_close(&stand);
    return cut;
}

/* Two cuts; the second may fail, and is saved again. */
static void run_cut(struct torture *torture, const void *data)
{
    struct muster_error error = {.text = ""};
    struct region_stand stand;
    struct scene scene;
    enum muster_rc rc = MUSTER_OK;

    (void)data;
    scene_open(&scene, torture);
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    for (uint64_t cut = 1; cut <= 2; cut++) {
        region_fill(&stand, cut);
        scene.digests[cut] = digest_of(&stand.region);
        if (cut == 2)
            torture_arm_calls(torture);
        rc = cut_save(&scene, &stand, cut, &error);
        assert_true(cut == 2 || rc == MUSTER_OK);
    }
    torture_disarm(torture);

    check_outcome(&scene, rc, &error);
    assert_true(check_folder(&scene) == 2 || rc != MUSTER_OK);
    assert_int_equal(cut_save(&scene, &stand, 2, &error), MUSTER_OK);
    assert_int_equal(check_folder(&scene), 2);
    assert_int_equal(count_files(&scene), FILES + SHARDS);
    region_stand_close(&stand);
    scene_close(&scene);
}

static void run_restore(struct torture *torture, const void *data)
{
    struct muster_error error = {.text = ""};
    struct region_stand stand;
    struct scene scene;
    enum muster_rc rc;

    (void)data;
    scene_open(&scene, torture);
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    region_fill(&stand, 1);
    scene.digests[1] = digest_of(&stand.region);
    assert_int_equal(cut_save(&scene, &stand, 1, &error), MUSTER_OK);
    region_stand_close(&stand);

    region_stand_open(&stand, REGION_BYTES, SHARDS);
    torture_arm_calls(torture);
    rc = cut_restore(&scene, &stand, &error);
    torture_disarm(torture);

    check_outcome(&scene, rc, &error);
    if (rc == MUSTER_OK) {
        const struct muster_params_digest digest = digest_of(&stand.region);

        assert_memory_equal(&digest, &scene.digests[1], sizeof(digest));
    }
    region_stand_close(&stand);
    assert_int_equal(check_folder(&scene), 1);
    assert_int_equal(count_files(&scene), FILES);
    scene_close(&scene);
}

/* --- A server --- */

static void row_push(struct params_stand *stand, struct muster_params_table *table)
{
    struct params_call call;

    params_call_push(&call, table, 7, params_stand_deadline(stand));
    assert_int_equal(params_call_await(&stand->test.env, &call), MUSTER_OK);
}

/* Some client or link may have gone meanwhile. */
static void cut_make_again(const struct scene *scene, struct params_stand *stand,
                           struct muster_params *params)
{
    struct muster_error error;
    enum muster_rc rc = MUSTER_UNAVAILABLE;

    for (unsigned i = 0; rc == MUSTER_UNAVAILABLE && i < AGAIN_MAX; i++) {
        rc = params_stand_cut(stand, params, scene->folder, &error);
        test_env_turn(&stand->test.env, TURNS);
    }
    if (rc != MUSTER_OK)
        fail_msg("%s", error.text);
}

/* The cut of a server that serves: a thread of it writes. */
static void run_server_cut(struct torture *torture, const void *data)
{
    struct muster_error error = {.text = ""};
    struct muster_params_table *table;
    struct muster_params *params;
    struct params_stand stand;
    struct scene scene;
    enum muster_rc rc = MUSTER_OK;

    (void)data;
    scene_open(&scene, torture);
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, "one");
    table = params_stand_table(&stand, params, &params_counters);
    for (uint64_t cut = 1; cut <= 2; cut++) {
        row_push(&stand, table);
        scene.digests[cut] = digest_of(stand.server->region);
        if (cut == 2)
            torture_arm_calls(torture);
        rc = params_stand_cut(&stand, params, scene.folder, &error);
        assert_true(cut == 2 || rc == MUSTER_OK);
    }
    torture_disarm(torture);

    assert_true(rc == MUSTER_OK || (torture->refused > 0 && error.text[0] != '\0'));
    assert_true(check_folder(&scene) == 2 || rc != MUSTER_OK);
    cut_make_again(&scene, &stand, params);
    assert_int_equal(check_folder(&scene), 2);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
    scene_close(&scene);
}

/* Its server is gone, and the memory is empty. */
static void seat_take(struct params_stand *stand)
{
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_error error;

    params_stand_kill(stand);
    memset(stand->memory, 0, stand->bytes);
    assert_int_equal(
        muster_params_seat_wrap(stand->memory, stand->bytes, &seat, &stand->seat, &error),
        MUSTER_OK);
}

static enum muster_rc server_restore(const struct scene *scene, struct params_stand *stand,
                                     struct muster_error *ret_error)
{
    struct muster_address address;
    const struct muster_params_server_options options = {
        .job = "test", .listen = &address, .seat = stand->seat, .restore = scene->folder};

    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, ret_error), MUSTER_OK);
    return muster_params_server_open(&stand->test.env, &options, &stand->server, ret_error);
}

/* A server that could not begin with a cut leaves its memory to one that can. */
static void run_server_restore(struct torture *torture, const void *data)
{
    struct muster_params_digest digest;
    struct muster_error error = {.text = ""};
    struct muster_params *params;
    struct params_stand stand;
    struct scene scene;
    enum muster_rc rc;

    (void)data;
    scene_open(&scene, torture);
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, "one");
    row_push(&stand, params_stand_table(&stand, params, &params_counters));
    cut_make_again(&scene, &stand, params);
    scene.digests[1] = digest_of(stand.server->region);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    seat_take(&stand);

    torture_arm_calls(torture);
    rc = server_restore(&scene, &stand, &error);
    torture_disarm(torture);

    check_outcome(&scene, rc, &error);
    if (rc != MUSTER_OK) {
        assert_null(stand.server);
        test_env_turn(&stand.test.env, TURNS); /* what was opened of it closes */
        if (server_restore(&scene, &stand, &error) != MUSTER_OK)
            fail_msg("%s", error.text);
    }
    digest = digest_of(stand.server->region);
    assert_memory_equal(&digest, &scene.digests[1], sizeof(digest));
    muster_params_server_set_data(stand.server, &stand);
    params_stand_close(&stand);
    scene_close(&scene);
}

static void a_cut_is_whole_or_the_one_before_whatever_call_fails(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {"cut", run_cut, NULL, TORTURE_CALL_VARIANTS, 0},
        {"restore", run_restore, NULL, TORTURE_CALL_VARIANTS, 0},
        {"server cut", run_server_cut, NULL, TORTURE_CALL_VARIANTS, RUNS_MAX},
        {"server restore", run_server_restore, NULL, TORTURE_CALL_VARIANTS, RUNS_MAX},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_cut_is_whole_or_the_one_before_whatever_call_fails,
                                  torture_tell),
    };

    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
