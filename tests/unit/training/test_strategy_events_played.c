/* Views, operations and ends as the launcher is told of them and the flight recorder holds them, on
 * a node that the case plays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "played_node.h"

#define VIEW "{\"report\":\"view\",\"epoch\":"

static struct muster_strategy *open_in_step(uint64_t step)
{
    struct muster_strategy *strategy;
    uint64_t begun = 0;

    played_open();
    strategy = played_strategy();
    for (;;) {
        fail_if(muster_strategy_begin(strategy, &begun, NULL) != MUSTER_OK, "%s",
                muster_strategy_error(strategy)->text);
        if (begun == step)
            return strategy;
        assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    }
}

static enum muster_rc reduce_tensors(struct muster_strategy *strategy, size_t count)
{
    static int64_t values[3];
    struct muster_tensor tensors[3];

    for (size_t i = 0; i < count; i++)
        tensors[i] = (struct muster_tensor){.data = &values[i], .count = 1, .dtype = MUSTER_I64};
    return muster_strategy_all_reduce(strategy, tensors, count, MUSTER_SUM);
}

/* The lines of these kinds since the last look, without their ends. */
static void expect_told(const char *lines)
{
    static const char *const kinds[] = {"view", "delivered", "rejoined", "over", "refused"};
    char found[4096] = "", *line, *rest = NULL;

    (void)played_told();
    for (line = strtok_r(played.told, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest))
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            if (strncmp(line + strlen("{\"report\":\""), kinds[i], strlen(kinds[i])) == 0)
                snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s\n", line);
    assert_string_equal(found, lines);
    played.told[0] = '\0';
}

static void forget_told(void)
{
    (void)played_told();
    played.told[0] = '\0';
}

/* --- views --- */

struct change {
    const char *name;
    uint32_t before, after; /* members by bits */
    uint64_t cause_ns;
    struct muster_view fields;
    const char *told;
};

/* The fields of the view come last. */
#define ROW(name_, before_, after_, cause_ns_, told_, ...)                                         \
    {                                                                                              \
        name_, before_, after_, cause_ns_, {__VA_ARGS__}, told_                                    \
    }

static void a_view_is_told_with_who_is_gone_and_who_has_come(void **state)
{
    static const struct change rows[] = {
        ROW("one is lost", 7, 6, 1000000,
            VIEW "5,\"members\":2,\"step\":9,\"lost\":[\"worker:0\"],\"joined\":[],"
                 "\"reason\":\"worker:0 killed\",\"recovery_ms\":5.000,\"detected_ns\":1000000,"
                 "\"opened_ns\":6000000}\n",
            .begun_step = 9, .reason = "worker:0 killed"),
        ROW("two are lost, no step has begun elsewhere", 15, 6, 1000000,
            VIEW "5,\"members\":2,\"step\":2,\"lost\":[\"worker:0\",\"worker:3\"],\"joined\":[],"
                 "\"recovery_ms\":5.000,\"detected_ns\":1000000,\"opened_ns\":6000000}\n",
            .reason = ""),
        ROW("one has left", 7, 6, 0,
            VIEW "5,\"members\":2,\"step\":2,\"lost\":[\"worker:0\"],\"joined\":[],"
                 "\"reason\":\"worker:0 left\"}\n",
            .begun_step = 2, .reason = "worker:0 left"),
        ROW("one has come", 6, 14, 1000000,
            VIEW "5,\"members\":3,\"step\":2,\"lost\":[],\"joined\":[\"worker:3\"]}\n",
            .begun_step = 2),
        ROW("one for another", 7, 14, 3000000,
            VIEW "5,\"members\":3,\"step\":3,\"lost\":[\"worker:0\"],\"joined\":[\"worker:3\"],"
                 "\"recovery_ms\":5.000,\"detected_ns\":3000000,\"opened_ns\":8000000}\n",
            .begun_step = 3),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step(2);

        print_message("%s\n", rows[i].name);
        played_enter();
        played_view(4, rows[i].before, 0, 0, 0, NULL);
        forget_told();
        played_view(5, rows[i].after, 0, 0, rows[i].cause_ns, &rows[i].fields);
        played_leave();
        expect_told(rows[i].told);
        assert_int_equal(strategy->change.is_undelivered,
                         rows[i].cause_ns != 0 && strstr(rows[i].told, "recovery") != NULL);
        played_close_strategy(strategy);
    }
}

