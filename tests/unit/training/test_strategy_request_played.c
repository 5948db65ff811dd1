/* Requests of a strategy on a node that the case plays: what they start, when they end, and when the program hears
 * of it. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <muster/strategy_request.h>

#include "assertion_count.h"
#include "played_node.h"

#define MANY 70u
#define S    MUSTER_NS_PER_S

static int64_t values[MANY];
static struct muster_tensor tensors[MANY];
static pthread_t program;

/* --- what the program hears --- */

static struct muster_request *completed[8];
static enum muster_rc completed_rc[8];
static unsigned completed_count;

static void on_done(struct muster_request *request, enum muster_rc rc)
{
    assert_true(pthread_equal(pthread_self(), program));
    assert_null(request->impl); /* the program's again */
    completed[completed_count] = request;
    completed_rc[completed_count++] = rc;
}

static struct muster_request all_reduce(void)
{
    return (struct muster_request){.kind = MUSTER_REQUEST_ALL_REDUCE,
                                   .output = tensors,
                                   .reduction = MUSTER_MAX,
                                   .done = on_done};
}

static struct muster_strategy *open_in_step(void)
{
    struct muster_strategy *strategy = NULL;

    completed_count = 0;
    program = pthread_self();
    for (unsigned i = 0; i < MANY; i++)
        tensors[i] = (struct muster_tensor){.data = &values[i], .count = 1, .dtype = MUSTER_I64};
    played_open();
    assert_int_equal(muster_strategy_open(NULL, &strategy, NULL), MUSTER_OK);
    played.strategy = strategy;
    played_begin_unnoted(strategy);
    return strategy;
}

/* --- starting --- */

static void each_kind_starts_its_operation(void **state)
{
    static const uint64_t ones[] = {1, 1, 1};
    static const struct muster_parts parts = {values + 8, ones, 3, MUSTER_I64};
    static const struct muster_parts others = {values + 16, ones, 3, MUSTER_I64};
    static double weights[2];
    const struct muster_tensor one = tensors[0], floats = {weights, 2, MUSTER_F64};
    const struct muster_tensor three = {.data = values + 4, .count = 3, .dtype = MUSTER_I64};
    const struct {
        struct muster_request request;
        const char *journal;
    } rows[] = {
        {{.kind = MUSTER_REQUEST_ALL_REDUCE, .output = &three, .reduction = MUSTER_MAX},
         "all_reduce 3 x i64 max\n"},
        {{.kind = MUSTER_REQUEST_ALL_REDUCE, .output = tensors, .count = 2}, NULL},
        {{.kind = MUSTER_REQUEST_ALL_REDUCE_WEIGHTED, .output = &floats, .weight = 7},
         "weighted 2 x f64 by 7\n"},
        {{.kind = MUSTER_REQUEST_BROADCAST, .output = &three, .rank = 2},
         "broadcast 3 x i64 of 2 in 1\n"},
        {{.kind = MUSTER_REQUEST_REDUCE, .output = &three, .rank = 0},
         "reduce 3 x i64 sum at 0 in 1\n"},
        {{.kind = MUSTER_REQUEST_BARRIER}, "barrier\n"},
        {{.kind = MUSTER_REQUEST_ALL_GATHER, .input = &one, .output = &three},
         "all_gather 1 x i64 into 3\n"},
        {{.kind = MUSTER_REQUEST_ALL_TO_ALL, .input = &three, .output = &three},
         "all_to_all 3 x i64 into 3\n"},
        {{.kind = MUSTER_REQUEST_REDUCE_SCATTER, .input = &three, .output = &one},
         "reduce_scatter 3 x i64 sum into 1\n"},
        {{.kind = MUSTER_REQUEST_GATHER, .input = &one, .output = &three, .rank = 1},
         "gather 1 x i64 into 3 root 1 in 1\n"},
        {{.kind = MUSTER_REQUEST_GATHER, .input = &one, .rank = 0},
         "gather 1 x i64 into 0 root 0 in 1\n"},
        {{.kind = MUSTER_REQUEST_SCATTER, .output = &one, .rank = 2},
         "scatter 0 x i64 into 1 root 2 in 1\n"},
        {{.kind = MUSTER_REQUEST_ALL_GATHER_UNEVEN, .input = &one, .output_parts = &parts},
         "all_gather_uneven 1 x i64 into 3\n"},
        {{.kind = MUSTER_REQUEST_REDUCE_SCATTER_UNEVEN, .input_parts = &parts, .output = &one},
         "reduce_scatter_uneven 3 x i64 sum into 1\n"},
        {{.kind = MUSTER_REQUEST_ALL_TO_ALL_UNEVEN, .input_parts = &parts, .output_parts = &others},
         "all_to_all_uneven 3 x i64 into 3\n"},
        {{.kind = MUSTER_REQUEST_SEND, .input = &one, .rank = 2}, "send 1 x i64 to 2\n"},
        {{.kind = MUSTER_REQUEST_RECEIVE, .output = &one, .rank = 0}, "receive 1 x i64 from 0\n"},
    };
    struct muster_strategy *strategy = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_request request = rows[i].request;

        assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
        assert_int_equal(muster_request_wait(&request), MUSTER_OK);
        assert_int_equal(request.result.contributor_count, 3);
        assert_int_equal(request.error.rc, MUSTER_OK);
        if (rows[i].journal != NULL)
            assert_non_null(strstr(played.journal, rows[i].journal));
        else
            assert_int_equal(played_count_lines("all_reduce 1 x i64 sum\n"), 2);
        played.journal[0] = '\0';
    }
}

