/* Pushes to a tensor and pulls from it, by ranges of elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_calls.h"
#include "params_tensors.h"

#include <stdlib.h>
#include <string.h>

#include <muster/collective.h>

#include "params/client/client_internal.h"

#define SHARDS       8u
#define BLOCK        1024u
#define EXTENT       (BLOCK * MUSTER_PARAMS_EXTENT_BLOCKS)
#define ELEMENTS     (40u * EXTENT + 3u * BLOCK + 17u) /* 10.5 MB, the last block in part */
#define MEMORY_BYTES ((size_t)64 << 20)

static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = ELEMENTS};

static void scene_open(struct params_tensors *scene, const struct muster_params_schema *schema)
{
    params_stand_open_in(&scene->stand, SHARDS, MEMORY_BYTES);
    params_tensors_enter(scene, params_stand_source(&scene->stand, NULL, 1), schema);
}

static enum muster_rc range_start(struct params_tensors *scene, struct muster_params_op *op,
                                  const struct muster_params_range *range,
                                  enum muster_params_direction direction)
{
    return muster_params_tensor_start(op, scene->table, range, direction,
                                      params_stand_deadline(&scene->stand), params_tensors_on_op);
}

static enum muster_rc range_do(struct params_tensors *scene, uint64_t offset, uint64_t count,
                               void *values, enum muster_params_direction direction)
{
    const struct muster_params_range range = {.offset = offset, .count = count, .values = values};

    return params_tensors_move(scene, scene->table, &range, direction);
}

static enum muster_rc range_push(struct params_tensors *scene, uint64_t offset, uint64_t count,
                                 void *values)
{
    return range_do(scene, offset, count, values, MUSTER_PARAMS_DIRECTION_PUSH);
}

static enum muster_rc range_pull(struct params_tensors *scene, uint64_t offset, uint64_t count,
                                 void *values)
{
    return range_do(scene, offset, count, values, MUSTER_PARAMS_DIRECTION_PULL);
}

static float *floats_new(size_t count)
{
    float *values = malloc(count * sizeof(*values));

    assert_non_null(values);
    return values;
}

/* --- Values --- */

static void a_tensor_is_pulled_as_the_sum_of_its_pushes(void **state)
{
    struct params_tensors scene;
    float *ramp = params_ramp_new(ELEMENTS, 1), *found = params_ramp_new(ELEMENTS, 5);

    (void)state;
    scene_open(&scene, &weights);
    assert_int_equal(range_push(&scene, 0, 0, ramp), MUSTER_OK);
    assert_int_equal(range_push(&scene, 0, ELEMENTS, ramp), MUSTER_OK);
    assert_int_equal(range_pull(&scene, 0, 0, found), MUSTER_OK);

    params_ramp_expect(found, 0, ELEMENTS, 2);
    assert_int_equal(params_stand_stats(&scene.stand).duplicate_runs, 0);
    free(ramp);
    free(found);
    params_tensors_leave(&scene);
}

static void a_range_that_is_pulled_begins_and_ends_anywhere(void **state)
{
    static const struct {
        uint64_t offset, count;
    } rows[] = {{0, 1},          {BLOCK - 1, 2},      {BLOCK, BLOCK},        {5, 3 * BLOCK},
                {EXTENT - 1, 2}, {7, 3 * EXTENT + 1}, {ELEMENTS - 1, 1},     {ELEMENTS - BLOCK, 0},
                {EXTENT, 0},     {EXTENT + 1, 500},   {BLOCK - 3, BLOCK + 6}};
    struct params_tensors scene;
    float *ramp = params_ramp_new(ELEMENTS, 1), *found = floats_new(ELEMENTS);

    (void)state;
    scene_open(&scene, &weights);
    assert_int_equal(range_push(&scene, 0, 0, ramp), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t count = rows[i].count > 0 ? rows[i].count : ELEMENTS - rows[i].offset;

        found[count < ELEMENTS ? count : 0] = -1;
        assert_int_equal(range_pull(&scene, rows[i].offset, rows[i].count, found), MUSTER_OK);
        params_ramp_expect(found, rows[i].offset, count, 1);
        assert_true(count == ELEMENTS || found[count] < 0);
    }
    free(ramp);
    free(found);
    params_tensors_leave(&scene);
}

