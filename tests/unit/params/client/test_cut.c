/* A cut that a program asks for, before servers that the case plays: what they answer must fit together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_manifest.h"
#include "params_puppet_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/system/folder_system.h"

#define SERVERS 2u
#define FOLDER  "/tmp/params_client_cut.none" /* nothing is written there */

struct cut_call {
    struct params_call call;
    struct muster_params_cut cut;
};

static void cut_begin_in(struct params_puppets *puppets, struct cut_call *cut, const char *folder)
{
    *cut = (struct cut_call){.call = {.op = {.data = &cut->call}}};
    assert_int_equal(muster_params_cut_start(&cut->call.op, puppets->params, folder, &cut->cut,
                                             puppet_deadline(puppets), params_on_call),
                     MUSTER_OK);
}

static void cut_begin(struct params_puppets *puppets, struct cut_call *cut)
{
    cut_begin_in(puppets, cut, FOLDER);
}

/* The same, begun again where it ends UNAVAILABLE. */
static void cut_begin_again(struct params_puppets *puppets, struct cut_call *cut,
                            const char *folder)
{
    *cut = (struct cut_call){.call = {.op = {.data = &cut->call}}};
    assert_int_equal(muster_params_cut_at_start(&cut->call.op, puppets->params, folder, 0,
                                                &cut->cut, puppet_deadline(puppets),
                                                params_on_call),
                     MUSTER_OK);
}

/* Servers hear that the attempt of this number is over: none of them waits to be asked for it. */
static void end_expect(struct params_puppet *puppet, uint64_t number)
{
    struct params_puppet_frame frame = params_puppet_expect(puppet, MUSTER_PARAMS_HOLD);
    struct muster_params_hold hold;
    struct muster_error error;

    assert_int_equal(
        muster_params_hold_unpack(frame.payload, frame.header.payload_bytes, &hold, &error),
        MUSTER_OK);
    assert_int_equal(hold.clock, 0);
    assert_int_equal(hold.number, number);
}

/* Returns the request of a server, whose number of the cut goes to *ret_number. */
static struct params_puppet_frame cut_expect(struct params_puppet *puppet, uint64_t *ret_number)
{
    struct params_puppet_frame frame = params_puppet_expect(puppet, MUSTER_PARAMS_CUT);

    assert_true(frame.header.payload_bytes > sizeof(*ret_number));
    memcpy(ret_number, frame.payload, sizeof(*ret_number));
    return frame;
}

/* The server has saved its half of the shards, of this table first. */
static void saved_send(struct params_puppet *puppet, const struct params_puppet_frame *frame,
                       const struct muster_params_saved *saved, const char *table)
{
    struct muster_params_schema schema = {
        .name = table, .row_elements = 1, .wire_dtype = MUSTER_F32};
    size_t bytes = muster_params_saved_bytes(saved->table_count, saved->entry_count);
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_SAVED,
                                               .offset = frame->header.offset,
                                               .payload_bytes = (uint32_t)bytes};
    struct muster_params_saved_shard *entries;
    uint8_t *payload = calloc(1, bytes), *schemas;

    muster_params_saved_pack(saved, payload, &schemas, &entries);
    for (uint32_t i = 0; i < saved->table_count; i++) {
        muster_params_schema_pack(&schema, schemas + (size_t)i * MUSTER_PARAMS_SCHEMA_BYTES);
        schema.name = "another";
    }
    for (uint32_t i = 0; i < saved->entry_count; i++)
        entries[i] = (struct muster_params_saved_shard){
            .shard = puppet->index * (PARAMS_PUPPETS_SHARDS / SERVERS) + i,
            .cut = saved->number,
            .rows = 1};
    params_puppet_send(puppet, &header, payload);
    free(payload);
}

