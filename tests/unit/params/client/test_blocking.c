/* Blocking calls of parameters: a program with a runtime connects, pushes, pulls and leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params/client/client_internal.h"
#include "params_stand.h"

#include <string.h>

#define ELEMENTS   4u
#define SHARDS     8u
#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)

struct scene {
    struct params_stand stand;
    struct muster_runtime *runtime;
    struct muster_error error;
};

static unsigned attempt_count;
static struct muster_params *cut_client;

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = ELEMENTS,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

static void scene_open(struct scene *scene)
{
    params_stand_open(&scene->stand, SHARDS);
    assert_int_equal(
        muster_runtime_open(&(struct muster_runtime_options){.env = &scene->stand.test.env},
                            &scene->runtime),
        MUSTER_OK);
}

static void scene_close(struct scene *scene)
{
    muster_runtime_close(scene->runtime);
    params_stand_close(&scene->stand);
}

static void assert_rc_ok(enum muster_rc rc, const struct scene *scene)
{
    if (rc != MUSTER_OK)
        fail_msg("%s", scene->error.text);
}

static struct muster_params *scene_connect(struct scene *scene, const char *source)
{
    const struct muster_params_options options = {
        .server = scene->stand.address, .job = "test", .source = source};
    struct muster_params *params = NULL;

    assert_rc_ok(
        muster_params_connect(scene->runtime, &options, TIMEOUT_NS, &params, &scene->error), scene);
    return params;
}

static struct muster_params_table *scene_table(struct scene *scene, struct muster_params *params)
{
    struct muster_params_table *table = NULL;

    assert_rc_ok(muster_params_table(params, &counters, TIMEOUT_NS, &table, &scene->error), scene);
    return table;
}

static void what_is_pushed_is_pulled(void **state)
{
    static const uint64_t keys[] = {5, 1000000007};
    float values[] = {1, 2, 3, 4, 10, 20, 30, 40}, found[2 * ELEMENTS] = {0};
    struct scene scene;
    struct muster_params *params;
    struct muster_params_table *table;

    (void)state;
    scene_open(&scene);
    params = scene_connect(&scene, NULL);
    table = scene_table(&scene, params);
    scene.error = (struct muster_error){.text = "kept"};
    for (unsigned i = 0; i < 3; i++)
        assert_rc_ok(muster_params_push(table, &(struct muster_params_rows){keys, values, 2},
                                        TIMEOUT_NS, &scene.error),
                     &scene);
    assert_rc_ok(muster_params_pull(table, &(struct muster_params_rows){keys, found, 2}, TIMEOUT_NS,
                                    &scene.error),
                 &scene);
    assert_memory_equal(found, ((const float[]){3, 6, 9, 12, 30, 60, 90, 120}), sizeof(found));
    assert_rc_ok(muster_params_push_pull(table, &(struct muster_params_rows){keys, values, 2},
                                         found, TIMEOUT_NS, &scene.error),
                 &scene);
    assert_memory_equal(found, ((const float[]){4, 8, 12, 16, 40, 80, 120, 160}), sizeof(found));
    assert_rc_ok(muster_params_disconnect(params, TIMEOUT_NS, &scene.error), &scene);
    assert_string_equal(scene.error.text, "kept"); /* by what succeeds */
    scene_close(&scene);
}

static void a_pull_after_a_clock_shows_what_was_pushed_before_it(void **state)
{
    static const uint64_t key = 5;
    float values[ELEMENTS] = {1, 2, 3, 4}, found[ELEMENTS] = {0};
    struct scene scene;
    struct muster_params *params;
    struct muster_params_table *table;

    (void)state;
    scene_open(&scene);
    params = scene_connect(&scene, NULL);
    table = scene_table(&scene, params);
    assert_int_equal(muster_params_tick(params, 1, 1, TIMEOUT_NS, &scene.error),
                     MUSTER_INVALID_ARGUMENT); /* it is not one of clock_sources */
    assert_rc_ok(muster_params_push(table, &(struct muster_params_rows){&key, values, 1},
                                    TIMEOUT_NS, &scene.error),
                 &scene);
    assert_rc_ok(muster_params_pull_after(table, &(struct muster_params_rows){&key, found, 1}, 0,
                                          TIMEOUT_NS, &scene.error),
                 &scene);
    assert_memory_equal(found, values, sizeof(found));
    assert_rc_ok(muster_params_disconnect(params, TIMEOUT_NS, &scene.error), &scene);
    scene_close(&scene);
}

