/* Each allocation fails in turn while a server is cut, and while another is restored from it: a cut is whole or it
 * is not one, and a server has all of its rows or does not open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "careful_mem.h"
#include "params_calls.h"
#include "params_stand.h"
#include "region_stand.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "params/server/core/server_internal.h"
#include "params/snapshot/snapshot.h"
#include "params/store/row.h"
#include "runtime/system/folder_system.h"

#define RUNS_MAX  60
#define SHARDS    4u
#define ROWS      20u
#define TURNS_MAX 100 /* of a millisecond, at most: files are written meanwhile */

struct scene {
    struct torture *torture;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_digest digest; /* of the server's rows */
    char folder[64];
};

static void rows_push(struct scene *scene)
{
    uint64_t keys[ROWS];
    float ones[ROWS];
    struct muster_error error;

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    assert_int_equal(params_stand_push(&scene->stand, scene->table, keys, ones, ROWS, &error),
                     MUSTER_OK);
}

static struct muster_params_digest digest_of(const struct muster_params_region *region)
{
    const struct muster_params_store_table *table =
        muster_params_table_find(region, params_counters.name);

    assert_non_null(table);
    return muster_params_table_digest(region, table);
}

static void scene_open(struct scene *scene, struct torture *torture)
{
    memset(scene, 0, sizeof(*scene));
    scene->torture = torture;
    strcpy(scene->folder, "/tmp/params_cut.XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    params_stand_open(&scene->stand, SHARDS);
    scene->params = params_stand_client(&scene->stand, "one");
    scene->table = params_stand_table(&scene->stand, scene->params, &params_counters);
    rows_push(scene);
    scene->digest = digest_of(scene->stand.server->region);
}

static void scene_close(struct scene *scene)
{
    char command[128];

    assert_int_equal(params_stand_leave(&scene->stand, scene->params), MUSTER_OK);
    params_stand_close(&scene->stand);
    snprintf(command, sizeof(command), "rm -r %s", scene->folder);
    assert_int_equal(system(command), 0);
}

/* --- Cuts --- */

static bool is_cut_over(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.state == MUSTER_PARAMS_CUT_NONE &&
           scene->stand.server->cut.copies == NULL;
}

/* A link that ends for want of memory ends the cut. */
static bool is_hunger(const struct scene *scene, enum muster_rc rc)
{
    return scene->torture->refused > 0 &&
           (rc == MUSTER_RESOURCE_EXHAUSTED || rc == MUSTER_UNAVAILABLE);
}

static enum muster_rc cut_make(struct scene *scene)
{
    struct params_call call = {.op = {.data = &call}};
    struct muster_params_cut cut;
    enum muster_rc rc;

    rc = muster_params_cut_start(&call.op, scene->params, scene->folder, &cut,
                                 params_stand_deadline(&scene->stand), params_on_call);
    if (rc == MUSTER_OK) {
        for (unsigned i = 0; i < TURNS_MAX && !call.is_done && scene->torture->is_armed; i++)
            muster_loop_turn(scene->stand.test.env.loop, MUSTER_NS_PER_MS);
        torture_disarm(scene->torture);
        rc = params_call_await(&scene->stand.test.env, &call);
    }
    torture_disarm(scene->torture);
    test_env_run_until(&scene->stand.test.env, is_cut_over, scene);
    if (rc != MUSTER_OK && !is_hunger(scene, rc))
        fail_msg("%s: %s", muster_rc_name(rc), call.op.error.text);
    return rc;
}

/* False: there is no cut in the folder. */
static bool cut_is_whole(const struct scene *scene)
{
    const struct muster_params_snapshot snapshot = {.files = muster_files_system(),
                                                    .mem = careful_mem(),
                                                    .folder = scene->folder,
                                                    .sync_folder = muster_folder_sync};
    struct muster_params_snapshot_manifest manifest;
    struct muster_params_digest digest;
    struct region_stand region;
    struct muster_error error;
    enum muster_rc rc = muster_params_snapshot_open(&snapshot, &manifest, &error);

    if (rc == MUSTER_NOT_FOUND)
        return false;
    assert_int_equal(rc, MUSTER_OK);
    region_stand_open(&region, MUSTER_PARAMS_REGION_BYTES_MIN, SHARDS);
    assert_int_equal(
        muster_params_snapshot_restore(&snapshot, &manifest, &region.region, NULL, NULL, &error),
        MUSTER_OK);
    digest = digest_of(&region.region);
    assert_memory_equal(&digest, &scene->digest, sizeof(digest));
    muster_params_snapshot_manifest_fini(&manifest);
    region_stand_close(&region);
    return true;
}

static void run_cut(struct torture *torture, const void *data)
{
    struct scene scene;
    enum muster_rc rc;

    (void)data;
    scene_open(&scene, torture);
    torture_arm_limited(torture, &scene.stand.test.mem);
    rc = cut_make(&scene);
    if (rc == MUSTER_OK)
        assert_true(cut_is_whole(&scene));
    else
        (void)cut_is_whole(&scene);
    assert_null(scene.stand.server->region->freeze);

    rows_push(&scene);
    scene.digest = digest_of(scene.stand.server->region);
    assert_int_equal(cut_make(&scene), MUSTER_OK);
    assert_true(cut_is_whole(&scene));
    scene_close(&scene);
}

/* --- Restoring --- */

struct other {
    struct muster_params_seat *seat;
    uint8_t *memory;
    struct muster_params_server *server;
    bool is_closed;
};

static void on_other_closed(struct muster_params_server *server)
{
    ((struct other *)muster_params_server_data(server))->is_closed = true;
}

/* A server of its own in fresh memory, with the rows of the cut. */
static enum muster_rc other_open(struct scene *scene, struct other *other)
{
    struct muster_address address;
    const struct muster_params_server_options options = {
        .job = "test", .listen = &address, .seat = other->seat, .restore = scene->folder};
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, &error), MUSTER_OK);
    rc = muster_params_server_open(&scene->stand.test.env, &options, &other->server, &error);
    torture_disarm(scene->torture);
    if (rc != MUSTER_OK && (scene->torture->refused == 0 || rc != MUSTER_RESOURCE_EXHAUSTED))
        fail_msg("%s: %s", muster_rc_name(rc), error.text);
    assert_true(rc == MUSTER_OK || error.text[0] != '\0');
    return rc;
}

