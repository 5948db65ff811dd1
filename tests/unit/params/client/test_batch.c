/* The operations of a turn in messages: how many there are, and in which order rows are applied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

#define SHARDS  64u
#define OPS_MAX 1000u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 4,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

/* Operations of one turn, one row each. */
struct turn {
    struct params_stand *stand;
    struct muster_params_table *table;
    struct muster_params_op ops[OPS_MAX];
    uint64_t keys[OPS_MAX];
    float values[OPS_MAX][4];
    unsigned started, done, failed;
};

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct turn *turn = op->data;

    turn->done++;
    turn->failed += rc != MUSTER_OK;
}

static void turn_start(struct turn *turn, uint64_t key, float value, bool is_push)
{
    unsigned i = turn->started++;
    const struct muster_params_rows rows = {
        .keys = &turn->keys[i], .values = turn->values[i], .count = 1};
    uint64_t deadline_ns = params_stand_deadline(turn->stand);

    turn->keys[i] = key;
    for (unsigned j = 0; j < 4; j++)
        turn->values[i][j] = value;
    turn->ops[i].data = turn;
    assert_int_equal(
        is_push ? muster_params_push_start(&turn->ops[i], turn->table, &rows, deadline_ns, on_op)
                : muster_params_pull_start(&turn->ops[i], turn->table, &rows, deadline_ns, on_op),
        MUSTER_OK);
}

static bool turn_is_over(void *data)
{
    const struct turn *turn = data;

    return turn->done == turn->started;
}

static void turn_await(struct turn *turn)
{
    test_env_run_until(&turn->stand->test.env, turn_is_over, turn);
    assert_int_equal(turn->failed, 0);
}

static struct turn turn; /* large */

static void turn_init(struct params_stand *stand, struct muster_params_table *table)
{
    memset(&turn, 0, sizeof(turn));
    turn.stand = stand;
    turn.table = table;
}

/* --- Frames --- */

