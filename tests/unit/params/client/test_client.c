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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_pushed_is_pulled),
        cmocka_unit_test(a_server_that_dies_loses_and_doubles_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
