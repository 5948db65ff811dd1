/* Splits of a strategy on a node that the case plays: who is in which, and on which lanes their calls go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_exchange.h>

#include "assertion_count.h"
#include "played_node.h"

#define MANY 4u
#define S    MUSTER_NS_PER_S

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

static uint64_t timeout_ns;

static void read_timeout(struct played_op *op)
{
    timeout_ns = op->timeout_ns;
}

static uint32_t color_of(void *data, const struct muster_member *member)
{
    const uint32_t *colors = data;

    return colors[member->task_index];
}

static uint32_t colors[2][8] = {{0, 4, 4, 4, 0, 4, 0, 4},
                                {0, MUSTER_COLOR_MAX + 1, MUSTER_COLOR_MAX + 1, 0, 0, 0, 0, 0}};

static void splits_are_made_of_every_group(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_strategy_split *split[2] = {NULL};

    played.journal[0] = '\0';
    assert_int_equal(muster_strategy_split(strategy, color_of, colors[0], &split[0]), MUSTER_OK);
    played_expect(""); /* there is no group yet */
    played_enter();
    played_view(1, 7, 0, 0, 0, NULL);
    played_leave();
    played_expect("split lanes 16 + 1 color 4\nrecorded rank 1\n");
    assert_int_equal(muster_strategy_split(strategy, color_of, colors[1], &split[1]), MUSTER_OK);
    assert_int_equal(played_count_lines("split lanes 17 + 1 color "), 1);
    assert_int_equal(played_count_lines("split lanes 16 + 1 color 4\n"), 1);
    assert_int_equal(played_count_lines("split lanes"), 2);
}

static void calls_of_a_split_are_on_its_lane_with_its_ranks(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_strategy_split *split = NULL;
    const struct muster_tensor pair = {.data = values, .count = 2, .dtype = MUSTER_I64};
    const struct muster_tensor out = {.data = values + 2, .count = 2, .dtype = MUSTER_I64};

    assert_int_equal(muster_strategy_split(strategy, color_of, colors[1], &split), MUSTER_OK);
    assert_int_equal(muster_strategy_split(strategy, color_of, colors[0], &split), MUSTER_OK);
    played_begin_unnoted(strategy);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    played_enter();
    played_view(3, 0x6f, 8, 9, 0, NULL); /* 1, 2 and 5 have the color, and 3 from step 9 on */
    played_leave();
    played_begin_unnoted(strategy);
    assert_int_equal(muster_strategy_split_size(split), 3);
    assert_int_equal(muster_strategy_split_rank(split), 0);
    assert_int_equal(muster_strategy_split_all_reduce(split, tensors, 1, MUSTER_PROD), MUSTER_OK);
    played_expect("all_reduce 1 x i64 lane 17 prod\ntouch\n");
    assert_int_equal(muster_strategy_split_broadcast(split, tensors, 2), MUSTER_OK);
    played_expect("broadcast 1 x i64 lane 17 of 5 in 3\ntouch\n");
    assert_int_equal(muster_strategy_split_reduce(split, tensors, MUSTER_SUM, 1), MUSTER_OK);
    played_expect("reduce 1 x i64 lane 17 sum at 2 in 3\ntouch\n");
    assert_int_equal(muster_strategy_split_all_gather(split, tensors, &out), MUSTER_OK);
    played_expect("all_gather 1 x i64 lane 17 into 2\ntouch\n");
    assert_int_equal(muster_strategy_split_all_to_all(split, &pair, &out), MUSTER_OK);
    played_expect("all_to_all 2 x i64 lane 17 into 2\ntouch\n");
    assert_int_equal(muster_strategy_split_barrier(split), MUSTER_OK);
    played_expect("barrier lane 17\ntouch\n");
    played_expect_error(strategy, muster_strategy_split_broadcast(split, tensors, 3),
                        MUSTER_INVALID_ARGUMENT, "broadcast: there is no rank 3, the last is 2");
}

