/* Operations on parts, and messages, of a strategy on a node that the case plays: what they start, and by whose
 * ranks. */
#include <string.h>

#include <muster/strategy_exchange.h>

#include "assertion_count.h"
#include "played_node.h"

static int64_t values[16];

static struct muster_tensor of_ints(unsigned first, uint64_t count)
{
    return (struct muster_tensor){.data = values + first, .count = count, .dtype = MUSTER_I64};
}

static struct muster_parts of_parts(unsigned first, const uint64_t *counts)
{
    return (struct muster_parts){
        .data = values + first, .counts = counts, .part_count = 3, .dtype = MUSTER_I64};
}

/* Members 0, 1 (this one) and 5 take part, and 3 from step 9 on: view 6. */
static struct muster_strategy *open_in_step(void)
{
    struct muster_strategy *strategy = NULL;

    played_open();
    assert_int_equal(muster_strategy_open(NULL, &strategy, NULL), MUSTER_OK);
    played.strategy = strategy;
    played_begin_unnoted(strategy);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    played_enter();
    played_view(6, 1 | 2 | 8 | 32, 8, 9, 0, NULL);
    played_leave();
    played_begin_unnoted(strategy);
    return strategy;
}

static void each_call_starts_its_operation(void **state)
{
    static const uint64_t counts[] = {1, 2, 3}, others[] = {2, 2, 2};
    struct muster_strategy *strategy = *state;
    const struct muster_tensor one = of_ints(0, 1), two = of_ints(1, 2), three = of_ints(3, 3);
    const struct muster_parts from = of_parts(0, counts), to = of_parts(8, others);

    assert_int_equal(muster_strategy_reduce_scatter(strategy, &three, &one, MUSTER_MAX), MUSTER_OK);
    played_expect("reduce_scatter 3 x i64 max into 1\ntouch\n");
    assert_int_equal(muster_strategy_gather(strategy, &one, &three, 1), MUSTER_OK);
    played_expect("gather 1 x i64 into 3 root 1 in 6\ntouch\n");
    assert_int_equal(muster_strategy_gather(strategy, &one, &three, 2), MUSTER_OK);
    played_expect("gather 1 x i64 into 0 root 5 in 6\ntouch\n"); /* another one's root */
    assert_int_equal(muster_strategy_scatter(strategy, &three, &one, 1), MUSTER_OK);
    played_expect("scatter 3 x i64 into 1 root 1 in 6\ntouch\n");
    assert_int_equal(muster_strategy_scatter(strategy, NULL, &one, 0), MUSTER_OK);
    played_expect("scatter 0 x i64 into 1 root 0 in 6\ntouch\n");
    assert_int_equal(muster_strategy_all_gather_uneven(strategy, &two, &from), MUSTER_OK);
    played_expect("all_gather_uneven 2 x i64 into 6\ntouch\n");
    assert_int_equal(muster_strategy_reduce_scatter_uneven(strategy, &from, &two, MUSTER_SUM),
                     MUSTER_OK);
    played_expect("reduce_scatter_uneven 6 x i64 sum into 2\ntouch\n");
    assert_int_equal(muster_strategy_all_to_all_uneven(strategy, &from, &to), MUSTER_OK);
    played_expect("all_to_all_uneven 6 x i64 into 6\ntouch\n");
    assert_int_equal(muster_strategy_send(strategy, &two, 2), MUSTER_OK);
    played_expect("send 2 x i64 to 3\ntouch\n"); /* member 5 has rank 3 in the view */
    assert_int_equal(muster_strategy_receive(strategy, &two, 0), MUSTER_OK);
    played_expect("receive 2 x i64 from 0\ntouch\n");
    assert_int_equal(muster_strategy_exchange(strategy, &two, 2, &one, 0), MUSTER_OK);
    played_expect("send 2 x i64 to 3\nreceive 1 x i64 from 0\ntouch\ntouch\n");
}

