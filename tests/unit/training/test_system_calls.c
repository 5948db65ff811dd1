/* Each system call of a report fails in turn: what the launcher gets are whole lines, in order, and no
 * descriptor is left. */
#include "test_vars.h"
#include "torture_calls.h"

#include "training/report.h"

#include <muster/json.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINES 8

struct launcher {
    int ends[2];
    char told[4096];
    size_t bytes;
};

static void launcher_read(struct launcher *launcher)
{
    ssize_t bytes;

    while ((bytes = read(launcher->ends[0], launcher->told + launcher->bytes,
                         sizeof(launcher->told) - launcher->bytes)) > 0)
        launcher->bytes += (size_t)bytes;
}

/* The last line may be cut by a failure: nothing follows it. */
static void check_lines(const struct launcher *launcher, bool is_failed)
{
    const char *at = launcher->told, *end;
    size_t left = launcher->bytes;
    int64_t step = -1;

    while ((end = memchr(at, '\n', left)) != NULL) {
        struct muster_json *root = NULL;
        size_t length = (size_t)(end - at);

        if (muster_json_parse(at, length, &root, NULL) != MUSTER_OK)
            fail_msg("not a report: %.*s", (int)length, at);
        assert_true(muster_json_integer(muster_json_member(root, "from_step")) > step);
        step = muster_json_integer(muster_json_member(root, "from_step"));
        muster_json_free(root);
        left -= length + 1;
        at = end + 1;
    }
    assert_true(is_failed || (left == 0 && step == LINES - 1));
}

static void run_report(struct torture *torture, const void *data)
{
    static struct launcher launcher;
    size_t descriptors = torture_count_descriptors();
    struct test_vars vars;
    char number[16];
    const struct test_var list[] = {{"MUSTER_REPORT_FD", number}, {NULL, NULL}};
    struct muster_report *report = NULL;
    struct test_env test;

    (void)data;
    launcher.bytes = 0;
    assert_int_equal(pipe2(launcher.ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(launcher.ends[0], F_SETFL, O_NONBLOCK), 0);
    (void)snprintf(number, sizeof(number), "%d", launcher.ends[1]);
    test_vars_init(&vars, list);
    test_env_open(&test);
    test.env.vars = &vars.vars;

    assert_int_equal(muster_report_open(&test.env, &report, NULL), MUSTER_OK);
    torture_arm_calls(torture);
    for (uint64_t i = 0; i < LINES; i++)
        muster_report_rejoined(report, 1, 0.5, i);
    muster_report_close(report);
    torture_disarm(torture);
    launcher_read(&launcher);

    check_lines(&launcher, torture->refused > 0);
    test_env_close(&test);
    assert_int_equal(close(launcher.ends[0]), 0);
    assert_int_equal(close(launcher.ends[1]), 0);
    assert_int_equal(torture_count_descriptors(), descriptors);
}

static void a_launcher_is_told_whole_lines_or_none(void **state)
{
    static const struct torture_scenario scenario = {
        .name = "report", .run = run_report, .variant_count = TORTURE_CALL_VARIANTS};

    (void)state;
    torture_run(&scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_launcher_is_told_whole_lines_or_none, torture_tell),
    };

    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
