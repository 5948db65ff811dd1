/* Tensors by round: ranges of them are kept, summed and shown as rows are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_job.h"
#include "params_stand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/store/row.h"

#define SOURCES  2u
#define BLOCK    1024u
#define BLOCKS   (5u * 256u) /* a turn closes 256 of them */
#define ELEMENTS ((BLOCKS - 1) * BLOCK + 5u)

static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = ELEMENTS,
                                                    .is_by_round = true};

struct call {
    struct muster_params_op op;
    bool is_done;
    enum muster_rc rc;
};

struct scene {
    struct params_stand stand;
    struct muster_params *sources[SOURCES];
    struct muster_params_table *tables[SOURCES];
    float *values[SOURCES];
};

/* in_memory: values of pushes come through memory of the clients. */
static void scene_open(struct scene *scene, const struct muster_params_schema *schema,
                       bool in_memory)
{
    static const char *const names[] = {"one", "other"};

    memset(scene, 0, sizeof(*scene));
    if (in_memory)
        params_stand_open_seat(&scene->stand, 8, (uint64_t)128 << 20);
    else
        params_stand_open_in(&scene->stand, 8, (size_t)128 << 20);
    for (uint32_t i = 0; i < SOURCES; i++) {
        scene->sources[i] = params_stand_source(&scene->stand, names[i], SOURCES);
        scene->tables[i] = params_stand_table(&scene->stand, scene->sources[i], schema);
        scene->values[i] = calloc(ELEMENTS, sizeof(float));
        assert_non_null(scene->values[i]);
    }
}

static void scene_close(struct scene *scene)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        assert_int_equal(params_stand_leave(&scene->stand, scene->sources[i]), MUSTER_OK);
        free(scene->values[i]);
    }
    params_stand_close(&scene->stand);
}

static void on_call(struct muster_params_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->is_done = true;
    call->rc = rc;
}

static enum muster_rc call_await(struct scene *scene, struct call *call)
{
    test_env_run_until(&scene->stand.test.env, test_env_is_true, &call->is_done);
    return call->rc;
}

static void tensor_start(struct scene *scene, struct call *call, uint32_t source,
                         enum muster_params_direction direction, uint64_t min_clock)
{
    *call = (struct call){.op = {.data = call}};
    assert_int_equal(
        muster_params_tensor_start(
            &call->op, scene->tables[source],
            &(struct muster_params_range){.values = scene->values[source], .min_clock = min_clock},
            direction, params_stand_deadline(&scene->stand), on_call),
        MUSTER_OK);
}

static void push_start(struct scene *scene, struct call *call, uint32_t source, float value)
{
    for (uint32_t i = 0; i < ELEMENTS; i++)
        scene->values[source][i] = value;
    tensor_start(scene, call, source, MUSTER_PARAMS_DIRECTION_PUSH, 0);
}

static void tensor_push(struct scene *scene, uint32_t source, float value)
{
    struct call call;

    push_start(scene, &call, source, value);
    assert_int_equal(call_await(scene, &call), MUSTER_OK);
}

static void tensor_check(struct scene *scene, uint32_t source, uint64_t min_clock, float expected)
{
    struct call call;

    memset(scene->values[source], 0x55, ELEMENTS * sizeof(float));
    tensor_start(scene, &call, source, MUSTER_PARAMS_DIRECTION_PULL, min_clock);
    assert_int_equal(call_await(scene, &call), MUSTER_OK);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        if (scene->values[source][i] != expected)
            fail_msg("element %u is %g after clock %u, not %g", i, (double)scene->values[source][i],
                     (unsigned)min_clock, (double)expected);
}

static void source_tick(struct scene *scene, uint32_t source, uint64_t clock, double weight)
{
    struct muster_error error;

    assert_int_equal(
        params_stand_tick(&scene->stand, scene->sources[source], clock, weight, &error), MUSTER_OK);
}

/* The round is closed by and by. */
static void elements_show_once_their_round_is_closed_and_whole(void **state)
{
    static const bool memory_rows[] = {false, true};

    (void)state;
    for (size_t i = 0; i < sizeof(memory_rows) / sizeof(memory_rows[0]); i++) {
        struct scene scene;
        struct call ahead;

        scene_open(&scene, &weights, memory_rows[i]);
        source_tick(&scene, 1, 0, 1);
        tensor_push(&scene, 0, 1);
        tensor_check(&scene, 0, 0, 0);
        source_tick(&scene, 0, 1, 2);
        push_start(&scene, &ahead, 0, 100); /* of the next round: it waits */
        tensor_push(&scene, 1, 10);
        assert_false(ahead.is_done);
        source_tick(&scene, 1, 1, 1);

        tensor_check(&scene, 1, 1, 2 + 10);
        assert_int_equal(call_await(&scene, &ahead), MUSTER_OK);
        source_tick(&scene, 0, 2, 1);
        source_tick(&scene, 1, 2, 1);
        tensor_check(&scene, 0, 2, 2 + 10 + 100);
        scene_close(&scene);
    }
}