static void answers_that_do_not_fit_make_no_cut(void **state)
{
    static const struct {
        const char *name;
        struct muster_params_saved saved; /* of the second server, beside number and map 1 */
        uint64_t number;                  /* more than the number that was asked */
        const char *table;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"a table without a name",
         {.map = 1, .table_count = 2},
         0,
         "a\x01",
         MUSTER_INVALID_ARGUMENT,
         "malformed name"},
        {"another cut",
         {.map = 1, .table_count = 1},
         1,
         "counters",
         MUSTER_INTERNAL,
         "has saved another cut"},
        {"another map",
         {.map = 2, .table_count = 1},
         0,
         "counters",
         MUSTER_UNAVAILABLE,
         "servers follow maps 2 and 1"},
        {"not all shards",
         {.map = 1, .table_count = 1, .entry_count = 3},
         0,
         "counters",
         MUSTER_UNAVAILABLE,
         "nobody has saved shard 7"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_puppets puppets;
        struct cut_call cut;

        puppet_scene_init(&puppets, SERVERS);
        cut_begin(&puppets, &cut);
        for (uint32_t server = 0; server < SERVERS; server++) {
            struct muster_params_saved saved = {
                .map = 1, .table_count = 1, .entry_count = PARAMS_PUPPETS_SHARDS / SERVERS};
            struct params_puppet_frame frame = cut_expect(&puppets.list[server], &saved.number);

            assert_memory_equal(frame.payload + sizeof(saved.number), FOLDER, strlen(FOLDER));
            if (server == 1) {
                uint64_t number = saved.number + rows[i].number;

                saved = rows[i].saved;
                saved.number = number;
            }
            saved.shard_count = PARAMS_PUPPETS_SHARDS;
            saved_send(&puppets.list[server], &frame, &saved,
                       server == 1 ? rows[i].table : "counters");
        }
        if (puppet_call_await(&puppets, &cut.call) != rows[i].rc ||
            strstr(cut.call.op.error.text, rows[i].text) == NULL)
            fail_msg("%s: %d %s", rows[i].name, (int)cut.call.rc, cut.call.op.error.text);
        assert_int_equal(cut.cut.rows, 0);
        puppet_scene_close(&puppets);
    }
}

/* The first answer is malformed, so that there is nothing to fit the second one to. */
static void a_table_without_a_name_makes_no_cut(void **state)
{
    struct params_puppets puppets;
    struct cut_call cut;

    (void)state;
    puppet_scene_init(&puppets, SERVERS);
    cut_begin(&puppets, &cut);
    for (uint32_t server = 0; server < SERVERS; server++) {
        struct muster_params_saved saved = {.map = 1,
                                            .table_count = 1,
                                            .shard_count = PARAMS_PUPPETS_SHARDS,
                                            .entry_count = PARAMS_PUPPETS_SHARDS / SERVERS};
        struct params_puppet_frame frame = cut_expect(&puppets.list[server], &saved.number);

        saved_send(&puppets.list[server], &frame, &saved, "a\x01");
    }
    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(cut.call.op.error.text, "malformed name"));
    puppet_scene_close(&puppets);
}

/* --- Attempts --- */

/* before: the number of the attempt before, 0: none. Returns this one's. */
static uint64_t servers_refuse(struct params_puppets *puppets, uint64_t before, enum muster_rc rc)
{
    uint64_t number = 0;

    for (uint32_t server = 0; server < SERVERS; server++) {
        struct params_puppet_frame frame;

        if (before != 0)
            end_expect(&puppets->list[server], before);
        frame = cut_expect(&puppets->list[server], &number);
        params_puppet_refuse(&puppets->list[server], &frame, rc, "the case refuses it");
    }
    return number;
}

/* The first one pauses between two attempts. */
static void a_cut_that_is_begun_again_is_not_ended_by_another_one(void **state)
{
    struct params_puppets puppets;
    struct muster_params_cut other;
    struct params_call second = {.is_done = false};
    struct cut_call cut;
    uint64_t number = 0;

    (void)state;
    puppet_scene_init(&puppets, SERVERS);
    cut_begin_again(&puppets, &cut, FOLDER);
    for (uint32_t attempt = 0; attempt < 3; attempt++) {
        number = servers_refuse(&puppets, number, MUSTER_UNAVAILABLE);
        test_env_turn(puppets.env, 20);
        assert_int_equal(muster_params_cut_start(&second.op, puppets.params, "/nowhere", &other,
                                                 UINT64_MAX, params_on_call),
                         MUSTER_FAILED_PRECONDITION);
        assert_string_equal(second.op.error.text, "this client makes another cut already");
    }
    number = servers_refuse(&puppets, number, MUSTER_PERMISSION_DENIED);

    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_PERMISSION_DENIED);
    for (uint32_t server = 0; server < SERVERS; server++)
        end_expect(&puppets.list[server], number);
    puppet_scene_close(&puppets);
}

