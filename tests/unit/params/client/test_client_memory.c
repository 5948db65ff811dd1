/* Each allocation of a client and of its server fails in turn: an error or success, each push that
 * succeeds counts once, nothing is left over, nothing waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_calls.h"
#include "params_stand.h"
#include "torture.h"

#include <string.h>

#define SHARDS 4u
#define PUSHES 3u

static const struct muster_params_schema schemas[] = {
    {.name = "plain", .row_elements = 1, .wire_dtype = MUSTER_F32},
    {.name = "halves", .row_elements = 1, .wire_dtype = MUSTER_BF16},
};

struct scene {
    struct torture *torture;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct params_outcome opening;
};

/* Without memory for good a client tries again and again: some turns of that are enough. */
static void scene_await(struct scene *scene, bool *is_done)
{
    for (unsigned i = 0; i < 40 && !*is_done; i++)
        muster_loop_turn(scene->stand.test.env.loop, 0);
    torture_disarm(scene->torture);
    test_env_run_until(&scene->stand.test.env, test_env_is_true, is_done);
}

static void scene_arm(struct scene *scene)
{
    torture_arm_limited(scene->torture, &scene->stand.test.mem);
}

static void client_open(struct scene *scene)
{
    struct muster_params_options options = {.server = scene->stand.address,
                                            .job = "test",
                                            .connect_deadline_ns =
                                                params_stand_deadline(&scene->stand),
                                            .data = &scene->opening};
    struct muster_error error;
    enum muster_rc rc;

    scene_arm(scene);
    rc = muster_params_open(&scene->stand.test.env, &options, params_on_client, &scene->params,
                            &error);
    if (rc != MUSTER_OK) {
        torture_disarm(scene->torture);
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(muster_params_open(&scene->stand.test.env, &options, params_on_client,
                                            &scene->params, &error),
                         MUSTER_OK);
    }
    scene_await(scene, &scene->opening.is_done);
    assert_int_equal(scene->opening.rc, MUSTER_OK);
}

static void table_open(struct scene *scene, const struct muster_params_schema *schema)
{
    struct params_call call = {.op = {.data = &call}};
    enum muster_rc rc;

    scene_arm(scene);
    rc = muster_params_table_start(&call.op, scene->params, schema, &scene->table,
                                   params_stand_deadline(&scene->stand), params_on_call);
    if (rc == MUSTER_OK) {
        scene_await(scene, &call.is_done);
        rc = call.rc;
    }
    if (rc == MUSTER_OK)
        return;
    torture_disarm(scene->torture);
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    scene->table = params_stand_table(&scene->stand, scene->params, schema);
}

static float one_of(const struct muster_params_schema *schema, void *value)
{
    if (schema->wire_dtype == MUSTER_BF16)
        *(uint16_t *)value = muster_bf16_from_f32(1);
    else
        *(float *)value = 1;
    return 1;
}

static float value_of(const struct muster_params_schema *schema, const void *value)
{
    return schema->wire_dtype == MUSTER_BF16 ? muster_bf16_to_f32(*(const uint16_t *)value)
                                             : *(const float *)value;
}

/* Returns how many counted. */
static float pushes_run(struct scene *scene, const struct muster_params_schema *schema)
{
    static const uint64_t key = 7;
    struct params_call calls[PUSHES];
    uint32_t value;
    const struct muster_params_rows rows = {.keys = &key, .values = &value, .count = 1};
    float counted = 0;

    for (unsigned i = 0; i < PUSHES; i++) {
        calls[i] = (struct params_call){.op = {.data = &calls[i]}};
        (void)one_of(schema, &value);
        scene_arm(scene);
        assert_int_equal(muster_params_push_start(&calls[i].op, scene->table, &rows,
                                                  params_stand_deadline(&scene->stand),
                                                  params_on_call),
                         MUSTER_OK);
        scene_await(scene, &calls[i].is_done);
        if (calls[i].rc != MUSTER_OK)
            assert_int_equal(calls[i].rc, MUSTER_RESOURCE_EXHAUSTED);
        counted += calls[i].rc == MUSTER_OK ? 1 : 0;
    }
    return counted;
}

static void pull_run(struct scene *scene, const struct muster_params_schema *schema, float expected)
{
    static const uint64_t key = 7;
    struct params_call call = {.op = {.data = &call}};
    uint32_t value = 0;
    const struct muster_params_rows rows = {.keys = &key, .values = &value, .count = 1};

    scene_arm(scene);
    assert_int_equal(muster_params_pull_start(&call.op, scene->table, &rows,
                                              params_stand_deadline(&scene->stand), params_on_call),
                     MUSTER_OK);
    scene_await(scene, &call.is_done);
    if (call.rc == MUSTER_OK)
        assert_true(value_of(schema, &value) == expected);
    else
        assert_int_equal(call.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(params_stand_pull(&scene->stand, scene->table, &key, &value, 1, NULL),
                     MUSTER_OK);
    assert_true(value_of(schema, &value) == expected);
}

static void client_run(struct torture *torture, const void *data)
{
    const struct muster_params_schema *schema = data;
    struct scene scene = {.torture = torture};
    float counted;

    params_stand_open(&scene.stand, SHARDS);
    client_open(&scene);
    table_open(&scene, schema);
    counted = pushes_run(&scene, schema);
    pull_run(&scene, schema, counted);
    scene.opening.is_done = false;
    scene_arm(&scene);
    muster_params_close(scene.params, params_stand_deadline(&scene.stand), params_on_client);
    scene_await(&scene, &scene.opening.is_done);
    assert_int_equal(scene.opening.rc, MUSTER_OK);
    params_stand_close(&scene.stand);
}

static void each_allocation_of_a_client_and_its_server_may_fail(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {.name = "plain", .run = client_run, .data = &schemas[0], .runs_max = 60},
        {.name = "halves", .run = client_run, .data = &schemas[1], .runs_max = 60},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

/* A server that is opened without memory leaves nothing behind. */
static void server_run(struct torture *torture, const void *data)
{
    struct params_stand stand;
    struct muster_params_server_options options = {.job = "test"};
    struct muster_params_server *server = NULL;
    struct muster_address address;
    struct muster_error error;
    enum muster_rc rc;

    (void)data;
    params_stand_open(&stand, SHARDS);
    params_stand_kill(&stand);
    assert_int_equal(muster_params_seat_new(
                         &(struct muster_params_seat_options){.memory_max = (uint64_t)16 << 20},
                         &stand.seat, &error),
                     MUSTER_OK);
    assert_int_equal(muster_params_seat_take(stand.seat, &error), MUSTER_OK);
    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, &error), MUSTER_OK);
    options.listen = &address;
    options.seat = stand.seat;
    torture_arm_limited(torture, &stand.test.mem);
    rc = muster_params_server_open(&stand.test.env, &options, &server, &error);
    torture_disarm(torture);
    if (rc != MUSTER_OK) {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_null(server);
        assert_int_equal(muster_params_server_open(&stand.test.env, &options, &server, &error),
                         MUSTER_OK);
    }
    stand.server = server;
    muster_params_server_set_data(server, &stand);
    params_stand_close(&stand);
}

static void each_allocation_of_a_servers_opening_may_fail(void **state)
{
    static const struct torture_scenario scenario = {.name = "server", .run = server_run};

    (void)state;
    torture_run(&scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_of_a_client_and_its_server_may_fail),
        cmocka_unit_test(each_allocation_of_a_servers_opening_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, torture_tell);
}
