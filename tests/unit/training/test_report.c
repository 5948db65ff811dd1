/* Reports are one valid JSON object per line, whatever names and values a program gives. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"
#include "training/report.h"

#define LINE_BYTES 2048
#define KEPT_BYTES 65536

/* A report on a pipe; `text` gets everything written when it is closed. */
struct bench {
    struct test_env test;
    struct test_vars vars;
    struct test_var list[2];
    char fd[16];
    int pipe[2];
    struct muster_report *report;
    char text[196608];
};

static struct bench bench;

static void bench_open(void)
{
    memset(&bench, 0, sizeof(bench));
    test_env_open(&bench.test);
    assert_int_equal(pipe(bench.pipe), 0);
    snprintf(bench.fd, sizeof(bench.fd), "%d", bench.pipe[1]);
    bench.list[0] = (struct test_var){"MUSTER_REPORT_FD", bench.fd};
    bench.list[1] = (struct test_var){NULL, NULL};
    test_vars_init(&bench.vars, bench.list);
    bench.test.env.vars = &bench.vars.vars;
    assert_int_equal(muster_report_open(&bench.test.env, &bench.report, NULL), MUSTER_OK);
    assert_int_equal(*muster_report_descriptor(bench.report), bench.pipe[1]);
}

/* Everything that is there now, behind what was read before. */
static void bench_read(void)
{
    size_t length = strlen(bench.text);
    ssize_t bytes = read(bench.pipe[0], bench.text + length, sizeof(bench.text) - 1 - length);

    assert_true(bytes >= 0);
    bench.text[length + (size_t)bytes] = '\0';
}

static void bench_close(void)
{
    muster_report_close(bench.report);
    close(bench.pipe[1]); /* the end of the process */
    bench_read();
    close(bench.pipe[0]);
    test_env_close(&bench.test);
}

/* --- lines --- */

static void tell_progress(void)
{
    struct muster_report_values values = {.count = 0};

    muster_report_values_set(&values, "loss", 0.5);
    muster_report_values_set(&values, "images_per_s", 100);
    muster_report_values_set(&values, "loss", 0.25);
    muster_report_progress(bench.report, 150, 2, 3, &values);
}

static void tell_strange_values(void)
{
    struct muster_report_values values = {.count = 0};

    muster_report_values_set(&values, "a\"b\\c\n\x1f d", (double)NAN);
    muster_report_values_set(&values, "inf", (double)-INFINITY);
    muster_report_values_set(&values, "third", 1.0 / 3);
    muster_report_values_set(&values, "", 1e100);
    muster_report_values_set(&values, "0123456789012345678901234567890", 1);
    muster_report_values_set(&values, "01234567890123456789012345678901", 2); /* the same, cut */
    muster_report_progress(bench.report, 0, 0, 0, &values);
}

static void tell_view(void)
{
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
}

static void tell_view_of_a_joiner(void)
{
    muster_report_view(bench.report, &(struct muster_report_view){.epoch = 7,
                                                                  .member_count = 4,
                                                                  .lost = "",
                                                                  .joined = "chief:0",
                                                                  .reason = "\"it\" joined\\\t",
                                                                  .recovery_ms = -1,
                                                                  .detected_ns = 1,
                                                                  .opened_ns = 2,
                                                                  .step = 9});
}

static void tell_quick_recovery(void)
{
    muster_report_view(
        bench.report,
        &(struct muster_report_view){
            .epoch = 1, .lost = "a\"\\:1", .joined = "b:2 c:3 d:4", .reason = "", .recovery_ms = 0});
}

static void tell_activity(void)
{
    struct muster_activity activity = {.state = MUSTER_ACTIVITY_COLLECTIVE,
                                       .since_ns = 1000,
                                       .spent_ns = {1, 2, 3, 4, 5, 6},
                                       .waiting_ns = 77,
                                       .sent_bytes = {10, 20, 30},
                                       .steps = 12,
                                       .waits = {{"worker:2", 2, 50}, {"chief:0", 0, 27}},
                                       .wait_count = 2};

    muster_report_activity(bench.report,
                           &(struct muster_report_activity){.activity = &activity,
                                                            .now_ns = 1100,
                                                            .step = 13,
                                                            .epoch = 3,
                                                            .member_count = 4,
                                                            .rank = 2,
                                                            .is_member = true,
                                                            .waits_for = "worker:2",
                                                            .op = "barrier #1",
                                                            .stands_for = "a \"joiner\""});
}

