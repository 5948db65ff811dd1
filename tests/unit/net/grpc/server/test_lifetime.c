/* Connections that a server lets go, and pings that it does not forgive, on a virtual clock. */
#include "rpc_attack.h"

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

#define IDLE_NS  (10 * MUSTER_NS_PER_S)
#define AGE_NS   (100 * MUSTER_NS_PER_S)
#define GRACE_NS (20 * MUSTER_NS_PER_S)

static int set_up_idle(void **state)
{
    const struct muster_rpc_server_options options = {.connection_idle_max_ns = IDLE_NS};

    return rpc_stand_set_up_with(state, &options);
}

static int set_up_age(void **state)
{
    const struct muster_rpc_server_options options = {
        .connection_age_max_ns = AGE_NS,
        .connection_age_grace_ns = GRACE_NS,
        .ping_interval_min_ns = 5 * MUSTER_NS_PER_S,
        .idle_ping_interval_min_ns = 7200 * MUSTER_NS_PER_S,
    };

    return rpc_stand_set_up_with(state, &options);
}

/* The client answers the ping of a drain. */
static void send_pong(struct rpc_raw *raw)
{
    const uint8_t *ping = played_stream_sent_frame(&raw->played, FRAME_PING, 0);

    assert_non_null(ping);
    rpc_raw_frame(raw, FRAME_PING, FLAG_ACK, 0, ping + 9, 8);
    rpc_stand_advance(raw->stand, 0);
}

static void make_call(struct rpc_raw *raw, uint32_t stream, const char *path)
{
    rpc_raw_ask(raw, stream, path);
    rpc_stand_advance(raw->stand, 0);
}

static void an_idle_connection_is_asked_to_leave(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_stand_advance(stand, IDLE_NS - 1);
    assert_int_equal(rpc_raw_goaway_code(raw), -1);
    rpc_stand_advance(stand, 1);
    assert_int_equal(rpc_raw_goaway_code(raw), MUSTER_H2_NO_ERROR);
    assert_false(raw->played.is_closed);
    send_pong(raw);

    assert_true(rpc_raw_has_goaway_text(raw, "max_idle"));
    assert_true(raw->played.is_closed);
}

static void idleness_begins_with_the_end_of_the_last_call(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_stand_advance(stand, IDLE_NS / 2);
    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
    rpc_stand_advance(stand, 3 * IDLE_NS);
    assert_int_equal(rpc_raw_goaway_code(raw), -1);
    rpc_raw_reset(raw, 1, MUSTER_H2_CANCEL);
    rpc_stand_advance(stand, IDLE_NS - 1);
    assert_int_equal(rpc_raw_goaway_code(raw), -1);
    rpc_stand_advance(stand, 1);

    assert_int_equal(rpc_raw_goaway_code(raw), MUSTER_H2_NO_ERROR);
}

static void a_call_that_crosses_the_notice_is_served(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_stand_advance(stand, IDLE_NS);
    make_call(raw, 1, "/t/Echo");
    send_pong(raw);

    assert_int_equal(rpc_raw_status(raw, 1), 0);
    assert_true(raw->played.is_closed);
}

static void a_client_that_does_not_answer_is_left(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_stand_advance(stand, IDLE_NS);
    rpc_stand_advance(stand, 20 * MUSTER_NS_PER_S);

    assert_true(rpc_raw_has_goaway_text(raw, "max_idle"));
    assert_true(raw->played.is_closed);
}

static void a_client_that_stays_after_the_end_is_left_after_a_second(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    raw->played.is_patient = true;
    rpc_raw_frame(raw, FRAME_GOAWAY, 0, 0, "\0\0\0\0\0\0\0", 8);
    rpc_stand_advance(stand, MUSTER_NS_PER_S - 1);
    assert_true(raw->played.is_shut);
    assert_false(raw->played.is_closed);
    rpc_stand_advance(stand, 1);

    assert_true(raw->played.is_closed);
}

static void an_old_connection_ends_with_its_calls(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_stand_advance(stand, AGE_NS / 10 * 9 - 1);
    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
    assert_int_equal(rpc_raw_goaway_code(raw), -1);
    rpc_stand_advance(stand, AGE_NS / 5 + 1);
    assert_int_equal(rpc_raw_goaway_code(raw), MUSTER_H2_NO_ERROR);
    send_pong(raw);
    assert_true(rpc_raw_has_goaway_text(raw, "max_age"));
    assert_false(raw->played.is_closed);
    rpc_raw_reset(raw, 1, MUSTER_H2_CANCEL);
    rpc_stand_advance(stand, 0);

    assert_true(raw->played.is_closed);
    assert_int_equal(stand->end_rc, MUSTER_CANCELLED);
}

static void ages_differ_by_a_tenth(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raws[20];
    unsigned gone = 0, steps_with_goers = 0;

    for (unsigned i = 0; i < 20; i++)
        raws[i] = rpc_raw_open(stand);
    rpc_stand_advance(stand, AGE_NS / 10 * 9 - 1);
    for (unsigned step = 0; step <= 20; step++) {
        unsigned now_gone = 0;

        for (unsigned i = 0; i < 20; i++)
            now_gone += rpc_raw_goaway_code(raws[i]) >= 0;
        steps_with_goers += now_gone > gone;
        assert_true(step > 0 || now_gone == 0);
        gone = now_gone;
        rpc_stand_advance(stand, AGE_NS / 100 + 1);
    }

    assert_int_equal(gone, 20);
    assert_true(steps_with_goers > 5);
}