static void values_of_16_bits_are_sums_of_32_bits_on_the_server(void **state)
{
    static const enum muster_dtype dtypes[] = {MUSTER_F16, MUSTER_BF16};
    uint16_t *halves = malloc(ELEMENTS * sizeof(*halves));

    (void)state;
    assert_non_null(halves);
    for (size_t i = 0; i < 2; i++) {
        struct muster_params_schema schema = weights;
        bool is_f16 = dtypes[i] == MUSTER_F16;
        struct params_tensors scene;

        schema.wire_dtype = dtypes[i];
        scene_open(&scene, &schema);
        for (size_t j = 0; j < ELEMENTS; j++)
            halves[j] = is_f16 ? muster_f16_from_f32((float)(j % 100))
                               : muster_bf16_from_f32((float)(j % 100));
        assert_int_equal(range_push(&scene, 0, 0, halves), MUSTER_OK);
        assert_int_equal(range_push(&scene, 0, 0, halves), MUSTER_OK);
        assert_int_equal(range_pull(&scene, 3, ELEMENTS - 3, halves), MUSTER_OK);
        for (size_t j = 3; j < ELEMENTS; j++) {
            float found =
                is_f16 ? muster_f16_to_f32(halves[j - 3]) : muster_bf16_to_f32(halves[j - 3]);

            assert_true(found <= (float)(j % 100) * 2 && found >= (float)(j % 100) * 2);
        }
        params_tensors_leave(&scene);
    }
    free(halves);
}

static void blocks_that_nothing_was_pushed_to_have_initial_values(void **state)
{
    struct muster_params_schema schema = weights;
    float *one = params_ramp_new(BLOCK, 1), found[2 * BLOCK];
    struct params_tensors scene;

    (void)state;
    schema.init = MUSTER_PARAMS_INIT_CONSTANT;
    schema.init_scale = 3;
    scene_open(&scene, &schema);
    assert_int_equal(range_push(&scene, EXTENT, BLOCK, one), MUSTER_OK);
    assert_int_equal(range_pull(&scene, EXTENT - BLOCK, 2 * (uint64_t)BLOCK, found), MUSTER_OK);

    for (size_t i = 0; i < BLOCK; i++)
        assert_true(found[i] <= 3 && found[i] >= 3);
    for (size_t i = 0; i < BLOCK; i++)
        found[BLOCK + i] -= 3;
    params_ramp_expect(found + BLOCK, 0, BLOCK, 1);
    free(one);
    params_tensors_leave(&scene);
}

/* --- Refusals --- */

static void ranges_that_no_tensor_has_are_refused_before_they_leave(void **state)
{
    static const struct {
        const char *name;
        uint64_t offset, count;
        enum muster_params_direction direction;
    } rows[] = {
        {"behind the end", ELEMENTS, 0, MUSTER_PARAMS_DIRECTION_PULL},
        {"beyond the end", ELEMENTS - 1, 2, MUSTER_PARAMS_DIRECTION_PULL},
        {"an end that overflows", 1, UINT64_MAX, MUSTER_PARAMS_DIRECTION_PULL},
        {"an offset that overflows", UINT64_MAX, 2, MUSTER_PARAMS_DIRECTION_PULL},
        {"a push of half a block", 0, BLOCK / 2, MUSTER_PARAMS_DIRECTION_PUSH},
        {"a push from within a block", 1, BLOCK, MUSTER_PARAMS_DIRECTION_PUSH},
    };
    struct params_tensors scene;
    float value[2 * BLOCK] = {0};

    (void)state;
    scene_open(&scene, &weights);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_rc rc =
            range_do(&scene, rows[i].offset, rows[i].count, value, rows[i].direction);

        if (rc != MUSTER_INVALID_ARGUMENT)
            fail_msg("%s: %s", rows[i].name, muster_rc_text(rc));
    }
    assert_int_equal(range_do(&scene, 0, BLOCK, NULL, MUSTER_PARAMS_DIRECTION_PULL),
                     MUSTER_INVALID_ARGUMENT); /* to nowhere */
    assert_int_equal(params_stand_push(&scene.stand, scene.table, &(uint64_t){1}, value, 1, NULL),
                     MUSTER_INVALID_ARGUMENT); /* by key */
    params_tensors_leave(&scene);
}

static void rows_are_no_tensor(void **state)
{
    static const struct muster_params_schema plain = {.name = "plain",
                                                      .row_elements = BLOCK,
                                                      .wire_dtype = MUSTER_F32,
                                                      .optimizer = MUSTER_PARAMS_ADD};
    struct params_tensors scene;
    float values[BLOCK] = {0};

    (void)state;
    scene_open(&scene, &plain);

    assert_int_equal(range_push(&scene, 0, BLOCK, values), MUSTER_INVALID_ARGUMENT);
    params_tensors_leave(&scene);
}