static void tell_activity_of_nobody(void)
{
    struct muster_activity activity;

    muster_activity_init(&activity, 5);
    muster_report_activity(bench.report, &(struct muster_report_activity){.activity = &activity,
                                                                          .now_ns = 5,
                                                                          .rank = 2,
                                                                          .waits_for = "",
                                                                          .op = "no",
                                                                          .stands_for = ""});
}

static void tell_result(void)
{
    struct muster_report_values values = {.count = 0};

    muster_report_values_set(&values, "accuracy", 0.75);
    muster_report_result(
        bench.report, &(struct muster_report_result){.steps = 9, .steps_lost = 2, .digest = "0123"},
        &values);
}

static void tell_small_ones(void)
{
    muster_report_rejoined(bench.report, 4, 12.3456, 17);
    muster_report_refused(bench.report, "a\x01 b");
    muster_report_delivered(bench.report, 5, 1234567890123);
    muster_report_dying(bench.report, 99);
    muster_report_abandoned(bench.report, 6, "no disk");
    muster_report_unclosed(bench.report, 7, true, 0);
    muster_report_unclosed(bench.report, 8, false, 10);
    muster_report_over(bench.report);
    muster_report_skipped(bench.report, 10);
    muster_report_checkpoint_dir(bench.report, "/data/\"a\"");
}