static void the_first_view_has_no_news_of_members(void **state)
{
    (void)state;
    expect_told(VIEW "1,\"members\":3,\"step\":0,\"lost\":[],\"joined\":[]}\n");
}

/* Names that have no room are left out whole. */
static void a_list_of_names_is_cut_behind_a_name(void **state)
{
    static char type[MUSTER_JOB_NAME_BYTES];
    struct muster_strategy *strategy;
    const char *lost;
    size_t count;

    (void)state;
    for (size_t length = 40; length < 63; length++) {
        memset(type, 'w', length);
        type[length] = '\0';
        strategy = open_in_step(1);
        played.task_type = type;
        played_enter();
        played_view(4, UINT32_MAX, 0, 0, 0, NULL);
        played_view(5, 2, 0, 0, 1, NULL);
        played_leave();
        lost = strategy->change.lost;
        assert_true(strlen(lost) < MUSTER_STRATEGY_NAMES_BYTES);
        assert_true(strlen(lost) >= MUSTER_STRATEGY_NAMES_BYTES - 1 - (length + 4));
        for (count = 0; *lost != '\0'; count++) {
            char name[MUSTER_JOB_NAME_BYTES + 8];

            snprintf(name, sizeof(name), "%s%s:%zu", count > 0 ? " " : "", type,
                     count + (count > 0));
            assert_memory_equal(lost, name, strlen(name));
            lost += strlen(name);
        }
        played_close_strategy(strategy);
    }
}

/* --- interrupted operations --- */

static struct muster_verdict verdicts[2];
static struct muster_view decided = {.verdicts = verdicts, .begun_step = 2, .reason = "r"};
static const char *phase;

/* A loss, while the first operation that ends is under way. */
static void lose_once(struct played_op *op)
{
    if (played.view->epoch == 1)
        played_view(2, 6, 0, 0, 1000000, &decided);
    if (op->op->id.sequence == 0 && op->op->id.step == 2)
        op->op->result.phase = phase;
}

struct interruption {
    const char *name;
    uint64_t step; /* of the verdict */
    enum muster_verdict_kind kind;
    const char *phase;
    const char *told; /* of the operation */
};

#define LOSS                                                                                       \
    VIEW "2,\"members\":2,\"step\":2,\"lost\":[\"worker:0\"],\"joined\":[],\"reason\":\"r\","      \
         "\"recovery_ms\":5.000,\"detected_ns\":1000000,\"opened_ns\":6000000"
#define OP "\"op\":\"all_reduce 2/0\","

static void expect_delivered(struct muster_strategy *strategy, const char *told)
{
    const char *line = strstr(played_told(), "{\"report\":\"delivered\",\"epoch\":2,");
    unsigned long long at_ns = 0;
    char expected[1024];

    assert_non_null(line);
    assert_int_equal(sscanf(strstr(line, "delivered_ns"), "delivered_ns\":%llu}", &at_ns), 1);
    assert_in_range(at_ns, 1, muster_loop_clock_ns(strategy->env->loop));
    snprintf(expected, sizeof(expected),
             "%s}\n{\"report\":\"delivered\",\"epoch\":2,\"delivered_ns\":%llu}\n", told, at_ns);
    expect_told(expected);
}

static void an_interrupted_operation_is_told_with_its_verdict(void **state)
{
    static const struct interruption rows[] = {
        {"adopted", 2, MUSTER_VERDICT_ADOPT, "gather",
         LOSS "," OP "\"phase\":\"gather\",\"verdict\":\"adopt\""},
        {"repeated", 2, MUSTER_VERDICT_RETRY, NULL,
         LOSS "," OP "\"phase\":\"start\",\"verdict\":\"retry\""},
        {"aborted", 2, MUSTER_VERDICT_ABORTED, "reduce",
         LOSS "," OP "\"phase\":\"reduce\",\"verdict\":\"aborted\""},
        {"of another step", 1, MUSTER_VERDICT_RETRY, NULL, LOSS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step(2);

        print_message("%s\n", rows[i].name);
        verdicts[0] = (struct muster_verdict){.op = {.step = rows[i].step}, .kind = rows[i].kind};
        decided.verdict_count = 1;
        phase = rows[i].phase;
        forget_told();
        played.on_op = lose_once;
        assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
        assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK); /* one delivery is told */
        expect_delivered(strategy, rows[i].told);
        played_close_strategy(strategy);
    }
}

