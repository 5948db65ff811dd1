/* The metrics of a server of parameters show what clients have done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

#include <muster/metrics.h>

#define ELEMENTS 2u
#define SHARDS   8u

static void check_line(const char *text, const char *line)
{
    if (strstr(text, line) == NULL)
        fail_msg("no %s in %s", line, text);
}

static void metrics_show_what_clients_have_done(void **state)
{
    const struct muster_params_schema schema = {.name = "counters",
                                                .row_elements = ELEMENTS,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};
    static const char *const lines[] = {"\nmuster_params_pushes_total 2\n",
                                        "\nmuster_params_pulls_total 1\n",
                                        "\nmuster_params_rows_total{op=\"push\"} 4\n",
                                        "\nmuster_params_rows_total{op=\"pull\"} 1\n",
                                        "\nmuster_params_bytes_total{op=\"push\"} 32\n",
                                        "\nmuster_params_bytes_total{op=\"pull\"} 8\n",
                                        "\nmuster_params_apply_seconds_count 1\n",
                                        "\nmuster_params_ack_wait_seconds_count 0\n",
                                        "\nmuster_params_clock_low 0\n",
                                        "\nmuster_params_replica_lag_frames 0\n",
                                        "\nmuster_params_dup_refused_total 0\n",
                                        "\nmuster_params_refused_rows_total 0\n",
                                        "\nmuster_params_table_rows 3\n",
                                        "\nmuster_params_tables 1\n",
                                        "\nmuster_params_memory_max_bytes 16777216\n",
                                        "\nmuster_params_sources 1\n",
                                        "\nmuster_params_clients 1\n",
                                        "# TYPE muster_params_memory_bytes gauge\n"};
    static const uint64_t keys[] = {5, 6, 7};
    float values[3 * ELEMENTS] = {0};
    struct muster_params_table *table;
    struct muster_params *params;
    struct params_stand stand;
    struct muster_env *env = &stand.test.env;
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params_stand_kill(&stand);
    assert_int_equal(muster_metrics_open(env->mem, &env->metrics), MUSTER_OK);
    params_stand_serve(&stand);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &schema);
    assert_int_equal(params_stand_push(&stand, table, keys, values, 3, NULL), MUSTER_OK);
    assert_int_equal(params_stand_push(&stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_int_equal(params_stand_pull(&stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_int_equal(muster_metrics_format(env->metrics, env->mem, &text, &bytes), MUSTER_OK);

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        check_line(text, lines[i]);
    muster_mem_free(env->mem, text);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_kill(&stand);
    assert_int_equal(muster_metrics_format(env->metrics, env->mem, &text, &bytes), MUSTER_OK);
    assert_null(strstr(text, "muster_params_"));
    muster_mem_free(env->mem, text);
    muster_metrics_close(env->metrics);
    env->metrics = NULL;
    params_stand_close(&stand);
}

static void metrics_show_which_rows_came_and_went(void **state)
{
    const struct muster_params_schema schemas[] = {{.name = "few",
                                                    .row_elements = ELEMENTS,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .rows_max = 1},
                                                   {.name = "late",
                                                    .row_elements = ELEMENTS,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .admit_after = 2}};
    float values[ELEMENTS] = {0};
    struct muster_params *params;
    struct params_stand stand;
    struct muster_env *env = &stand.test.env;
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    params_stand_open(&stand, 1);
    params_stand_kill(&stand);
    assert_int_equal(muster_metrics_open(env->mem, &env->metrics), MUSTER_OK);
    params_stand_serve(&stand);
    params = params_stand_client(&stand, NULL);
    for (size_t i = 0; i < 2; i++) {
        struct muster_params_table *table = params_stand_table(&stand, params, &schemas[i]);

        for (uint64_t key = 0; key < 3; key++)
            assert_int_equal(params_stand_push(&stand, table, &key, values, 1, NULL), MUSTER_OK);
    }
    assert_int_equal(muster_metrics_format(env->metrics, env->mem, &text, &bytes), MUSTER_OK);

    check_line(text, "\nmuster_params_removed_rows_total{reason=\"limit\"} 2\n");
    check_line(text, "\nmuster_params_removed_rows_total{reason=\"age\"} 0\n");
    check_line(text, "\nmuster_params_unadmitted_rows_total 3\n");
    check_line(text, "\nmuster_params_refused_rows_total 0\n");
    check_line(text, "\nmuster_params_table_rows 1\n");
    muster_mem_free(env->mem, text);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_kill(&stand);
    muster_metrics_close(env->metrics);
    env->metrics = NULL;
    params_stand_close(&stand);
}

static void metrics_show_how_far_sources_are(void **state)
{
    struct muster_params *slow, *fast;
    struct params_stand stand;
    struct muster_env *env = &stand.test.env;
    struct muster_error error;
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params_stand_kill(&stand);
    assert_int_equal(muster_metrics_open(env->mem, &env->metrics), MUSTER_OK);
    params_stand_serve(&stand);
    slow = params_stand_source(&stand, NULL, 2);
    fast = params_stand_source(&stand, NULL, 2);
    assert_int_equal(params_stand_tick(&stand, slow, 4, 1, &error), MUSTER_OK);
    assert_int_equal(params_stand_tick(&stand, fast, 9, 1, &error), MUSTER_OK);
    assert_int_equal(muster_metrics_format(env->metrics, env->mem, &text, &bytes), MUSTER_OK);

    check_line(text, "\nmuster_params_clock_low 4\n");
    check_line(text, "\nmuster_params_clock_lag 5\n");
    muster_mem_free(env->mem, text);
    assert_int_equal(params_stand_leave(&stand, slow), MUSTER_OK);
    assert_int_equal(params_stand_leave(&stand, fast), MUSTER_OK);
    params_stand_kill(&stand);
    muster_metrics_close(env->metrics);
    env->metrics = NULL;
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_show_what_clients_have_done),
        cmocka_unit_test(metrics_show_which_rows_came_and_went),
        cmocka_unit_test(metrics_show_how_far_sources_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