static void the_grace_ends_what_is_open(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
    rpc_stand_advance(stand, AGE_NS / 10 * 11);
    send_pong(raw);
    rpc_stand_advance(stand,
                      20 * MUSTER_NS_PER_S); /* at most so long for the client to hear of it */
    assert_false(raw->played.is_closed);
    rpc_stand_advance(stand, GRACE_NS);

    assert_true(raw->played.is_closed);
    assert_int_equal(stand->end_rc, MUSTER_UNAVAILABLE);
}

static void without_a_grace_a_call_goes_on(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_stand_advance(stand, IDLE_NS);
    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0); /* it crosses the notice */
    send_pong(raw);
    rpc_stand_advance(stand, 20 * MUSTER_NS_PER_S);
    assert_true(rpc_raw_has_goaway_text(raw, "max_idle"));
    rpc_stand_advance(stand, 3 * GRACE_NS);

    assert_false(raw->played.is_closed);
    assert_int_equal(stand->ended, 0);
}

static void send_ping(struct rpc_raw *raw)
{
    rpc_raw_frame(raw, FRAME_PING, 0, 0, "12345678", 8);
    rpc_stand_advance(raw->stand, MUSTER_NS_PER_MS);
}

static void too_many_pings_end_all_at_once(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
    for (unsigned i = 0; i < 3; i++)
        send_ping(raw);
    assert_int_equal(rpc_raw_goaway_code(raw), -1);
    send_ping(raw);

    assert_int_equal(rpc_raw_goaway_code(raw), MUSTER_H2_ENHANCE_YOUR_CALM);
    assert_true(rpc_raw_has_goaway_text(raw, "too_many_pings"));
    assert_true(raw->played.is_closed);
    assert_int_equal(stand->end_rc, MUSTER_UNAVAILABLE);
}

static void an_answer_forgives_pings(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    for (uint32_t i = 0; i < 6; i++) {
        send_ping(raw);
        send_ping(raw);
        send_ping(raw);
        make_call(raw, 2 * i + 1, "/t/Echo");
    }

    assert_int_equal(rpc_raw_goaway_code(raw), -1);
    assert_int_equal(rpc_raw_status(raw, 11), 0);
}

/* Its answer waits for the window of the stream: it is queued, not sent. */
static void an_answer_that_is_not_sent_forgives_nothing(void **state)
{
    static const uint32_t no_window[1][2] = {{4, 0}};
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_connect(stand);

    rpc_raw_greet(raw, no_window, 1);
    make_call(raw, 1, "/t/Pour");
    for (unsigned i = 0; i < 4; i++)
        send_ping(raw);

    assert_true(rpc_raw_has_goaway_text(raw, "too_many_pings"));
    assert_true(raw->played.is_closed);
}

static void pings_without_calls_have_their_own_interval(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    for (unsigned i = 0; i < 4; i++) {
        send_ping(raw);
        rpc_stand_advance(stand, 6 * MUSTER_NS_PER_S);
    }

    assert_true(rpc_raw_has_goaway_text(raw, "too_many_pings"));
}

/* One that is on its way out is not asked to leave: nothing would stop that timer. */
static void a_server_may_close_while_a_connection_does(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *raw = rpc_raw_open(stand);

    played_stream_feed_end(&raw->played);
    assert_false(raw->played.is_closed);
    rpc_stand_begin_close(stand, MUSTER_NS_PER_S);
    rpc_stand_advance(stand, 60 * MUSTER_NS_PER_S);

    assert_true(raw->played.is_closed);
    assert_true(stand->is_closed);
}

int main(void)
{
#define IDLE(name) cmocka_unit_test_setup_teardown(name, set_up_idle, rpc_stand_tear_down)
#define AGE(name)  cmocka_unit_test_setup_teardown(name, set_up_age, rpc_stand_tear_down)
    const struct CMUnitTest lifetime[] = {
        IDLE(an_idle_connection_is_asked_to_leave),
        IDLE(idleness_begins_with_the_end_of_the_last_call),
        IDLE(a_call_that_crosses_the_notice_is_served),
        IDLE(a_client_that_does_not_answer_is_left),
        IDLE(a_client_that_stays_after_the_end_is_left_after_a_second),
        IDLE(without_a_grace_a_call_goes_on),
        IDLE(a_server_may_close_while_a_connection_does),
        AGE(an_old_connection_ends_with_its_calls),
        AGE(ages_differ_by_a_tenth),
        AGE(the_grace_ends_what_is_open),
        AGE(too_many_pings_end_all_at_once),
        AGE(an_answer_forgives_pings),
        AGE(an_answer_that_is_not_sent_forgives_nothing),
        AGE(pings_without_calls_have_their_own_interval),
    };

    return cmocka_run_group_tests(lifetime, NULL, NULL);
}