static void a_late_push_is_refused(void **state)
{
    struct muster_params_schema schema = weights;
    struct scene scene;
    struct call late;

    (void)state;
    schema.round_quorum = 1;
    scene_open(&scene, &schema, false);
    source_tick(&scene, 1, 0, 1);
    tensor_push(&scene, 0, 1);
    source_tick(&scene, 0, 1, 1);
    tensor_check(&scene, 0, 1, 1);
    push_start(&scene, &late, 1, 10);
    assert_int_equal(call_await(&scene, &late), MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(late.op.error.text, "round 0 of table weights is closed; 1 is open"));

    source_tick(&scene, 1, 1, 1);
    tensor_push(&scene, 1, 10);
    source_tick(&scene, 1, 2, 1);
    tensor_check(&scene, 1, 2, 1 + 10);
    scene_close(&scene);
}

/* A tick waits for pushes that wait for their round. */
static void a_tick_leaves_behind_the_pushes_before_it(void **state)
{
    struct scene scene;
    struct call ahead, tick = {.is_done = false};

    (void)state;
    scene_open(&scene, &weights, false);
    source_tick(&scene, 1, 0, 1);
    tensor_push(&scene, 0, 1);
    source_tick(&scene, 0, 1, 1);
    push_start(&scene, &ahead, 0, 100);
    tick.op.data = &tick;
    assert_int_equal(muster_params_tick_start(&tick.op, scene.sources[0], 2,
                                              params_stand_deadline(&scene.stand), on_call),
                     MUSTER_OK);
    test_env_turn(&scene.stand.test.env, 20);
    assert_false(tick.is_done);
    source_tick(&scene, 1, 1, 1);
    source_tick(&scene, 1, 2, 1);

    assert_int_equal(call_await(&scene, &ahead), MUSTER_OK);
    assert_int_equal(call_await(&scene, &tick), MUSTER_OK);
    tensor_check(&scene, 1, 2, 1 + 100);
    scene_close(&scene);
}

/* --- Replicas --- */

struct job_scene {
    struct params_job job;
    struct muster_params *params;
    struct muster_params_table *table;
    float values[ELEMENTS];
    struct call call;
};

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct job_scene *scene = muster_params_data(params);

    scene->call.is_done = true;
    scene->call.rc = rc;
}

static void job_await(struct job_scene *scene)
{
    test_env_run_until(scene->job.env, test_env_is_true, &scene->call.is_done);
    assert_int_equal(scene->call.rc, MUSTER_OK);
    scene->call = (struct call){.op = {.data = &scene->call}};
}

static uint64_t deadline_of(const struct job_scene *scene)
{
    return muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S);
}

static void job_tensor(struct job_scene *scene, enum muster_params_direction direction,
                       uint64_t min_clock)
{
    assert_int_equal(
        muster_params_tensor_start(
            &scene->call.op, scene->table,
            &(struct muster_params_range){.values = scene->values, .min_clock = min_clock},
            direction, deadline_of(scene), on_call),
        MUSTER_OK);
    job_await(scene);
}

static struct muster_params_digest digest_of(const struct job_scene *scene, uint32_t member)
{
    const struct muster_params_region *region = scene->job.members[member].server->region;

    return muster_params_table_digest(region, muster_params_table_find(region, "weights"));
}

/* Each server leads some of the blocks, and copies the others. */
static void both_servers_have_the_round(void **state)
{
    struct job_scene *scene = calloc(1, sizeof(*scene));
    struct muster_params_options options = {.job = "test", .clock_sources = 1, .data = scene};
    struct muster_params_digest digests[2];
    struct muster_error error;

    (void)state;
    assert_non_null(scene);
    params_job_open_in(&scene->job, 2, 2, (size_t)64 << 20);
    scene->call.op.data = &scene->call;
    options.server = scene->job.members[0].address;
    options.connect_deadline_ns = deadline_of(scene);
    assert_int_equal(
        muster_params_open(scene->job.env, &options, on_params, &scene->params, &error), MUSTER_OK);
    job_await(scene);
    assert_int_equal(muster_params_table_start(&scene->call.op, scene->params, &weights,
                                               &scene->table, deadline_of(scene), on_call),
                     MUSTER_OK);
    job_await(scene);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        scene->values[i] = (float)i;
    job_tensor(scene, MUSTER_PARAMS_DIRECTION_PUSH, 0);
    assert_int_equal(
        muster_params_tick_start(&scene->call.op, scene->params, 1, deadline_of(scene), on_call),
        MUSTER_OK);
    job_await(scene);
    memset(scene->values, 0x55, sizeof(scene->values));
    job_tensor(scene, MUSTER_PARAMS_DIRECTION_PULL, 1);

    for (uint32_t i = 0; i < ELEMENTS; i++)
        assert_true(scene->values[i] == (float)i);
    for (uint32_t i = 0; i < 2; i++)
        digests[i] = digest_of(scene, i);
    assert_memory_equal(&digests[0], &digests[1], sizeof(digests[0]));
    muster_params_close(scene->params, deadline_of(scene), on_params);
    job_await(scene);
    params_job_close(&scene->job);
    free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_show_once_their_round_is_closed_and_whole),
        cmocka_unit_test(a_late_push_is_refused),
        cmocka_unit_test(a_tick_leaves_behind_the_pushes_before_it),
        cmocka_unit_test(both_servers_have_the_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