/* The client marks nowhere while it is not connected to one of them, and servers that were asked end the cut then. */
static void a_cut_that_is_begun_again_waits_for_all_servers(void **state)
{
    struct params_puppets puppets;
    struct cut_call cut;

    (void)state;
    puppet_scene_init(&puppets, SERVERS);
    params_puppet_hang_up(&puppets.list[1]);
    (void)params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_OPEN);
    cut_begin_again(&puppets, &cut, FOLDER);
    puppet_quiet_expect(&puppets, 0);
    params_puppet_opened(&puppets.list[1], 11, 1, 1);
    for (uint32_t server = 0; server < SERVERS; server++)
        (void)params_puppet_expect(&puppets.list[server], MUSTER_PARAMS_HOLD);
    servers_refuse(&puppets, 0, MUSTER_PERMISSION_DENIED);

    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_PERMISSION_DENIED);
    puppet_scene_close(&puppets);
}

/* Clients have marked for it, perhaps at another process of the server, and mark once. */
static void a_request_that_is_sent_again_says_so(void **state)
{
    struct params_puppets puppets;
    struct params_puppet_frame frame;
    struct cut_call cut;
    uint64_t number, again;

    (void)state;
    puppet_scene_init(&puppets, SERVERS);
    cut_begin(&puppets, &cut);
    frame = cut_expect(&puppets.list[1], &number);
    assert_int_equal(frame.header.flags, 0);
    params_puppet_hang_up(&puppets.list[1]);
    (void)params_puppet_expect(&puppets.list[1], MUSTER_PARAMS_OPEN);
    params_puppet_opened(&puppets.list[1], 11, 1, 1);
    frame = cut_expect(&puppets.list[1], &again);
    assert_int_equal(frame.header.flags, MUSTER_PARAMS_CUT_AGAIN);
    assert_int_equal(again, number);
    params_puppet_refuse(&puppets.list[1], &frame, MUSTER_UNAVAILABLE, "it has ended");
    frame = cut_expect(&puppets.list[0], &number);
    params_puppet_refuse(&puppets.list[0], &frame, MUSTER_UNAVAILABLE, "it has ended");

    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_UNAVAILABLE);
    puppet_scene_close(&puppets);
}

/* --- Files --- */

static void file_make(const char *folder, uint64_t cut, char path[256])
{
    FILE *file;

    snprintf(path, 256, "%s/cut-%" PRIu64 "-shard-0000", folder, cut);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

/* Each attempt has left a file of the first server. */
static void files_of_a_cut_that_fails_are_removed(void **state)
{
    char folder[] = "/tmp/muster-cut-XXXXXX", paths[3][256];
    struct params_puppets puppets;
    struct cut_call cut;
    uint64_t number = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    file_make(folder, 1, paths[2]); /* of somebody else */
    puppet_scene_init(&puppets, SERVERS);
    cut_begin_again(&puppets, &cut, folder);
    for (uint32_t attempt = 0; attempt < 2; attempt++) {
        uint64_t before = number;

        for (uint32_t server = 0; server < SERVERS; server++) {
            struct params_puppet_frame frame;

            if (before != 0)
                end_expect(&puppets.list[server], before);
            frame = cut_expect(&puppets.list[server], &number);
            if (server == 0)
                file_make(folder, number, paths[attempt]);
            params_puppet_refuse(&puppets.list[server], &frame,
                                 attempt == 0 ? MUSTER_UNAVAILABLE : MUSTER_INTERNAL, "no");
        }
        if (attempt == 0) /* the next attempt may name it */
            assert_int_equal(access(paths[0], F_OK), 0);
    }

    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_INTERNAL);
    assert_int_not_equal(access(paths[0], F_OK), 0);
    assert_int_not_equal(access(paths[1], F_OK), 0);
    assert_int_equal(unlink(paths[2]), 0);
    assert_int_equal(rmdir(folder), 0);
    puppet_scene_close(&puppets);
}

/* Two servers save a cut, which needs nothing but its manifest then. */
static void servers_save(struct params_puppets *puppets)
{
    for (uint32_t server = 0; server < SERVERS; server++) {
        struct muster_params_saved saved = {.map = 1,
                                            .table_count = 1,
                                            .shard_count = PARAMS_PUPPETS_SHARDS,
                                            .entry_count = PARAMS_PUPPETS_SHARDS / SERVERS};
        struct params_puppet_frame frame = cut_expect(&puppets->list[server], &saved.number);

        saved_send(&puppets->list[server], &frame, &saved, "counters");
    }
}

