/* Cuts of a server: what a client asks for, and what others have to do with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "params_stand.h"
#include "region_stand.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/log.h>

#include "params/client/client_internal.h"
#include "params/server/core/server_internal.h"
#include "params/server/state/clock.h"
#include "params/server/state/cut.h"
#include "params/snapshot/snapshot.h"
#include "params/store/row.h"
#include "runtime/system/folder_system.h"

#define SHARDS 8u
#define ROWS   100u

static const struct muster_params_schema items = {.name = "items",
                                                  .row_elements = 2,
                                                  .wire_dtype = MUSTER_F32,
                                                  .optimizer = MUSTER_PARAMS_MOMENTUM};

struct call {
    struct muster_params_op op;
    struct muster_params_cut cut;
    bool is_done;
    enum muster_rc rc;
};

struct scene {
    struct params_stand stand;
    struct muster_params *params[2];
    struct muster_params_table *tables[2];
    char folder[64];
};

static void scene_open(struct scene *scene)
{
    static const char *const names[] = {"one", "other"};

    memset(scene, 0, sizeof(*scene));
    strcpy(scene->folder, "/tmp/params_cut.XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    params_stand_open(&scene->stand, SHARDS);
    for (uint32_t i = 0; i < 2; i++) {
        scene->params[i] = params_stand_client(&scene->stand, names[i]);
        scene->tables[i] = params_stand_table(&scene->stand, scene->params[i], &items);
    }
}

static void scene_close(struct scene *scene)
{
    char command[128];

    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(params_stand_leave(&scene->stand, scene->params[i]), MUSTER_OK);
    params_stand_close(&scene->stand);
    snprintf(command, sizeof(command), "rm -r %s", scene->folder);
    assert_int_equal(system(command), 0);
}

static void rows_push(struct scene *scene, uint32_t client)
{
    uint64_t keys[ROWS];
    float values[ROWS][2];
    struct muster_error error;

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        values[i][0] = (float)i;
        values[i][1] = (float)client;
    }
    assert_int_equal(
        params_stand_push(&scene->stand, scene->tables[client], keys, values, ROWS, &error),
        MUSTER_OK);
}

static void on_cut(struct muster_params_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->is_done = true;
    call->rc = rc;
}

static void cut_start(struct scene *scene, struct call *call, uint32_t client, const char *folder)
{
    *call = (struct call){.op = {.data = call}};
    assert_int_equal(muster_params_cut_start(&call->op, scene->params[client], folder, &call->cut,
                                             params_stand_deadline(&scene->stand), on_cut),
                     MUSTER_OK);
}

static enum muster_rc cut_await(struct scene *scene, struct call *call)
{
    test_env_run_until(&scene->stand.test.env, test_env_is_true, &call->is_done);
    return call->rc;
}

static struct muster_params_digest server_digest(const struct scene *scene)
{
    const struct muster_params_region *region = scene->stand.server->region;

    return muster_params_table_digest(region, muster_params_table_find(region, "items"));
}

/* The digest of the cut in the folder, in memory of its own. */
static struct muster_params_digest restored_digest(const struct scene *scene)
{
    const struct muster_params_snapshot snapshot = {.files = muster_files_system(),
                                                    .mem = careful_mem(),
                                                    .folder = scene->folder,
                                                    .sync_folder = muster_folder_sync};
    struct muster_params_snapshot_manifest manifest;
    struct muster_params_digest digest;
    struct region_stand region;
    struct muster_error error;

    region_stand_open(&region, MUSTER_PARAMS_REGION_BYTES_MIN, 2 * SHARDS);
    if (muster_params_snapshot_open(&snapshot, &manifest, &error) != MUSTER_OK ||
        muster_params_snapshot_restore(&snapshot, &manifest, &region.region, NULL, NULL, &error) !=
            MUSTER_OK)
        fail_msg("%s", error.text);
    digest = muster_params_table_digest(&region.region,
                                        muster_params_table_find(&region.region, "items"));
    muster_params_snapshot_manifest_fini(&manifest);
    region_stand_close(&region);
    return digest;
}

