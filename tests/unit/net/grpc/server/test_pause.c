/* Receivers that pause, on both sides, over loopback sockets. */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES (1u << 20) /* of a stream */
#define BLOCK_BYTES  (64u << 10)
#define STREAMS      20 /* their windows together are larger than the connection's */

/* Methods whose server pauses, or sends as long as it is asked to. */
struct pauser {
    struct rpc_fixture fixture;
    struct muster_rpc *rpc; /* the newest */
    unsigned messages, half_closes, ends;
    size_t bytes, sent_bytes, queue_peak_bytes;
    enum muster_rc end_rc;
    bool is_pausing_each;
    bool is_closing_server;
};

static void on_pausing_start(struct muster_rpc *rpc)
{
    struct pauser *pauser = muster_rpc_service(rpc);

    pauser->rpc = rpc;
    muster_rpc_pause(rpc);
}

static void on_pausing_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct pauser *pauser = muster_rpc_service(rpc);

    pauser->messages++;
    pauser->bytes += message.size;
    if (pauser->is_pausing_each)
        muster_rpc_pause(rpc);
    if (pauser->is_closing_server && pauser->fixture.server != NULL) {
        muster_rpc_server_close(pauser->fixture.server, 0, NULL);
        pauser->fixture.server = NULL;
    }
}

static void on_pausing_half_close(struct muster_rpc *rpc)
{
    struct pauser *pauser = muster_rpc_service(rpc);

    pauser->half_closes++;
    if (muster_rpc_send(rpc, "ok", 2) == MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_pausing_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct pauser *pauser = muster_rpc_service(rpc);

    pauser->ends++;
    pauser->end_rc = rc;
    pauser->rpc = NULL;
}

/* Sends for ever, a quarter of a MiB at a time. */
static void pour_blocks(struct muster_rpc *rpc)
{
    static const char block[BLOCK_BYTES];
    struct pauser *pauser = muster_rpc_service(rpc);

    while (muster_rpc_queued_bytes(rpc) < 4 * BLOCK_BYTES &&
           muster_rpc_send(rpc, block, sizeof(block)) == MUSTER_OK)
        pauser->sent_bytes += sizeof(block);
    if (pauser->queue_peak_bytes < muster_rpc_queued_bytes(rpc))
        pauser->queue_peak_bytes = muster_rpc_queued_bytes(rpc);
}

static void on_pour(struct muster_rpc *rpc, struct muster_bytes message)
{
    (void)message;
    pour_blocks(rpc);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Echo/Pausing",
     .on_start = on_pausing_start,
     .on_message = on_pausing_message,
     .on_half_close = on_pausing_half_close,
     .on_end = on_pausing_end},
    {.path = "/test.Echo/PausingUnary",
     .on_start = on_pausing_start,
     .on_message = on_pausing_message,
     .on_half_close = on_pausing_half_close,
     .on_end = on_pausing_end,
     .is_unary = true},
    {.path = "/test.Echo/Pour",
     .on_message = on_pour,
     .on_writable = pour_blocks,
     .is_unary = true},
};

static int set_up(void **state)
{
    struct pauser *pauser = rpc_scene_open(state, sizeof(*pauser), NULL, NULL);

    assert_int_equal(muster_rpc_server_add(pauser->fixture.server, methods, 3, pauser), MUSTER_OK);
    return 0;
}

/* All that was sent before on the connection is here once another call is answered. */
static void exchange_call(struct rpc_fixture *fixture)
{
    assert_int_equal(rpc_fixture_ask(fixture, "Unary", "other").rc, MUSTER_OK);
}

static void ask_paused(struct rpc_probe *probe, struct rpc_fixture *fixture, const char *method,
                       const char *text)
{
    rpc_probe_begin(probe, fixture, method);
    muster_call_pause(&probe->call);
    rpc_probe_send(probe, text);
    muster_call_half_close(&probe->call);
    exchange_call(fixture);
    exchange_call(fixture);
}

/* The client. */

static void a_paused_caller_is_told_when_it_resumes(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    ask_paused(&probe, fixture, "Source", "5");
    assert_int_equal(probe.message_count, 0);
    assert_int_equal(probe.done, 0);
    muster_call_resume(&probe.call);
    assert_int_equal(probe.message_count, 0); /* from the loop, not from here */
    rpc_probe_wait(&probe, fixture);

    assert_string_equal(probe.messages, "0,1,2,3,4");
    assert_int_equal(probe.rc, MUSTER_OK);
}

static void pause_in_hook(struct rpc_probe *probe)
{
    muster_call_pause(&probe->call);
}

static void a_pause_amid_a_message_holds_the_next_of_the_same_bytes(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.on_message_hook = pause_in_hook};

    rpc_probe_begin(&probe, fixture, "Source");
    rpc_probe_send_last(&probe, "5");
    for (unsigned i = 1; i <= 5; i++) {
        exchange_call(fixture);
        assert_int_equal(probe.message_count, i);
        if (i < 5)
            assert_int_equal(probe.done, 0);
        muster_call_resume(&probe.call);
    }
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
}