static void small_operations_of_a_turn_share_a_frame(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_stats stats;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    turn_init(&stand, params_stand_table(&stand, params, &counters));
    for (unsigned i = 0; i < OPS_MAX / 2; i++) {
        turn_start(&turn, i, (float)i, true);
        turn_start(&turn, i, -1, false);
    }
    turn_await(&turn);
    stats = params_stand_stats(&stand);

    assert_int_equal(stats.pushes, 1);
    assert_int_equal(stats.pulls, 1);
    assert_int_equal(stats.pushed_rows, OPS_MAX / 2);
    assert_int_equal(stats.pulled_rows, OPS_MAX / 2);
    for (unsigned i = 0; i < OPS_MAX / 2; i++) /* pulls are behind the pushes of their turn */
        assert_true(turn.values[2 * i + 1][3] == (float)i);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

static void tables_and_turns_have_frames_of_their_own(void **state)
{
    struct muster_params_schema other = counters;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *tables[2];

    (void)state;
    other.name = "other";
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    tables[0] = params_stand_table(&stand, params, &counters);
    tables[1] = params_stand_table(&stand, params, &other);
    turn_init(&stand, NULL);
    for (unsigned i = 0; i < 20; i++) {
        turn.table = tables[i % 2];
        turn_start(&turn, i, 1, true);
    }
    turn_await(&turn);
    assert_int_equal(params_stand_stats(&stand).pushes, 2);
    for (unsigned i = 0; i < 3; i++) {
        turn_start(&turn, 1, 1, true);
        turn_await(&turn);
    }
    assert_int_equal(params_stand_stats(&stand).pushes, 5);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* A frame has at most 256 KiB of keys and values, and at least a row. */
static void an_operation_larger_than_a_frame_is_cut(void **state)
{
    enum { VALUES_MAX = 280000 };
    static const struct {
        const char *name;
        uint32_t elements;
        enum muster_dtype dtype;
        uint32_t count;
        uint64_t frames;
    } rows[] = {
        {"rows of a frame", 4, MUSTER_F32, 10922, 1},
        {"one more", 4, MUSTER_F32, 10923, 2},
        {"many", 4, MUSTER_F32, 70000, 7},
        {"halves", 1, MUSTER_BF16, 27000, 2},
        {"widest", 16384, MUSTER_F32, 7, 3},
    };
    static uint64_t keys[70000];
    static _Alignas(4) uint8_t pushed[VALUES_MAX * 4], pulled[VALUES_MAX * 4];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_params_schema schema = {.name = "t",
                                                    .row_elements = rows[i].elements,
                                                    .wire_dtype = rows[i].dtype,
                                                    .optimizer = MUSTER_PARAMS_ASSIGN};
        size_t values = (size_t)rows[i].count * rows[i].elements;
        struct params_stand stand;
        struct muster_params *params;
        struct muster_params_table *table;

        params_stand_open(&stand, SHARDS);
        params = params_stand_client(&stand, NULL);
        table = params_stand_table(&stand, params, &schema);
        assert_true(values <= VALUES_MAX);
        for (uint32_t j = 0; j < rows[i].count; j++)
            keys[j] = (uint64_t)j * 7919;
        for (size_t j = 0; j < values; j++) {
            if (rows[i].dtype == MUSTER_F32)
                ((float *)(void *)pushed)[j] = (float)j;
            else
                ((uint16_t *)(void *)pushed)[j] = (uint16_t)(0x3f80 + j % 128);
        }
        memset(pulled, 0xff, sizeof(pulled));
        assert_int_equal(params_stand_push(&stand, table, keys, pushed, rows[i].count, NULL),
                         MUSTER_OK);
        assert_int_equal(params_stand_pull(&stand, table, keys, pulled, rows[i].count, NULL),
                         MUSTER_OK);

        assert_memory_equal(pulled, pushed, values * muster_dtype_bytes(rows[i].dtype));
        fail_if(params_stand_stats(&stand).pushes != rows[i].frames, "%s: %u frames", rows[i].name,
                (unsigned)params_stand_stats(&stand).pushes);
        assert_int_equal(params_stand_stats(&stand).pulls, rows[i].frames);
        assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
        params_stand_close(&stand);
    }
}

/* --- Order --- */

static void rows_are_applied_in_the_order_of_starts(void **state)
{
    struct muster_params_schema last = counters;
    struct params_stand stand;
    struct muster_params *params;
    uint64_t keys[10];
    float found[10][4];

    (void)state;
    last.optimizer = MUSTER_PARAMS_ASSIGN;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    turn_init(&stand, params_stand_table(&stand, params, &last));
    for (unsigned i = 0; i < OPS_MAX; i++) {
        turn_start(&turn, i % 10, (float)i, true);
        if (i % 100 == 99) /* the last frame may not have left */
            test_env_turn(&stand.test.env, 1);
    }
    turn_await(&turn);
    for (unsigned i = 0; i < 10; i++)
        keys[i] = i;
    assert_int_equal(params_stand_pull(&stand, turn.table, keys, found, 10, NULL), MUSTER_OK);

    for (unsigned i = 0; i < 10; i++)
        assert_true(found[i][0] == (float)(OPS_MAX - 10 + i));
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Without memory --- */

#define TRIES_MAX 50u

struct retry {
    struct params_stand *stand;
    struct muster_params_table *table;
    const struct muster_params_rows *rows;
    unsigned tries;
    bool is_done;
    enum muster_rc rc;
};

/* As a program does that does not give up. */
static void on_retry(struct muster_params_op *op, enum muster_rc rc)
{
    struct retry *retry = op->data;

    retry->rc = rc;
    retry->is_done = rc == MUSTER_OK || ++retry->tries == TRIES_MAX;
    if (!retry->is_done)
        assert_int_equal(muster_params_push_start(op, retry->table, retry->rows,
                                                  params_stand_deadline(retry->stand), on_retry),
                         MUSTER_OK);
}

static bool has_tried(void *data)
{
    return ((struct retry *)data)->tries > 0;
}

static void what_there_was_no_memory_for_is_tried_again_in_another_turn(void **state)
{
    static uint64_t keys[5000];
    static float values[5000][4];
    const struct muster_params_rows rows = {.keys = keys, .values = values, .count = 5000};
    struct params_stand stand;
    struct muster_params *params;
    struct retry retry = {.stand = &stand, .rows = &rows};
    struct muster_params_op op = {.data = &retry};

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    retry.table = params_stand_table(&stand, params, &counters);
    stand.test.mem.limit_bytes = stand.test.mem.held_bytes;
    assert_int_equal(
        muster_params_push_start(&op, retry.table, &rows, params_stand_deadline(&stand), on_retry),
        MUSTER_OK);
    test_env_run_until(&stand.test.env, has_tried, &retry);

    assert_int_equal(retry.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(retry.tries, 1);
    assert_string_equal(op.error.text, "no memory for the messages of a turn");
    stand.test.mem.limit_bytes = 0;
    test_env_run_until(&stand.test.env, test_env_is_true, &retry.is_done);
    assert_int_equal(retry.rc, MUSTER_OK);
    assert_int_equal(params_stand_stats(&stand).pushed_rows, 5000);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_operations_of_a_turn_share_a_frame),
        cmocka_unit_test(tables_and_turns_have_frames_of_their_own),
        cmocka_unit_test(an_operation_larger_than_a_frame_is_cut),
        cmocka_unit_test(rows_are_applied_in_the_order_of_starts),
        cmocka_unit_test(what_there_was_no_memory_for_is_tried_again_in_another_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