static void a_cut_has_the_rows_of_its_moment(void **state)
{
    struct muster_params_digest before, cut;
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    rows_push(&scene, 1);
    before = server_digest(&scene);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    rows_push(&scene, 0);

    cut = restored_digest(&scene);
    assert_memory_equal(&cut, &before, sizeof(cut));
    assert_int_equal(call.cut.rows, ROWS);
    assert_int_equal(call.cut.tables, 1);
    assert_int_equal(call.cut.shards, SHARDS);
    assert_int_equal(call.cut.servers, 1);
    scene_close(&scene);
}

/* The folder's cut becomes one of another job. */
static void cut_give_to(const struct scene *scene, const char *job)
{
    const struct muster_params_snapshot snapshot = {.files = muster_files_system(),
                                                    .mem = careful_mem(),
                                                    .folder = scene->folder,
                                                    .sync_folder = muster_folder_sync};
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;

    assert_int_equal(muster_params_snapshot_open(&snapshot, &manifest, &error), MUSTER_OK);
    assert_string_equal(manifest.job, "test");
    snprintf(manifest.job, sizeof(manifest.job), "%s", job);
    assert_int_equal(muster_params_snapshot_save_manifest(&snapshot, &manifest, &error), MUSTER_OK);
    muster_params_snapshot_manifest_fini(&manifest);
}

static void assert_cut_is_of(const struct scene *scene, const char *job)
{
    const struct muster_params_snapshot snapshot = {
        .files = muster_files_system(), .mem = careful_mem(), .folder = scene->folder};
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;

    assert_int_equal(muster_params_snapshot_open(&snapshot, &manifest, &error), MUSTER_OK);
    assert_string_equal(manifest.job, job);
    muster_params_snapshot_manifest_fini(&manifest);
}

static void a_folder_with_a_cut_of_another_job_is_refused(void **state)
{
    static const char *const jobs[] = {"other", ""};
    static const char *const texts[] = {"a cut of job other, not of job test",
                                        "a cut of a job without a name, not of job test"};
    struct scene scene;
    struct call call;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        scene_open(&scene);
        rows_push(&scene, 0);
        cut_start(&scene, &call, 0, scene.folder);
        assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
        cut_give_to(&scene, jobs[i]);

        assert_int_equal(muster_params_cut_start(&call.op, scene.params[0], scene.folder, &call.cut,
                                                 params_stand_deadline(&scene.stand), on_cut),
                         MUSTER_FAILED_PRECONDITION);
        assert_non_null(strstr(call.op.error.text, texts[i]));
        assert_non_null(strstr(call.op.error.text, "a folder of its own"));
        assert_cut_is_of(&scene, jobs[i]);
        scene_close(&scene);
    }
}

static void a_folder_that_another_job_takes_amid_the_cut_stays_its_own(void **state)
{
    char path[96], aside[96];
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    cut_give_to(&scene, "other");
    snprintf(path, sizeof(path), "%s/manifest", scene.folder);
    snprintf(aside, sizeof(aside), "%s/aside", scene.folder);
    assert_int_equal(rename(path, aside), 0);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(rename(aside, path), 0);

    assert_int_equal(cut_await(&scene, &call), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(call.op.error.text, "a cut of job other, not of job test"));
    assert_cut_is_of(&scene, "other");
    scene_close(&scene);
}

static uint32_t shards_saved(struct scene *scene, const char *folder)
{
    struct muster_params_digest before = server_digest(scene), cut;
    struct call call;

    cut_start(scene, &call, 0, folder);
    assert_int_equal(cut_await(scene, &call), MUSTER_OK);
    cut = restored_digest(scene);
    assert_memory_equal(&cut, &before, sizeof(cut));
    return call.cut.shards_saved;
}

