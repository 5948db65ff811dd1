/* Which pings are too many, by A8's algorithm. */
#include "test_env.h"

#include "assertion_count.h"
#include "net/grpc/server/ping_strikes.h"

#define BUSY_NS 5
#define IDLE_NS 100

static const struct muster_rpc_ping_strikes fresh = {.interval_min_ns = BUSY_NS,
                                                     .idle_interval_min_ns = IDLE_NS};

static void the_third_strike_is_one_too_many(void **state)
{
    static const struct {
        const char *name;
        bool has_calls;
        struct {
            uint64_t at_ns;
            unsigned count; /* of strikes behind it */
        } pings[6];         /* up to one of time 0 behind the first */
    } rows[] = {
        {"pings too close", true, {{0, 0}, {1, 1}, {2, 2}, {3, 3}}},
        /* Time runs from the last valid ping: a ping each 3 is valid every other time. */
        {"a strike does not move the time", true, {{0, 0}, {3, 1}, {6, 1}, {9, 2}, {10, 3}}},
        {"without calls another interval counts", false, {{0, 0}, {2 * BUSY_NS, 1}, {IDLE_NS, 1}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_rpc_ping_strikes strikes = fresh;

        for (unsigned k = 0; k == 0 || rows[i].pings[k].at_ns > 0; k++) {
            bool is_allowed = muster_rpc_ping_strikes_take(&strikes, rows[i].pings[k].at_ns, 0,
                                                           rows[i].has_calls);

            fail_if(is_allowed != (rows[i].pings[k].count < 3), "%s: ping %u", rows[i].name, k);
            fail_if(is_allowed && strikes.count != rows[i].pings[k].count, "%s: %u strikes",
                    rows[i].name, strikes.count);
        }
    }
}

static void pings_far_enough_apart_are_no_strikes(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    for (uint64_t now_ns = 0; now_ns < 50 * BUSY_NS; now_ns += BUSY_NS)
        assert_true(muster_rpc_ping_strikes_take(&strikes, now_ns, 0, true));
    assert_int_equal(strikes.count, 0);
}

static void what_the_server_sent_forgives_all(void **state)
{
    struct muster_rpc_ping_strikes strikes = fresh;

    (void)state;
    for (uint64_t sent = 0; sent < 10; sent++) {
        assert_true(muster_rpc_ping_strikes_take(&strikes, 0, sent, true));
        assert_true(muster_rpc_ping_strikes_take(&strikes, 0, sent, true));
        assert_true(muster_rpc_ping_strikes_take(&strikes, 0, sent, true));
    }
    assert_false(muster_rpc_ping_strikes_take(&strikes, 0, 9, true));
}

int main(void)
{
    const struct CMUnitTest strikes[] = {
        cmocka_unit_test(the_third_strike_is_one_too_many),
        cmocka_unit_test(pings_far_enough_apart_are_no_strikes),
        cmocka_unit_test(what_the_server_sent_forgives_all),
    };

    return cmocka_run_group_tests(strikes, NULL, NULL);
}