static void a_list_of_a_split_travels_in_packs(void **state)
{
    static const struct muster_communication_options own = {.bytes_per_pack = 64,
                                                            .timeout_ns = 9 * S};
    const struct muster_strategy_options options = {.communication = own};
    struct muster_strategy *strategy = open_with(&options);
    struct muster_strategy_split *split = NULL;

    (void)state;
    played.communication = own;
    assert_int_equal(muster_strategy_split(strategy, color_of, colors[0], &split), MUSTER_OK);
    played_begin_unnoted(strategy);
    played.on_op = read_timeout;
    assert_int_equal(muster_strategy_split_all_reduce(split, tensors, 2, MUSTER_SUM), MUSTER_OK);
    played_expect("list 1 x i64 sum of 2 in packs of 64 lane 16\ntouch\n");
    assert_in_range(timeout_ns, 8 * S, 9 * S);
    assert_int_equal(muster_strategy_split_all_reduce(split, tensors, 1, MUSTER_SUM), MUSTER_OK);
    played_expect("all_reduce 1 x i64 lane 16 sum\ntouch\n");
    assert_in_range(timeout_ns, 8 * S, 9 * S);
    played_close_strategy(strategy);
}

/* Sent to and received from members by their ranks in the split; each may be nobody. */
static void an_exchange_sends_and_receives(void **state)
{
    static const struct {
        uint32_t to, from;
        const char *journal;
    } rows[] = {
        {1, 2, "send 1 x i64 lane 16 to 2\nreceive 2 x i64 lane 16 from 3\ntouch\ntouch\n"},
        {2, MUSTER_SPLIT_NOBODY, "send 1 x i64 lane 16 to 3\ntouch\n"},
        {MUSTER_SPLIT_NOBODY, 1, "receive 2 x i64 lane 16 from 2\ntouch\n"},
        {MUSTER_SPLIT_NOBODY, MUSTER_SPLIT_NOBODY, ""},
    };
    const struct muster_tensor pair = {.data = values + 2, .count = 2, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = *state;
    struct muster_strategy_split *split = NULL;

    assert_int_equal(muster_strategy_split(strategy, color_of, colors[0], &split), MUSTER_OK);
    played_begin_unnoted(strategy);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_OK);
    played_enter();
    played_view(3, 15, 0, 0, 0, NULL);
    played_leave();
    played_begin_unnoted(strategy);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            muster_strategy_split_exchange(split, tensors, rows[i].to, &pair, rows[i].from),
            MUSTER_OK);
        played_expect(rows[i].journal);
    }
    played_expect_error(strategy, muster_strategy_split_exchange(split, tensors, 3, &pair, 1),
                        MUSTER_INVALID_ARGUMENT, "exchange: there is no rank 3, the last is 2");
    played_expect_error(strategy, muster_strategy_split_exchange(split, tensors, 1, &pair, 3),
                        MUSTER_INVALID_ARGUMENT, "exchange: there is no rank 3, the last is 2");
    played_expect_error(strategy, muster_strategy_split_exchange(split, tensors, 0, &pair, 1),
                        MUSTER_INVALID_ARGUMENT, "exchange: rank 0 is this member itself");
    played_enter();
    played_view(4, 7, 0, 0, 0, NULL);
    played_leave();
    played_expect_error(strategy, muster_strategy_split_exchange(split, tensors, 2, &pair, 1),
                        MUSTER_ABORTED, "exchange: rank 2 of the split is gone");
    played_expect_error(strategy, muster_strategy_split_exchange(split, tensors, 1, &pair, 2),
                        MUSTER_ABORTED, "exchange: rank 2 of the split is gone");
}

static void who_has_failed_makes_no_split(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_strategy_split *split = NULL;

    played_enter();
    played_fail(MUSTER_UNAVAILABLE, "no registry");
    played_leave();
    assert_int_equal(muster_strategy_split(strategy, color_of, colors[0], &split),
                     MUSTER_UNAVAILABLE);
    assert_null(split);
    assert_int_equal(strategy->split_count, 0);
}

TEST_SET_UP(set_up_split, *state = open_with(NULL))

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(splits_are_made_of_every_group, set_up_split),
        CASE(calls_of_a_split_are_on_its_lane_with_its_ranks, set_up_split),
        cmocka_unit_test(a_list_of_a_split_travels_in_packs),
        CASE(an_exchange_sends_and_receives, set_up_split),
        CASE(who_has_failed_makes_no_split, set_up_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