static void a_second_cut_saves_what_has_changed(void **state)
{
    struct muster_error error;
    struct scene scene;
    uint64_t key = 7;
    float values[3] = {1, 2, 3};
    uint32_t count;
    char other[128];

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    assert_int_equal(shards_saved(&scene, scene.folder), SHARDS);
    assert_int_equal(shards_saved(&scene, scene.folder), 0);

    assert_int_equal(params_stand_push(&scene.stand, scene.tables[0], &key, values, 1, &error),
                     MUSTER_OK);
    assert_int_equal(shards_saved(&scene, scene.folder), 1);

    snprintf(other, sizeof(other), "rm %s/cut-*-shard-0001", scene.folder);
    assert_int_equal(system(other), 0);
    assert_int_equal(shards_saved(&scene, scene.folder), 1);

    params_stand_kill(&scene.stand); /* its successor does not know what has changed */
    params_stand_serve(&scene.stand);
    count = shards_saved(&scene, scene.folder);
    assert_int_equal(count, SHARDS);
    scene_close(&scene);
}

static bool is_frozen(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->region->freeze != NULL;
}

static void rows_that_change_while_they_are_saved_are_saved_as_they_were(void **state)
{
    struct muster_params_digest before, cut;
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    before = server_digest(&scene);
    cut_start(&scene, &call, 0, scene.folder);
    test_env_run_until(&scene.stand.test.env, is_frozen, &scene);
    rows_push(&scene, 1);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);

    cut = restored_digest(&scene);
    assert_memory_equal(&cut, &before, sizeof(cut));
    assert_null(scene.stand.server->region->freeze);
    scene_close(&scene);
}

static void one_cut_at_a_time(void **state)
{
    struct call first, second;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    cut_start(&scene, &first, 0, scene.folder);
    assert_int_equal(muster_params_cut_start(&second.op, scene.params[0], scene.folder, &second.cut,
                                             params_stand_deadline(&scene.stand), on_cut),
                     MUSTER_FAILED_PRECONDITION);
    test_env_run_until(&scene.stand.test.env, is_frozen, &scene);
    cut_start(&scene, &second, 1, scene.folder);

    if (cut_await(&scene, &second) != MUSTER_OK) { /* else the first one was faster */
        assert_int_equal(second.rc, MUSTER_FAILED_PRECONDITION);
        assert_non_null(strstr(second.op.error.text, "another cut is under way, of source one ("));
    }
    assert_int_equal(cut_await(&scene, &first), MUSTER_OK);
    cut_start(&scene, &second, 1, scene.folder);
    assert_int_equal(cut_await(&scene, &second), MUSTER_OK);
    scene_close(&scene);
}

static void a_folder_that_is_not_there_ends_the_cut_alone(void **state)
{
    struct scene scene;
    struct call call;
    char folder[80];

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    snprintf(folder, sizeof(folder), "%s/none", scene.folder);
    cut_start(&scene, &call, 0, folder);

    assert_int_not_equal(cut_await(&scene, &call), MUSTER_OK);
    assert_non_null(strstr(call.op.error.text, "/none/cut-"));
    assert_null(scene.stand.server->cut.asker);
    rows_push(&scene, 1);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    scene_close(&scene);
}

static void a_client_that_comes_amid_the_marks_ends_the_cut(void **state)
{
    struct muster_params *late;
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    scene.stand.server->cut.number = 1; /* as if another server had begun it */
    scene.stand.server->cut.error =
        (struct muster_error){.rc = MUSTER_UNAVAILABLE, .text = "shards have moved"};
    cut_start(&scene, &call, 0, scene.folder);
    test_env_turn(&scene.stand.test.env, 1);
    late = params_stand_client(&scene.stand, "late");
    (void)cut_await(&scene, &call);
    if (call.rc != MUSTER_OK) { /* it may have been complete before */
        assert_int_equal(call.rc, MUSTER_UNAVAILABLE);
        assert_non_null(strstr(call.op.error.text, "a client has connected amid the cut"));
    }
    assert_int_equal(params_stand_leave(&scene.stand, late), MUSTER_OK);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    scene_close(&scene);
}

static bool all_have_marked(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.number > 0 &&
           scene->stand.server->cut.state != MUSTER_PARAMS_CUT_MARKING;
}

