/* Pushes that are answered with the rows behind them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"
#include "params_stand.h"

#include <string.h>

#include "params/client/client_internal.h"

#define SHARDS 8u

static const struct muster_params_schema pairs = {
    .name = "pairs", .row_elements = 2, .wire_dtype = MUSTER_F32, .optimizer = MUSTER_PARAMS_ADD};

/* --- With a server --- */

static void the_rows_behind_a_push_come_in_the_order_of_its_keys(void **state)
{
    static const uint64_t keys[] = {9, 4, 9, 1000000007};
    float values[] = {1, 2, 10, 20, 100, 200, 5, 6}, found[8] = {0};
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &pairs);
    assert_int_equal(params_stand_push(&stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_int_equal(params_stand_push_pull(&stand, table, keys, values, 4, found, NULL),
                     MUSTER_OK);

    assert_memory_equal(found, ((const float[]){102, 204, 10, 20, 102, 204, 5, 6}), sizeof(found));
    assert_int_equal(
        params_stand_push_pull(&stand, table, &keys[1], &values[2], 1, &values[2], NULL),
        MUSTER_OK);
    assert_true(values[2] == 20 && values[3] == 40); /* in place */
    assert_int_equal(params_stand_stats(&stand).pushes, 3);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

struct turn_op {
    struct muster_params_op op;
    unsigned *left;
    float value, found;
};

static void on_turn_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct turn_op *one = op->data;

    assert_int_equal(rc, MUSTER_OK);
    --*one->left;
}

static bool is_zero(void *data)
{
    return *(unsigned *)data == 0;
}

/* All pushes of one turn go to one row. */
static void pushes_with_and_without_an_answer_keep_their_order(void **state)
{
    static const struct muster_params_schema last = {.name = "last",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ASSIGN};
    static const uint64_t key = 3;
    static const bool has_answer[] = {true, false, false, true, true, false};
    struct turn_op ops[6];
    unsigned left = 6;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    float found = 0;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &last);
    for (unsigned i = 0; i < 6; i++) {
        struct turn_op *one = &ops[i];
        const struct muster_params_rows rows = {&key, &one->value, 1};
        uint64_t deadline_ns = params_stand_deadline(&stand);

        *one = (struct turn_op){.op = {.data = one}, .left = &left, .value = (float)(i + 1)};
        assert_int_equal(
            has_answer[i]
                ? muster_params_push_pull_start(&one->op, table, &rows, &one->found, deadline_ns,
                                                on_turn_op)
                : muster_params_push_start(&one->op, table, &rows, deadline_ns, on_turn_op),
            MUSTER_OK);
    }
    test_env_run_until(&stand.test.env, is_zero, &left);
    assert_int_equal(params_stand_pull(&stand, table, &key, &found, 1, NULL), MUSTER_OK);

    assert_true(found == 6);
    assert_true(ops[0].found == 1);
    assert_true(ops[3].found == 5 && ops[4].found == 5); /* of one message */
    assert_int_equal(params_stand_stats(&stand).pushes, 4);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

static void a_push_without_room_for_its_answer_is_refused(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    float value = 1;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    assert_int_equal(params_stand_push_pull(&stand,
                                            params_stand_table(&stand, params, &puppet_counters),
                                            &(uint64_t){1}, &value, 1, NULL, NULL),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- With played servers --- */

static void push_pull_start(struct params_puppets *puppets, struct muster_params_table *table,
                            struct params_call *call, const uint32_t *shards, uint32_t count)
{
    struct muster_params_rows rows = puppet_call_init(call, table->name, shards, count);

    assert_int_equal(muster_params_push_pull_start(&call->op, table, &rows, call->values,
                                                   puppet_deadline(puppets), params_on_call),
                     MUSTER_OK);
}

static void answer_send(struct params_puppet *puppet, const struct puppet_rows *seen,
                        const float *values, uint32_t rows, uint32_t refused)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_ROWS,
                                               .flags = MUSTER_PARAMS_REFUSED_PUSH,
                                               .phase = refused,
                                               .chunk = seen->frame.header.chunk,
                                               .offset = seen->frame.header.offset,
                                               .payload_bytes = rows * (uint32_t)sizeof(float)};

    params_puppet_send(puppet, &header, values);
}

static void each_row_gets_its_value_wherever_it_was_pushed(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call call;
    struct puppet_rows seen[2];

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    push_pull_start(&puppets, table, &call, (const uint32_t[]){6, 1, 5, 0}, 4);
    seen[0] = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH_PULL);
    seen[1] = puppet_rows_expect(&puppets.list[1], MUSTER_PARAMS_PUSH_PULL);
    assert_int_equal(seen[0].frame.header.offset, 1);
    assert_int_equal(seen[1].frame.header.offset, 1);
    answer_send(&puppets.list[1], &seen[1], (const float[]){50, 60}, 2, 0);
    answer_send(&puppets.list[0], &seen[0], (const float[]){0.5f, 10}, 2, 0);

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    assert_memory_equal(call.values, ((const float[]){60, 10, 50, 0.5f}), 4 * sizeof(float));
    puppet_scene_close(&puppets);
}