static void a_list_is_delivered_as_one(void **state)
{
    static int64_t values[2];
    const struct muster_tensor tensors[] = {{.data = &values[0], .count = 1, .dtype = MUSTER_I64},
                                            {.data = &values[1], .count = 1, .dtype = MUSTER_I64}};
    const struct muster_communication_options packs = {.bytes_per_pack = 64};
    struct muster_strategy *strategy = *state;

    decided.verdict_count = 0;
    forget_told();
    played.on_op = lose_once;
    for (int i = 0; i < 2; i++)
        assert_int_equal(muster_strategy_all_reduce_with(strategy, tensors, 2, MUSTER_SUM, &packs),
                         MUSTER_OK);
    expect_delivered(strategy, LOSS);
}

/* Its loss is told first, when the second one ends. */
static void a_delivery_is_told_behind_the_view(void **state)
{
    struct muster_strategy *strategy = *state;

    verdicts[0] =
        (struct muster_verdict){.op = {.step = 2, .sequence = 1}, .kind = MUSTER_VERDICT_RETRY};
    decided.verdict_count = 1;
    expect_told(VIEW "1,\"members\":3,\"step\":0,\"lost\":[],\"joined\":[]}\n");
    played.on_op = lose_once;
    assert_int_equal(reduce_tensors(strategy, 3), MUSTER_OK);
    expect_delivered(strategy, LOSS ",\"op\":\"all_reduce 2/1\",\"phase\":\"start\","
                                    "\"verdict\":\"retry\"");
}

static void fail_later(struct played_op *op)
{
    lose_once(op);
    op->rc = MUSTER_DEADLINE_EXCEEDED;
}

static void what_fails_is_not_a_delivery(void **state)
{
    struct muster_strategy *strategy = *state;

    decided.verdict_count = 0;
    forget_told();
    played.on_op = fail_later;
    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_DEADLINE_EXCEEDED);
    expect_told(LOSS "}\n");
    played.on_op = NULL;
    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
    assert_int_equal(played_count_told("delivered"), 1);
}

/* A change on the heels of another, whose operation has not ended yet. */
static void lose_twice(struct played_op *op)
{
    (void)op;
    if (played.view->epoch != 1)
        return;
    played_view(2, 6, 0, 0, 1000000, &decided);
    played_view(3, 2, 0, 0, 2000000, &decided);
}

static void a_view_that_another_follows_is_told_before(void **state)
{
    struct muster_strategy *strategy = *state;

    verdicts[0] = (struct muster_verdict){.op = {.step = 2}, .kind = MUSTER_VERDICT_ADOPT};
    decided.verdict_count = 1;
    forget_told();
    played.on_op = lose_twice;
    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
    assert_int_equal(played_count_told("delivered"), 1);
    assert_non_null(strstr(played.told, "{\"report\":\"delivered\",\"epoch\":3,"));
    *strstr(played.told, "{\"report\":\"delivered\"") = '\0';
    expect_told(LOSS "}\n" VIEW "3,\"members\":1,\"step\":2,\"lost\":[\"worker:2\"],\"joined\":[],"
                     "\"reason\":\"r\",\"recovery_ms\":5.000,\"detected_ns\":2000000,"
                     "\"opened_ns\":7000000,\"op\":\"all_reduce 2/0\",\"phase\":\"start\","
                     "\"verdict\":\"adopt\"}\n");
}

/* --- coming back --- */

static void wait_five_seconds(void)
{
    played.strategy->waiting_since_ns -= 5 * MUSTER_NS_PER_S;
    played_catch_up();
}

