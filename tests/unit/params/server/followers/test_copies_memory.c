/* Each allocation of one of two servers that share a job fails in turn: a push that succeeds counts once, at both of
 * them, and one that does not is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_calls.h"
#include "params_job.h"
#include "torture.h"

#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/store/row.h"

#define RUNS_MAX  60
#define JOINS_MAX 16  /* the servers agree in turns of real time */
#define KEYS      12u /* each server leads some of them, and copies the others */
#define TURNS     40  /* without memory for good; more is tried again in the same way */

struct row {
    const char *name;
    uint32_t hungry; /* the server */
    uint32_t keys;   /* of a push */
};

struct scene {
    const struct row *row;
    struct torture *torture;
    struct params_job job;
    struct muster_params *params;
    struct muster_params_table *table;
    struct params_outcome outcome;
};

static uint64_t scene_deadline(const struct scene *scene)
{
    return muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S);
}

static enum muster_rc scene_await(struct scene *scene, struct params_call *call)
{
    for (unsigned i = 0; i < TURNS && !call->is_done; i++)
        muster_loop_turn(scene->job.env->loop, 0);
    torture_disarm(scene->torture);
    return params_call_await(scene->job.env, call);
}

static void scene_arm(struct scene *scene)
{
    torture_arm_limited(scene->torture, &scene->job.members[scene->row->hungry].mem);
}

static void client_open(struct scene *scene)
{
    const struct muster_params_options options = {.server = scene->job.members[0].address,
                                                  .job = "test",
                                                  .connect_deadline_ns = scene_deadline(scene),
                                                  .data = &scene->outcome};
    struct muster_error error;

    assert_int_equal(
        muster_params_open(scene->job.env, &options, params_on_client, &scene->params, &error),
        MUSTER_OK);
    assert_int_equal(params_outcome_await(scene->job.env, &scene->outcome), MUSTER_OK);
}

static enum muster_rc table_open(struct scene *scene)
{
    struct params_call call = {.op = {.data = &call}};

    assert_int_equal(muster_params_table_start(&call.op, scene->params, &params_counters,
                                               &scene->table, scene_deadline(scene),
                                               params_on_call),
                     MUSTER_OK);
    return scene_await(scene, &call);
}

/* Ones for so many keys from the first on. */
static enum muster_rc ones_push(struct scene *scene, uint64_t first, uint32_t count)
{
    struct params_call call = {.op = {.data = &call}};
    uint64_t keys[KEYS];
    float ones[KEYS];
    const struct muster_params_rows rows = {.keys = keys, .values = ones, .count = count};

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = first + i;
        ones[i] = 1;
    }
    assert_int_equal(muster_params_push_start(&call.op, scene->table, &rows, scene_deadline(scene),
                                              params_on_call),
                     MUSTER_OK);
    return scene_await(scene, &call);
}

static enum muster_rc sums_pull(struct scene *scene, float ret_sums[KEYS])
{
    struct params_call call = {.op = {.data = &call}};
    uint64_t keys[KEYS];
    const struct muster_params_rows rows = {.keys = keys, .values = ret_sums, .count = KEYS};

    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    assert_int_equal(muster_params_pull_start(&call.op, scene->table, &rows, scene_deadline(scene),
                                              params_on_call),
                     MUSTER_OK);
    return scene_await(scene, &call);
}

static void check_hunger(const struct scene *scene, enum muster_rc rc)
{
    if (rc != MUSTER_OK && (scene->torture->refused == 0 || rc != MUSTER_RESOURCE_EXHAUSTED))
        fail_msg("%s", muster_rc_name(rc));
}

static void check_sums(struct scene *scene, const float expected[KEYS])
{
    float sums[KEYS];
    enum muster_rc rc;

    scene_arm(scene);
    rc = sums_pull(scene, sums);
    check_hunger(scene, rc);
    if (rc != MUSTER_OK)
        assert_int_equal(sums_pull(scene, sums), MUSTER_OK);
    assert_memory_equal(sums, expected, sizeof(sums));
}

static bool are_copies_equal(void *data)
{
    const struct scene *scene = data;
    struct muster_params_digest digests[2];

    for (uint32_t i = 0; i < 2; i++) {
        const struct muster_params_region *region = scene->job.members[i].server->region;
        const struct muster_params_store_table *table =
            muster_params_table_find(region, params_counters.name);

        if (table == NULL)
            return false;
        digests[i] = muster_params_table_digest(region, table);
    }
    return memcmp(&digests[0], &digests[1], sizeof(digests[0])) == 0;
}

