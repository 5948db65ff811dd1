/* gRPC client against gRPC server over loopback sockets: the four kinds of calls and their ends. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_up(void **state)
{
    struct rpc_fixture *fixture = calloc(1, sizeof(*fixture));

    rpc_fixture_open(fixture, NULL, NULL);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    rpc_fixture_close(*state);
    free(*state);
    return 0;
}

static void a_unary_call_is_answered(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_ask(&probe, fixture, "Unary", "hello");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "hello");
    assert_int_equal(probe.headers, 1);
    test_env_turn(fixture->env, 8);
    assert_int_equal(probe.done, 1);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->end_rc, MUSTER_OK);
}

static void an_empty_message_is_a_message(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_ask(&probe, fixture, "Unary", "");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(probe.message_count, 1);
    assert_int_equal(probe.message_bytes, 0);
}

static void a_server_stream_arrives_in_order(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_ask(&probe, fixture, "Source", "5");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "0,1,2,3,4");
}

static void a_server_stream_may_be_empty(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_ask(&probe, fixture, "Source", "0");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(probe.message_count, 0);
}

static void a_client_stream_is_summed_up(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(rpc_probe_start(&probe, fixture, "Sink", UINT64_MAX), MUSTER_OK);
    for (int i = 0; i < 100; i++)
        rpc_probe_send(&probe, "0123456789");
    muster_call_half_close(&probe.call);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "1000");
}

static void both_sides_of_a_bidirectional_call_take_turns(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(rpc_probe_start(&probe, fixture, "Bidi", UINT64_MAX), MUSTER_OK);
    for (unsigned i = 1; i <= 3; i++) {
        rpc_probe_send(&probe, i == 1 ? "a" : i == 2 ? "b" : "c");
        rpc_probe_wait_messages(&probe, fixture, i);
    }
    muster_call_half_close(&probe.call);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "a,b,c");
    assert_string_equal(probe.text, "bye");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest rpc[] = {
        CASE(a_unary_call_is_answered),         CASE(an_empty_message_is_a_message),
        CASE(a_server_stream_arrives_in_order), CASE(a_server_stream_may_be_empty),
        CASE(a_client_stream_is_summed_up),     CASE(both_sides_of_a_bidirectional_call_take_turns),
    };

    return cmocka_run_group_tests(rpc, NULL, NULL);
}