static void what_is_refused_has_not_started(void **state)
{
    static const struct muster_tensor one = {values, 1, MUSTER_I64};
    static const struct {
        struct muster_request request;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {{.kind = MUSTER_REQUEST_ALL_REDUCE},
         MUSTER_INVALID_ARGUMENT,
         "all_reduce: output must be a tensor, got NULL"},
        {{.kind = MUSTER_REQUEST_BROADCAST, .output = &one, .rank = 3},
         MUSTER_INVALID_ARGUMENT,
         "broadcast: there is no rank 3, the last is 2"},
        {{.kind = MUSTER_REQUEST_ALL_REDUCE,
          .output = &one,
          .reduction = (enum muster_reduction)99},
         MUSTER_INVALID_ARGUMENT,
         "all_reduce of tensor 0: an unknown reduction of i64 has no"},
        {{.kind = MUSTER_REQUEST_ALL_GATHER_UNEVEN, .input = &one},
         MUSTER_INVALID_ARGUMENT,
         "all_gather_uneven: there must be a count for each of 3 members, got 0"},
        {{.kind = MUSTER_REQUEST_SEND, .input = &one, .rank = 1},
         MUSTER_INVALID_ARGUMENT,
         "send: rank 1 is this member itself"},
    };
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_request refused = rows[i].request;

        assert_int_equal(muster_request_start(&refused, strategy), rows[i].rc);
        assert_non_null(strstr(muster_strategy_error(strategy)->text, rows[i].text));
        assert_null(refused.impl);
    }
    played.start_rc = MUSTER_RESOURCE_EXHAUSTED;
    played_expect_error(strategy, muster_request_start(&request, strategy),
                        MUSTER_RESOURCE_EXHAUSTED, "all_reduce of tensor 0: resource exhausted");
    played.start_rc = MUSTER_OK;
    played.is_without_group = true;
    played_expect_error(strategy, muster_request_start(&request, strategy), MUSTER_ABORTED,
                        "all_reduce: this member is not in the current view");
    played.is_without_group = false;
    assert_int_equal(strategy->request_count, 0);
    assert_int_equal(completed_count, 0);
}

static void a_message_to_a_member_that_is_gone_names_it(void **state)
{
    static const struct muster_tensor one = {values, 1, MUSTER_I64};
    struct muster_request send = {.kind = MUSTER_REQUEST_SEND, .input = &one, .rank = 0};
    struct muster_strategy *strategy = *state;

    played_enter();
    played_view(7, 2 | 32, 0, 0, 0, NULL);
    played_leave();
    played_expect_error(strategy, muster_request_start(&send, strategy), MUSTER_ABORTED,
                        "send: rank 0 is gone");
}

static void an_open_request_is_not_started_anew(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    played_expect_error(strategy, muster_request_start(&request, strategy),
                        MUSTER_FAILED_PRECONDITION,
                        "request: it is open: complete it before it starts anew");
    assert_int_equal(muster_request_wait(&request), MUSTER_OK);
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    assert_int_equal(muster_request_wait(&request), MUSTER_OK);
    assert_int_equal(completed_count, 2);
}

static uint64_t timeout_ns;

static void read_timeout(struct played_op *op)
{
    timeout_ns = op->timeout_ns;
}

static void each_has_a_deadline_of_its_own(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    played.on_op = read_timeout;
    for (uint64_t seconds = 0; seconds < 8; seconds += 7) {
        request.timeout_ns = seconds * S;
        assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
        assert_int_equal(muster_request_wait(&request), MUSTER_OK);
        assert_in_range(timeout_ns, seconds > 0 ? 6 * S : 299 * S, seconds > 0 ? 7 * S : 300 * S);
    }
}

/* --- ending --- */

