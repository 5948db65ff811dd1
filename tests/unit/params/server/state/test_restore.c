/* Servers that begin with the files of a cut: alone, and those of a job with the shards that they get. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_calls.h"
#include "params_job.h"
#include "scene_case.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <muster/log.h>

#include "params/server/core/server_internal.h"
#include "params/server/seat/seat.h"
#include "params/snapshot/snapshot.h"
#include "params/store/row.h"

#define ROWS 100u

/* A cut in a folder, of a server that is gone. */
struct scene {
    char folder[64];
    struct muster_params_digest digest; /* of the table, of 1 value each: its key and 1 */
};

static void rows_push(struct params_stand *stand, struct muster_params_table *table)
{
    uint64_t keys[ROWS];
    float values[ROWS];
    struct muster_error error;

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        values[i] = (float)i + 1;
    }
    if (params_stand_push(stand, table, keys, values, ROWS, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static struct muster_params_digest server_digest(const struct muster_params_server *server)
{
    const struct muster_params_store_table *table =
        muster_params_table_find(server->region, params_counters.name);

    assert_non_null(table);
    return muster_params_table_digest(server->region, table);
}

static void scene_open(struct scene *scene)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    strcpy(scene->folder, "/tmp/params_restore.XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    params_stand_open(&stand, PARAMS_CALLER_SHARDS);
    params = params_stand_client(&stand, "one");
    rows_push(&stand, params_stand_table(&stand, params, &params_counters));
    if (params_stand_cut(&stand, params, scene->folder, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    scene->digest = server_digest(stand.server);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

static void scene_close(struct scene *scene)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", scene->folder);
    assert_int_equal(system(command), 0);
}

SCENE_CASES(struct scene, scene_open, scene_close)

/* In the middle of the file of the last shard, or all of it. */
static void shard_damage(const struct scene *scene)
{
    char command[256];

    snprintf(command, sizeof(command),
             "for f in $(find %s -name '*shard*' -type f); do truncate -s -1 $f; done",
             scene->folder);
    assert_int_equal(system(command), 0);
}

/* The file of one shard. */
static void file_move(const struct scene *scene, const char *from, const char *to)
{
    char command[256];

    snprintf(command, sizeof(command), "cd %s && for f in *-shard-*%s; do mv $f ${f%%%s}%s; done",
             scene->folder, from, from, to);
    assert_int_equal(system(command), 0);
}

/* --- A server that is alone --- */

static enum muster_rc alone_open(struct params_stand *stand, const char *folder,
                                 struct muster_error *ret_error)
{
    struct muster_address address;
    const struct muster_params_server_options options = {
        .job = "test", .listen = &address, .seat = stand->seat, .restore = folder};

    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, ret_error), MUSTER_OK);
    return muster_params_server_open(&stand->test.env, &options, &stand->server, ret_error);
}

/* Its server is gone, and the seat is taken again. */
static void seat_take(struct params_stand *stand)
{
    const struct muster_params_seat_options seat = {.shard_count = PARAMS_CALLER_SHARDS};
    struct muster_error error;

    params_stand_kill(stand);
    assert_int_equal(
        muster_params_seat_wrap(stand->memory, stand->bytes, &seat, &stand->seat, &error),
        MUSTER_OK);
}

/* A seat that is taken, and no server in it. */
static void seat_open(struct params_stand *stand)
{
    params_stand_open(stand, PARAMS_CALLER_SHARDS);
    seat_take(stand);
}

static void seat_close(struct params_stand *stand)
{
    if (stand->server == NULL) {
        muster_params_seat_free(stand->seat);
        test_env_turn(&stand->test.env, 8); /* what was opened of it closes */
        stand->seat = NULL;
    } else {
        muster_params_server_set_data(stand->server, stand);
    }
    params_stand_close(stand);
}

static void a_server_that_is_alone_has_all_rows_at_once(void **state)
{
    const struct scene *scene = *state;
    struct muster_params_digest digest;
    struct muster_params_stats stats;
    struct params_stand stand;
    struct muster_error error;

    seat_open(&stand);
    assert_int_equal(alone_open(&stand, scene->folder, &error), MUSTER_OK);
    digest = server_digest(stand.server);
    assert_memory_equal(&digest, &scene->digest, sizeof(digest));
    muster_params_server_stats(stand.server, &stats);
    assert_int_equal(stats.rows, ROWS);
    assert_null(stand.server->restore);
    seat_close(&stand);
}

static void what_cannot_be_restored_opens_no_server(void **state)
{
    struct scene *scene = *state;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_error error;

    seat_open(&stand);
    assert_int_equal(alone_open(&stand, "/tmp/params_restore.none", &error), MUSTER_NOT_FOUND);
    assert_null(stand.server);
    seat_close(&stand);

    params_stand_open(&stand, PARAMS_CALLER_SHARDS);
    params = params_stand_client(&stand, "other");
    (void)params_stand_table(&stand, params, &params_counters);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    seat_take(&stand);
    assert_int_equal(alone_open(&stand, scene->folder, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "has tables already"));
    assert_null(stand.server);
    seat_close(&stand);

    shard_damage(scene);
    seat_open(&stand);
    assert_int_equal(alone_open(&stand, scene->folder, &error), MUSTER_DATA_LOSS);
    assert_null(stand.server);
    seat_close(&stand);
}

static void all_rows_check(const struct params_stand *stand, const struct scene *scene)
{
    struct muster_params_digest digest = server_digest(stand->server);

    assert_memory_equal(&digest, &scene->digest, sizeof(digest));
}

static unsigned parts; /* runs in which some tables were there */

/* The first server ends after each of its allocations in turn. */
static void run_restore(struct torture *torture, const void *data)
{
    const struct scene *scene = data;
    struct params_stand stand;
    struct muster_error error;
    enum muster_rc rc;

    seat_open(&stand);
    torture_arm_limited(torture, &stand.test.mem);
    rc = alone_open(&stand, scene->folder, &error);
    torture_disarm(torture);
    assert_true(rc == MUSTER_OK || torture->refused > 0);
    if (rc != MUSTER_OK) {
        const struct muster_params_region_head *head = muster_params_seat_region(stand.seat)->head;

        test_env_turn(&stand.test.env, 8);
        if (head->restoring == MUSTER_PARAMS_RESTORING_BEGUN) {
            assert_int_equal(alone_open(&stand, NULL, &error), MUSTER_FAILED_PRECONDITION);
            assert_non_null(strstr(error.text, "has a part of a cut"));
            test_env_turn(&stand.test.env, 8);
            parts += head->table_count > 0;
        }
        assert_int_equal(alone_open(&stand, scene->folder, &error), MUSTER_OK);
    }
    all_rows_check(&stand, scene);
    seat_close(&stand);
}

static void a_part_of_a_cut_is_restored_again(void **state)
{
    parts = 0;
    torture_run(&(struct torture_scenario){.name = "restore", .run = run_restore, .data = *state});
    assert_int_not_equal(parts, 0);
}

/* Its successor in the same memory is given the cut, too. */
static void rows_behind_a_restored_cut_stay(void **state)
{
    const struct scene *scene = *state;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_digest before, after;
    struct muster_error error;

    seat_open(&stand);
    assert_int_equal(alone_open(&stand, scene->folder, &error), MUSTER_OK);
    muster_params_server_set_data(stand.server, &stand);
    params_stand_kill(&stand);
    params_stand_serve(&stand);
    params = params_stand_client(&stand, "other");
    rows_push(&stand, params_stand_table(&stand, params, &params_counters));
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    before = server_digest(stand.server);
    seat_take(&stand);

    assert_int_equal(alone_open(&stand, scene->folder, &error), MUSTER_OK);

    after = server_digest(stand.server);
    assert_memory_equal(&after, &before, sizeof(after));
    assert_memory_not_equal(&after, &scene->digest, sizeof(after));
    seat_close(&stand);
}

/* --- Servers of a job --- */

static void job_open(struct params_job *job, const struct scene *scene, uint32_t count)
{
    params_job_prepare(job, count, 1);
    job->restore = scene->folder;
    for (uint32_t i = 0; i < count; i++)
        params_job_member_open(job, i);
}

static void rows_check(struct params_job *job)
{
    struct params_stand *stand = &job->caller.stand;
    struct muster_params *params;
    struct muster_params_table *table;
    uint64_t keys[ROWS];
    float values[ROWS];
    struct muster_error error;

    params_job_dial(job, 0);
    params = params_stand_client(stand, "other");
    table = params_stand_table(stand, params, &params_counters);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    assert_int_equal(params_stand_pull(stand, table, keys, values, ROWS, &error), MUSTER_OK);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_true(values[i] == (float)i + 1);
    assert_int_equal(params_stand_leave(stand, params), MUSTER_OK);
}

/* Each has the shards that it got, and no others. */
static void servers_of_a_job_have_the_rows_of_their_shards(void **state)
{
    static struct params_job job;
    uint64_t rows = 0;

    for (uint32_t count = 1; count <= 2; count++) {
        job_open(&job, *state, count);
        for (uint32_t i = 0; i < count; i++)
            assert_null(job.members[i].server->map); /* the first map waits for the files */
        params_job_await_map(&job);
        rows = 0;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_not_equal(job.members[i].server->region->head->tables[0].row_count, 0);
            rows += job.members[i].server->region->head->tables[0].row_count;
            assert_null(job.members[i].server->restore);
            assert_false(job.members[i].has_failed);
        }
        assert_int_equal(rows, ROWS);
        rows_check(&job);
        params_job_close(&job);
    }
}

/* A log that counts what has become of cuts. */
struct restore_log {
    struct muster_log log;
    unsigned restored, left_out;
};

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct restore_log *restores = MUSTER_CONTAINER_OF(log, struct restore_log, log);

    (void)level, (void)wall_ns, (void)fields, (void)count;
    restores->restored += strcmp(event, "params_restored") == 0;
    restores->left_out += strcmp(event, "params_restore_left_out") == 0;
}