static void who_comes_back_is_told_with_its_wait(void **state)
{
    struct muster_strategy *strategy = *state;
    double catch_up_ms = 0;
    uint64_t step;

    played_commit(strategy);
    played_begin(strategy);
    played.on_state = wait_five_seconds;
    played_enter();
    strategy->waiting_since_ns = 0;
    played_exclude(MUSTER_ABORTED, "suspected");
    played_leave();
    assert_true(strategy->waiting_since_ns > 0);
    assert_int_equal(muster_strategy_error(strategy)->rc, MUSTER_ABORTED);
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_OK);
    assert_int_equal(sscanf(strstr(played_told(), "\"rejoined\""),
                            "\"rejoined\",\"epoch\":4,\"catch_up_ms\":%lf,\"from_step\":7}",
                            &catch_up_ms),
                     1);
    assert_true(catch_up_ms >= 5000 && catch_up_ms < 5000 + 60 * 1000);
    assert_int_equal(played_count_told("rejoined"), 1);
    assert_non_null(strstr(played_trace(), "excluded 2 1 10\n"));
    assert_non_null(strstr(played.trace, "caught_up 7 4 5"));
}

static void who_has_failed_is_not_excluded(void **state)
{
    struct muster_strategy *strategy = *state;

    played_enter();
    played_fail(MUSTER_UNAVAILABLE, "no registry");
    played_exclude(MUSTER_ABORTED, "suspected");
    played_fail(MUSTER_INVALID_ARGUMENT, "another reason");
    played_leave();
    assert_int_equal(strategy->state, MUSTER_STRATEGY_FAILED);
    assert_string_equal(strategy->error.text, "no registry");
    assert_null(strstr(played_trace(), "excluded"));
    assert_int_equal(played_count_told("refused"), 0);
}

static void a_failure_is_told_as_it_is_meant(void **state)
{
    static const struct {
        enum muster_rc rc;
        const char *told, *journal, *trace;
    } rows[] = {
        {MUSTER_OUT_OF_RANGE, "{\"report\":\"over\"}\n", "", ""},
        {MUSTER_INVALID_ARGUMENT, "{\"report\":\"refused\",\"why\":\"because\"}\n",
         "dump: because\n", "failed INVALID_ARGUMENT 1 1 3\n"},
        {MUSTER_UNAVAILABLE, "", "dump: because\n", "failed UNAVAILABLE 1 1 14\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step(1);
        uint64_t step;

        forget_told();
        played.journal[0] = '\0';
        played_enter();
        played_fail(rows[i].rc, "because");
        played_leave();
        expect_told(rows[i].told);
        played_expect(rows[i].journal);
        fail_if(strstr(played_trace(), rows[i].trace) == NULL ||
                    (rows[i].trace[0] == '\0' && strstr(played.trace, "failed") != NULL),
                "%s", played.trace);
        assert_int_equal(muster_strategy_begin(strategy, &step, NULL), rows[i].rc);
        played_close_strategy(strategy);
    }
}

/* --- operations that were skipped --- */

#define SKIPPED                                                                                    \
    "step 2 was committed here without an operation that other members wait for, so that this "    \
    "member's state is not theirs: call the same operations in a step on all members"

static void expect_skipped(struct muster_strategy *strategy, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(muster_strategy_error(strategy)->text, SKIPPED);
    assert_int_equal(played_count_told("skipped"), 1);
    assert_int_equal(played_count_told("refused"), 0); /* another life may go well */
}

static void skip_step_2(void)
{
    played_enter();
    played_skip(2);
    played_leave();
}

static void who_has_skipped_an_operation_ends_in_its_next_begin(void **state)
{
    struct muster_strategy *strategy = *state;
    uint64_t step;

    played_commit(strategy);
    skip_step_2();
    expect_skipped(strategy, muster_strategy_begin(strategy, &step, NULL));
}

static void who_has_skipped_an_operation_ends_in_the_next_step(void **state)
{
    struct muster_strategy *strategy = *state;

    played_commit(strategy);
    played_begin(strategy);
    skip_step_2();
    expect_skipped(strategy, reduce_tensors(strategy, 1));
}

/* Its state is replaced by that of the others. */
static void who_is_excluded_behind_a_skipped_operation_comes_back(void **state)
{
    struct muster_strategy *strategy = *state;
    uint64_t step = 0;

    played_commit(strategy);
    played.on_state = wait_five_seconds;
    played_enter();
    played_skip(2);
    played_exclude(MUSTER_ABORTED, "suspected");
    played_leave();
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_OK);
    assert_int_equal(step, 7);
    assert_int_equal(played_count_told("rejoined"), 1);
}