static void pause_and_resume_in_hook(struct rpc_probe *probe)
{
    muster_call_pause(&probe->call);
    muster_call_resume(&probe->call);
}

static void a_resume_amid_a_message_goes_on(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.on_message_hook = pause_and_resume_in_hook};

    rpc_probe_ask(&probe, fixture, "Source", "5");

    assert_string_equal(probe.messages, "0,1,2,3,4");
}

static void an_end_without_messages_comes_while_paused(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    ask_paused(&probe, fixture, "Fail", "9 not now");
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_FAILED_PRECONDITION);
}

static void a_cancel_comes_while_paused(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    ask_paused(&probe, fixture, "Source", "5");
    rpc_probe_cancel(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    assert_int_equal(probe.message_count, 0);
}

static void a_deadline_comes_while_paused(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(rpc_probe_start(&probe, fixture, "Hang", rpc_fixture_after_ms(fixture, 50)),
                     MUSTER_OK);
    muster_call_pause(&probe.call);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
}

static void what_has_come_outlives_the_connection(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    ask_paused(&probe, fixture, "Source", "5");
    rpc_fixture_stop_serving(fixture, 0);
    assert_int_equal(probe.done, 0);
    muster_call_half_close(&probe.call);
    muster_call_resume(&probe.call);
    rpc_probe_wait(&probe, fixture);

    assert_string_equal(probe.messages, "0,1,2,3,4");
    assert_int_equal(probe.rc, MUSTER_OK);
}

static void a_channel_closes_over_a_paused_call(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    ask_paused(&probe, fixture, "Source", "5");
    rpc_fixture_hang_up(fixture);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    assert_int_equal(probe.message_count, 0);
}

static void paused_streams_are_bounded_and_starve_nobody(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_fixture *fixture = &pauser->fixture;
    static struct rpc_probe probes[STREAMS];
    struct rpc_probe large = {.done = 0};

    memset(probes, 0, sizeof(probes));
    for (unsigned i = 0; i < STREAMS; i++)
        ask_paused(&probes[i], fixture, "Pour", "");
    rpc_probe_ask(&large, fixture, "Large", "4000000");

    assert_int_equal(large.rc, MUSTER_OK);
    assert_int_equal(large.message_bytes, 4000000);
    for (unsigned i = 0; i < STREAMS; i++)
        assert_int_equal(probes[i].message_count, 0);
    assert_true(pauser->queue_peak_bytes < 5 * BLOCK_BYTES + 64);
    assert_true(pauser->sent_bytes <= STREAMS * (WINDOW_BYTES + 6 * BLOCK_BYTES));
    /* what both sides hold, in one process: at most double capacity of each window, and the rest */
    assert_true(fixture->test.mem.held_peak_bytes <= STREAMS * 3 * WINDOW_BYTES + (16u << 20));
    for (unsigned i = 0; i < STREAMS; i++) {
        muster_call_resume(&probes[i].call);
        rpc_probe_wait_messages(&probes[i], fixture, 3 * WINDOW_BYTES / BLOCK_BYTES);
        assert_int_equal(probes[i].done, 0);
        rpc_probe_cancel(&probes[i], fixture);
    }
}

/* The server. */

static void a_paused_service_is_told_when_it_resumes(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, &pauser->fixture, "Pausing");
    for (unsigned i = 0; i < 5; i++)
        rpc_probe_send(&probe, "12");
    muster_call_half_close(&probe.call);
    exchange_call(&pauser->fixture);
    assert_non_null(pauser->rpc);
    assert_int_equal(pauser->messages + pauser->half_closes, 0);
    muster_rpc_resume(pauser->rpc);
    assert_int_equal(pauser->messages, 0);
    rpc_probe_wait(&probe, &pauser->fixture);

    assert_int_equal(pauser->messages, 5);
    assert_int_equal(pauser->half_closes, 1);
    assert_string_equal(probe.messages, "ok");
}

static void a_service_may_take_one_message_at_a_time(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    pauser->is_pausing_each = true;
    rpc_probe_begin(&probe, &pauser->fixture, "Pausing");
    for (unsigned i = 0; i < 5; i++)
        rpc_probe_send(&probe, "12");
    muster_call_half_close(&probe.call);
    for (unsigned i = 0; i < 5; i++) {
        exchange_call(&pauser->fixture);
        assert_int_equal(pauser->messages, i);
        assert_int_equal(pauser->half_closes, 0);
        muster_rpc_resume(pauser->rpc);
    }
    rpc_probe_wait(&probe, &pauser->fixture);

    assert_int_equal(pauser->half_closes, 1);
}