/* It copies shards from those that are there, and says so. */
static void a_server_that_comes_later_restores_nothing(void **state)
{
    static const struct muster_log_ops ops = {.write = on_log};
    const struct scene *scene = *state;
    struct restore_log log = {.log = {.ops = &ops, .level_max = MUSTER_LOG_INFO}};
    static struct params_job job;

    params_job_prepare(&job, 1, 1);
    job.env->log = &log.log;
    params_job_member_open(&job, 0);
    params_job_await_map(&job);
    job.restore = scene->folder;
    params_job_member_open(&job, 1);
    job.count = 2;
    params_job_await_map(&job);

    assert_null(job.members[1].server->restore);
    assert_int_equal(job.members[1].server->region->head->table_count, 0);
    assert_int_equal(log.left_out, 1);
    assert_int_equal(log.restored, 0);
    params_job_close(&job);
}

static bool has_failed(void *data)
{
    return ((const struct params_job_member *)data)->has_failed;
}

/* It has checked the files when it was opened. */
static void a_server_whose_files_are_damaged_meanwhile_serves_nobody(void **state)
{
    struct scene *scene = *state;
    static struct params_job job;

    job_open(&job, scene, 1);
    shard_damage(scene);
    test_env_run_until(job.env, has_failed, &job.members[0]);

    assert_null(job.members[0].server->map);
    params_job_close(&job);
}