static void several_end_while_the_program_computes(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request first = all_reduce(), second = all_reduce(), third = all_reduce();
    size_t count = 9;

    second.kind = MUSTER_REQUEST_BARRIER;
    assert_int_equal(muster_request_start(&first, strategy), MUSTER_OK);
    assert_int_equal(muster_request_start(&second, strategy), MUSTER_OK);
    while (!muster_request_has_ended(&first) || !muster_request_has_ended(&second))
        ;                                 /* the keeper goes on with them */
    assert_int_equal(completed_count, 0); /* and tells nobody */
    assert_int_equal(muster_request_start(&third, strategy), MUSTER_OK);
    assert_int_equal(muster_strategy_poll(strategy, &count), MUSTER_OK);
    assert_in_range(completed_count, 2, 3);
    assert_ptr_equal(completed[0], &first);
    assert_ptr_equal(completed[1], &second);
    assert_int_equal(count, 3 - completed_count);
    assert_int_equal(muster_request_wait(&third), MUSTER_OK);
    assert_int_equal(completed_count, 3);
    assert_int_equal(muster_request_wait(&third), MUSTER_OK); /* at once, and once only */
    assert_int_equal(completed_count, 3);
    assert_true(muster_request_has_ended(&third));
    assert_int_equal(muster_strategy_poll(strategy, NULL), MUSTER_OK);
}

static void blocking_calls_go_on_beside_them(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    request.count = 20; /* with 64 of the blocking call, all that the stage has */
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    assert_int_equal(muster_strategy_all_reduce(strategy, tensors, MANY, MUSTER_SUM), MUSTER_OK);
    assert_int_equal(played_count_lines("all_reduce 1 x i64 max\n"), 20);
    assert_int_equal(played_count_lines("all_reduce 1 x i64 sum\n"), MANY);
    assert_int_equal(muster_request_wait(&request), MUSTER_OK);
}

static unsigned seen_count;

static void fail_second(struct played_op *op)
{
    if (++seen_count == 2) {
        op->rc = MUSTER_DEADLINE_EXCEEDED;
        (void)muster_error_set(&op->op->error, op->rc, "rank 2 did not call");
    }
    op->op->result.is_interrupted = seen_count == 1;
}

