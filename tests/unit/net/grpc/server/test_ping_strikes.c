/* Which pings are too many, by A8's algorithm. */
#include "test_env.h"

#include "net/grpc/server/ping_strikes.h"

#define BUSY_NS 5
#define IDLE_NS 100

static const struct muster_rpc_ping_strikes fresh = {.interval_min_ns = BUSY_NS,
                                                     .idle_interval_min_ns = IDLE_NS};

static bool take_ping(struct muster_rpc_ping_strikes *strikes, uint64_t now_ns, uint64_t sent)
{
    return muster_rpc_ping_strikes_take(strikes, now_ns, sent, true);
}

static void the_third_strike_is_one_too_many(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    assert_true(take_ping(&strikes, 0, 0));
    assert_true(take_ping(&strikes, 1, 0));
    assert_true(take_ping(&strikes, 2, 0));
    assert_false(take_ping(&strikes, 3, 0));
}

static void pings_far_enough_apart_are_no_strikes(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    for (uint64_t now_ns = 0; now_ns < 50 * BUSY_NS; now_ns += BUSY_NS)
        assert_true(take_ping(&strikes, now_ns, 0));
    assert_int_equal(strikes.count, 0);
}

/* Time runs from the last valid ping: a ping each 3 is valid every other time. */
static void a_strike_does_not_move_the_time(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    assert_true(take_ping(&strikes, 0, 0));
    assert_true(take_ping(&strikes, 3, 0));
    assert_int_equal(strikes.count, 1);
    assert_true(take_ping(&strikes, 6, 0));
    assert_int_equal(strikes.count, 1);
    assert_true(take_ping(&strikes, 9, 0));
    assert_int_equal(strikes.count, 2);
    assert_false(take_ping(&strikes, 10, 0));
}

static void what_the_server_sent_forgives_all(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    for (uint64_t sent = 0; sent < 10; sent++) {
        assert_true(take_ping(&strikes, 0, sent));
        assert_true(take_ping(&strikes, 0, sent));
        assert_true(take_ping(&strikes, 0, sent));
    }
    assert_false(take_ping(&strikes, 0, 9));
}

static void without_calls_another_interval_counts(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    assert_true(muster_rpc_ping_strikes_take(&strikes, 0, 0, false));
    assert_true(muster_rpc_ping_strikes_take(&strikes, 2 * BUSY_NS, 0, false));
    assert_int_equal(strikes.count, 1);
    assert_true(muster_rpc_ping_strikes_take(&strikes, IDLE_NS, 0, false));
    assert_int_equal(strikes.count, 1);
}

int main(void)
{
    const struct CMUnitTest strikes[] = {
        cmocka_unit_test(the_third_strike_is_one_too_many),
        cmocka_unit_test(pings_far_enough_apart_are_no_strikes),
        cmocka_unit_test(a_strike_does_not_move_the_time),
        cmocka_unit_test(what_the_server_sent_forgives_all),
        cmocka_unit_test(without_calls_another_interval_counts),
    };

    return cmocka_run_group_tests(strikes, NULL, NULL);
}
