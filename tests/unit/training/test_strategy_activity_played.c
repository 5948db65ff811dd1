/* Reports of a member that works, waits or stands still, on a node that the case plays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "played_node.h"

#define STATE_BYTES ((size_t)5 << 20)

static struct muster_strategy *open_one(void)
{
    static uint8_t *bytes;
    struct muster_tensor tensors[2];
    struct muster_strategy *strategy;

    if (bytes == NULL)
        bytes = calloc(1, STATE_BYTES); /* of all cases */
    assert_non_null(bytes);
    tensors[0] = (struct muster_tensor){.data = bytes, .count = 1 << 20, .dtype = MUSTER_U8};
    tensors[1] =
        (struct muster_tensor){.data = bytes + (1 << 20), .count = 1 << 20, .dtype = MUSTER_F32};
    played_open();
    played.is_spread = true;
    strategy = played_strategy();
    assert_int_equal(muster_strategy_register(strategy, "a", &tensors[0]), MUSTER_OK);
    assert_int_equal(muster_strategy_register(strategy, "b", &tensors[1]), MUSTER_OK);
    return strategy;
}

/* The line that the launcher is told now. On the loop, or in the seat. */
static const char *tell_now(void)
{
    struct muster_strategy *strategy = played.strategy;
    char *line;

    (void)played_told();
    played.told[0] = '\0';
    muster_timer_stop(&strategy->activity_timer);
    strategy->activity_timer.on_expire(&strategy->activity_timer);
    assert_true(muster_timer_is_started(&strategy->activity_timer)); /* and again */
    line = strstr(played_told(), "{\"report\":\"activity\"");
    assert_non_null(line);
    *strstr(line, "\n") = '\0';
    return line;
}

static void expect_told(const char *line, const char *text)
{
    fail_if(strstr(line, text) == NULL, "no %s in %s", text, line);
}

static void expect_not(const char *line, const char *text)
{
    fail_if(strstr(line, text) != NULL, "%s in %s", text, line);
}

/* --- the state --- */

static void where_a_member_stands_is_told(void **state)
{
    struct muster_strategy *strategy = *state;
    const char *line;

    played_enter();
    line = tell_now();
    expect_told(line, "\"state\":\"start\",\"for_ns\":");
    expect_told(line, "\"step\":0,\"epoch\":0,\"members\":0,\"steps\":0,\"spent_ns\":");
    played_leave();
    played_begin(strategy);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    played_begin(strategy);
    played_enter();
    line = tell_now();
    expect_told(line, "\"state\":\"compute\",");
    expect_told(line, "\"step\":1,\"epoch\":1,\"members\":3,\"steps\":1,\"rank\":1,\"spent_ns\":");
    expect_not(line, "waits_for");
    expect_not(line, "stands_for");
    strategy->activity.since_ns = muster_loop_clock_ns(strategy->env->loop) - 3000000000u;
    line = tell_now();
    expect_told(line, "\"for_ns\":30");
    played_view(2, 5, 0, 0, 0, NULL);
    line = tell_now(); /* a view without this one */
    expect_told(line, "\"epoch\":2,\"members\":2,\"steps\":1,\"spent_ns\":");
    played_leave();
}

static void the_next_line_comes_in_a_quarter_of_a_second(void **state)
{
    struct muster_strategy *strategy = open_one();
    uint64_t before_ns;

    (void)state;
    played_enter();
    before_ns = muster_loop_now_ns(strategy->env->loop);
    (void)tell_now();
    assert_in_range(strategy->activity_timer.due_ns, before_ns + 250 * MUSTER_NS_PER_MS,
                    muster_loop_clock_ns(strategy->env->loop) + 250 * MUSTER_NS_PER_MS);
    played_leave();
    muster_strategy_close(strategy);
    assert_non_null(strstr(played_told(), "\"state\":\"close\""));
    played_close();
}

/* --- whom an operation waits for --- */

static char lines[4][2048];

static void wait_in_turn(struct played_op *op)
{
    static struct muster_group_wait waits[] = {{.rank = 2, .op = "all_reduce #0 of step 1"},
                                               {.rank = 3, .op = "all_reduce #0 of step 1"}};

    (void)op;
    played.group_waits = &waits[0];
    snprintf(lines[0], sizeof(lines[0]), "%s", tell_now());
    played.group_waits = &waits[1];
    snprintf(lines[1], sizeof(lines[1]), "%s", tell_now());
    played.group_waits = &waits[0];
    played.is_without_group = true;
    snprintf(lines[2], sizeof(lines[2]), "%s", tell_now());
    played.is_without_group = false;
    played.group_waits = NULL;
    snprintf(lines[3], sizeof(lines[3]), "%s", tell_now());
}