static void the_first_failure_of_several_tensors_is_the_requests(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    seen_count = 0;
    played.on_op = fail_second;
    request.count = 3;
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    assert_int_equal(muster_request_wait(&request), MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(request.error.text, "all_reduce: rank 2 did not call");
    assert_string_equal(muster_strategy_error(strategy)->text, "all_reduce: rank 2 did not call");
    assert_int_equal(completed_rc[0], MUSTER_DEADLINE_EXCEEDED);
    assert_true(request.result.is_interrupted);
    assert_int_equal(strategy->ops_rc, MUSTER_DEADLINE_EXCEEDED); /* close knows */
}

static void what_fails_behind_the_first_comes_with_the_completion(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    played.refused_start = 3;
    request.count = 5;
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    assert_int_equal(muster_request_wait(&request), MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(request.error.text, "all_reduce of tensor 2: resource exhausted");
    assert_int_equal(played_count_lines("all_reduce 1 x i64 max\n"), 2);
}

static void what_ends_with_its_view_has_no_older_text(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    (void)!muster_error_set(&strategy->error, MUSTER_UNAVAILABLE, "an older failure");
    played.refused_start = 2;
    played.refused_rc = MUSTER_ABORTED;
    request.count = 3;
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    assert_int_equal(muster_request_wait(&request), MUSTER_ABORTED);
    assert_int_equal(request.error.rc, MUSTER_ABORTED);
    assert_non_null(strstr(request.error.text, "all_reduce of tensor 1: "));
}

static void commit_waits_for_nobody_and_begin_for_all(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    played_expect_error(strategy, muster_strategy_commit(strategy), MUSTER_FAILED_PRECONDITION,
                        "commit: 1 requests have not been completed: wait for each first");
    assert_int_equal(completed_count, 0);
    played_begin_unnoted(strategy); /* the step again */
    assert_true(muster_request_has_ended(&request));
    assert_int_equal(completed_count, 0);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_strategy_poll(strategy, NULL), MUSTER_OK);
    assert_int_equal(completed_count, 1);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
}

static void a_request_without_memory_is_not_started(void **state)
{
    struct muster_request request = all_reduce();
    enum muster_rc rc;

    played.fail_at = 1;
    rc = muster_request_start(&request, *state);
    played.fail_at = 0;
    played_expect_error(*state, rc, MUSTER_RESOURCE_EXHAUSTED, "all_reduce: out of memory");
    assert_int_equal(muster_request_start(&request, *state), MUSTER_OK);
    assert_int_equal(muster_request_wait(&request), MUSTER_OK);
}

static void the_step_does_not_fail_with_a_request_of_the_attempt_before(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    request.count = 5;
    played.refused_start = 3;
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    played_begin_unnoted(strategy); /* the step again */
    assert_int_equal(muster_request_wait(&request), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(strategy->ops_rc, MUSTER_OK); /* close knows */
}

static void at_most_a_thousand_are_open(void **state)
{
    static struct muster_request requests[1025];
    struct muster_strategy *strategy = *state;

    for (unsigned i = 0; i < 1025; i++)
        requests[i] = (struct muster_request){
            .kind = MUSTER_REQUEST_ALL_REDUCE, .output = tensors, .count = 1};
    for (unsigned i = 0; i < 1024; i++) {
        assert_int_equal(muster_request_start(&requests[i], strategy), MUSTER_OK);
        assert_int_equal(muster_strategy_barrier(strategy), MUSTER_OK); /* the stage has few ops */
    }
    played_expect_error(strategy, muster_request_start(&requests[1024], strategy),
                        MUSTER_RESOURCE_EXHAUSTED,
                        "all_reduce: 1024 requests are open, at most 1024 are possible");
    assert_int_equal(muster_request_wait(&requests[0]), MUSTER_OK);
    assert_int_equal(muster_request_start(&requests[1024], strategy), MUSTER_OK);
    assert_int_equal(muster_request_wait(&requests[1024]), MUSTER_OK);
}

static void cancel_is_one_of_each_open_operation(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    muster_request_cancel(&request); /* not open */
    played.are_ops_held = true;
    request.count = 2;
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    assert_false(muster_request_has_ended(&request));
    muster_request_cancel(&request);
    assert_int_equal(completed_count, 0);
    assert_int_equal(muster_request_wait(&request), MUSTER_CANCELLED);
    assert_int_equal(played_count_lines("cancel\n"), 2);
    assert_string_equal(request.error.text, "all_reduce: cancelled");
    muster_request_cancel(&request);
    assert_int_equal(completed_count, 1);
}

static void *wait_meanwhile(void *data)
{
    struct muster_request *request = data;

    assert_int_equal(muster_request_wait(request), MUSTER_FAILED_PRECONDITION);
    muster_request_cancel(request);
    return NULL;
}

static struct muster_request *waited_meanwhile;

static void wait_on_another_thread(struct played_op *op)
{
    pthread_t thread;

    if (strcmp(op->kind, "barrier") != 0)
        return;
    assert_int_equal(pthread_create(&thread, NULL, wait_meanwhile, waited_meanwhile), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void another_thread_is_refused_while_one_is_in_a_call(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_request request = all_reduce();

    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    waited_meanwhile = &request;
    played.on_op = wait_on_another_thread;
    assert_int_equal(muster_strategy_barrier(strategy), MUSTER_OK);
    assert_int_equal(completed_count, 0);
    assert_int_equal(muster_request_wait(&request), MUSTER_OK);
    assert_int_equal(completed_count, 1);
}

static void close_completes_what_has_ended(void **state)
{
    struct muster_strategy *strategy = open_in_step();
    struct muster_request request = all_reduce();

    (void)state;
    assert_int_equal(muster_request_start(&request, strategy), MUSTER_OK);
    while (!muster_request_has_ended(&request))
        ;
    played_close_strategy(strategy);
    assert_int_equal(completed_count, 1);
    assert_int_equal(completed_rc[0], MUSTER_OK);
}

TEST_SET_UP(set_up_step, *state = open_in_step())

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_step, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_kind_starts_its_operation),
        CASE(what_is_refused_has_not_started),
        CASE(a_message_to_a_member_that_is_gone_names_it),
        CASE(an_open_request_is_not_started_anew),
        CASE(each_has_a_deadline_of_its_own),
        CASE(several_end_while_the_program_computes),
        CASE(blocking_calls_go_on_beside_them),
        CASE(the_first_failure_of_several_tensors_is_the_requests),
        CASE(what_fails_behind_the_first_comes_with_the_completion),
        CASE(what_ends_with_its_view_has_no_older_text),
        CASE(commit_waits_for_nobody_and_begin_for_all),
        CASE(a_request_without_memory_is_not_started),
        CASE(the_step_does_not_fail_with_a_request_of_the_attempt_before),
        CASE(at_most_a_thousand_are_open),
        CASE(cancel_is_one_of_each_open_operation),
        CASE(another_thread_is_refused_while_one_is_in_a_call),
        cmocka_unit_test(close_completes_what_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