static void other_prepare(struct other *other)
{
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_error error;

    *other = (struct other){.is_closed = false};
    other->memory = mmap(NULL, MUSTER_PARAMS_REGION_BYTES_MIN, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(other->memory != MAP_FAILED);
    assert_int_equal(muster_params_seat_wrap(other->memory, MUSTER_PARAMS_REGION_BYTES_MIN, &seat,
                                             &other->seat, &error),
                     MUSTER_OK);
}

static void other_end(struct other *other)
{
    muster_params_seat_free(other->seat);
    munmap(other->memory, MUSTER_PARAMS_REGION_BYTES_MIN);
}

static void run_restore(struct torture *torture, const void *data)
{
    struct muster_params_digest digest;
    struct scene scene;
    struct other other;

    (void)data;
    scene_open(&scene, torture);
    assert_int_equal(cut_make(&scene), MUSTER_OK);
    other_prepare(&other);
    torture_arm_limited(torture, &scene.stand.test.mem);
    if (other_open(&scene, &other) != MUSTER_OK) {
        other_end(&other); /* what was restored is in its memory */
        other_prepare(&other);
        assert_int_equal(other_open(&scene, &other), MUSTER_OK);
    }
    muster_params_server_set_data(other.server, &other);
    digest = digest_of(other.server->region);
    assert_memory_equal(&digest, &scene.digest, sizeof(digest));
    muster_params_server_close(other.server, on_other_closed);
    test_env_run_until(&scene.stand.test.env, test_env_is_true, &other.is_closed);
    other_end(&other);
    scene_close(&scene);
}

static void each_allocation_of_a_cut_may_fail(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {.name = "cut", .run = run_cut, .runs_max = RUNS_MAX},
        {.name = "restore", .run = run_restore, .runs_max = RUNS_MAX},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_allocation_of_a_cut_may_fail, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
