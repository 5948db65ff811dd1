/* Rows that a client of the server's host reads from the server's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_stand.h"

#include <muster/stream.h>

#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledged_pushes_and_initial_values_are_peeked_without_a_message),
        cmocka_unit_test(memory_that_is_no_file_is_not_peeked),
        cmocka_unit_test(values_of_another_type_and_no_rows_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
