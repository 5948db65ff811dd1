/* Reports are one valid JSON object per line, whatever names and values a program gives. */
#include "test_env.h"
#include "test_vars.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "training/report.h"

/* A report on a pipe; `text` gets everything written when it is closed. */
struct bench {
    struct test_env test;
    struct test_vars vars;
    struct test_var list[2];
    char fd[16];
    int pipe[2];
    struct muster_report *report;
    char text[32768];
};

static void bench_open(struct bench *bench)
{
    test_env_open(&bench->test);
    assert_int_equal(pipe(bench->pipe), 0);
    snprintf(bench->fd, sizeof(bench->fd), "%d", bench->pipe[1]);
    bench->list[0] = (struct test_var){"MUSTER_REPORT_FD", bench->fd};
    bench->list[1] = (struct test_var){NULL, NULL};
    test_vars_init(&bench->vars, bench->list);
    bench->test.env.vars = &bench->vars.vars;
    assert_int_equal(muster_report_open(&bench->test.env, &bench->report, NULL), MUSTER_OK);
}

static void bench_close(struct bench *bench)
{
    ssize_t length;

    muster_report_close(bench->report);
    length = read(bench->pipe[0], bench->text, sizeof(bench->text) - 1);
    bench->text[length > 0 ? length : 0] = '\0';
    close(bench->pipe[0]);
    test_env_close(&bench->test);
}

static void progress_carries_the_named_values(void **state)
{
    static struct bench bench;
    struct muster_report_values values = {.count = 0};

    (void)state;
    bench_open(&bench);
    muster_report_values_set(&values, "loss", 0.5);
    muster_report_values_set(&values, "images_per_s", 100);
    muster_report_values_set(&values, "loss", 0.25);

    muster_report_progress(bench.report, 150, 2, 3, &values);

    bench_close(&bench);
    assert_string_equal(bench.text,
                        "{\"report\":\"progress\",\"step\":150,\"epoch\":2,\"members\":3,"
                        "\"values\":{\"loss\":0.25,\"images_per_s\":100}}\n");
}

/* Each of these calls would wait for a reader if it could. */
static void a_launcher_that_does_not_read_holds_up_nobody_and_misses_nothing_final(void **state)
{
    static struct bench bench;
    struct muster_activity activity;
    struct muster_report_activity at = {
        .activity = &activity, .waits_for = "", .op = "", .stands_for = ""};
    struct muster_report_values values = {.count = 0};
    struct muster_report_result result = {.steps = 9, .digest = "d"};
    const char *told;

    (void)state;
    bench_open(&bench);
    muster_activity_init(&activity, 0);
    assert_true(fcntl(bench.pipe[1], F_SETPIPE_SZ, 16384) >= 0);
    for (uint64_t step = 0; step < 10000; step++)
        muster_report_progress(bench.report, step, 1, 3, &values);
    muster_report_delivered(bench.report, 2, 7);
    muster_report_activity(bench.report, &at);
    muster_report_result(bench.report, &result, &values);
    assert_true(read(bench.pipe[0], bench.text, sizeof(bench.text)) > 0);
    muster_report_activity(bench.report, &at);
    bench_close(&bench);

    told = strstr(bench.text, "{\"report\":\"delivered\"");
    assert_ptr_equal(told, bench.text);
    told = strstr(told, "}\n{\"report\":\"result\",\"steps\":9,");
    assert_non_null(told);
    told = strstr(told, "}\n{\"report\":\"activity\"");
    assert_non_null(told);
    told = strstr(told, ",\"dropped\":");
    assert_non_null(told);
    assert_in_range(strtoul(told + strlen(",\"dropped\":"), NULL, 10), 9000, 10000);
}

static void hostile_names_and_values_stay_valid_json(void **state)
{
    static struct bench bench;
    struct muster_report_values values = {.count = 0};

    (void)state;
    bench_open(&bench);
    muster_report_values_set(&values, "a\"b\\c\n", (double)NAN);

    muster_report_progress(bench.report, 1, 1, 1, &values);

    bench_close(&bench);
    assert_non_null(strstr(bench.text, "\"values\":{\"a_b_c_\":null}}\n"));
}

static void view_lists_lost_and_joined(void **state)
{
    static struct bench bench;

    (void)state;
    bench_open(&bench);

    muster_report_view(bench.report, &(struct muster_report_view){.epoch = 2,
                                                                  .member_count = 3,
                                                                  .lost = "worker:2 worker:3",
                                                                  .joined = "",
                                                                  .recovery_ms = 1.8125,
                                                                  .detected_ns = 5000000,
                                                                  .opened_ns = 6812000,
                                                                  .op = "all_reduce 150/0",
                                                                  .phase = "reduce",
                                                                  .verdict = "retry",
                                                                  .step = 150});

    bench_close(&bench);
    assert_string_equal(
        bench.text,
        "{\"report\":\"view\",\"epoch\":2,\"members\":3,\"step\":150,\"lost\":[\"worker:2\","
        "\"worker:3\"],\"joined\":[],\"recovery_ms\":1.812,\"detected_ns\":5000000,"
        "\"opened_ns\":6812000,\"op\":\"all_reduce 150/0\","
        "\"phase\":\"reduce\",\"verdict\":\"retry\"}\n");
}

static void values_beyond_the_bound_are_dropped(void **state)
{
    struct muster_report_values values = {.count = 0};
    char name[16];

    (void)state;
    for (int i = 0; i < MUSTER_REPORT_VALUES_MAX + 5; i++) {
        snprintf(name, sizeof(name), "v%d", i);
        muster_report_values_set(&values, name, i);
    }

    assert_int_equal(values.count, MUSTER_REPORT_VALUES_MAX);
}

static void malformed_descriptor_is_refused(void **state)
{
    const struct test_var list[] = {{"MUSTER_REPORT_FD", "three"}, {NULL, NULL}};
    struct muster_report *report = NULL;
    struct muster_error error;
    struct test_vars vars;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;

    assert_int_equal(muster_report_open(&test.env, &report, &error), MUSTER_INVALID_ARGUMENT);

    assert_non_null(strstr(error.text, "MUSTER_REPORT_FD=three"));
    test_env_close(&test);
}

/* A line that is no JSON would be worse than none. */
static void what_does_not_fit_a_line_is_not_told(void **state)
{
    static struct bench bench;
    static char text[4096];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    bench_open(&bench);
    muster_report_refused(bench.report, text);
    muster_report_refused(bench.report, "short");
    bench_close(&bench);

    assert_string_equal(bench.text, "{\"report\":\"refused\",\"why\":\"short\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_carries_the_named_values),
        cmocka_unit_test(a_launcher_that_does_not_read_holds_up_nobody_and_misses_nothing_final),
        cmocka_unit_test(hostile_names_and_values_stay_valid_json),
        cmocka_unit_test(view_lists_lost_and_joined),
        cmocka_unit_test(values_beyond_the_bound_are_dropped),
        cmocka_unit_test(malformed_descriptor_is_refused),
        cmocka_unit_test(what_does_not_fit_a_line_is_not_told),
    };

    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