static void new_blocks_without_memory_are_refused_and_the_others_applied(void **state)
{
    struct params_tensors scene;
    float *ramp = params_ramp_new(ELEMENTS, 1), *found = floats_new(ELEMENTS);
    size_t applied = 0;

    (void)state;
    params_stand_open_in(&scene.stand, SHARDS, (size_t)16 << 20);
    scene.params = params_stand_client(&scene.stand, NULL);
    scene.table = params_stand_table(&scene.stand, scene.params, &weights);

    assert_int_equal(range_push(&scene, 0, 0, ramp), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(range_pull(&scene, 0, 0, found), MUSTER_OK);
    for (size_t i = 1; i < ELEMENTS; i++)
        applied += found[i] > 0;
    assert_true(applied > BLOCK && applied < ELEMENTS - BLOCK);
    free(ramp);
    free(found);
    params_tensors_leave(&scene);
}

/* --- Losses --- */

static bool some_are_applied(void *data)
{
    return params_stand_stats(data).pushes > 2;
}

static void a_push_counts_once_when_its_server_dies_in_the_middle(void **state)
{
    const struct muster_params_range range = {.values = params_ramp_new(ELEMENTS, 1)};
    float *found = floats_new(ELEMENTS);
    struct params_tensors scene;

    (void)state;
    scene_open(&scene, &weights);
    for (unsigned i = 1; i <= 5; i++) {
        struct params_outcome outcome = {.is_done = false};
        struct muster_params_op op = {.data = &outcome};

        assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PUSH), MUSTER_OK);
        test_env_run_until(&scene.stand.test.env, some_are_applied, &scene.stand);
        assert_false(outcome.is_done);
        params_stand_kill(&scene.stand);
        params_stand_serve(&scene.stand);
        assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_OK);
        assert_int_equal(range_pull(&scene, 0, 0, found), MUSTER_OK);
        params_ramp_expect(found, 0, ELEMENTS, (float)i);
    }
    free(range.values);
    free(found);
    params_tensors_leave(&scene);
}

/* Pieces that have left are applied later; the others do not leave. */
static void the_memory_of_a_push_that_was_cancelled_is_not_read_any_more(void **state)
{
    struct muster_params_range range = {.values = NULL};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    float *found = floats_new(ELEMENTS);
    struct params_tensors scene;
    size_t applied = 0;

    (void)state;
    scene_open(&scene, &weights);
    range.values = params_ramp_new(ELEMENTS, 1);
    assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PUSH), MUSTER_OK);
    test_env_run_until(&scene.stand.test.env, some_are_applied, &scene.stand);
    muster_params_op_cancel(&op);
    assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_CANCELLED);
    free(range.values); /* the address sanitizer sees who reads it */

    assert_int_equal(range_pull(&scene, 0, 0, found), MUSTER_OK);
    for (size_t i = 0; i < ELEMENTS; i++) {
        assert_true(found[i] <= 0 || (found[i] >= (float)i && found[i] <= (float)i));
        applied += found[i] > 0;
    }
    assert_true(applied > 0 && applied < ELEMENTS - 1);
    free(found);
    params_tensors_leave(&scene);
}

static void a_pull_that_was_cancelled_writes_nothing_later(void **state)
{
    struct muster_params_range range = {.values = floats_new(ELEMENTS)};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    float *found = floats_new(ELEMENTS);
    struct params_tensors scene;

    (void)state;
    scene_open(&scene, &weights);
    assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PULL), MUSTER_OK);
    for (unsigned i = 0; i < 4; i++)
        muster_loop_turn(scene.stand.test.env.loop, 0);
    muster_params_op_cancel(&op);
    assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_CANCELLED);
    free(range.values);

    assert_int_equal(range_pull(&scene, 0, 0, found), MUSTER_OK);
    free(found);
    params_tensors_leave(&scene);
}

/* --- Order --- */

static void operations_on_one_tensor_take_effect_in_their_order(void **state)
{
    struct muster_params_schema schema = weights;
    struct params_outcome outcomes[4] = {{.is_done = false}};
    struct muster_params_op ops[4];
    struct muster_params_range ranges[4];
    struct params_tensors scene;

    (void)state;
    schema.optimizer = MUSTER_PARAMS_ASSIGN;
    scene_open(&scene, &schema);
    for (unsigned i = 0; i < 4; i++) { /* push, pull, push, pull */
        ops[i] = (struct muster_params_op){.data = &outcomes[i]};
        ranges[i].values = params_ramp_new(ELEMENTS, (float)(i + 1));
        ranges[i] = (struct muster_params_range){.values = ranges[i].values};
        assert_int_equal(
            range_start(&scene, &ops[i], &ranges[i],
                        i % 2 == 0 ? MUSTER_PARAMS_DIRECTION_PUSH : MUSTER_PARAMS_DIRECTION_PULL),
            MUSTER_OK);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcomes[i]), MUSTER_OK);

    params_ramp_expect(ranges[1].values, 0, ELEMENTS, 1);
    params_ramp_expect(ranges[3].values, 0, ELEMENTS, 3);
    for (unsigned i = 0; i < 4; i++)
        free(ranges[i].values);
    params_tensors_leave(&scene);
}