/* Also when the group has another view by then: it ends them, on all. */
static void parts_are_for_the_members_since_begin(void **state)
{
    struct muster_strategy *strategy = *state;
    const struct muster_tensor one = of_ints(0, 1), three = of_ints(3, 3);

    played_enter();
    played_view(7, 2 | 32, 0, 0, 0, NULL);
    played_leave();
    assert_int_equal(muster_strategy_reduce_scatter(strategy, &three, &one, MUSTER_SUM), MUSTER_OK);
    assert_int_equal(played.op_epoch, 6);
    assert_int_equal(muster_strategy_gather(strategy, &one, &three, 1), MUSTER_OK);
    assert_int_equal(played.op_epoch, 6);
    played.journal[0] = '\0';
    played_expect_error(strategy, muster_strategy_send(strategy, &one, 0), MUSTER_ABORTED,
                        "send: rank 0 is gone");
    assert_int_equal(muster_strategy_send(strategy, &one, 2), MUSTER_OK);
    played_expect("send 1 x i64 to 1\ntouch\n");
}

static void what_cannot_be_is_refused_before_the_group(void **state)
{
    static const uint64_t counts[] = {1, 2, 3};
    struct muster_strategy *strategy = *state;
    const struct muster_tensor one = of_ints(0, 1), three = of_ints(3, 3);
    const struct muster_tensor flags = {.data = values, .count = 3, .dtype = MUSTER_BOOL};
    const struct muster_parts good = of_parts(0, counts), none = of_parts(0, NULL);
    struct muster_parts few = good;

    few.part_count = 2;
    played_expect_error(strategy,
                        muster_strategy_reduce_scatter(strategy, &flags, &one, MUSTER_SUM),
                        MUSTER_INVALID_ARGUMENT,
                        "reduce_scatter of tensor 0: sum of bool has no meaning: use one of min, "
                        "max, and, or, xor, or another type (u32 to count)");
    played_expect_error(strategy, muster_strategy_gather(strategy, &one, &three, 3),
                        MUSTER_INVALID_ARGUMENT, "gather: there is no rank 3, the last is 2");
    played_expect_error(strategy, muster_strategy_scatter(strategy, &three, &one, 3),
                        MUSTER_INVALID_ARGUMENT, "scatter: there is no rank 3, the last is 2");
    played_expect_error(strategy, muster_strategy_send(strategy, &one, 1), MUSTER_INVALID_ARGUMENT,
                        "send: rank 1 is this member itself");
    played_expect_error(strategy, muster_strategy_receive(strategy, &one, 3),
                        MUSTER_INVALID_ARGUMENT, "receive: there is no rank 3, the last is 2");
    played_expect_error(strategy, muster_strategy_send(strategy, &one, MUSTER_SPLIT_NOBODY),
                        MUSTER_INVALID_ARGUMENT, "send: there is no rank 4294967295");
    played_expect_error(strategy, muster_strategy_receive(strategy, &one, MUSTER_SPLIT_NOBODY),
                        MUSTER_INVALID_ARGUMENT, "receive: there is no rank 4294967295");
    played_expect_error(strategy, muster_strategy_all_gather_uneven(strategy, &one, &few),
                        MUSTER_INVALID_ARGUMENT,
                        "all_gather_uneven: there must be a count for each of 3 members, got 2");
    played_expect_error(
        strategy, muster_strategy_reduce_scatter_uneven(strategy, &none, &one, MUSTER_SUM),
        MUSTER_INVALID_ARGUMENT,
        "reduce_scatter_uneven: there must be a count for each of 3 members, got 0");
    played_expect_error(strategy, muster_strategy_all_to_all_uneven(strategy, &good, &few),
                        MUSTER_INVALID_ARGUMENT,
                        "all_to_all_uneven: there must be a count for each of 3 members, got 2");
    played_expect("");
    assert_int_equal(
        muster_strategy_exchange(strategy, NULL, MUSTER_SPLIT_NOBODY, NULL, MUSTER_SPLIT_NOBODY),
        MUSTER_OK);
    played_expect("");
}

TEST_SET_UP(set_up_step, *state = open_in_step())

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_step, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_call_starts_its_operation),
        CASE(parts_are_for_the_members_since_begin),
        CASE(what_cannot_be_is_refused_before_the_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