static void the_member_that_an_operation_waits_for_is_told(void **state)
{
    static int64_t value;
    const struct muster_tensor tensor = {.data = &value, .count = 1, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = *state;

    played_begin(strategy);
    played.on_op = wait_in_turn;
    assert_int_equal(muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM), MUSTER_OK);
    expect_told(lines[0], "\"state\":\"collective\",");
    expect_told(lines[0], "\"waits_for\":\"worker:2\",\"op\":\"all_reduce #0 of step 1\"");
    expect_not(lines[1], "waits_for"); /* there is no such rank */
    expect_not(lines[2], "waits_for"); /* there is no group */
    expect_not(lines[3], "waits_for"); /* nothing is under way */
}

/* --- what begin waits for --- */

static const char *trace_line; /* of the wait, or NULL: none */

/* Tells the line of a begin that has waited for so long. */
static void wait_for(uint64_t wait_ns, uint64_t logged_ns)
{
    struct muster_strategy *strategy = played.strategy;
    uint64_t now_ns = muster_loop_clock_ns(strategy->env->loop);

    strategy->activity.since_ns = now_ns - wait_ns;
    strategy->wait_logged_ns = logged_ns > 0 ? now_ns - logged_ns : 0;
    snprintf(lines[0], sizeof(lines[0]), "%s", tell_now());
    trace_line = strstr(played_trace(), "begin_waits");
}

static void look_when_alone(void)
{
    wait_for(0, 0);
    played_start_job();
}

static void look_at_node(void)
{
    played.waits_for = "worker:0 has not come";
    wait_for(0, 0);
    played.waits_for = NULL;
    played_start_job();
}

static void look_at_fetching(void)
{
    played.is_fetching = true;
    played.fetched_bytes = (3 << 20) + 5;
    wait_for(0, 0);
    played.is_fetching = false;
    played_catch_up();
}

/* A state of 10 bytes, as it were. */
static void look_at_fetching_little(void)
{
    struct muster_node_tensor *tensors = played.strategy->tensors;
    uint64_t counts[2] = {tensors[0].tensor.count, tensors[1].tensor.count};

    tensors[0].tensor.count = 10;
    tensors[1].tensor.count = 0;
    played.is_fetching = true;
    played.fetched_bytes = 3;
    wait_for(0, 0);
    played.is_fetching = false;
    tensors[0].tensor.count = counts[0];
    tensors[1].tensor.count = counts[1];
    played_catch_up();
}

static void look_at_folder(struct played_op *op)
{
    if (strcmp(op->kind, "broadcast") != 0)
        return;
    played.strategy->awaited_folder = "/data";
    played.strategy->awaited_job = "night";
    wait_for(0, 0);
    played.strategy->awaited_folder = played.strategy->awaited_job = NULL;
}

static void look_at_sharing(struct played_op *op)
{
    struct muster_group_wait wait = {.rank = 1, .op = "broadcast #0"};

    if (strcmp(op->kind, "broadcast") != 0)
        return;
    played.group_waits = &wait;
    played.strategy->shared_bytes += 2 << 20;
    wait_for(0, 0);
    played.strategy->shared_bytes -= 2 << 20;
    played.group_waits = NULL;
}

/* All of the state differs, so that it is given. */
static void share_in_sight(struct played_op *op)
{
    if (strcmp(op->kind, "all_reduce") == 0)
        ((int64_t *)op->tensor.data)[0] ^= 1;
    look_at_sharing(op);
}

/* Likewise, and a folder is not free yet. */
static void wait_for_folder(struct played_op *op)
{
    if (strcmp(op->kind, "all_reduce") == 0)
        ((int64_t *)op->tensor.data)[0] ^= 1;
    look_at_folder(op);
}

struct wait {
    const char *name;
    void (*on_state)(void);
    void (*on_op)(struct played_op *op);
    const char *text; /* NULL: it is not known what for */
};