static void a_small_push_passes_amid_a_large_one(void **state)
{
    static const struct muster_params_schema small = {.name = "small",
                                                      .row_elements = 1,
                                                      .wire_dtype = MUSTER_F32,
                                                      .optimizer = MUSTER_PARAMS_ADD};
    const struct muster_params_range range = {.values = params_ramp_new(ELEMENTS, 1)};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    struct muster_params_table *table;
    struct params_tensors scene;
    float one = 1;

    (void)state;
    scene_open(&scene, &weights);
    table = params_stand_table(&scene.stand, scene.params, &small);
    assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PUSH), MUSTER_OK);
    assert_int_equal(params_stand_push(&scene.stand, table, &(uint64_t){1}, &one, 1, NULL),
                     MUSTER_OK);

    assert_false(outcome.is_done);
    assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_OK);
    free(range.values);
    params_tensors_leave(&scene);
}

/* The server knows the clock only when all of the push is applied. */
static void a_tick_waits_for_pushes_to_tensors_before_it(void **state)
{
    const struct muster_params_range range = {.values = params_ramp_new(ELEMENTS, 1)};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    struct params_tensors scene;

    (void)state;
    scene_open(&scene, &weights);
    assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PUSH), MUSTER_OK);
    assert_int_equal(params_stand_tick(&scene.stand, scene.params, 1, 1, NULL), MUSTER_OK);

    assert_true(outcome.is_done && outcome.rc == MUSTER_OK);
    free(range.values);
    params_tensors_leave(&scene);
}

static void a_pull_with_a_clock_waits_for_the_slowest_source(void **state)
{
    float found[BLOCK], ones[BLOCK];
    const struct muster_params_range range = {.count = BLOCK, .values = found, .min_clock = 1};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    struct params_tensors scene;

    (void)state;
    for (size_t i = 0; i < BLOCK; i++)
        ones[i] = (float)i;
    scene_open(&scene, &weights);
    assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PULL), MUSTER_OK);
    assert_int_equal(range_push(&scene, 0, BLOCK, ones), MUSTER_OK);
    assert_false(outcome.is_done);
    assert_int_equal(params_stand_tick(&scene.stand, scene.params, 1, 1, NULL), MUSTER_OK);

    assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_OK);
    params_ramp_expect(found, 0, BLOCK, 1);
    params_tensors_leave(&scene);
}

/* A close waits for all of a push, also for what was in no message when it began. */
static void a_client_that_closes_sends_the_rest_of_a_push(void **state)
{
    const struct muster_params_range range = {.values = params_ramp_new(ELEMENTS, 1)};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    float *found = floats_new(ELEMENTS);
    struct params_tensors scene;

    (void)state;
    scene_open(&scene, &weights);
    assert_int_equal(range_start(&scene, &op, &range, MUSTER_PARAMS_DIRECTION_PUSH), MUSTER_OK);
    assert_int_equal(params_stand_leave(&scene.stand, scene.params), MUSTER_OK);
    assert_true(outcome.is_done && outcome.rc == MUSTER_OK);

    scene.params = params_stand_client(&scene.stand, NULL);
    scene.table = params_stand_table(&scene.stand, scene.params, &weights);
    assert_int_equal(range_pull(&scene, 0, 0, found), MUSTER_OK);
    params_ramp_expect(found, 0, ELEMENTS, 1);
    free(range.values);
    free(found);
    params_tensors_leave(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_pulled_as_the_sum_of_its_pushes),
        cmocka_unit_test(a_range_that_is_pulled_begins_and_ends_anywhere),
        cmocka_unit_test(values_of_16_bits_are_sums_of_32_bits_on_the_server),
        cmocka_unit_test(blocks_that_nothing_was_pushed_to_have_initial_values),
        cmocka_unit_test(ranges_that_no_tensor_has_are_refused_before_they_leave),
        cmocka_unit_test(rows_are_no_tensor),
        cmocka_unit_test(new_blocks_without_memory_are_refused_and_the_others_applied),
        cmocka_unit_test(a_push_counts_once_when_its_server_dies_in_the_middle),
        cmocka_unit_test(the_memory_of_a_push_that_was_cancelled_is_not_read_any_more),
        cmocka_unit_test(a_pull_that_was_cancelled_writes_nothing_later),
        cmocka_unit_test(operations_on_one_tensor_take_effect_in_their_order),
        cmocka_unit_test(a_small_push_passes_amid_a_large_one),
        cmocka_unit_test(a_tick_waits_for_pushes_to_tensors_before_it),
        cmocka_unit_test(a_pull_with_a_clock_waits_for_the_slowest_source),
        cmocka_unit_test(a_client_that_closes_sends_the_rest_of_a_push),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