/* Its pushes would be taken for repetitions if it numbered them from 1. */
static void a_named_source_that_starts_again_goes_on_counting(void **state)
{
    static const uint64_t key = 5;
    float ones[ELEMENTS] = {1, 1, 1, 1}, found[ELEMENTS] = {0};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    for (unsigned life = 1; life <= 3; life++) {
        struct muster_params *params = scene_connect(&scene, "trainer");
        struct muster_params_table *table = scene_table(&scene, params);

        assert_int_equal(muster_params_source_position(params), 2 * (life - 1));
        for (unsigned i = 0; i < 2; i++)
            assert_rc_ok(muster_params_push(table, &(struct muster_params_rows){&key, ones, 1},
                                            TIMEOUT_NS, &scene.error),
                         &scene);
        assert_rc_ok(muster_params_pull(table, &(struct muster_params_rows){&key, found, 1},
                                        TIMEOUT_NS, &scene.error),
                     &scene);
        assert_true(found[0] == 2.0f * (float)life);
        assert_rc_ok(muster_params_disconnect(params, TIMEOUT_NS, &scene.error), &scene);
    }
    scene_close(&scene);
}

/* Each refusal has its text, and leaves nothing open. */
static void errors_come_as_values_with_their_texts(void **state)
{
    static const uint64_t key = 5;
    struct muster_params_options options = {.job = "another"};
    struct muster_params_schema other = counters;
    float values[ELEMENTS] = {0};
    struct scene scene;
    struct muster_params *params = NULL;
    struct muster_params_table *table;
    struct muster_params_cut cut;

    (void)state;
    scene_open(&scene);
    assert_int_equal(
        muster_params_connect(scene.runtime, &options, TIMEOUT_NS, &params, &scene.error),
        MUSTER_INVALID_ARGUMENT);
    options.server = scene.stand.address;
    assert_int_equal(
        muster_params_connect(scene.runtime, &options, TIMEOUT_NS, &params, &scene.error),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(scene.error.rc, MUSTER_FAILED_PRECONDITION);
    assert_null(params);

    params = scene_connect(&scene, NULL);
    table = scene_table(&scene, params);
    other.row_elements = 2;
    assert_int_equal(muster_params_table(params, &other, TIMEOUT_NS, &table, &scene.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene.error.text, "counters"));
    assert_int_equal(muster_params_push(table, &(struct muster_params_rows){&key, values, 0},
                                        TIMEOUT_NS, &scene.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(scene.error.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(scene.error.text,
                        "rows of table counters must be at least one, with keys and values, got 0");
    assert_int_equal(muster_params_pull(table, &(struct muster_params_rows){&key, NULL, 1},
                                        TIMEOUT_NS, &scene.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene.error.text, "without values"));
    assert_int_equal(muster_params_push_pull(table, &(struct muster_params_rows){&key, values, 1},
                                             NULL, TIMEOUT_NS, &scene.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene.error.text, "ret_values"));
    assert_int_equal(muster_params_tick(params, 1, 1, TIMEOUT_NS, &scene.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene.error.text, "clock_sources"));
    assert_int_equal(muster_params_cut(params, NULL, &cut, TIMEOUT_NS, &scene.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene.error.text, "folder"));
    assert_int_equal(
        muster_params_cut_at(params, "/nowhere", UINT64_MAX, &cut, TIMEOUT_NS, &scene.error),
        MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(scene.error.text, "clock"));
    assert_rc_ok(muster_params_disconnect(params, TIMEOUT_NS, &scene.error), &scene);
    scene_close(&scene);
}

static void without_a_server_calls_end_after_their_timeouts(void **state)
{
    static const uint64_t key = 5;
    struct muster_params_options options = {.job = "test"};
    float values[ELEMENTS] = {0};
    struct scene scene;
    struct muster_params *params, *second = NULL;
    struct muster_params_table *table;

    (void)state;
    scene_open(&scene);
    options.server = scene.stand.address;
    params = scene_connect(&scene, NULL);
    table = scene_table(&scene, params);
    muster_runtime_enter(scene.runtime);
    muster_params_server_close(scene.stand.server, NULL);
    scene.stand.server = NULL;
    muster_runtime_leave(scene.runtime);
    assert_int_equal(muster_params_pull(table, &(struct muster_params_rows){&key, values, 1},
                                        20 * MUSTER_NS_PER_MS, &scene.error),
                     MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(scene.error.text, scene.stand.address));
    assert_int_equal(muster_params_push(table, &(struct muster_params_rows){&key, values, 1},
                                        20 * MUSTER_NS_PER_MS, &scene.error),
                     MUSTER_DEADLINE_EXCEEDED);
    assert_int_not_equal(muster_params_connect(scene.runtime, &options, 20 * MUSTER_NS_PER_MS,
                                               &second, &scene.error),
                         MUSTER_OK);
    assert_null(second);
    assert_int_equal(muster_params_disconnect(params, 20 * MUSTER_NS_PER_MS, &scene.error),
                     MUSTER_DEADLINE_EXCEEDED);
    muster_runtime_close(scene.runtime);
    muster_params_seat_free(scene.stand.seat);
    params_stand_close(&scene.stand);
}

/* Each attempt at a cut looks at the wall clock once, for its number. None finds a server that leads a shard. */
static uint64_t attempts_wall_ns(struct muster_host *host)
{
    (void)host;
    attempt_count++;
    MUSTER_LIST_EACH (&cut_client->ways, way, struct muster_params_way, node)
        way->leads = false;
    return 1700000000000000000u + attempt_count;
}

/* The number of attempts has a bound that no load of the machine exceeds. */
static void a_cut_without_a_leader_is_tried_again_now_and_then(void **state)
{
    struct muster_params_cut cut;
    const struct muster_host_ops *before;
    struct muster_host_ops ops;
    struct muster_host *host;
    struct scene scene;
    struct muster_params *params;
    enum muster_rc rc;

    (void)state;
    scene_open(&scene);
    params = scene_connect(&scene, NULL);
    muster_runtime_enter(scene.runtime);
    cut_client = params;
    host = params->env->host;
    before = host->ops;
    ops = *before;
    ops.wall_ns = attempts_wall_ns;
    host->ops = &ops;
    attempt_count = 0;
    muster_runtime_leave(scene.runtime);

    rc = muster_params_cut(params, "/nowhere", &cut, 200 * MUSTER_NS_PER_MS, &scene.error);
    muster_runtime_enter(scene.runtime);
    host->ops = before;
    muster_runtime_leave(scene.runtime);

    assert_int_equal(rc, MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(scene.error.text, "the last attempt ended: no server leads a shard now");
    assert_in_range(attempt_count, 2, 11);
    assert_int_equal(muster_params_disconnect(params, TIMEOUT_NS, &scene.error), MUSTER_OK);
    scene_close(&scene);
}

static void a_client_without_a_runtime_is_refused(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    assert_int_equal(muster_params_table(params, &counters, TIMEOUT_NS, &table, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_string_equal(error.text, "muster_params_table needs a client of muster_params_connect");
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_pushed_is_pulled),
        cmocka_unit_test(a_pull_after_a_clock_shows_what_was_pushed_before_it),
        cmocka_unit_test(a_named_source_that_starts_again_goes_on_counting),
        cmocka_unit_test(errors_come_as_values_with_their_texts),
        cmocka_unit_test(without_a_server_calls_end_after_their_timeouts),
        cmocka_unit_test(a_cut_without_a_leader_is_tried_again_now_and_then),
        cmocka_unit_test(a_client_without_a_runtime_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
