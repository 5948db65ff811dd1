/* Deadlines of operations: which are refused, with which words, and which are passed on. */
#include "runtime/loop/deadline.h"

#include "assertion_count.h"
#include "test_env.h"
#include "virtual_loop.h"

#include <string.h>

#define NOW_NS MUSTER_NS_PER_S /* of a virtual loop at its start */

static const char zero_text[] =
    "muster_x_start: deadline_ns must be a time of the loop's clock in the future, got 0; use "
    "muster_loop_after_ns(loop, NANOSECONDS)";
static const char past_text[] =
    "muster_x_start: deadline_ns must be a time of the loop's clock in the future, got 998999999, "
    "which was 1 ms ago; use muster_loop_after_ns(loop, NANOSECONDS)";

static const struct {
    uint64_t now_ns, deadline_ns;
    const char *text; /* NULL: it is accepted */
} rows[] = {
    {NOW_NS, 0, zero_text},
    {NOW_NS, NOW_NS - MUSTER_NS_PER_MS - 1, past_text},
    {NOW_NS, NOW_NS, NULL},
    {NOW_NS, NOW_NS + 1, NULL},
    {NOW_NS, UINT64_MAX, NULL},
    {0, 0, zero_text}, /* a clock may begin at 0 */
    {0, 1, NULL},
};

/* The only line of a log. */
struct line_log {
    struct muster_log log;
    unsigned count;
    char reason[MUSTER_ERROR_TEXT_BYTES];
};

static void line_write(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                       const char *event, const struct muster_field *fields, size_t count)
{
    struct line_log *line = (struct line_log *)log;

    (void)wall_ns;
    assert_int_equal(level, MUSTER_LOG_WARN);
    assert_string_equal(event, "deadline_refused");
    assert_int_equal(count, 1);
    assert_string_equal(fields[0].name, "reason");
    line->count++;
    (void)strcpy(line->reason, fields[0].text);
}

static void a_deadline_that_is_zero_or_past_is_refused_with_the_remedy(void **state)
{
    static const struct muster_log_ops ops = {.write = line_write};
    struct line_log line = {.log = {.ops = &ops, .level_max = MUSTER_LOG_WARN}};
    struct virtual_loop loop;
    struct muster_env env = {.loop = &loop.loop, .log = &line.log};

    (void)state;
    virtual_loop_init(&loop);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_rc rc = rows[i].text == NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT;
        struct muster_error judged = {.text = ""}, checked = {.text = ""};
        unsigned count = line.count + (rc != MUSTER_OK);

        loop.now_ns = rows[i].now_ns;
        assert_int_equal(
            muster_deadline_judge(env.loop, "muster_x_start", rows[i].deadline_ns, &judged), rc);
        assert_int_equal(
            muster_deadline_check(&env, "muster_x_start", rows[i].deadline_ns, &checked), rc);
        assert_int_equal(line.count, count);
        assert_int_equal(judged.rc, rc);
        assert_int_equal(checked.rc, rc);
        assert_string_equal(judged.text, rc == MUSTER_OK ? "" : rows[i].text);
        assert_string_equal(checked.text, judged.text);
        if (rc != MUSTER_OK)
            assert_string_equal(line.reason, rows[i].text);

        /* Nobody wants the text: it is logged all the same. */
        line.reason[0] = '\0';
        assert_int_equal(muster_deadline_check(&env, "muster_x_start", rows[i].deadline_ns, NULL),
                         rc);
        assert_string_equal(line.reason, rc == MUSTER_OK ? "" : rows[i].text);
    }
}

static void a_part_of_an_operation_has_a_moment_left_at_least(void **state)
{
    static const uint64_t expected[][2] = {
        {0, NOW_NS + 1},          {NOW_NS - 1, NOW_NS + 1}, {NOW_NS, NOW_NS + 1},
        {NOW_NS + 1, NOW_NS + 1}, {NOW_NS + 2, NOW_NS + 2}, {UINT64_MAX, UINT64_MAX},
    };
    struct virtual_loop loop;

    (void)state;
    virtual_loop_init(&loop);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_int_equal(muster_deadline_inherit(&loop.loop, expected[i][0]), expected[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_that_is_zero_or_past_is_refused_with_the_remedy),
        cmocka_unit_test(a_part_of_an_operation_has_a_moment_left_at_least),
    };

    return cmocka_run_group_tests_name("deadline", tests, NULL, NULL);
}
