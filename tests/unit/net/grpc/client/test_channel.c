/* The life of a channel and of a server: connecting, losing, coming back, draining, closing. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "net/grpc/client/channel_internal.h"

static const struct muster_channel_options quick = {.backoff_base_ns = MUSTER_NS_PER_MS,
                                                    .backoff_max_ns = 4 * MUSTER_NS_PER_MS};

static int set_up(void **state)
{
    (void)rpc_scene_open(state, sizeof(struct rpc_fixture), NULL, &quick);
    return 0;
}

static void fixture_redial(struct rpc_fixture *fixture, const char *prefix,
                           const struct muster_channel_options *options)
{
    char target[256];

    rpc_fixture_hang_up(fixture);
    (void)snprintf(target, sizeof(target), "%s%u", prefix, fixture->address.port);
    rpc_fixture_dial(fixture, target, options);
}

static void a_channel_connects_with_its_first_call(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_IDLE);
    rpc_probe_begin(&probe, fixture, "Unary");
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_CONNECTING);
    rpc_probe_send(&probe, "x");
    rpc_probe_end(&probe, fixture);

    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_READY);
}

static void a_refused_connection_is_unavailable(void **state)
{
    struct rpc_fixture *fixture = *state;

    rpc_fixture_stop_serving(fixture, 0);
    for (unsigned i = 0; i < 2; i++) {
        struct rpc_probe probe = rpc_fixture_ask(fixture, "Unary", "x");

        assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
        assert_non_null(strstr(probe.text, "127.0.0.1"));
    }
}

static void wait_for_ready_outlasts_an_absent_server(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0}, impatient = {.done = 0};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .wait_for_ready = true};

    rpc_fixture_stop_serving(fixture, 0);
    assert_int_equal(rpc_probe_start_with(&probe, fixture, &options), MUSTER_OK);
    rpc_probe_send_last(&probe, "patience");
    rpc_probe_ask(&impatient, fixture, "Unary", "x");
    assert_int_equal(impatient.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(probe.done, 0);
    rpc_fixture_serve(fixture, NULL);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "patience");
}

static void a_deadline_ends_waiting_for_a_connection(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_call_options options = {.method = "/test.Echo/Unary",
                                          .deadline_ns = rpc_fixture_after_ms(fixture, 20),
                                          .wait_for_ready = true};

    rpc_fixture_stop_serving(fixture, 0);
    assert_int_equal(rpc_probe_start_with(&probe, fixture, &options), MUSTER_OK);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(probe.text, "connecting"));
}

static void a_channel_survives_a_restart_of_its_server(void **state)
{
    struct rpc_fixture *fixture = *state;

    for (unsigned i = 0; i < 3; i++) {
        struct rpc_probe probe = {.done = 0};
        struct muster_call_options options = {
            .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .wait_for_ready = true};

        rpc_probe_ask_with(&probe, fixture, &options, "x");
        assert_int_equal(probe.rc, MUSTER_OK);
        rpc_fixture_serve_with(fixture, NULL);
    }
}

static void a_lost_connection_ends_its_calls_once(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_fixture_wait_hanging(fixture);
    rpc_fixture_stop_serving(fixture, 0);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->end_rc, MUSTER_UNAVAILABLE);
    test_env_turn(fixture->env, 8);
    assert_int_equal(probe.done, 1);
}

static void a_client_that_vanishes_ends_the_servers_call(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_fixture_wait_hanging(fixture);
    rpc_fixture_hang_up(fixture);
    assert_int_equal(probe.done, 1);
    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    for (unsigned i = 0; i < 10000 && fixture->ended == 0; i++)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);

    assert_int_equal(fixture->end_rc, MUSTER_UNAVAILABLE);
}

static void a_closed_channel_cancels_calls_that_wait(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Unary");
    muster_channel_close(fixture->channel, NULL);
    fixture->channel = NULL;
    assert_int_equal(probe.done, 0);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    test_env_turn(fixture->env, 8);
}

static void close_the_channel(struct rpc_probe *probe)
{
    struct rpc_fixture *fixture = probe->data;
    struct rpc_probe late = {.done = 0};

    muster_channel_close(fixture->channel, NULL);
    assert_int_equal(rpc_probe_start(&late, fixture, "Unary", UINT64_MAX),
                     MUSTER_FAILED_PRECONDITION);
    assert_string_equal(late.call.status.text, "muster_call_start: the channel is closed");
    fixture->channel = NULL;
}

static void a_channel_may_be_closed_in_done(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.on_done_hook = close_the_channel, .data = fixture};

    rpc_probe_ask(&probe, fixture, "Unary", "x");

    assert_int_equal(probe.rc, MUSTER_OK);
    test_env_turn(fixture->env, 8);
}

static void a_channel_may_be_closed_in_a_message(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.on_message_hook = close_the_channel, .data = fixture};

    rpc_probe_ask(&probe, fixture, "Source", "3");

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    assert_int_equal(probe.message_count, 1);
    test_env_turn(fixture->env, 8);
}

static void on_server_closed(struct muster_rpc_server *server)
{
    ((struct rpc_fixture *)muster_rpc_server_data(server))->is_server_closed = true;
}

static void wait_until_lost(struct rpc_fixture *fixture)
{
    for (unsigned i = 0; i < 1000 && muster_channel_state(fixture->channel) == MUSTER_CHANNEL_READY;
         i++)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);
}

static void a_closing_server_lets_calls_end(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0}, late = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Bidi");
    rpc_probe_send(&probe, "before");
    rpc_probe_wait_messages(&probe, fixture, 1);
    muster_rpc_server_close(fixture->server, UINT64_MAX, on_server_closed);
    fixture->server = NULL;
    wait_until_lost(fixture);
    rpc_probe_ask(&late, fixture, "Unary", "x");
    assert_int_equal(late.rc, MUSTER_UNAVAILABLE);
    rpc_probe_send(&probe, "after");
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "before,after");
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_server_closed);
}

static void a_closing_server_cuts_calls_at_its_deadline(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_fixture_wait_hanging(fixture);
    rpc_fixture_stop_serving(fixture, 5 * MUSTER_NS_PER_MS);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(fixture->end_rc, MUSTER_UNAVAILABLE);
}

static void each_kind_of_target_is_dialled(void **state)
{
    static const char *const prefixes[] = {
        "127.0.0.1:1,unix:/nonexistent/socket,127.0.0.1:", /* the next address is tried */
        "dns:///localhost:",                               /* a name is looked up */
    };

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        fixture_redial(*state, prefixes[i], &quick);
        fail_if(rpc_fixture_ask(*state, "Unary", "x").rc != MUSTER_OK, "%s", prefixes[i]);
    }
}