static void each_report_is_a_line(void **state)
{
    static const struct {
        void (*tell)(void);
        const char *text;
    } rows[] = {
        {tell_progress, "{\"report\":\"progress\",\"step\":150,\"epoch\":2,\"members\":3,"
                        "\"values\":{\"loss\":0.25,\"images_per_s\":100}}\n"},
        {tell_strange_values,
         "{\"report\":\"progress\",\"step\":0,\"epoch\":0,\"members\":0,\"values\":{"
         "\"a_b_c__ d\":null,\"inf\":null,\"third\":0.333333333,\"\":1e+100,"
         "\"0123456789012345678901234567890\":2}}\n"},
        {tell_view,
         "{\"report\":\"view\",\"epoch\":2,\"members\":3,\"step\":150,\"lost\":[\"worker:2\","
         "\"worker:3\"],\"joined\":[],\"recovery_ms\":1.812,\"detected_ns\":5000000,"
         "\"opened_ns\":6812000,\"op\":\"all_reduce 150/0\",\"phase\":\"reduce\","
         "\"verdict\":\"retry\"}\n"},
        {tell_view_of_a_joiner,
         "{\"report\":\"view\",\"epoch\":7,\"members\":4,\"step\":9,\"lost\":[],\"joined\":["
         "\"chief:0\"],\"reason\":\"\\\"it\\\" joined\\\\\\u0009\"}\n"},
        {tell_quick_recovery,
         "{\"report\":\"view\",\"epoch\":1,\"members\":0,\"step\":0,\"lost\":[\"a\\\"\\\\:1\"],"
         "\"joined\":[\"b:2\",\"c:3\",\"d:4\"],\"recovery_ms\":0.000,\"detected_ns\":0,"
         "\"opened_ns\":0}\n"},
        {tell_activity,
         "{\"report\":\"activity\",\"state\":\"collective\",\"for_ns\":100,\"step\":13,\"epoch\":3,"
         "\"members\":4,\"steps\":12,\"rank\":2,\"waits_for\":\"worker:2\",\"op\":\"barrier #1\","
         "\"stands_for\":\"a \\\"joiner\\\"\",\"spent_ns\":{\"start\":1,\"begin\":2,\"compute\":3,"
         "\"collective\":104,\"outside\":5,\"close\":6},\"sent_bytes\":{\"shm\":10,\"tcp\":20,"
         "\"nccl\":30},\"waiting_ns\":77,\"waited_ns\":{\"worker:2\":50,\"chief:0\":27}}\n"},
        {tell_activity_of_nobody,
         "{\"report\":\"activity\",\"state\":\"start\",\"for_ns\":0,\"step\":0,\"epoch\":0,"
         "\"members\":0,\"steps\":0,\"spent_ns\":{\"start\":0,\"begin\":0,\"compute\":0,"
         "\"collective\":0,\"outside\":0,\"close\":0},\"sent_bytes\":{\"shm\":0,\"tcp\":0,"
         "\"nccl\":0},\"waiting_ns\":0,\"waited_ns\":{}}\n"},
        {tell_result, "{\"report\":\"result\",\"steps\":9,\"steps_lost\":2,\"digest\":\"0123\","
                      "\"values\":{\"accuracy\":0.75}}\n"},
        {tell_small_ones,
         "{\"report\":\"rejoined\",\"epoch\":4,\"catch_up_ms\":12.346,\"from_step\":17}\n"
         "{\"report\":\"refused\",\"why\":\"a\\u0001 b\"}\n"
         "{\"report\":\"delivered\",\"epoch\":5,\"delivered_ns\":1234567890123}\n"
         "{\"report\":\"dying\",\"at_ns\":99}\n"
         "{\"report\":\"abandoned\",\"step\":6,\"reason\":\"no disk\"}\n"
         "{\"report\":\"unclosed\",\"step\":7,\"in_step\":true}\n"
         "{\"report\":\"unclosed\",\"step\":8,\"in_step\":false,\"last_step\":10}\n"
         "{\"report\":\"over\"}\n{\"report\":\"skipped\",\"step\":10}\n"
         "{\"report\":\"checkpoint_dir\",\"folder\":\"/data/\\\"a\\\"\"}\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bench_open();
        rows[i].tell();
        bench_close();
        assert_string_equal(bench.text, rows[i].text);
    }
}

static void values_beyond_the_bound_are_dropped(void **state)
{
    struct muster_report_values values;
    char name[16];

    (void)state;
    memset(&values, 'x', sizeof(values));
    values.count = 0;
    for (int i = 0; i < MUSTER_REPORT_VALUES_MAX + 5; i++) {
        snprintf(name, sizeof(name), "v%d", i);
        muster_report_values_set(&values, name, i);
        assert_int_equal(values.count,
                         i < MUSTER_REPORT_VALUES_MAX ? i + 1 : MUSTER_REPORT_VALUES_MAX);
    }
    muster_report_values_set(&values, "v15", 99); /* the last one has its place */
    for (int i = 0; i < MUSTER_REPORT_VALUES_MAX; i++) {
        snprintf(name, sizeof(name), "v%d", i);
        assert_string_equal(values.at[i].name, name);
        assert_int_equal((int)values.at[i].value, i == 15 ? 99 : i);
    }
}

/* A line that is no JSON would be worse than none. */
static void what_does_not_fit_a_line_is_not_told(void **state)
{
    static const size_t most =
        LINE_BYTES - 1 - sizeof("{\"report\":\"refused\",\"why\":\"\"}\n") + 1;
    static const struct {
        size_t longer;
        bool is_told;
    } rows[] = {{0, true}, {1, false}, {2, false}, {3, false}, {4, false}, {2000, false}};
    static char text[2 * LINE_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(text, 'x', sizeof(text));
        text[most + rows[i].longer] = '\0';
        bench_open();
        muster_report_refused(bench.report, text);
        muster_report_refused(bench.report, "short");
        bench_close();

        fail_if((strstr(bench.text, "xxx") != NULL) != rows[i].is_told, "%zu bytes more",
                rows[i].longer);
        assert_non_null(strstr(bench.text, "{\"report\":\"refused\",\"why\":\"short\"}\n"));
        if (rows[i].is_told)
            assert_int_equal(strchr(bench.text, '\n') - bench.text, LINE_BYTES - 2);
    }
}

/* --- a launcher that does not read --- */

static void fill_pipe(void)
{
    struct muster_report_values values = {.count = 0};

    assert_true(fcntl(bench.pipe[1], F_SETPIPE_SZ, 16384) > 0);
    for (uint64_t step = 0; step < 1000; step++)
        muster_report_progress(bench.report, step, 1, 3, &values);
}

static void tell_short_activity(void)
{
    struct muster_activity activity;

    muster_activity_init(&activity, 0);
    muster_report_activity(bench.report,
                           &(struct muster_report_activity){
                               .activity = &activity, .waits_for = "", .op = "", .stands_for = ""});
}

static unsigned count_told(const char *kind)
{
    unsigned count = 0;

    for (const char *at = bench.text; (at = strstr(at, kind)) != NULL; at++)
        count++;
    return count;
}

/* Each of these calls would wait for a reader if it could. */
static void a_launcher_that_does_not_read_holds_up_nobody_and_misses_nothing_final(void **state)
{
    struct muster_report_values values = {.count = 0};
    struct muster_report_result result = {.steps = 9, .digest = "d"};
    unsigned told;
    const char *line;

    (void)state;
    bench_open();
    fill_pipe();
    muster_report_delivered(bench.report, 2, 7);
    tell_short_activity();
    muster_report_result(bench.report, &result, &values);
    bench_read();
    told = count_told("\"progress\"");
    assert_in_range(told, 20, 999);
    bench.text[0] = '\0';
    tell_short_activity();
    bench_close();

    line = strstr(bench.text, "{\"report\":\"delivered\"");
    assert_ptr_equal(line, bench.text); /* what was kept comes first, in its order */
    line = strstr(line, "}\n{\"report\":\"result\",\"steps\":9,");
    assert_non_null(line);
    line = strstr(line, "}\n{\"report\":\"activity\"");
    assert_non_null(line);
    line = strstr(line, ",\"dropped\":");
    assert_non_null(line);
    assert_int_equal(strtoul(line + strlen(",\"dropped\":"), NULL, 10), 1000 - told + 1);
    assert_string_equal(strchr(line, '}'), "}\n");
}

static void what_is_kept_has_a_bound(void **state)
{
    size_t kept = 0,
           length = strlen("{\"report\":\"delivered\",\"epoch\":1000,\"delivered_ns\":1}\n");
    char dropped[64];

    (void)state;
    bench_open();
    fill_pipe();
    for (uint64_t epoch = 1000; epoch < 3000; epoch++)
        muster_report_delivered(bench.report, epoch, 1);
    kept = KEPT_BYTES / length;
    bench_read();
    for (unsigned turn = 0; turn < 200; turn++) { /* the pipe is small */
        tell_short_activity();
        bench_read();
    }
    assert_int_equal(count_told("\"delivered\""), kept);
    snprintf(dropped, sizeof(dropped), "\"epoch\":%zu,\"delivered_ns\":1}\n", 1000 + kept - 1);
    assert_non_null(strstr(bench.text, dropped)); /* the oldest are kept */
    snprintf(dropped, sizeof(dropped), ",\"dropped\":%zu}\n",
             2000 - kept + 1000 - count_told("\"progress\"") + 200 - count_told("\"activity\""));
    bench_close();
    assert_non_null(strstr(bench.text, dropped));
}

/* A line that fits to the byte is kept. */
static void what_is_kept_may_fill_its_room(void **state)
{
    static const struct {
        size_t last_bytes; /* of the line that is kept last */
        bool is_kept;
    } rows[] = {{0, true}, {1, false}};
    char text[LINE_BYTES];
    size_t around = strlen("{\"report\":\"refused\",\"why\":\"\"}\n");

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bench_open();
        fill_pipe();
        memset(text, 'x', sizeof(text));
        text[1024 - around] = '\0';
        for (unsigned k = 0; k < KEPT_BYTES / 1024 - 1; k++)
            muster_report_refused(bench.report, text);
        memset(text, 'y', sizeof(text));
        text[1024 - around + rows[i].last_bytes] = '\0';
        muster_report_refused(bench.report, text);
        bench_read();
        for (unsigned turn = 0; turn < 200; turn++) {
            tell_short_activity();
            bench_read();
        }
        bench_close();
        assert_int_equal(count_told("\"why\":\"x"), KEPT_BYTES / 1024 - 1);
        assert_int_equal(count_told("\"why\":\"y"), rows[i].is_kept);
    }
}