static void a_paused_unary_call_waits_with_its_message(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, &pauser->fixture, "PausingUnary");
    rpc_probe_send(&probe, "hello");
    exchange_call(&pauser->fixture);
    muster_call_half_close(&probe.call);
    exchange_call(&pauser->fixture);
    assert_int_equal(pauser->messages + pauser->half_closes, 0);
    muster_rpc_resume(pauser->rpc);
    rpc_probe_wait(&probe, &pauser->fixture);

    assert_int_equal(pauser->messages, 1);
    assert_string_equal(probe.messages, "ok");
}

static void a_unary_message_that_is_kept_waits_while_paused(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, &pauser->fixture, "PausingUnary");
    rpc_probe_send(&probe, "hello");
    exchange_call(&pauser->fixture);
    muster_rpc_resume(pauser->rpc);
    exchange_call(&pauser->fixture);
    muster_rpc_pause(pauser->rpc); /* it is parsed, and waits for the end of the stream */
    muster_call_half_close(&probe.call);
    exchange_call(&pauser->fixture);
    assert_int_equal(pauser->messages, 0);
    muster_rpc_resume(pauser->rpc);
    rpc_probe_wait(&probe, &pauser->fixture);

    assert_int_equal(pauser->messages, 1);
}

static bool has_ended(void *data)
{
    return ((struct pauser *)data)->ends > 0;
}

static void a_paused_service_learns_of_a_cancel(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, &pauser->fixture, "Pausing");
    rpc_probe_send(&probe, "12");
    exchange_call(&pauser->fixture);
    muster_call_cancel(&probe.call);
    test_env_run_until(pauser->fixture.env, has_ended, pauser);

    assert_int_equal(pauser->end_rc, MUSTER_CANCELLED);
    assert_int_equal(pauser->messages, 0);
}

static void a_paused_service_learns_of_its_deadline(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(rpc_probe_start(&probe, &pauser->fixture, "Pausing",
                                     rpc_fixture_after_ms(&pauser->fixture, 50)),
                     MUSTER_OK);
    rpc_probe_send(&probe, "12");
    test_env_run_until(pauser->fixture.env, has_ended, pauser);
    rpc_probe_wait(&probe, &pauser->fixture);

    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
}

static void a_server_that_closes_amid_a_resumed_message_is_survived(void **state)
{
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};

    pauser->is_closing_server = true;
    rpc_probe_begin(&probe, &pauser->fixture, "Pausing");
    rpc_probe_send(&probe, "12");
    rpc_probe_send(&probe, "12");
    exchange_call(&pauser->fixture);
    muster_rpc_resume(pauser->rpc);
    test_env_run_until(pauser->fixture.env, has_ended, pauser);
    rpc_probe_wait(&probe, &pauser->fixture);
    test_env_turn(pauser->fixture.env, 16);
}

static void a_paused_service_bounds_what_its_client_can_send(void **state)
{
    static const char block[BLOCK_BYTES];
    struct pauser *pauser = *state;
    struct rpc_probe probe = {.done = 0};
    size_t left;

    rpc_probe_begin(&probe, &pauser->fixture, "Pausing");
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(muster_call_send(&probe.call, block, sizeof(block)), MUSTER_OK);
    exchange_call(&pauser->fixture);
    exchange_call(&pauser->fixture);
    left = muster_call_queued_bytes(&probe.call);
    assert_true(left >= 3 * WINDOW_BYTES);
    assert_int_equal(pauser->messages, 0);
    muster_rpc_resume(pauser->rpc);
    rpc_probe_end(&probe, &pauser->fixture);

    assert_int_equal(pauser->bytes, 64 * sizeof(block));
    assert_string_equal(probe.messages, "ok");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest client[] = {
        CASE(a_paused_caller_is_told_when_it_resumes),
        CASE(a_pause_amid_a_message_holds_the_next_of_the_same_bytes),
        CASE(a_resume_amid_a_message_goes_on),
        CASE(an_end_without_messages_comes_while_paused),
        CASE(a_cancel_comes_while_paused),
        CASE(a_deadline_comes_while_paused),
        CASE(what_has_come_outlives_the_connection),
        CASE(a_channel_closes_over_a_paused_call),
        CASE(paused_streams_are_bounded_and_starve_nobody),
    };
    const struct CMUnitTest server[] = {
        CASE(a_paused_service_is_told_when_it_resumes),
        CASE(a_service_may_take_one_message_at_a_time),
        CASE(a_paused_unary_call_waits_with_its_message),
        CASE(a_unary_message_that_is_kept_waits_while_paused),
        CASE(a_paused_service_learns_of_a_cancel),
        CASE(a_paused_service_learns_of_its_deadline),
        CASE(a_server_that_closes_amid_a_resumed_message_is_survived),
        CASE(a_paused_service_bounds_what_its_client_can_send),
    };
    int failed = cmocka_run_group_tests(client, NULL, NULL);

    return failed + cmocka_run_group_tests(server, NULL, NULL);
}
