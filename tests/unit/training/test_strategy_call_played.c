/* Blocking calls of a strategy on a node that the case plays: which operations they start, in which order and
 * with which deadlines, and what comes of those that fail. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "played_node.h"

#define MANY 130u

static int64_t values[MANY];
static struct muster_tensor tensors[MANY];

static struct muster_strategy *open_with(const struct muster_strategy_options *options)
{
    struct muster_strategy *strategy = NULL;

    for (unsigned i = 0; i < MANY; i++)
        tensors[i] = (struct muster_tensor){.data = &values[i], .count = 1, .dtype = MUSTER_I64};
    played_open();
    assert_int_equal(muster_strategy_open(options, &strategy, NULL), MUSTER_OK);
    played.strategy = strategy;
    return strategy;
}

static struct muster_strategy *open_in_step(void)
{
    struct muster_strategy *strategy = open_with(NULL);

    played_begin_unnoted(strategy);
    return strategy;
}

static enum muster_rc reduce_tensors(struct muster_strategy *strategy, size_t count)
{
    return muster_strategy_all_reduce(strategy, tensors, count, MUSTER_SUM);
}

/* --- what is started --- */

static void each_call_starts_its_operation(void **state)
{
    struct muster_strategy *strategy = *state;
    const struct muster_tensor all = {.data = values, .count = 3, .dtype = MUSTER_I64};
    const struct muster_tensor out = {.data = values + 3, .count = 3, .dtype = MUSTER_I64};
    double weights[2] = {0};
    const struct muster_tensor floats = {.data = weights, .count = 2, .dtype = MUSTER_F64};

    assert_int_equal(muster_strategy_all_reduce(strategy, &all, 1, MUSTER_MAX), MUSTER_OK);
    played_expect("all_reduce 3 x i64 max\ntouch\n");
    assert_int_equal(muster_strategy_all_reduce(strategy, NULL, 0, MUSTER_MAX), MUSTER_OK);
    played_expect("");
    assert_int_equal(muster_strategy_all_reduce_weighted(strategy, &floats, 1, 7), MUSTER_OK);
    played_expect("weighted 2 x f64 by 7\ntouch\n");
    assert_int_equal(muster_strategy_broadcast(strategy, &all, 2), MUSTER_OK);
    played_expect("broadcast 3 x i64 of 2 in 1\ntouch\n");
    assert_int_equal(muster_strategy_reduce(strategy, &all, MUSTER_MIN, 0), MUSTER_OK);
    played_expect("reduce 3 x i64 min at 0 in 1\ntouch\n");
    assert_int_equal(muster_strategy_all_gather(strategy, &tensors[0], &out), MUSTER_OK);
    played_expect("all_gather 1 x i64 into 3\ntouch\n");
    assert_int_equal(muster_strategy_all_to_all(strategy, &all, &out), MUSTER_OK);
    played_expect("all_to_all 3 x i64 into 3\ntouch\n");
    assert_int_equal(muster_strategy_barrier(strategy), MUSTER_OK);
    played_expect("barrier\ntouch\n");
}

/* The ranks are those since begin, of who takes part in the step. */
static void roots_are_counted_as_begin_has_said(void **state)
{
    static const unsigned roots[] = {0, 2, 5};
    struct muster_strategy *strategy = *state;
    char expected[128];

    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    played_enter();
    played_view(6, 1 | 2 | 4 | 8 | 32, 2 | 8, 9, 0, NULL); /* 1 and 3 take part from step 9 on */
    played_leave();
    played_begin_unnoted(strategy);
    assert_int_equal(muster_strategy_size(strategy), 3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(muster_strategy_broadcast(strategy, tensors, rank), MUSTER_OK);
        snprintf(expected, sizeof(expected), "broadcast 1 x i64 of %u in 6\ntouch\n", roots[rank]);
        played_expect(expected);
    }
    played_expect_error(strategy, muster_strategy_broadcast(strategy, tensors, 3),
                        MUSTER_INVALID_ARGUMENT, "broadcast: there is no rank 3, the last is 2");
    played_expect_error(strategy, muster_strategy_reduce(strategy, tensors, MUSTER_SUM, 4),
                        MUSTER_INVALID_ARGUMENT, "reduce: there is no rank 4, the last is 2");
    played_enter();
    played_view(7, 1 | 2, 0, 0, 0, NULL); /* the program still knows the former ranks */
    played_leave();
    played.journal[0] = '\0';
    assert_int_equal(muster_strategy_broadcast(strategy, tensors, 2), MUSTER_OK);
    played_expect("broadcast 1 x i64 of 5 in 6\ntouch\n");
}

