/* Rows that a client of the server's host reads from the server's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"
#include "params_stand.h"

#include <muster/stream.h>

#include <string.h>

#include "params/server/core/server_internal.h"

#define ELEMENTS 4u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = ELEMENTS,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD,
                                                     .init = MUSTER_PARAMS_INIT_CONSTANT,
                                                     .init_scale = 0.5f};

struct scene {
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_rows rows;
    enum muster_rc rc;
};

static void scene_join(struct scene *scene, const struct muster_params_schema *schema)
{
    scene->params = params_stand_client(&scene->stand, NULL);
    scene->table = params_stand_table(&scene->stand, scene->params, schema);
}

static void scene_close(struct scene *scene)
{
    assert_int_equal(params_stand_leave(&scene->stand, scene->params), MUSTER_OK);
    params_stand_close(&scene->stand);
}

static bool is_peeked(void *data)
{
    struct scene *scene = data;

    scene->rc = muster_params_peek(scene->table, &scene->rows);
    return scene->rc != MUSTER_UNAVAILABLE;
}

static void acknowledged_pushes_and_initial_values_are_peeked_without_a_message(void **state)
{
    static const uint64_t keys[] = {5, 6};
    float values[2 * ELEMENTS] = {1, 2, 3, 4}, found[2 * ELEMENTS] = {0};
    struct scene scene;
    struct muster_error error;

    (void)state;
    params_stand_open_seat(&scene.stand, 8, (uint64_t)16 << 20);
    scene_join(&scene, &counters);
    scene.rows = (struct muster_params_rows){keys, found, 2};
    assert_int_equal(params_stand_push(&scene.stand, scene.table, keys, values, 1, &error),
                     MUSTER_OK);
    test_env_run_until(&scene.stand.test.env, is_peeked, &scene);
    assert_int_equal(scene.rc, MUSTER_OK);
    assert_memory_equal(found, ((const float[]){1.5f, 2.5f, 3.5f, 4.5f, 0.5f, 0.5f, 0.5f, 0.5f}),
                        sizeof(found));

    assert_int_equal(params_stand_push(&scene.stand, scene.table, keys, values, 1, &error),
                     MUSTER_OK);
    assert_int_equal(muster_params_peek(scene.table, &scene.rows), MUSTER_OK);
    assert_true(found[0] == 2.5f);
    assert_int_equal(params_stand_stats(&scene.stand).pulls, 0);
    scene_close(&scene);
}

static void memory_that_is_no_file_is_not_peeked(void **state)
{
    static const uint64_t key = 5;
    float found[ELEMENTS];
    struct scene scene;
    struct muster_error error;

    (void)state;
    params_stand_open(&scene.stand, 8);
    scene_join(&scene, &counters);
    scene.rows = (struct muster_params_rows){&key, found, 1};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(muster_params_peek(scene.table, &scene.rows), MUSTER_UNAVAILABLE);
        assert_int_equal(params_stand_pull(&scene.stand, scene.table, &key, found, 1, &error),
                         MUSTER_OK);
    }
    scene_close(&scene);
}

static void values_of_another_type_and_no_rows_are_refused(void **state)
{
    static const uint64_t key = 5;
    struct muster_params_schema halves = counters;
    float found[ELEMENTS];
    struct scene scene;

    (void)state;
    halves.wire_dtype = MUSTER_F16;
    params_stand_open_seat(&scene.stand, 8, (uint64_t)16 << 20);
    scene_join(&scene, &halves);
    scene.rows = (struct muster_params_rows){&key, found, 0};
    assert_int_equal(muster_params_peek(scene.table, &scene.rows), MUSTER_INVALID_ARGUMENT);
    scene.rows.count = 1;
    assert_int_equal(muster_params_peek(scene.table, &scene.rows), MUSTER_UNAVAILABLE);
    scene_close(&scene);
}

/* --- Several servers --- */

#define KEYS PARAMS_JOB_KEYS

struct job_scene {
    struct params_job job;
    struct muster_params *params;
    struct muster_params_table *table;
    uint64_t keys[KEYS];
    float values[KEYS][ELEMENTS];
    bool is_done;
    enum muster_rc rc;
};

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct job_scene *scene = muster_params_data(params);

    scene->is_done = true;
    scene->rc = rc;
}

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct job_scene *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
}

static void done_await(struct job_scene *scene)
{
    test_env_run_until(scene->job.env, test_env_is_true, &scene->is_done);
    assert_int_equal(scene->rc, MUSTER_OK);
    scene->is_done = false;
}

static uint64_t deadline_of(const struct job_scene *scene)
{
    return muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S);
}

static void job_open(struct job_scene *scene)
{
    struct muster_params_options options = {.job = "test", .data = scene};
    struct muster_params_op op = {.data = scene};
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    params_job_open_seats(&scene->job, 2);
    options.server = scene->job.members[0].address;
    options.connect_deadline_ns = deadline_of(scene);
    assert_int_equal(
        muster_params_open(scene->job.env, &options, on_params, &scene->params, &error), MUSTER_OK);
    done_await(scene);
    assert_int_equal(muster_params_table_start(&op, scene->params, &counters, &scene->table,
                                               deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
}

static void job_close(struct job_scene *scene)
{
    muster_params_close(scene->params, deadline_of(scene), on_params);
    done_await(scene);
    params_job_close(&scene->job);
}

static bool is_job_peeked(void *data)
{
    struct job_scene *scene = data;

    scene->rc = muster_params_peek(scene->table,
                                   &(struct muster_params_rows){scene->keys, scene->values, KEYS});
    return scene->rc != MUSTER_UNAVAILABLE;
}

static void rows_of_several_servers_are_peeked_in_their_order(void **state)
{
    struct job_scene scene;
    struct muster_params_op op = {.data = &scene};

    (void)state;
    job_open(&scene);
    for (uint32_t i = 0; i < KEYS; i++) {
        scene.keys[i] = i;
        for (uint32_t j = 0; j < ELEMENTS; j++)
            scene.values[i][j] = (float)i;
    }
    assert_int_equal(
        muster_params_push_start(&op, scene.table,
                                 &(struct muster_params_rows){scene.keys, scene.values, KEYS},
                                 deadline_of(&scene), on_op),
        MUSTER_OK);
    done_await(&scene);
    memset(scene.values, 0, sizeof(scene.values));
    test_env_run_until(scene.job.env, is_job_peeked, &scene);

    assert_int_equal(scene.rc, MUSTER_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        for (uint32_t j = 0; j < ELEMENTS; j++)
            assert_true(scene.values[i][j] == (float)i + 0.5f);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_not_equal(scene.job.members[i].server->region->head->tables[0].row_count, 0);
        assert_int_equal(scene.job.members[i].server->stats.pulls, 0);
    }
    job_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledged_pushes_and_initial_values_are_peeked_without_a_message),
        cmocka_unit_test(memory_that_is_no_file_is_not_peeked),
        cmocka_unit_test(values_of_another_type_and_no_rows_are_refused),
        cmocka_unit_test(rows_of_several_servers_are_peeked_in_their_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