static const struct muster_rpc_server_options one_stream = {.concurrent_streams_max = 1};
static const struct muster_rpc_server_options one_connection = {.connections_max = 1};

static void more_calls_than_the_server_allows_wait_their_turn(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probes[10];

    rpc_fixture_serve_with(fixture, &one_stream);
    memset(probes, 0, sizeof(probes));
    for (unsigned i = 0; i < 10; i++) {
        rpc_probe_begin(&probes[i], fixture, "Unary");
        rpc_probe_send_last(&probes[i], "x");
    }
    for (unsigned i = 0; i < 10; i++) {
        rpc_probe_wait(&probes[i], fixture);
        assert_int_equal(probes[i].rc, MUSTER_OK);
    }
}

static void a_call_behind_the_limit_can_be_cancelled(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe first = {.done = 0}, second = {.done = 0}, third = {.done = 0};

    rpc_fixture_serve_with(fixture, &one_stream);
    rpc_probe_begin(&first, fixture, "Hang");
    rpc_fixture_wait_hanging(fixture);
    rpc_probe_begin(&second, fixture, "Unary");
    rpc_probe_send(&second, "x");
    test_env_turn(fixture->env, 8);
    rpc_probe_cancel(&second, fixture);
    assert_int_equal(second.rc, MUSTER_CANCELLED);
    muster_call_cancel(&first.call);
    rpc_probe_ask(&third, fixture, "Unary", "x");

    assert_int_equal(third.rc, MUSTER_OK);
    assert_int_equal(first.done, 1);
}