/* --- many at a time --- */

static unsigned most_open, ended_count, failing;

static void count_open(struct played_op *op)
{
    if (played.strategy->ops_open > most_open)
        most_open = (unsigned)played.strategy->ops_open;
    if (ended_count++ == failing) {
        op->rc = MUSTER_DEADLINE_EXCEEDED;
        (void)muster_error_set(&op->op->error, op->rc, "rank 2 did not call");
    }
}

/* Not one after it has failed is started but those that are under way with it. */
static void tensors_travel_sixty_four_at_a_time(void **state)
{
    static const struct {
        unsigned count, failing, started, most_open;
    } rows[] = {{1, MANY, 1, 1},    {63, MANY, 63, 63},   {64, MANY, 64, 64},
                {65, MANY, 65, 64}, {128, MANY, 128, 64}, {130, MANY, 130, 64},
                {130, 0, 64, 64},   {130, 63, 64, 64},    {130, 64, 128, 64}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step();
        bool is_failing = rows[i].failing < MANY;

        most_open = ended_count = 0;
        failing = rows[i].failing;
        played.on_op = count_open;
        assert_int_equal(reduce_tensors(strategy, rows[i].count),
                         is_failing ? MUSTER_DEADLINE_EXCEEDED : MUSTER_OK);
        assert_int_equal(played_count_lines("all_reduce"), rows[i].started);
        assert_int_equal(played_count_lines("touch"), rows[i].started - is_failing);
        assert_int_equal(most_open, rows[i].most_open);
        assert_int_equal(strategy->ops_open, 0);
        if (is_failing)
            assert_string_equal(muster_strategy_error(strategy)->text,
                                "all_reduce: rank 2 did not call");
        played_close_strategy(strategy);
    }
}

/* --- deadlines --- */

static uint64_t timeout_ns;

static void read_timeout(struct played_op *op)
{
    timeout_ns = op->timeout_ns;
}

static enum muster_rc reduce_for(struct muster_strategy *strategy, size_t count, uint64_t pack,
                                 uint64_t for_ns)
{
    const struct muster_communication_options options = {.bytes_per_pack = pack,
                                                         .timeout_ns = for_ns};

    return muster_strategy_all_reduce_with(strategy, tensors, count, MUSTER_SUM, &options);
}

#define S MUSTER_NS_PER_S

/* That of the call, else the strategy's of each operation, else the strategy's of all. */
static void the_nearest_deadline_counts(void **state)
{
    static const struct {
        uint64_t op_ns, own_ns, call_ns, expected_ns, weighted_ns;
    } rows[] = {
        {0, 0, 0, 300 * S, 300 * S},     {7 * S, 0, 0, 7 * S, 7 * S},
        {7 * S, 5 * S, 0, 5 * S, 5 * S}, {7 * S, 5 * S, 3 * S, 3 * S, 5 * S},
        {7 * S, 0, 3 * S, 3 * S, 7 * S},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_strategy_options options = {
            .op_timeout_ns = rows[i].op_ns, .communication = {.timeout_ns = rows[i].own_ns}};
        struct muster_strategy *strategy = open_with(&options);
        double value = 1;
        const struct muster_tensor floats = {.data = &value, .count = 1, .dtype = MUSTER_F64};

        played.communication = options.communication;
        played_begin_unnoted(strategy);
        played.on_op = read_timeout;
        for (uint64_t pack = 0; pack < 2; pack++) {
            assert_int_equal(reduce_for(strategy, 2, pack * 64, rows[i].call_ns), MUSTER_OK);
            assert_in_range(timeout_ns, rows[i].expected_ns - S / 2, rows[i].expected_ns);
        }
        assert_int_equal(muster_strategy_all_reduce_weighted(strategy, &floats, 1, 1), MUSTER_OK);
        assert_in_range(timeout_ns, rows[i].weighted_ns - S / 2, rows[i].weighted_ns);
        played_close_strategy(strategy);
    }
}

/* --- refused --- */