static void who_has_skipped_an_operation_of_the_last_step_learns_it_in_close(void **state)
{
    struct muster_strategy *strategy = open_in_step(2);
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    played_commit(strategy);
    skip_step_2();
    assert_int_equal(muster_strategy_close_checked(strategy, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, SKIPPED);
    assert_int_equal(played_count_told("result"), 1);
    assert_int_equal(played_count_told("skipped"), 1);
    played_close();
}

/* --- the flight recorder --- */

static void set_result(struct played_op *op)
{
    op->op->result.met_ns = played.strategy->activity.since_ns + 1234;
    op->op->result.last_rank = 2;
}

static void meet_at_once(struct played_op *op)
{
    op->op->result.met_ns = played.strategy->activity.since_ns;
}

static void fail_op(struct played_op *op)
{
    op->rc = MUSTER_ABORTED;
}

static void a_step_is_recorded(void **state)
{
    struct muster_strategy *strategy = *state;
    int64_t values[6] = {0};
    const struct muster_tensor one = {.data = values, .count = 2, .dtype = MUSTER_I64};
    const struct muster_tensor all = {.data = values, .count = 6, .dtype = MUSTER_I64};

    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
    played.on_op = set_result;
    assert_int_equal(reduce_tensors(strategy, 3), MUSTER_OK);
    played.on_op = meet_at_once;
    assert_int_equal(muster_strategy_all_gather(strategy, &one, &all), MUSTER_OK);
    played.on_op = fail_op;
    assert_int_equal(muster_strategy_barrier(strategy), MUSTER_ABORTED);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    assert_string_equal(strstr(played_trace(), "begin_waited"), "begin_waited 0 0 0\n"
                                                                "state_shared 0 0 1\n"
                                                                "step_begun 1 1 3\n"
                                                                "step_committed 1 1 0\n"
                                                                "step_begun 2 1 3\n"
                                                                "op_started all_reduce 2 8 1\n"
                                                                "op_completed OK 2 0 0\n"
                                                                "op_started all_reduce 2 24 3\n"
                                                                "op_waited all_reduce 2 1234 1\n"
                                                                "op_waited all_reduce 2 1234 2\n"
                                                                "op_waited all_reduce 2 1234 3\n"
                                                                "op_completed OK 2 3 0\n"
                                                                "op_started all_gather 2 16 1\n"
                                                                "op_completed OK 2 4 0\n"
                                                                "op_started barrier 2 0 1\n"
                                                                "op_completed ABORTED 2 5 10\n"
                                                                "step_committed 2 1 0\n");
}

static void a_change_of_view_is_recorded(void **state)
{
    const char *trace;

    (void)state;
    verdicts[0] =
        (struct muster_verdict){.op = {.step = 8, .sequence = 5}, .kind = MUSTER_VERDICT_RETRY};
    verdicts[1] =
        (struct muster_verdict){.op = {.step = 9, .sequence = 6}, .kind = MUSTER_VERDICT_ABORTED};
    decided.verdict_count = 2;
    played.journal[0] = '\0';
    played_enter();
    played_view(5, 6 | 1 << 7 | 1 << 9, 0, 0, 1, &decided);
    played_leave();
    trace = played_trace();
    assert_non_null(strstr(trace, "member_lost 5 0 0\n"
                                  "member_joined 5 7 2\nmember_joined 5 9 3\n"
                                  "op_verdict retry 8 5 5\nop_verdict aborted 9 6 5\n"));
    assert_null(strstr(strstr(trace, "member_lost") + 1, "member_lost"));
    assert_null(strstr(strstr(trace, "op_verdict aborted") + 1, "op_verdict"));
    played_expect("recorded rank 0\n");
}

/* A view without this one: its rank stays. */
static void a_view_of_others_leaves_the_rank(void **state)
{
    (void)state;
    played.journal[0] = '\0';
    played_enter();
    played_view(5, 5, 0, 0, 1, NULL);
    played_leave();
    played_expect("");
}

static void the_recorder_is_opened_for_this_task(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    setenv("TMPDIR", "/tmp/somewhere", 1);
    played_open();
    setenv("MUSTER_TRACE_DIR", "/tmp/traces", 1);
    setenv("MUSTER_JOB", "j", 1);
    strategy = played_strategy();
    assert_string_equal(played.recorded_task, "j worker:1 11010000000000000000000000000000");
    assert_string_equal(played.recorder.folder, "/tmp/traces");
    assert_string_equal(played.recorder.temporary, "/tmp/somewhere");
    assert_false(played.recorder.is_always);
    assert_ptr_equal(played.recorder.trace, strategy->env->trace);
    assert_ptr_equal(played.recorder.report_fd, muster_report_descriptor(strategy->report));
    played.journal[0] = '\0';
    muster_strategy_close(strategy);
    played_expect("close\nrecorder closed\n");
    unsetenv("TMPDIR");
    played_close();
}

static void always_is_at_the_end_too(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    played_open();
    setenv("MUSTER_TRACE_DIR", "", 1);
    setenv("MUSTER_TRACE", "always", 1);
    played.dump_rc = MUSTER_PERMISSION_DENIED; /* nothing depends on it */
    strategy = played_strategy();
    assert_null(played.recorder.folder);
    assert_true(played.recorder.is_always);
    played.journal[0] = '\0';
    muster_strategy_close(strategy);
    played_expect("close\ndump: no error\nrecorder closed\n");
    played_close();
}

static void without_a_recorder_nothing_is_recorded(void **state)
{
    struct muster_strategy *strategy;
    uint64_t step;

    (void)state;
    played_open();
    setenv("MUSTER_TRACE", "off", 1);
    strategy = played_strategy();
    assert_string_equal(played.recorded_task, "");
    assert_null(strategy->env->trace);
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_OK);
    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
    played_enter();
    played_view(5, 6, 0, 0, 1, NULL);
    played_fail(MUSTER_UNAVAILABLE, "no registry");
    played_leave();
    muster_strategy_close(strategy);
    assert_null(strstr(played.journal, "record"));
    assert_null(strstr(played.journal, "dump"));
    played_close();
}