static void *read_all(void *data)
{
    while (strstr(bench.text, "\"over\"") == NULL)
        bench_read();
    return data;
}

/* At the end it waits: for a reader that reads … */
static void the_end_waits_for_a_reader(void **state)
{
    pthread_t thread;

    (void)state;
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        bench_open();
        fill_pipe();
        for (uint64_t epoch = 0; epoch < 500; epoch++)
            muster_report_delivered(bench.report, epoch, 1);
        muster_report_over(bench.report);
        assert_int_equal(pthread_create(&thread, NULL, read_all, NULL), 0);
        if (is_closed)
            muster_report_close(bench.report);
        else
            muster_report_drain(bench.report);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(count_told("\"delivered\""), 500);
        if (is_closed)
            bench.report = NULL;
        bench_close();
    }
}

/* … and not for one that is gone. */
static void a_launcher_that_is_gone_is_told_nothing(void **state)
{
    static const bool is_full[] = {false, true};

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < 2; i++) {
        bench_open();
        if (is_full[i])
            fill_pipe();
        muster_report_delivered(bench.report, 1, 1);
        close(bench.pipe[0]);
        bench.pipe[0] = open("/dev/null", O_RDONLY);
        muster_report_delivered(bench.report, 2, 1);
        assert_int_equal(*muster_report_descriptor(bench.report), -1);
        assert_int_not_equal(fcntl(bench.pipe[1], F_GETFD), -1); /* its number is nobody else's */
        muster_report_over(bench.report);
        tell_short_activity();
        muster_report_drain(bench.report);
        bench_close();
    }
}