/* The files of the system, but another client tries to sweep the folder before each write. */
struct watched_files {
    struct muster_files files;
    const char *folder;
    unsigned write_count, sweep_count; /* sweeps that could begin */
};

static enum muster_rc watched_read(struct muster_files *files, struct muster_mem *mem,
                                   const char *path, size_t limit_bytes, char **ret_text,
                                   size_t *ret_bytes)
{
    (void)files;
    return muster_files_read(muster_files_system(), mem, path, limit_bytes, ret_text, ret_bytes);
}

static enum muster_rc watched_write(struct muster_files *files, const char *path, const void *bytes,
                                    size_t count)
{
    struct watched_files *watched = (struct watched_files *)files;
    char lock[256];
    int hold;

    snprintf(lock, sizeof(lock), "%s/lock", watched->folder);
    watched->write_count++;
    if (muster_file_hold_alone(lock, &hold) == MUSTER_OK) {
        watched->sweep_count++;
        muster_file_release(hold);
    }
    return muster_files_write(muster_files_system(), path, bytes, count);
}

static void nobody_may_sweep_the_folder_while_a_manifest_is_written(void **state)
{
    static const struct muster_files_ops ops = {.read = watched_read, .write = watched_write};
    char folder[] = "/tmp/muster-cut-XXXXXX", path[256];
    struct watched_files watched = {.files = {.ops = &ops}, .folder = folder};
    struct params_puppets puppets;
    struct cut_call cut;

    (void)state;
    assert_non_null(mkdtemp(folder));
    puppet_scene_init(&puppets, SERVERS);
    puppets.env->files = &watched.files;
    cut_begin_again(&puppets, &cut, folder);
    servers_save(&puppets);
    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_OK);

    assert_int_equal(watched.write_count, 1);
    assert_int_equal(watched.sweep_count, 0);
    snprintf(path, sizeof(path), "%s/manifest", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* the lock is gone */
    puppet_scene_close(&puppets);
}

/* The process that deletes files may have been stopped: the loop goes on, and the cut ends at its deadline. */
static void a_folder_that_somebody_sweeps_is_waited_for_without_a_stop(void **state)
{
    char folder[] = "/tmp/muster-cut-XXXXXX", path[256];
    struct params_puppets puppets;
    struct cut_call cut;
    int hold;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/lock", folder);
    assert_int_equal(muster_file_hold_alone(path, &hold), MUSTER_OK);
    puppet_scene_init(&puppets, SERVERS);
    cut_begin_in(&puppets, &cut, folder);
    servers_save(&puppets);
    test_env_turn(puppets.env, 60);
    assert_false(cut.call.is_done);

    muster_file_release_last(hold, path);

    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_OK);
    snprintf(path, sizeof(path), "%s/manifest", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    puppet_scene_close(&puppets);
}

/* Another client has made that one, and has removed all files that no manifest named. */
static void a_cut_whose_files_a_newer_one_has_removed_is_none(void **state)
{
    char folder[] = "/tmp/muster-cut-XXXXXX", path[256];
    struct params_puppets puppets;
    struct cut_call cut;

    (void)state;
    assert_non_null(mkdtemp(folder));
    puppet_scene_init(&puppets, SERVERS);
    cut_begin_in(&puppets, &cut, folder);
    params_manifest_save(folder, "test", PARAMS_PUPPETS_SHARDS, UINT64_MAX);
    servers_save(&puppets);

    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_UNAVAILABLE);

    assert_non_null(strstr(cut.call.op.error.text, " is gone: another cut has removed it"));
    snprintf(path, sizeof(path), "%s/manifest", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_do_not_fit_make_no_cut),
        cmocka_unit_test(a_table_without_a_name_makes_no_cut),
        cmocka_unit_test(a_cut_that_is_begun_again_is_not_ended_by_another_one),
        cmocka_unit_test(a_cut_that_is_begun_again_waits_for_all_servers),
        cmocka_unit_test(a_request_that_is_sent_again_says_so),
        cmocka_unit_test(files_of_a_cut_that_fails_are_removed),
        cmocka_unit_test(nobody_may_sweep_the_folder_while_a_manifest_is_written),
        cmocka_unit_test(a_folder_that_somebody_sweeps_is_waited_for_without_a_stop),
        cmocka_unit_test(a_cut_whose_files_a_newer_one_has_removed_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