/* Clients mark at all servers, but the client that began the cut asks only those that lead shards. */
static void a_server_without_shards_does_not_hold_up_the_next_cut(void **state)
{
    struct scene scene;
    struct call call;
    uint32_t place;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    place = scene.stand.server->place;
    scene.stand.server->place = MUSTER_PARAMS_NOWHERE;
    scene.params[0]->mark_wanted = 1;
    muster_params_marks_send(scene.params[0]);
    test_env_run_until(&scene.stand.test.env, all_have_marked, &scene);
    scene.stand.server->place = place;
    cut_start(&scene, &call, 0, scene.folder);

    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    rows_push(&scene, 1);
    scene_close(&scene);
}

static unsigned ended_count;

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    (void)log, (void)level, (void)wall_ns, (void)fields, (void)count;
    ended_count += strcmp(event, "params_cut_ended") == 0;
}

/* Cuts are begun again while a client is expected to come back. */
static void the_reason_of_cuts_that_are_begun_again_is_logged_once(void **state)
{
    static const struct muster_log_ops ops = {.write = on_log};
    struct muster_log log = {.ops = &ops, .level_max = MUSTER_LOG_WARN};
    struct muster_params_presence *presence;
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    scene.stand.test.env.log = &log;
    ended_count = 0;
    rows_push(&scene, 1);
    presence = muster_params_server_presence(scene.stand.server, 1);
    for (unsigned round = 1; round <= 2; round++) {
        presence->is_absent = true;
        scene.stand.server->absent_count++;
        for (unsigned i = 0; i < 3; i++) {
            cut_start(&scene, &call, 0, scene.folder);
            assert_int_equal(cut_await(&scene, &call), MUSTER_UNAVAILABLE);
        }
        presence->is_absent = false;
        scene.stand.server->absent_count--;
        cut_start(&scene, &call, 0, scene.folder);
        assert_int_equal(cut_await(&scene, &call), MUSTER_OK);

        assert_int_equal(ended_count, round);
    }
    scene.stand.test.env.log = NULL;
    scene_close(&scene);
}

static bool is_saving(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.state == MUSTER_PARAMS_CUT_SAVING;
}

/* The next part of the file was to be packed. */
static void a_cut_ends_when_its_client_goes_while_it_is_saved(void **state)
{
    struct muster_params_server_cut *cut;
    struct scene scene;
    struct call call, next;

    (void)state;
    scene_open(&scene);
    cut = &scene.stand.server->cut;
    rows_push(&scene, 0);
    cut_start(&scene, &call, 0, scene.folder);
    test_env_run_until(&scene.stand.test.env, is_saving, &scene);
    muster_params_server_cut_leave(cut->asker);

    assert_int_equal(cut->state, MUSTER_PARAMS_CUT_NONE);
    assert_null(cut->asker);
    test_env_turn(&scene.stand.test.env, 20);
    assert_false(call.is_done); /* nobody answers it: its client counts as gone */
    cut_start(&scene, &next, 1, scene.folder);
    assert_int_equal(cut_await(&scene, &next), MUSTER_OK);
    scene_close(&scene);
}

/* The files of its cut are looked for, and none is written yet. */
static bool is_about_to_pack(void *data)
{
    const struct scene *scene = data;

    return muster_task_is_posted(&scene->stand.server->cut.step);
}

static struct muster_params_client *link_find(const struct scene *scene, const char *name)
{
    MUSTER_LIST_EACH (&scene->stand.server->clients, client, struct muster_params_client, node)
        if (strcmp(client->name, name) == 0)
            return client;
    fail_msg("%s has no link", name);
    return NULL;
}

/* A server may hear of a client's new link before it hears that the one before is gone. */
static void a_source_that_asks_over_another_link_begins_its_cut_anew(void **state)
{
    struct muster_params_client *old, *young;
    uint64_t slot, generation;
    struct call first, again;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    old = link_find(&scene, "one");
    young = link_find(&scene, "other");
    slot = young->slot;
    generation = young->generation;
    cut_start(&scene, &first, 0, scene.folder);
    test_env_run_until(&scene.stand.test.env, is_about_to_pack, &scene);
    muster_task_cancel(&scene.stand.server->cut.step);
    young->slot = old->slot;
    young->generation = old->generation;
    cut_start(&scene, &again, 1, scene.folder);

    assert_int_equal(cut_await(&scene, &again), MUSTER_OK);
    assert_int_equal(cut_await(&scene, &first), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(first.op.error.text, "or has begun the cut anew"));
    young->slot = slot;
    young->generation = generation;
    scene_close(&scene);
}