static void a_push_that_is_cut_finds_its_rows_places(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call call;
    struct puppet_rows seen[2];

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    push_pull_start(&puppets, table, &call, (const uint32_t[]){2, 1, 0}, 3);
    (void)puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH_PULL);
    params_puppets_move(&puppets, 1, 1, 0);
    seen[0] = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH_PULL);
    seen[1] = puppet_rows_expect(&puppets.list[1], MUSTER_PARAMS_PUSH_PULL);
    assert_int_equal(seen[0].rows.run_count, 2);
    assert_int_equal(seen[1].rows.run_count, 1);
    answer_send(&puppets.list[0], &seen[0], (const float[]){10, 12}, 2, 0);
    answer_send(&puppets.list[1], &seen[1], (const float[]){11}, 1, 0);

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    assert_memory_equal(call.values, ((const float[]){12, 11, 10}), 3 * sizeof(float));
    puppet_scene_close(&puppets);
}

static void refused_rows_are_told_with_the_values(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call call;
    struct puppet_rows seen;

    (void)state;
    puppet_scene_open(&puppets, 1, &table);
    push_pull_start(&puppets, table, &call, (const uint32_t[]){2, 1}, 2);
    seen = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH_PULL);
    answer_send(&puppets.list[0], &seen, (const float[]){0, 8}, 2, 1);

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(
        strstr(call.op.error.text, "has no memory for 1 or more new rows of table counters"));
    assert_true(call.values[0] == 8 && call.values[1] == 0);
    puppet_scene_close(&puppets);
}

/* Values too few, and an acknowledgement without any: the first costs the link, the second is passed over. */
static void an_answer_of_another_shape_is_not_taken(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call call;
    struct puppet_rows seen;

    (void)state;
    puppet_scene_open(&puppets, 1, &table);
    push_pull_start(&puppets, table, &call, (const uint32_t[]){2, 1}, 2);
    seen = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH_PULL);
    params_puppet_acknowledge(&puppets.list[0], 1);
    answer_send(&puppets.list[0], &seen, (const float[]){7}, 1, 0);
    params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_OPEN);
    assert_false(call.is_done);
    params_puppet_opened(&puppets.list[0], 10, 1, 1);
    seen = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH_PULL);
    answer_send(&puppets.list[0], &seen, (const float[]){7, 8}, 2, 0);

    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    assert_true(call.values[0] == 8 && call.values[1] == 7);
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rows_behind_a_push_come_in_the_order_of_its_keys),
        cmocka_unit_test(pushes_with_and_without_an_answer_keep_their_order),
        cmocka_unit_test(a_push_without_room_for_its_answer_is_refused),
        cmocka_unit_test(each_row_gets_its_value_wherever_it_was_pushed),
        cmocka_unit_test(a_push_that_is_cut_finds_its_rows_places),
        cmocka_unit_test(refused_rows_are_told_with_the_values),
        cmocka_unit_test(an_answer_of_another_shape_is_not_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
