/* Limits that a method has for itself. */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

struct limited {
    struct rpc_fixture fixture;
    unsigned started;
    uint64_t deadline_ns;
    struct muster_rpc *rpc;
};

static void on_start(struct muster_rpc *rpc)
{
    struct limited *limited = muster_rpc_service(rpc);

    limited->started++;
    limited->deadline_ns = muster_rpc_deadline_ns(rpc);
    limited->rpc = rpc;
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Echo/Small", .on_message = on_message, .receive_message_max_bytes = 8},
    {.path = "/test.Echo/Big", .on_message = on_message, .receive_message_max_bytes = 8u << 20},
    {.path = "/test.Echo/Two",
     .on_start = on_start,
     .on_message = on_message,
     .concurrent_calls_max = 2},
    {.path = "/test.Echo/Timed",
     .on_start = on_start,
     .on_message = on_message,
     .timeout_ns = MUSTER_NS_PER_S,
     .timeout_max_ns = 3 * MUSTER_NS_PER_S},
    {.path = "/test.Echo/Short",
     .on_start = on_start,
     .on_message = on_message,
     .timeout_max_ns = 20 * MUSTER_NS_PER_MS},
};
#define METHODS (sizeof(methods) / sizeof(methods[0]))

static int set_up(void **state)
{
    struct limited *limited = rpc_scene_open(state, sizeof(*limited), NULL, NULL);

    assert_int_equal(muster_rpc_server_add(limited->fixture.server, methods, METHODS, limited),
                     MUSTER_OK);
    return 0;
}

static void a_message_beyond_the_methods_limit_is_refused(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0}, other = {.done = 0};

    rpc_probe_ask(&probe, fixture, "Small", "123456789");
    rpc_probe_ask(&other, fixture, "Unary", "123456789"); /* the server's limit is back */

    assert_int_equal(probe.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(probe.text, "message of 9 bytes is larger than 8");
    assert_int_equal(other.rc, MUSTER_OK);
}

static void a_method_may_take_more_than_its_server(void **state)
{
    static char large[5u << 20];
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Big");
    assert_int_equal(muster_call_send(&probe.call, large, sizeof(large)), MUSTER_OK);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_RESOURCE_EXHAUSTED); /* the answer, at the client */
    assert_string_equal(probe.text, "message of 5242880 bytes is larger than 4194304");
}

static void limited_start(struct rpc_probe *probe, struct limited *limited, const char *method)
{
    unsigned before = limited->started;

    rpc_probe_begin(probe, &limited->fixture, method);
    rpc_probe_send(probe, "x");
    rpc_probe_wait_messages(probe, &limited->fixture, 1);
    if (probe->done == 0)
        assert_int_equal(limited->started, before + 1);
}

static void calls_beyond_the_methods_limit_are_refused(void **state)
{
    struct limited *limited = *state;
    struct rpc_probe first = {.done = 0}, second = {.done = 0}, third = {.done = 0},
                     other = {.done = 0}, fourth = {.done = 0};

    limited_start(&first, limited, "Two");
    limited_start(&second, limited, "Two");
    limited_start(&third, limited, "Two");
    assert_int_equal(third.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(third.text, "method has 2 calls open, its limit");
    assert_int_equal(limited->started, 2);
    rpc_probe_ask(&other, &limited->fixture, "Unary", "other methods go on");
    assert_int_equal(other.rc, MUSTER_OK);
    muster_rpc_finish(limited->rpc, MUSTER_OK, NULL);
    rpc_probe_wait(&second, &limited->fixture);
    limited_start(&fourth, limited, "Two");

    assert_int_equal(fourth.done, 0);
    muster_call_cancel(&first.call);
    muster_call_cancel(&fourth.call);
    rpc_probe_wait(&first, &limited->fixture);
    rpc_probe_wait(&fourth, &limited->fixture);
}

static void a_limit_holds_for_the_fallback_too(void **state)
{
    static const struct muster_rpc_method any = {
        .on_start = on_start, .on_message = on_message, .concurrent_calls_max = 1};
    struct limited *limited = *state;
    struct rpc_probe first = {.done = 0}, second = {.done = 0};

    muster_rpc_server_set_fallback(limited->fixture.server, &any, limited);
    limited_start(&first, limited, "Any");
    limited_start(&second, limited, "Other");

    assert_int_equal(second.rc, MUSTER_RESOURCE_EXHAUSTED);
    rpc_probe_cancel(&first, &limited->fixture);
}

static void a_call_without_a_deadline_gets_the_methods(void **state)
{
    struct limited *limited = *state;
    struct rpc_probe probe = {.done = 0};
    uint64_t from_ns = muster_loop_now_ns(limited->fixture.env->loop);

    limited_start(&probe, limited, "Timed");

    assert_true(limited->deadline_ns >= from_ns + MUSTER_NS_PER_S);
    assert_true(limited->deadline_ns <=
                muster_loop_after_ns(limited->fixture.env->loop, MUSTER_NS_PER_S));
    rpc_probe_cancel(&probe, &limited->fixture);
}

static void a_late_deadline_is_brought_forward_and_an_early_one_stays(void **state)
{
    static const struct {
        const char *name;
        uint64_t asked_ms, least_ms, most_ms;
    } rows[] = {{"late", 3600000, 2000, 3000}, {"early", 2000, 0, 2000}};
    struct limited *limited = *state;

    for (size_t i = 0; i < 2; i++) {
        struct rpc_probe probe = {.done = 0};
        uint64_t from_ns = muster_loop_now_ns(limited->fixture.env->loop);

        assert_int_equal(rpc_probe_start(&probe, &limited->fixture, "Timed",
                                         rpc_fixture_after_ms(&limited->fixture, rows[i].asked_ms)),
                         MUSTER_OK);
        rpc_probe_send(&probe, "x");
        rpc_probe_wait_messages(&probe, &limited->fixture, 1);
        if (limited->deadline_ns < from_ns + rows[i].least_ms * MUSTER_NS_PER_MS ||
            limited->deadline_ns >
                rpc_fixture_after_ms(&limited->fixture, rows[i].most_ms) + MUSTER_NS_PER_MS)
            fail_msg("row %s", rows[i].name);
        rpc_probe_cancel(&probe, &limited->fixture);
    }
}

static void a_call_ends_at_the_methods_deadline(void **state)
{
    struct limited *limited = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, &limited->fixture, "Short");
    rpc_probe_wait(&probe, &limited->fixture);

    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest limits[] = {
        CASE(a_message_beyond_the_methods_limit_is_refused),
        CASE(a_method_may_take_more_than_its_server),
        CASE(calls_beyond_the_methods_limit_are_refused),
        CASE(a_limit_holds_for_the_fallback_too),
        CASE(a_call_without_a_deadline_gets_the_methods),
        CASE(a_late_deadline_is_brought_forward_and_an_early_one_stays),
        CASE(a_call_ends_at_the_methods_deadline),
    };

    return cmocka_run_group_tests(limits, NULL, NULL);
}
