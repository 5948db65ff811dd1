/* A client and a server of parameters over sockets: what is pushed counts once, whatever dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

#define ELEMENTS 4u
#define SHARDS   8u

static struct muster_params_schema counters_schema(void)
{
    return (struct muster_params_schema){.name = "counters",
                                         .row_elements = ELEMENTS,
                                         .wire_dtype = MUSTER_F32,
                                         .optimizer = MUSTER_PARAMS_ADD};
}

static void what_is_pushed_is_pulled(void **state)
{
    struct params_stand stand;
    struct muster_params_schema schema = counters_schema();
    struct muster_params *params;
    struct muster_params_table *table;
    static const uint64_t keys[] = {5, 1000000007, 5};
    float values[3 * ELEMENTS] = {1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400}, found[8];

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &schema);
    assert_int_equal(params_stand_push(&stand, table, keys, values, 3, NULL), MUSTER_OK);
    assert_int_equal(params_stand_pull(&stand, table, keys, found, 2, NULL), MUSTER_OK);

    assert_memory_equal(found, ((const float[]){101, 202, 303, 404, 10, 20, 30, 40}),
                        sizeof(found));
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Deaths --- */

#define PUSHES 200u

struct storm {
    struct params_stand *stand;
    struct muster_params_table *table;
    struct muster_params_op ops[PUSHES];
    uint64_t keys[PUSHES];
    float values[PUSHES][ELEMENTS];
    unsigned done, failed;
};

static void on_storm(struct muster_params_op *op, enum muster_rc rc)
{
    struct storm *storm = op->data;

    storm->done++;
    storm->failed += rc != MUSTER_OK;
}

static void storm_start(struct storm *storm, unsigned i)
{
    struct muster_params_rows rows = {
        .keys = &storm->keys[i], .values = storm->values[i], .count = 1};

    storm->keys[i] = i % 7;
    for (unsigned j = 0; j < ELEMENTS; j++)
        storm->values[i][j] = 1;
    storm->ops[i].data = storm;
    assert_int_equal(muster_params_push_start(&storm->ops[i], storm->table, &rows,
                                              params_stand_deadline(storm->stand), on_storm),
                     MUSTER_OK);
}

static bool storm_is_over(void *data)
{
    return ((struct storm *)data)->done == PUSHES;
}

static void check_counts(struct params_stand *stand, struct muster_params_table *table)
{
    uint64_t keys[7];
    float found[7][ELEMENTS], sum = 0;

    for (unsigned i = 0; i < 7; i++)
        keys[i] = i;
    assert_int_equal(params_stand_pull(stand, table, keys, found, 7, NULL), MUSTER_OK);
    for (unsigned i = 0; i < 7; i++)
        sum += found[i][0];
    assert_true(sum == PUSHES);
}

/* The server dies with messages unread, applied, and answered to nobody. */
static void a_server_that_dies_loses_and_doubles_nothing(void **state)
{
    struct params_stand stand;
    static struct storm storm;
    struct muster_params_schema schema = counters_schema();
    struct muster_params *params;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    memset(&storm, 0, sizeof(storm));
    storm.stand = &stand;
    storm.table = params_stand_table(&stand, params, &schema);
    for (unsigned i = 0; i < PUSHES; i++) {
        storm_start(&storm, i);
        test_env_turn(&stand.test.env, i % 3);
        if (i % 10 != 9)
            continue;
        params_stand_kill(&stand);
        params_stand_serve(&stand);
    }
    test_env_run_until(&stand.test.env, storm_is_over, &storm);

    assert_int_equal(storm.failed, 0);
    check_counts(&stand, storm.table);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Two processes with one name --- */

static const uint64_t key = 5;
static float ones[ELEMENTS] = {1, 1, 1, 1};

static void a_younger_process_pushes_behind_the_older_one(void **state)
{
    struct params_stand stand;
    struct muster_params_schema schema = counters_schema();
    struct muster_params *params;
    struct muster_params_table *table;
    float found[ELEMENTS];

    (void)state;
    params_stand_open(&stand, SHARDS);
    for (unsigned i = 1; i <= 3; i++) {
        params = params_stand_client(&stand, "worker:0");
        table = params_stand_table(&stand, params, &schema);
        assert_int_equal(params_stand_push(&stand, table, &key, ones, 1, NULL), MUSTER_OK);
        assert_int_equal(params_stand_pull(&stand, table, &key, found, 1, NULL), MUSTER_OK);

        assert_true(found[0] == (float)i);
        assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    }
    params_stand_close(&stand);
}

struct pair {
    struct params_stand stand;
    struct muster_params *older, *younger;
    struct muster_params_table *older_table, *younger_table;
};

/* Both have lost their links, and connect again in an order of their own. */
static void pair_open(struct pair *pair)
{
    struct muster_params_schema schema = counters_schema();

    params_stand_open(&pair->stand, SHARDS);
    pair->older = params_stand_client(&pair->stand, "worker:0");
    pair->older_table = params_stand_table(&pair->stand, pair->older, &schema);
    pair->younger = params_stand_client(&pair->stand, "worker:0");
    pair->younger_table = params_stand_table(&pair->stand, pair->younger, &schema);
    params_stand_kill(&pair->stand);
    params_stand_serve(&pair->stand);
}

static void an_older_process_that_connects_again_is_refused(void **state)
{
    struct pair pair;

    (void)state;
    pair_open(&pair);

    assert_int_equal(params_stand_push(&pair.stand, pair.older_table, &key, ones, 1, NULL),
                     MUSTER_ABORTED);
    assert_int_equal(params_stand_push(&pair.stand, pair.younger_table, &key, ones, 1, NULL),
                     MUSTER_OK);
    assert_int_equal(params_stand_push(&pair.stand, pair.older_table, &key, ones, 1, NULL),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(params_stand_leave(&pair.stand, pair.younger), MUSTER_OK);
    (void)params_stand_leave(&pair.stand, pair.older);
    params_stand_close(&pair.stand);
}

/* Its push will not be acknowledged any more. */
static void a_client_that_is_refused_closes_before_its_deadline(void **state)
{
    struct pair pair;
    uint64_t deadline_ns;

    (void)state;
    pair_open(&pair);
    assert_int_equal(params_stand_push(&pair.stand, pair.older_table, &key, ones, 1, NULL),
                     MUSTER_ABORTED);
    deadline_ns = params_stand_deadline(&pair.stand);

    assert_int_equal(params_stand_leave(&pair.stand, pair.older), MUSTER_DEADLINE_EXCEEDED);
    assert_true(muster_loop_now_ns(pair.stand.test.env.loop) < deadline_ns);
    assert_int_equal(params_stand_leave(&pair.stand, pair.younger), MUSTER_OK);
    params_stand_close(&pair.stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_pushed_is_pulled),
        cmocka_unit_test(a_server_that_dies_loses_and_doubles_nothing),
        cmocka_unit_test(a_younger_process_pushes_behind_the_older_one),
        cmocka_unit_test(an_older_process_that_connects_again_is_refused),
        cmocka_unit_test(a_client_that_is_refused_closes_before_its_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