static void client_close(struct scene *scene)
{
    scene->outcome.is_done = false;
    muster_params_close(scene->params, scene_deadline(scene), params_on_client);
    assert_int_equal(params_outcome_await(scene->job.env, &scene->outcome), MUSTER_OK);
}

static void run_pushes(struct torture *torture, const void *data)
{
    static struct scene scene;
    float expected[KEYS] = {0};
    enum muster_rc rc;

    scene = (struct scene){.row = data, .torture = torture};
    params_job_open(&scene.job, 2, 2);
    client_open(&scene);
    scene_arm(&scene);
    rc = table_open(&scene);
    check_hunger(&scene, rc);
    if (rc != MUSTER_OK)
        assert_int_equal(table_open(&scene), MUSTER_OK);

    for (uint64_t first = 0; first < KEYS; first += scene.row->keys) {
        scene_arm(&scene);
        rc = ones_push(&scene, first, scene.row->keys);
        check_hunger(&scene, rc);
        for (uint32_t i = 0; i < scene.row->keys && rc == MUSTER_OK; i++)
            expected[first + i]++;
    }
    check_sums(&scene, expected);
    test_env_run_until(scene.job.env, are_copies_equal, &scene);

    assert_int_equal(ones_push(&scene, 0, KEYS), MUSTER_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        expected[i]++;
    check_sums(&scene, expected);
    client_close(&scene);
    params_job_close(&scene.job);
}

/* --- A server that joins --- */

static bool is_whole(void *data)
{
    const struct muster_params_server *server = ((struct scene *)data)->job.members[2].server;
    const struct muster_params_map *map = server->map;

    if (map == NULL || map->server_count != 3)
        return false;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (map->shards[shard].copy_count != 2 || map->shards[shard].learner_count != 0)
            return false;
    }
    return true;
}

static void whole_await(struct scene *scene)
{
    for (unsigned i = 0; i < 3 * TURNS && !is_whole(scene); i++)
        muster_loop_turn(scene->job.env->loop, MUSTER_NS_PER_MS);
    torture_disarm(scene->torture);
    test_env_run_until(scene->job.env, is_whole, scene);
}

/* It learns shards from the others, and leads and copies them in the end. */
static void run_joining(struct torture *torture, const void *data)
{
    static struct scene scene;
    float expected[KEYS];
    enum muster_rc rc;

    scene = (struct scene){.row = data, .torture = torture};
    params_job_open(&scene.job, 2, 2);
    client_open(&scene);
    assert_int_equal(table_open(&scene), MUSTER_OK);
    assert_int_equal(ones_push(&scene, 0, KEYS), MUSTER_OK);

    scene.job.count = 3;
    params_job_member_prepare(&scene.job, 2);
    scene_arm(&scene);
    rc = params_job_member_try(&scene.job, 2);
    check_hunger(&scene, rc);
    if (rc != MUSTER_OK) {
        torture_disarm(torture);
        assert_int_equal(params_job_member_try(&scene.job, 2), MUSTER_OK);
    }
    whole_await(&scene);
    assert_int_equal(ones_push(&scene, 0, KEYS), MUSTER_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        expected[i] = 2;
    params_job_member_close(&scene.job, 0);
    check_sums(&scene, expected);
    client_close(&scene);
    params_job_close(&scene.job);
}

static void each_allocation_of_a_server_that_joins_may_fail(void **state)
{
    static const struct row row = {"a third server", 2, KEYS};

    (void)state;
    torture_run(&(struct torture_scenario){
        .name = row.name, .run = run_joining, .data = &row, .runs_max = JOINS_MAX});
}

static void each_allocation_of_one_of_two_servers_may_fail(void **state)
{
    static const struct row rows[] = {
        {"single rows, the first server", 0, 1},
        {"single rows, the second server", 1, 1},
        {"all rows, the first server", 0, KEYS},
        {"all rows, the second server", 1, KEYS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        torture_run(&(struct torture_scenario){
            .name = rows[i].name, .run = run_pushes, .data = &rows[i], .runs_max = RUNS_MAX});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_allocation_of_one_of_two_servers_may_fail, torture_tell),
        cmocka_unit_test_teardown(each_allocation_of_a_server_that_joins_may_fail, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