static void a_server_at_its_connection_limit_turns_others_away(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0}, other = {.done = 0};
    struct muster_channel *first;
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    rpc_fixture_serve_with(fixture, &one_connection);
    rpc_probe_begin(&probe, fixture, "Bidi");
    rpc_probe_send(&probe, "x"); /* an open call: the connection is not idle */
    rpc_probe_wait_messages(&probe, fixture, 1);
    first = fixture->channel;
    rpc_fixture_dial(fixture, muster_address_format(&fixture->address, target), &quick);
    rpc_probe_ask(&other, fixture, "Unary", "x");

    assert_int_equal(other.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(probe.done, 0);
    muster_channel_close(first, NULL);
    rpc_probe_wait(&probe, fixture);
}

static void an_idle_connection_makes_room_for_a_new_one(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0}, other = {.done = 0}, again = {.done = 0};
    struct muster_channel *first, *second;
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    rpc_fixture_serve_with(fixture, &one_connection);
    rpc_probe_ask(&probe, fixture, "Unary", "x");
    first = fixture->channel;
    rpc_fixture_dial(fixture, muster_address_format(&fixture->address, target), &quick);
    rpc_probe_ask(&other, fixture, "Unary", "x");
    second = fixture->channel;
    fixture->channel = first;
    rpc_probe_ask(&again, fixture, "Unary", "x"); /* connects again, and takes the place back */

    assert_int_equal(other.rc, MUSTER_OK);
    assert_int_equal(again.rc, MUSTER_OK);
    muster_channel_close(second, NULL);
}

/* A server that is played: it says some words once, and no more. */
struct silent {
    struct muster_listener *listener;
    struct muster_stream *stream;
    const void *words; /* NULL: nothing */
    size_t words_bytes;
    struct muster_stream_write write;
    struct iovec piece;
    bool is_written;
};

static void on_silent_written(struct muster_stream_write *write, enum muster_rc rc)
{
    ((struct silent *)write->data)->is_written = rc == MUSTER_OK;
}

static void on_silent(struct muster_listener *listener, struct muster_stream *stream)
{
    struct silent *silent = listener->data;

    silent->stream = stream;
    if (silent->words == NULL)
        return;
    silent->write.data = silent;
    silent->piece = (struct iovec){(void *)(uintptr_t)silent->words, silent->words_bytes};
    assert_int_equal(
        muster_stream_submit(&silent->write, stream, &silent->piece, 1, on_silent_written),
        MUSTER_OK);
}

static void silent_dial(struct silent *silent, struct rpc_fixture *fixture,
                        const struct muster_channel_options *options)
{
    struct muster_address address;
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_listener_open(fixture->env->net, &address, NULL, on_silent, silent,
                                          &silent->listener, NULL),
                     MUSTER_OK);
    rpc_fixture_hang_up(fixture);
    rpc_fixture_dial(
        fixture, muster_address_format(muster_listener_address(silent->listener), target), options);
}

static void silent_close(struct silent *silent, struct rpc_fixture *fixture)
{
    rpc_fixture_hang_up(fixture);
    muster_stream_close(silent->stream, NULL);
    muster_listener_close(silent->listener, NULL);
    test_env_turn(fixture->env, 4);
}

static void a_server_that_says_nothing_is_given_up(void **state)
{
    struct muster_channel_options options = quick;
    struct silent silent = {.words = NULL};
    struct rpc_probe probe;

    options.connect_timeout_ns = 10 * MUSTER_NS_PER_MS;
    silent_dial(&silent, *state, &options);
    probe = rpc_fixture_ask(*state, "Unary", "x");

    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(probe.text, "did not answer"));
    silent_close(&silent, *state);
}