static bool is_awaiting_its_asker(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.state == MUSTER_PARAMS_CUT_FROZEN;
}

/* Marks have told this server of it; the client that began it has not asked, and never will. */
static void foreign_cut_begin(struct scene *scene, uint64_t number)
{
    scene->params[0]->mark_wanted = number;
    muster_params_marks_send(scene->params[0]);
    test_env_run_until(&scene->stand.test.env, is_awaiting_its_asker, scene);
}

static void cut_give_up(struct scene *scene, uint64_t number)
{
    const struct muster_params_hold hold = {.number = number};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_HOLD,
                                               .payload_bytes = MUSTER_PARAMS_HOLD_BYTES};
    uint8_t payload[MUSTER_PARAMS_HOLD_BYTES];

    muster_params_hold_pack(&hold, payload);
    assert_int_equal(muster_peer_link_send_copy(scene->params[0]->only->link, &header, payload),
                     MUSTER_OK);
}

static void a_cut_that_nobody_has_asked_for_yet_is_waited_for(void **state)
{
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    foreign_cut_begin(&scene, 1);
    cut_start(&scene, &call, 1, scene.folder);

    assert_int_equal(cut_await(&scene, &call), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(call.op.error.text, "whose client has not asked this server yet"));
    scene_close(&scene);
}

static void a_cut_that_its_client_gives_up_is_in_nobodys_way(void **state)
{
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    foreign_cut_begin(&scene, 7);
    cut_give_up(&scene, 6); /* an earlier one */
    test_env_turn(&scene.stand.test.env, 20);
    assert_true(is_awaiting_its_asker(&scene));
    cut_give_up(&scene, 7);
    cut_start(&scene, &call, 0, scene.folder);

    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    scene_close(&scene);
}

/* Memory for the copies of rows that change meanwhile. */
static void run_marks(struct torture *torture, const void *data)
{
    struct scene scene;
    struct call call;

    (void)data;
    scene_open(&scene);
    rows_push(&scene, 0);
    cut_start(&scene, &call, 0, scene.folder);
    while (scene.stand.server->cut.state != MUSTER_PARAMS_CUT_MARKING ||
           scene.stand.server->cut.awaited > 0)
        test_env_turn(&scene.stand.test.env, 1);
    torture_arm_limited(torture, &scene.stand.test.mem);
    test_env_turn(&scene.stand.test.env, 1);
    torture_disarm(torture);
    if (cut_await(&scene, &call) != MUSTER_OK) {
        assert_true(torture->refused > 0);
        assert_int_equal(call.rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(call.op.error.text, "no memory "));
    }
    rows_push(&scene, 1);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    scene_close(&scene);
}

static void a_cut_without_memory_says_so(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "marks", .run = run_marks});
}

static void a_server_that_dies_amid_the_cut_ends_it_with_its_reason(void **state)
{
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    cut_start(&scene, &call, 0, scene.folder);
    test_env_run_until(&scene.stand.test.env, is_frozen, &scene);
    params_stand_kill(&scene.stand);
    params_stand_serve(&scene.stand);

    (void)cut_await(&scene, &call); /* it is asked again over the next link, and may be made then */
    rows_push(&scene, 1);
    cut_start(&scene, &call, 0, scene.folder);
    assert_int_equal(cut_await(&scene, &call), MUSTER_OK);
    scene_close(&scene);
}

/* Its clients have marked at the process that dies, and mark no more for that number. */
static void a_cut_that_is_repeated_goes_on_at_the_next_process(void **state)
{
    struct call call = {.op = {.data = &call}};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    rows_push(&scene, 0);
    assert_int_equal(muster_params_cut_at_start(&call.op, scene.params[0], scene.folder, 0,
                                                &call.cut, params_stand_deadline(&scene.stand),
                                                on_cut),
                     MUSTER_OK);
    test_env_run_until(&scene.stand.test.env, is_about_to_pack, &scene);
    params_stand_kill(&scene.stand);
    params_stand_serve(&scene.stand);

    if (cut_await(&scene, &call) != MUSTER_OK)
        fail_msg("%s", call.op.error.text);
    assert_int_equal(call.cut.rows, ROWS);
    scene_close(&scene);
}