static void a_recorder_that_does_not_open_is_told(void **state)
{
    static const struct {
        enum muster_rc rc;
        size_t refused_bytes; /* of the ring */
        const char *text;
    } rows[] = {
        {MUSTER_INVALID_ARGUMENT, 0,
         "cannot open the flight recorder: the path of MUSTER_TRACE_DIR is too long"},
        {MUSTER_RESOURCE_EXHAUSTED, 0, "cannot open the flight recorder: resource exhausted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = NULL;
        struct muster_error error;

        played_open();
        played.recorder_rc = rows[i].rc;
        assert_int_equal(muster_strategy_open(NULL, &strategy, &error), rows[i].rc);
        assert_string_equal(error.text, rows[i].text);
        assert_null(strategy);
        played_close();
    }
}

TEST_SET_UP(set_up_step_1, *state = open_in_step(1))
TEST_SET_UP(set_up_step_2, *state = open_in_step(2))

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_is_told_with_who_is_gone_and_who_has_come),
        CASE(the_first_view_has_no_news_of_members, set_up_step_1),
        cmocka_unit_test(a_list_of_names_is_cut_behind_a_name),
        cmocka_unit_test(an_interrupted_operation_is_told_with_its_verdict),
        CASE(a_list_is_delivered_as_one, set_up_step_2),
        CASE(a_delivery_is_told_behind_the_view, set_up_step_2),
        CASE(what_fails_is_not_a_delivery, set_up_step_2),
        CASE(a_view_that_another_follows_is_told_before, set_up_step_2),
        CASE(who_comes_back_is_told_with_its_wait, set_up_step_1),
        CASE(who_has_failed_is_not_excluded, set_up_step_1),
        cmocka_unit_test(a_failure_is_told_as_it_is_meant),
        CASE(who_has_skipped_an_operation_ends_in_its_next_begin, set_up_step_2),
        CASE(who_has_skipped_an_operation_ends_in_the_next_step, set_up_step_2),
        CASE(who_is_excluded_behind_a_skipped_operation_comes_back, set_up_step_2),
        cmocka_unit_test(who_has_skipped_an_operation_of_the_last_step_learns_it_in_close),
        CASE(a_step_is_recorded, set_up_step_2),
        CASE(a_change_of_view_is_recorded, set_up_step_1),
        CASE(a_view_of_others_leaves_the_rank, set_up_step_1),
        cmocka_unit_test(the_recorder_is_opened_for_this_task),
        cmocka_unit_test(always_is_at_the_end_too),
        cmocka_unit_test(without_a_recorder_nothing_is_recorded),
        cmocka_unit_test(a_recorder_that_does_not_open_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