/* It greets, then neither answers nor acknowledges a ping. */
static void a_server_that_falls_silent_is_given_up(void **state)
{
    static const uint8_t settings[9] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    struct muster_channel_options options = quick;
    struct silent silent = {.words = settings, .words_bytes = sizeof(settings)};
    struct rpc_probe probe;

    options.keepalive_interval_ns = 2 * MUSTER_NS_PER_MS;
    options.keepalive_timeout_ns = 4 * MUSTER_NS_PER_MS;
    silent_dial(&silent, *state, &options);
    probe = rpc_fixture_ask(*state, "Unary", "x");

    assert_true(silent.is_written);
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(probe.text, "keepalive timeout");
    silent_close(&silent, *state);
}

/* With the default backoff of a second a failed attempt would fail the call as well. */
static void the_first_attempt_after_a_healthy_connection_is_immediate(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0}, after = {.done = 0};

    fixture_redial(fixture, "127.0.0.1:", NULL);
    rpc_probe_ask(&probe, fixture, "Unary", "x");
    rpc_fixture_stop_serving(fixture, 0);
    wait_until_lost(fixture);
    assert_int_equal(muster_channel_state(fixture->channel), MUSTER_CHANNEL_IDLE);
    rpc_fixture_serve(fixture, NULL);
    rpc_probe_ask(&after, fixture, "Unary", "x");

    assert_int_equal(after.rc, MUSTER_OK);
}

static void pings_keep_a_quiet_call_alive(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct muster_rpc_server_options lenient = {.ping_interval_min_ns = 1};
    struct muster_channel_options options = quick;
    struct rpc_probe probe = {.done = 0};
    uint64_t end_ns = rpc_fixture_after_ms(fixture, 50);

    rpc_fixture_serve_with(fixture, &lenient);
    options.keepalive_interval_ns = 5 * MUSTER_NS_PER_MS;
    fixture_redial(fixture, "127.0.0.1:", &options);
    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_fixture_wait_hanging(fixture);
    while (muster_loop_now_ns(fixture->env->loop) < end_ns)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);

    assert_int_equal(probe.done, 0);
    rpc_probe_cancel(&probe, fixture);
}

static void a_client_that_pings_too_often_is_sent_away_and_pings_less(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct muster_channel_options options = quick;
    struct rpc_probe probe = {.done = 0};

    options.keepalive_interval_ns = MUSTER_NS_PER_MS;
    fixture_redial(fixture, "127.0.0.1:", &options);
    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(fixture->channel->options.keepalive_interval_ns, 2 * MUSTER_NS_PER_MS);
}

/* The keepalive interval after a connection whose server complained that often. */
static uint64_t interval_after(struct rpc_fixture *fixture, uint64_t interval_ns, unsigned times)
{
    static const uint8_t goaway[31] = "\0\0\x16\x07\0\0\0\0\0" /* type, stream 0 */
                                      "\0\0\0\0\0\0\0\x0b"     /* last stream, code */
                                      "too_many_pings";
    uint8_t words[9 + 80 * sizeof(goaway)] = {0, 0, 0, 4};
    struct silent silent = {.words = words, .words_bytes = 9 + times * sizeof(goaway)};
    struct muster_channel_options options = {.keepalive_interval_ns = interval_ns};
    struct rpc_probe probe = {.done = 0};

    for (unsigned i = 0; i < times; i++)
        memcpy(words + 9 + i * sizeof(goaway), goaway, sizeof(goaway));
    silent_dial(&silent, fixture, &options);
    rpc_probe_begin(&probe, fixture, "Unary");
    muster_call_half_close(&probe.call);
    while (!silent.is_written || fixture->channel->counters->connections > 0)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);
    interval_ns = fixture->channel->options.keepalive_interval_ns;
    silent_close(&silent, fixture);
    return interval_ns;
}