static void what_begin_waits_for_is_told(void **state)
{
    static const struct wait waits[] = {
        {"nobody", look_when_alone, NULL, NULL},
        {"the node's", look_at_node, NULL, "\"stands_for\":\"worker:0 has not come\""},
        {"the initial state", played_start_job, share_in_sight,
         "\"stands_for\":\"the initial state, 2 of 5 MiB have gone to all; it waits for "
         "worker:1\""},
        {"a folder", played_start_job, wait_for_folder,
         "\"stands_for\":\"the checkpoint directory /data, which is in use by another job, "
         "night\""},
        {"the members' state", look_at_fetching, NULL,
         "\"stands_for\":\"the members' state, 3 of 5 MiB are fetched\""},
        {"the members' small state", look_at_fetching_little, NULL,
         "\"stands_for\":\"the members' state, 3 of 10 bytes are fetched\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        struct muster_strategy *strategy = open_one();

        print_message("%s\n", waits[i].name);
        lines[0][0] = '\0';
        played.on_state = waits[i].on_state;
        played.on_op = waits[i].on_op;
        played_begin(strategy);
        expect_told(lines[0], "\"state\":\"begin\",");
        if (waits[i].text != NULL)
            expect_told(lines[0], waits[i].text);
        else
            expect_not(lines[0], "stands_for");
        assert_null(trace_line); /* it has not been long */
        played_close_strategy(strategy);
    }
}

static void look_at_joiner(void)
{
    wait_for(0, 0);
    played_end_change();
}

static void a_joiner_that_reads_is_told(void **state)
{
    static const struct muster_member joiner = {
        .task_type = "worker", .task_index = 5, .from_step = 2};
    struct muster_strategy *strategy = *state;

    played_begin(strategy);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    played.stateless = &joiner;
    played.on_look = look_at_joiner;
    played_begin(strategy);
    expect_told(lines[0], "\"stands_for\":\"worker:5, which joins and reads the state (5 MiB)\"");
    played.stateless = &joiner; /* in a step it does not matter */
    played.on_look = NULL;
    played_enter();
    expect_not(tell_now(), "stands_for");
    played_leave();
    played.stateless = NULL;
}

/* --- long waits --- */

static uint64_t wait_ns, logged_ns;

static void look_after_a_while(void)
{
    wait_for(wait_ns, logged_ns);
    played_start_job();
}

/* It is logged after two seconds, and again every ten. */
static void a_begin_that_takes_long_is_recorded_now_and_then(void **state)
{
    static const struct {
        uint64_t wait_s, logged_s; /* ago; 0: not yet */
        bool is_logged;
    } rows[] = {{0, 0, false},  {1, 0, false},  {2, 0, true},   {30, 0, true},
                {30, 5, false}, {30, 9, false}, {30, 10, true}, {30, 11, true},
                {5, 20, true},  {30, 29, true}, {15, 16, true}, {5, 5, true}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_one();
        unsigned long long step = 9, waited_ns = 0;

        wait_ns = rows[i].wait_s * MUSTER_NS_PER_S;
        logged_ns = rows[i].logged_s * MUSTER_NS_PER_S;
        played.on_state = look_after_a_while;
        played_begin(strategy);
        fail_if((trace_line != NULL) != rows[i].is_logged, "row %zu", i);
        if (trace_line != NULL) {
            assert_int_equal(sscanf(trace_line, "begin_waits %llu %llu 0", &step, &waited_ns), 2);
            assert_int_equal(step, 0);
            assert_in_range(waited_ns, wait_ns, wait_ns + MUSTER_NS_PER_S * 60);
            assert_true(strategy->wait_logged_ns > 0);
        }
        played_close_strategy(strategy);
    }
}

/* A call that takes long is none of begin. */
static void who_computes_does_not_wait(void **state)
{
    struct muster_strategy *strategy = *state;

    played_begin(strategy);
    played_enter();
    wait_for(30 * MUSTER_NS_PER_S, 0);
    assert_null(trace_line);
    played_leave();
}

TEST_SET_UP(set_up_one, *state = open_one())

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(where_a_member_stands_is_told, set_up_one),
        cmocka_unit_test(the_next_line_comes_in_a_quarter_of_a_second),
        CASE(the_member_that_an_operation_waits_for_is_told, set_up_one),
        cmocka_unit_test(what_begin_waits_for_is_told),
        CASE(a_joiner_that_reads_is_told, set_up_one),
        cmocka_unit_test(a_begin_that_takes_long_is_recorded_now_and_then),
        CASE(who_computes_does_not_wait, set_up_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