static bool is_marking(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.state == MUSTER_PARAMS_CUT_MARKING;
}

static bool is_over(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.state == MUSTER_PARAMS_CUT_NONE;
}

/* The mark of a client was under way when the server's process died; the asker has marked there. */
static void a_cut_of_the_process_before_ends_at_once(void **state)
{
    const struct {
        uint64_t number;
        char folder[8];
    } payload = {.number = 5, .folder = "/folder"};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_CUT,
                                               .flags = MUSTER_PARAMS_CUT_AGAIN,
                                               .payload_bytes = sizeof(payload) - 1};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    scene.params[0]->mark_wanted = scene.params[0]->marked = payload.number;
    scene.params[1]->mark_wanted = payload.number;
    muster_params_marks_send(scene.params[1]);
    test_env_run_until(&scene.stand.test.env, is_marking, &scene);
    assert_int_equal(muster_peer_link_send_copy(scene.params[0]->only->link, &header, &payload),
                     MUSTER_OK);
    test_env_run_until(&scene.stand.test.env, is_over, &scene);

    assert_string_equal(scene.stand.server->cut.error.text,
                        "the connection was lost amid the cut, or the server's process has ended");
    assert_int_equal(scene.stand.server->cut.error.rc, MUSTER_UNAVAILABLE);
    scene_close(&scene);
}

static void wrong_folders_are_refused_at_once(void **state)
{
    char folder[MUSTER_PARAMS_FOLDER_BYTES_MAX + 2];
    struct scene scene;
    struct call call;

    (void)state;
    scene_open(&scene);
    memset(folder, 'a', sizeof(folder));
    folder[sizeof(folder) - 1] = '\0';
    for (int i = 0; i < 3; i++) {
        const char *const folders[] = {"", folder, "cuts"};

        assert_int_equal(muster_params_cut_start(&call.op, scene.params[0], folders[i], &call.cut,
                                                 params_stand_deadline(&scene.stand), on_cut),
                         MUSTER_INVALID_ARGUMENT);
    }
    assert_non_null(strstr(call.op.error.text, "must begin with /, got cuts"));
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_has_the_rows_of_its_moment),
        cmocka_unit_test(a_second_cut_saves_what_has_changed),
        cmocka_unit_test(a_folder_with_a_cut_of_another_job_is_refused),
        cmocka_unit_test(a_folder_that_another_job_takes_amid_the_cut_stays_its_own),
        cmocka_unit_test(rows_that_change_while_they_are_saved_are_saved_as_they_were),
        cmocka_unit_test(one_cut_at_a_time),
        cmocka_unit_test(a_folder_that_is_not_there_ends_the_cut_alone),
        cmocka_unit_test(a_client_that_comes_amid_the_marks_ends_the_cut),
        cmocka_unit_test(the_reason_of_cuts_that_are_begun_again_is_logged_once),
        cmocka_unit_test(a_server_without_shards_does_not_hold_up_the_next_cut),
        cmocka_unit_test(a_cut_ends_when_its_client_goes_while_it_is_saved),
        cmocka_unit_test(a_source_that_asks_over_another_link_begins_its_cut_anew),
        cmocka_unit_test(a_cut_that_nobody_has_asked_for_yet_is_waited_for),
        cmocka_unit_test(a_cut_that_its_client_gives_up_is_in_nobodys_way),
        cmocka_unit_test_teardown(a_cut_without_memory_says_so, torture_tell),
        cmocka_unit_test(a_server_that_dies_amid_the_cut_ends_it_with_its_reason),
        cmocka_unit_test(a_cut_that_is_repeated_goes_on_at_the_next_process),
        cmocka_unit_test(a_cut_of_the_process_before_ends_at_once),
        cmocka_unit_test(wrong_folders_are_refused_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