static void a_connection_complains_once_and_within_bounds(void **state)
{
    struct rpc_fixture *fixture = *state;
    uint64_t bound_ns = INT32_MAX * MUSTER_NS_PER_MS;

    assert_int_equal(interval_after(fixture, MUSTER_NS_PER_S, 80), 2 * MUSTER_NS_PER_S);
    assert_int_equal(interval_after(fixture, bound_ns - 1, 1), bound_ns);
    assert_int_equal(interval_after(fixture, bound_ns, 1), bound_ns);
}

static void a_bad_target_is_refused_with_a_reason(void **state)
{
    struct rpc_fixture *fixture = *state;
    static const struct {
        const char *target;
        enum muster_rc rc;
    } rows[] = {
        {"", MUSTER_INVALID_ARGUMENT},
        {"host:80,,other:80", MUSTER_INVALID_ARGUMENT},
        {"host:99999", MUSTER_INVALID_ARGUMENT},
        {"xds:///service", MUSTER_UNIMPLEMENTED},
        {"dns://8.8.8.8/host:80", MUSTER_UNIMPLEMENTED},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_channel *channel = NULL;
        struct muster_error error = {.rc = MUSTER_OK};

        print_message("row: %s\n", rows[i].target);
        assert_int_equal(muster_channel_open(fixture->env, rows[i].target, NULL, &channel, &error),
                         rows[i].rc);
        assert_true(error.text[0] != '\0');
    }
}

static void an_authority_that_is_too_long_is_refused(void **state)
{
    struct rpc_fixture *fixture = *state;
    char authority[400];
    const struct muster_channel_options options = {.authority = authority};
    struct muster_channel *channel = NULL;
    struct muster_error error;

    memset(authority, 'a', sizeof(authority) - 1);
    authority[sizeof(authority) - 1] = '\0';
    assert_int_equal(muster_channel_open(fixture->env, "h:1", &options, &channel, &error),
                     MUSTER_INVALID_ARGUMENT);

    assert_non_null(strstr(error.text, "authority must be shorter than"));
}

static void a_method_path_can_be_served_once(void **state)
{
    struct rpc_fixture *fixture = *state;
    static const struct muster_rpc_method again = {.path = "/test.Echo/Unary"};

    assert_int_equal(muster_rpc_server_add(fixture->server, &again, 1, NULL),
                     MUSTER_ALREADY_EXISTS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest channel[] = {
        CASE(a_channel_connects_with_its_first_call),
        CASE(a_refused_connection_is_unavailable),
        CASE(wait_for_ready_outlasts_an_absent_server),
        CASE(a_deadline_ends_waiting_for_a_connection),
        CASE(a_channel_survives_a_restart_of_its_server),
        CASE(a_lost_connection_ends_its_calls_once),
        CASE(a_client_that_vanishes_ends_the_servers_call),
        CASE(a_closed_channel_cancels_calls_that_wait),
        CASE(a_channel_may_be_closed_in_done),
        CASE(a_channel_may_be_closed_in_a_message),
        CASE(a_closing_server_lets_calls_end),
        CASE(a_closing_server_cuts_calls_at_its_deadline),
        CASE(each_kind_of_target_is_dialled),
        CASE(more_calls_than_the_server_allows_wait_their_turn),
        CASE(a_call_behind_the_limit_can_be_cancelled),
        CASE(a_server_at_its_connection_limit_turns_others_away),
        CASE(an_idle_connection_makes_room_for_a_new_one),
        CASE(a_server_that_says_nothing_is_given_up),
        CASE(a_server_that_falls_silent_is_given_up),
        CASE(the_first_attempt_after_a_healthy_connection_is_immediate),
        CASE(pings_keep_a_quiet_call_alive),
        CASE(a_client_that_pings_too_often_is_sent_away_and_pings_less),
        CASE(a_connection_complains_once_and_within_bounds),
        CASE(a_bad_target_is_refused_with_a_reason),
        CASE(an_authority_that_is_too_long_is_refused),
        CASE(a_method_path_can_be_served_once),
    };

    return cmocka_run_group_tests(channel, NULL, NULL);
}
