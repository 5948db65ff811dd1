/* The session under a gRPC connection: a peer that says nothing, or falls silent, is given up. */
#include "h2_stage.h"
#include "virtual_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/grpc/session.h"

#define HANDSHAKE_NS MUSTER_NS_PER_S
#define INTERVAL_NS  (5 * MUSTER_NS_PER_S)
#define TIMEOUT_NS   (2 * MUSTER_NS_PER_S)

struct fixture {
    struct h2_stage stage; /* first: h2_stage_events expect it */
    struct virtual_loop loop;
    struct muster_loop *real_loop;
    struct muster_rpc_session session;
    struct muster_h2_events events;
};

static struct fixture *fixture_of(const struct muster_h2_session *session)
{
    return MUSTER_CONTAINER_OF(muster_h2_session_data(session), struct fixture, stage);
}

static void on_settings(struct muster_h2_session *session)
{
    muster_rpc_session_on_settings(&fixture_of(session)->session);
}

static void on_pong(struct muster_h2_session *session)
{
    muster_rpc_session_on_pong(&fixture_of(session)->session);
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct fixture *fixture = fixture_of(session);

    fixture->stage.downs++;
    (void)snprintf(fixture->stage.down_text, sizeof(fixture->stage.down_text), "%s", error->text);
    muster_rpc_session_close(&fixture->session, h2_stage_on_gone);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    h2_stage_init(&fixture->stage);
    virtual_loop_init(&fixture->loop);
    fixture->real_loop = fixture->stage.test.env.loop;
    fixture->stage.test.env.loop = &fixture->loop.loop;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    if (fixture->stage.downs == 0)
        muster_rpc_session_close(&fixture->session, h2_stage_on_gone);
    virtual_loop_advance(&fixture->loop, 0);
    fixture->stage.test.env.loop = fixture->real_loop;
    h2_stage_fini(&fixture->stage);
    free(fixture);
    return 0;
}

static void open_session(struct fixture *fixture, bool is_server)
{
    const struct muster_rpc_session_options options = {.is_server = is_server,
                                                       .concurrent_streams_max = 100,
                                                       .keepalive_interval_ns = INTERVAL_NS,
                                                       .keepalive_timeout_ns = TIMEOUT_NS,
                                                       .handshake_timeout_ns = HANDSHAKE_NS};
    struct h2_stage *stage = &fixture->stage;

    fixture->events = h2_stage_events;
    fixture->events.on_settings = on_settings;
    fixture->events.on_pong = on_pong;
    fixture->events.on_down = on_down;
    assert_int_equal(muster_rpc_session_open(&fixture->session, &stage->test.env,
                                             &stage->played.stream, &options, &fixture->events,
                                             stage),
                     MUSTER_OK);
    virtual_loop_advance(&fixture->loop, 0);
}

static struct fixture *greeted_server(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, true);
    h2_stage_feed(&fixture->stage, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    h2_stage_feed_frame(&fixture->stage, FRAME_SETTINGS, 0, 0, NULL, 0);
    virtual_loop_advance(&fixture->loop, 0);
    return fixture;
}

/* Bytes that arrived since the last look count as life: the ping may come an interval later. */
static const uint8_t *wait_for_ping(struct fixture *fixture)
{
    const uint8_t *ping = NULL;

    fixture->stage.played.sent_bytes = 0;
    for (unsigned i = 0; i < 2 && ping == NULL; i++) {
        virtual_loop_advance(&fixture->loop, INTERVAL_NS);
        ping = h2_stage_sent_frame(&fixture->stage, FRAME_PING, 0);
    }
    assert_non_null(ping);
    return ping;
}

static void a_client_that_says_nothing_is_given_up(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, true);
    virtual_loop_advance(&fixture->loop, HANDSHAKE_NS - 1);
    assert_int_equal(fixture->stage.downs, 0);
    virtual_loop_advance(&fixture->loop, 1);

    assert_int_equal(fixture->stage.downs, 1);
    assert_string_equal(fixture->stage.down_text, "peer did not answer as HTTP/2");
}

static void a_preface_without_settings_is_no_greeting(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, true);
    h2_stage_feed(&fixture->stage, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    virtual_loop_advance(&fixture->loop, HANDSHAKE_NS);

    assert_int_equal(fixture->stage.downs, 1);
}

static void a_server_that_says_nothing_is_given_up(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, false);
    virtual_loop_advance(&fixture->loop, HANDSHAKE_NS);

    assert_int_equal(fixture->stage.downs, 1);
}

static void an_idle_client_is_pinged_and_stays_while_it_answers(void **state)
{
    struct fixture *fixture = greeted_server(state);

    for (unsigned i = 0; i < 3; i++) {
        const uint8_t *ping = wait_for_ping(fixture);

        h2_stage_feed_frame(&fixture->stage, FRAME_PING, FLAG_ACK, 0, ping + 9, 8);
        virtual_loop_advance(&fixture->loop, 0);
    }

    assert_int_equal(fixture->stage.downs, 0);
}

static void a_client_that_falls_silent_is_given_up(void **state)
{
    struct fixture *fixture = greeted_server(state);

    wait_for_ping(fixture);
    virtual_loop_advance(&fixture->loop, TIMEOUT_NS - 1);
    assert_int_equal(fixture->stage.downs, 0);
    virtual_loop_advance(&fixture->loop, 1);

    assert_int_equal(fixture->stage.downs, 1);
    assert_string_equal(fixture->stage.down_text, "keepalive timeout");
}

static void an_idle_server_is_not_pinged(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, false);
    h2_stage_feed_frame(&fixture->stage, FRAME_SETTINGS, 0, 0, NULL, 0);
    memmove(fixture->stage.played.sent, fixture->stage.played.sent + sizeof(H2_PREFACE) - 1,
            fixture->stage.played.sent_bytes);
    fixture->stage.played.sent_bytes -= sizeof(H2_PREFACE) - 1;
    virtual_loop_advance(&fixture->loop, 10 * INTERVAL_NS);

    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_PING, 0));
    assert_int_equal(fixture->stage.downs, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest session[] = {
        CASE(a_client_that_says_nothing_is_given_up),
        CASE(a_preface_without_settings_is_no_greeting),
        CASE(a_server_that_says_nothing_is_given_up),
        CASE(an_idle_client_is_pinged_and_stays_while_it_answers),
        CASE(a_client_that_falls_silent_is_given_up),
        CASE(an_idle_server_is_not_pinged),
    };

    return cmocka_run_group_tests(session, NULL, NULL);
}