static void what_the_group_refuses_is_explained(void **state)
{
    static const struct {
        enum muster_rc rc;
        const char *single, *pair, *list;
    } rows[] = {
        {MUSTER_INVALID_ARGUMENT,
         "all_reduce of tensor 0: unknown type, or data NULL or not aligned to the type",
         "all_gather of i64 x 1 into i64 x 1 on 3 members: counts or types do not fit, or the "
         "tensors overlap, or data is NULL or not aligned to the type",
         "all_reduce of 2 tensors: invalid argument (types, NULL, alignment, overlap?)"},
        {MUSTER_RESOURCE_EXHAUSTED, "all_reduce of tensor 0: resource exhausted",
         "all_gather of tensor 0: resource exhausted",
         "all_reduce of 2 tensors: resource exhausted (types, NULL, alignment, overlap?)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step();

        played.start_rc = rows[i].rc;
        played_expect_error(strategy, reduce_tensors(strategy, 3), rows[i].rc, rows[i].single);
        assert_int_equal(strategy->ops_rc, rows[i].rc);
        played_expect("all_reduce refused\n");
        played_expect_error(strategy,
                            muster_strategy_all_gather(strategy, &tensors[0], &tensors[1]),
                            rows[i].rc, rows[i].pair);
        played_expect("all_gather refused\n");
        played_expect_error(strategy, reduce_for(strategy, 2, 64, 0), rows[i].rc, rows[i].list);
        played_expect("list refused\n");
        assert_int_equal(strategy->ops_open, 0);
        assert_int_equal(strategy->activity.state, MUSTER_ACTIVITY_COMPUTE);
        played.start_rc = MUSTER_OK;
        assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
        played_close_strategy(strategy);
    }
}

/* Those before it have been started: they end first. */
static void refuse_third(struct played_op *op)
{
    (void)op;
    ended_count++;
}

static void what_was_started_before_a_refusal_is_awaited(void **state)
{
    struct muster_strategy *strategy = *state;

    ended_count = 0;
    played.on_op = refuse_third;
    played.refused_start = 3;
    played_expect_error(strategy, reduce_tensors(strategy, 5), MUSTER_RESOURCE_EXHAUSTED,
                        "all_reduce of tensor 2: resource exhausted");
    assert_int_equal(ended_count, 2);
    played_expect("all_reduce 1 x i64 sum\nall_reduce 1 x i64 sum\nall_reduce refused\n"
                  "touch\ntouch\n");
}

static void without_a_group_nothing_is_started(void **state)
{
    struct muster_strategy *strategy = *state;

    played.is_without_group = true;
    played_expect_error(strategy, reduce_tensors(strategy, 1), MUSTER_ABORTED,
                        "all_reduce: this member is not in the current view");
    played_expect_error(strategy, reduce_for(strategy, 2, 64, 0), MUSTER_ABORTED,
                        "all_reduce: this member is not in the current view");
    played_expect("");
    played.is_without_group = false;
}

static void what_has_no_meaning_is_refused_before_the_group(void **state)
{
    static uint8_t flag;
    struct muster_strategy *strategy = *state;
    const struct muster_tensor mixed[] = {tensors[0],
                                          {.data = &flag, .count = 1, .dtype = MUSTER_BOOL}};

    played_expect_error(strategy, muster_strategy_all_reduce(strategy, mixed, 2, MUSTER_MEAN),
                        MUSTER_INVALID_ARGUMENT,
                        "all_reduce of tensor 1: mean of bool has no meaning: use one of min, max, "
                        "and, or, xor, or another type (u32 to count)");
    assert_int_equal(strategy->ops_rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_strategy_broadcast(strategy, &mixed[1], 0), MUSTER_OK);
}

/* --- how it ends --- */

static enum muster_rc end_rc;
static const char *end_text;

static void end_so(struct played_op *op)
{
    op->rc = end_rc;
    if (end_text != NULL)
        (void)muster_error_set(&op->op->error, end_rc, "%s", end_text);
}

static void a_failure_has_the_text_of_the_operation(void **state)
{
    static const struct {
        uint64_t pack;
        const char *text, *expected;
    } rows[] = {
        {0, "rank 2 is late", "all_reduce: rank 2 is late"},
        {0, NULL, "all_reduce: aborted"},
        {64, "rank 2 is late", "all_reduce: rank 2 is late"},
        {64, NULL, "all_reduce: aborted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step();

        end_rc = MUSTER_ABORTED;
        end_text = rows[i].text;
        played.on_op = end_so;
        played_expect_error(strategy, reduce_for(strategy, 2, rows[i].pack, 0), MUSTER_ABORTED,
                            rows[i].expected);
        assert_int_equal(strategy->ops_rc, MUSTER_ABORTED);
        assert_null(strstr(played.journal, "touch"));
        played_close_strategy(strategy);
    }
}

static void fail_node(struct played_op *op)
{
    played_fail(MUSTER_UNAVAILABLE, "no registry");
    op->rc = end_rc;
}

/* The node's word stands; what was delivered before is delivered. */
static void an_operation_that_ends_with_the_node_has_its_error(void **state)
{
    static const struct {
        uint64_t pack;
        enum muster_rc rc, expected;
    } rows[] = {{0, MUSTER_ABORTED, MUSTER_UNAVAILABLE},
                {0, MUSTER_OK, MUSTER_OK},
                {64, MUSTER_ABORTED, MUSTER_UNAVAILABLE}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_in_step();

        end_rc = rows[i].rc;
        played.on_op = fail_node;
        assert_int_equal(reduce_for(strategy, 2, rows[i].pack, 0), rows[i].expected);
        assert_string_equal(strategy->error.text, "no registry");
        assert_int_equal(strategy->error.rc, MUSTER_UNAVAILABLE);
        played_close_strategy(strategy);
    }
}

/* --- what is kept of it --- */

static void set_result(struct played_op *op)
{
    op->op->result.contributor_count = 2;
    op->op->result.total_weight = 11;
    op->op->result.sent_bytes = 100;
    op->op->result.wire = played.strategy->step == 1 ? "tcp" : "shm";
    op->rc = end_rc;
}

static void results_are_kept_and_counted(void **state)
{
    static const uint64_t packs[] = {0, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(packs) / sizeof(packs[0]); i++) {
        struct muster_strategy *strategy = open_in_step();
        const uint64_t *sent = strategy->activity.sent_bytes;
        uint64_t each = i == 0 ? 200 : 100; /* of two operations, or of the list */
        uint64_t before = sent[MUSTER_ACTIVITY_TCP];

        end_rc = MUSTER_OK;
        played.on_op = set_result;
        assert_int_equal(reduce_for(strategy, 2, packs[i], 0), MUSTER_OK);
        assert_int_equal(muster_strategy_contributors(strategy), 2);
        assert_int_equal(muster_strategy_result(strategy)->total_weight, 11);
        assert_int_equal(sent[MUSTER_ACTIVITY_TCP], before + each);
        assert_non_null(strstr(played.journal, "touch"));
        assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
        played_begin_unnoted(strategy);
        end_rc = MUSTER_ABORTED; /* sent all the same */
        assert_int_equal(reduce_for(strategy, 2, packs[i], 0), MUSTER_ABORTED);
        assert_int_equal(sent[MUSTER_ACTIVITY_SHM], each);
        assert_int_equal(sent[MUSTER_ACTIVITY_NCCL], 0);
        assert_int_equal(strategy->activity.state, MUSTER_ACTIVITY_COMPUTE);
        played_close_strategy(strategy);
    }
}

static uint64_t interrupted_ns;

static void interrupt_first(struct played_op *op)
{
    op->op->result.is_interrupted = interrupted_ns != 0;
    op->op->result.interrupted_ns = interrupted_ns;
    interrupted_ns = 0;
}

/* One call in packs, or several operations; the next call begins anew. */
static void an_interruption_is_one_of_the_call(void **state)
{
    static const uint64_t packs[] = {0, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(packs) / sizeof(packs[0]); i++) {
        struct muster_strategy *strategy = open_in_step();

        interrupted_ns = 5;
        played.on_op = interrupt_first;
        assert_int_equal(reduce_for(strategy, 3, packs[i], 0), MUSTER_OK);
        assert_true(muster_strategy_result(strategy)->is_interrupted);
        assert_int_equal(muster_strategy_result(strategy)->interrupted_ns, 5);
        assert_int_equal(reduce_for(strategy, 3, packs[i], 0), MUSTER_OK);
        assert_false(muster_strategy_result(strategy)->is_interrupted);
        played_close_strategy(strategy);
    }
}

static enum muster_activity_state state_in_call;

static void read_state(struct played_op *op)
{
    (void)op;
    state_in_call = played.strategy->activity.state;
}

static void a_list_travels_in_packs_and_a_single_tensor_does_not(void **state)
{
    static const struct muster_communication_options own = {.bytes_per_pack = 4096};
    const struct muster_strategy_options options = {.communication = own};
    struct muster_strategy *strategy = open_with(&options);

    (void)state;
    played.communication = own;
    played_begin_unnoted(strategy);
    played.on_op = read_state;
    assert_int_equal(reduce_tensors(strategy, 2), MUSTER_OK);
    played_expect("list 1 x i64 sum of 2 in packs of 4096 lane 0\ntouch\n");
    assert_int_equal(state_in_call, MUSTER_ACTIVITY_COLLECTIVE);
    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
    played_expect("all_reduce 1 x i64 sum\ntouch\n");
    assert_int_equal(reduce_for(strategy, 3, 77, 0), MUSTER_OK);
    played_expect("list 1 x i64 sum of 3 in packs of 77 lane 0\ntouch\n");
    assert_int_equal(reduce_for(strategy, 1, 77, 0), MUSTER_OK);
    played_expect("all_reduce 1 x i64 sum\ntouch\n");
    played_close_strategy(strategy);
}

/* --- one call at a time --- */

static char refusals[3][256];

static void *call_meanwhile(void *data)
{
    struct muster_strategy *strategy = data;
    struct muster_tensor own = tensors[0];

    if (muster_strategy_barrier(strategy) == MUSTER_FAILED_PRECONDITION)
        strcpy(refusals[0], muster_strategy_error(strategy)->text);
    if (muster_strategy_tensor_new(strategy, MUSTER_U8, 1, &own) == MUSTER_FAILED_PRECONDITION)
        strcpy(refusals[1], muster_strategy_error(strategy)->text);
    muster_strategy_tensor_free(strategy, &own);
    if (own.data == tensors[0].data)
        strcpy(refusals[2], muster_strategy_error(strategy)->text);
    return data;
}

static void call_from_another_thread(struct played_op *op)
{
    pthread_t thread;

    (void)op;
    assert_int_equal(pthread_create(&thread, NULL, call_meanwhile, played.strategy), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void calls_of_other_threads_are_refused_by_name(void **state)
{
    static const char *const calls[] = {"barrier by thread", "tensor_new by thread",
                                        "tensor_free by thread"};
    struct muster_strategy *strategy = *state;

    played.on_op = call_from_another_thread;
    assert_int_equal(reduce_tensors(strategy, 1), MUSTER_OK);
    for (size_t i = 0; i < 3; i++)
        fail_if(strstr(refusals[i], calls[i]) != refusals[i] ||
                    strstr(refusals[i], "is in all_reduce:") == NULL,
                "%s: %s", calls[i], refusals[i]);
    assert_int_equal(muster_strategy_error(strategy)->rc, MUSTER_OK);
}

/* --- memory --- */

static void a_tensor_without_memory_is_told(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_tensor tensor = {.count = 0};

    played_expect_error(
        strategy, muster_strategy_tensor_new(strategy, (enum muster_dtype)99, 3, &tensor),
        MUSTER_INVALID_ARGUMENT, "a tensor of 3 x an unknown type: invalid argument");
    assert_int_equal(muster_strategy_tensor_new(strategy, MUSTER_U8, 3, &tensor), MUSTER_OK);
    assert_non_null(strstr(muster_strategy_error(strategy)->text, "3 x an unknown type"));
    muster_strategy_tensor_free(strategy, &tensor);
}

TEST_SET_UP(set_up_step, *state = open_in_step())

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_call_starts_its_operation, set_up_step),
        CASE(roots_are_counted_as_begin_has_said, set_up_step),
        cmocka_unit_test(tensors_travel_sixty_four_at_a_time),
        cmocka_unit_test(the_nearest_deadline_counts),
        cmocka_unit_test(what_the_group_refuses_is_explained),
        CASE(what_was_started_before_a_refusal_is_awaited, set_up_step),
        CASE(without_a_group_nothing_is_started, set_up_step),
        CASE(what_has_no_meaning_is_refused_before_the_group, set_up_step),
        cmocka_unit_test(a_failure_has_the_text_of_the_operation),
        cmocka_unit_test(an_operation_that_ends_with_the_node_has_its_error),
        cmocka_unit_test(results_are_kept_and_counted),
        cmocka_unit_test(an_interruption_is_one_of_the_call),
        cmocka_unit_test(a_list_travels_in_packs_and_a_single_tensor_does_not),
        CASE(calls_of_other_threads_are_refused_by_name, set_up_step),
        CASE(a_tensor_without_memory_is_told, set_up_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