/* --- the descriptor --- */

static void a_later_strategy_of_the_process_reports_as_the_first_one_did(void **state)
{
    (void)state;
    bench_open();
    muster_report_delivered(bench.report, 1, 1);
    muster_report_close(bench.report);
    assert_int_equal(muster_report_open(&bench.test.env, &bench.report, NULL), MUSTER_OK);
    muster_report_delivered(bench.report, 2, 1);

    bench_close();
    assert_int_equal(count_told("\"delivered\""), 2);
}

/* As a program does that turns itself into a daemon. */
static void a_descriptor_that_the_program_has_closed_is_not_waited_for(void **state)
{
    (void)state;
    bench_open();
    fill_pipe();
    muster_report_delivered(bench.report, 8, 7);
    assert_int_equal(close(bench.pipe[1]), 0);

    bench_close();
    assert_null(strstr(bench.text, "\"delivered\""));
}

static void a_descriptor_is_a_number_that_can_be_one(void **state)
{
    static const struct {
        const char *value;
        int fd; /* -2: refused */
    } rows[] = {{NULL, -1}, {"", -1},   {"three", -2},        {"3x", -2},      {"0x10", -2},
                {"-1", -2}, {"-2", -2}, {"1048576", 1048576}, {"1048577", -2}, {"4294967299", -2}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct test_var list[] = {
            {rows[i].value != NULL ? "MUSTER_REPORT_FD" : NULL, rows[i].value}, {NULL, NULL}};
        struct muster_report *report = NULL;
        struct muster_error error = {.rc = MUSTER_OK};
        struct test_vars vars;
        struct test_env test;
        enum muster_rc rc;
        char text[128];

        test_env_open(&test);
        test_vars_init(&vars, list);
        test.env.vars = &vars.vars;
        rc = muster_report_open(&test.env, &report, &error);
        assert_int_equal(rc, rows[i].fd == -2 ? MUSTER_INVALID_ARGUMENT : MUSTER_OK);
        snprintf(text, sizeof(text),
                 "MUSTER_REPORT_FD must be the number of an open descriptor, got %s; unset it",
                 rows[i].value);
        if (rc != MUSTER_OK)
            assert_string_equal(error.text, text);
        else
            assert_int_equal(*muster_report_descriptor(report), rows[i].fd);
        if (rc == MUSTER_OK && rows[i].fd < 0)
            muster_report_over(report); /* nobody listens */
        muster_report_close(report);
        test_env_close(&test);
    }
}

static void without_memory_there_is_no_report(void **state)
{
    struct muster_report *report = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test.mem.fail_at = 1;
    assert_int_equal(muster_report_open(&test.env, &report, &error), MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "out of memory");
    assert_null(report);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_report_is_a_line),
        cmocka_unit_test(values_beyond_the_bound_are_dropped),
        cmocka_unit_test(what_does_not_fit_a_line_is_not_told),
        cmocka_unit_test(a_launcher_that_does_not_read_holds_up_nobody_and_misses_nothing_final),
        cmocka_unit_test(what_is_kept_has_a_bound),
        cmocka_unit_test(what_is_kept_may_fill_its_room),
        cmocka_unit_test(the_end_waits_for_a_reader),
        cmocka_unit_test(a_launcher_that_is_gone_is_told_nothing),
        cmocka_unit_test(a_later_strategy_of_the_process_reports_as_the_first_one_did),
        cmocka_unit_test(a_descriptor_that_the_program_has_closed_is_not_waited_for),
        cmocka_unit_test(a_descriptor_is_a_number_that_can_be_one),
        cmocka_unit_test(without_memory_there_is_no_report),
    };

    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