static bool has_failed_anywhere(void *data)
{
    const struct params_job *job = data;

    for (uint32_t i = 0; i < job->count; i++) {
        if (job->members[i].has_failed)
            return true;
    }
    return false;
}

static uint64_t rows_of(const struct params_job *job, uint32_t member)
{
    const struct muster_params_region_head *head = job->members[member].server->region->head;

    return head->table_count > 0 ? head->tables[0].row_count : 0;
}

/* Its place in the job stays, and so do its shards, which nobody else has. */
static void a_member_that_dies_amid_a_cut_restores_it_again(void **state)
{
    const struct scene *scene = *state;
    static struct params_job job;

    for (uint32_t count = 1; count <= 2; count++) {
        uint64_t rows = 0;

        job_open(&job, scene, count);
        file_move(scene, "7", "away");
        test_env_run_until(job.env, has_failed_anywhere, &job);
        file_move(scene, "away", "7");
        for (uint32_t i = 0; i < count; i++) {
            if (!job.members[i].has_failed)
                continue;
            assert_in_range(rows_of(&job, i), 1, ROWS - 1);
            assert_int_equal(job.members[i].restored_count, 0);
            params_job_member_restart(&job, i);
        }
        params_job_await_map(&job);

        for (uint32_t i = 0; i < count; i++) {
            rows += rows_of(&job, i);
            assert_int_equal(job.members[i].restored_count, 1);
        }
        assert_int_equal(rows, ROWS);
        rows_check(&job);
        params_job_close(&job);
    }
}

static void damaged_files_open_no_server_of_a_job(void **state)
{
    struct scene *scene = *state;
    static struct params_job job;
    struct params_stand stand;
    struct muster_address address;
    struct muster_params_server_options options = {
        .job = "test", .listen = &address, .restore = scene->folder};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    shard_damage(scene);
    params_job_prepare(&job, 1, 1);
    seat_open(&stand);
    options.seat = stand.seat;
    options.registry = job.registry.endpoints;
    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, &error), MUSTER_OK);
    assert_int_equal(muster_params_server_open(job.env, &options, &server, &error),
                     MUSTER_DATA_LOSS);
    assert_null(server);
    seat_close(&stand);
    job.count = 0;
    params_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_server_that_is_alone_has_all_rows_at_once),
        CASE(what_cannot_be_restored_opens_no_server),
        CASE(a_part_of_a_cut_is_restored_again),
        CASE(rows_behind_a_restored_cut_stay),
        CASE(servers_of_a_job_have_the_rows_of_their_shards),
        CASE(a_server_that_comes_later_restores_nothing),
        CASE(a_server_whose_files_are_damaged_meanwhile_serves_nobody),
        CASE(a_member_that_dies_amid_a_cut_restores_it_again),
        CASE(damaged_files_open_no_server_of_a_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
