/* gRPC client against gRPC server over loopback sockets: the four kinds of calls and their ends. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "torture.h"

#include "net/grpc/client/channel_internal.h"

#define MANY_CALLS 700 /* more than a channel keeps for reuse, fewer than a server takes at once */

static void a_unary_call_is_answered(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = rpc_fixture_ask(fixture, "Unary", "hello");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_true(probe.call.is_answered);
    assert_string_equal(probe.messages, "hello");
    assert_int_equal(probe.headers, 1);
    test_env_turn(fixture->env, 8);
    assert_int_equal(probe.done, 1);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->end_rc, MUSTER_OK);
}

static void each_method_answers_in_its_way(void **state)
{
    struct rpc_fixture *fixture = *state;
    static const struct {
        const char *name, *method, *request;
        enum muster_rc rc, end_rc; /* end_rc: as the service is told */
        const char *messages, *text;
        unsigned message_count;
    } rows[] = {
        {"an empty message is a message", "Unary", "", .messages = "", .message_count = 1},
        {"a stream arrives in order", "Source", "5", .messages = "0,1,2,3,4", .message_count = 5},
        {"a stream may be empty", "Source", "0", .messages = ""},
        {"a status comes with its text, and the service ended it itself", "Fail",
         "5 no % \xc3\xbc\n\t", MUSTER_NOT_FOUND, .text = "no % \xc3\xbc\n\t"},
        {"an unknown method", "Nothing", "x", MUSTER_UNIMPLEMENTED, .text = "unknown method"},
        {"a response beyond the limit", "Large", "4194305", .rc = MUSTER_RESOURCE_EXHAUSTED},
        {"a service that floods its queue", "Burst", "4000000", .rc = MUSTER_RESOURCE_EXHAUSTED,
         .end_rc = MUSTER_RESOURCE_EXHAUSTED},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rpc_probe probe;

        fixture->end_rc = MUSTER_OK;
        probe = rpc_fixture_ask(fixture, rows[i].method, rows[i].request);
        fail_if(probe.rc != rows[i].rc, "%s: rc %d", rows[i].name, probe.rc);
        fail_if(fixture->end_rc != rows[i].end_rc, "%s: end %d", rows[i].name, fixture->end_rc);
        fail_if(probe.message_count != rows[i].message_count, "%s: %u messages", rows[i].name,
                probe.message_count);
        fail_if(rows[i].messages != NULL && strcmp(probe.messages, rows[i].messages) != 0,
                "%s: messages %s", rows[i].name, probe.messages);
        fail_if(rows[i].text != NULL && strcmp(probe.text, rows[i].text) != 0, "%s: text %s",
                rows[i].name, probe.text);
    }
}

static void a_client_stream_is_summed_up(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Sink");
    for (int i = 0; i < 100; i++)
        rpc_probe_send(&probe, "0123456789");
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "1000");
}

static void both_sides_of_a_bidirectional_call_take_turns(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Bidi");
    for (unsigned i = 1; i <= 3; i++) {
        rpc_probe_send(&probe, i == 1 ? "a" : i == 2 ? "b" : "c");
        rpc_probe_wait_messages(&probe, fixture, i);
    }
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "a,b,c");
    assert_string_equal(probe.text, "bye");
}

static void on_fallback_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    const char *path = muster_rpc_path(rpc);

    (void)message;
    assert_int_equal(muster_rpc_send(rpc, path, strlen(path)), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void the_fallback_serves_the_paths_that_nobody_has(void **state)
{
    static const struct muster_rpc_method fallback = {.on_message = on_fallback_message,
                                                      .is_unary = true};
    struct rpc_fixture *fixture = *state;
    struct rpc_probe known, unknown, after;

    muster_rpc_server_set_fallback(fixture->server, &fallback, fixture);
    known = rpc_fixture_ask(fixture, "Unary", "hello");
    unknown = rpc_fixture_ask(fixture, "Nobodys", "hello");
    muster_rpc_server_set_fallback(fixture->server, NULL, NULL);
    after = rpc_fixture_ask(fixture, "Nobodys", "hello");

    assert_string_equal(known.messages, "hello");
    assert_int_equal(unknown.rc, MUSTER_OK);
    assert_string_equal(unknown.messages, "/test.Echo/Nobodys");
    assert_int_equal(after.rc, MUSTER_UNIMPLEMENTED);
}

static void run_at_once(struct rpc_fixture *fixture, unsigned count)
{
    struct rpc_probe *probes = calloc(count, sizeof(*probes));
    char text[16];

    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(text, sizeof(text), "n%u", i);
        rpc_probe_begin(&probes[i], fixture, "Unary");
        rpc_probe_send_last(&probes[i], text);
    }
    for (unsigned i = 0; i < count; i++) {
        rpc_probe_wait(&probes[i], fixture);
        (void)snprintf(text, sizeof(text), "n%u", i);
        assert_int_equal(probes[i].rc, MUSTER_OK);
        assert_string_equal(probes[i].messages, text);
    }
    free(probes);
}

static void two_hundred_calls_run_at_once(void **state)
{
    run_at_once(*state, 200);
}

static void more_calls_than_are_kept_for_reuse_end_together(void **state)
{
    run_at_once(*state, MANY_CALLS);
}

static bool holds_a_message(void *data)
{
    const struct muster_grpc_call *call = ((struct rpc_probe *)data)->call.impl;

    return muster_rpc_inbox_held_bytes(&call->inbox) > 0;
}

/* It ends when there is room for no more, and so it goes with the message that it had not shown. */
static void a_call_that_is_not_kept_for_reuse_takes_its_message_along(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe *probes = calloc(MANY_CALLS, sizeof(*probes)), *paused = probes;

    for (size_t i = 0; i < MANY_CALLS; i++)
        assert_int_equal(rpc_probe_start(&probes[i], fixture, "Bidi", UINT64_MAX), MUSTER_OK);
    muster_call_pause(&paused->call);
    rpc_probe_send(paused, "x");
    test_env_run_until(fixture->env, holds_a_message, paused);
    for (size_t i = MANY_CALLS; i-- > 0;) {
        muster_call_cancel(&probes[i].call);
        rpc_probe_wait(&probes[i], fixture);
    }

    assert_int_equal(paused->message_count, 0);
    free(probes);
}

static void note_early_metadata(struct rpc_probe *probe)
{
    const struct muster_metadata_entry *entry =
        muster_metadata_find(&probe->call.initial_metadata, "x-early");

    *(bool *)probe->data = entry != NULL && strcmp(entry->value, "bird") == 0;
}

static void initial_metadata_is_there_before_the_end(void **state)
{
    const struct muster_metadata_entry entry = {"x-early", "bird", 4};
    struct rpc_fixture *fixture = *state;
    bool is_seen = false;
    struct rpc_probe probe = {.on_message_hook = note_early_metadata, .data = &is_seen};
    struct muster_call_options options = {
        .method = "/test.Echo/Metadata", .deadline_ns = UINT64_MAX, .metadata = {&entry, 1}};

    rpc_probe_ask_with(&probe, fixture, &options, "");

    assert_int_equal(probe.message_count, 1);
    assert_true(is_seen);
}

static void set_trailers_twice(struct muster_rpc *rpc)
{
    struct muster_metadata_entry former = {"a", "1", 1}, later = {"b", "2", 1};

    muster_rpc_set_trailers(rpc, (struct muster_metadata){&former, 1});
    muster_rpc_set_trailers(rpc, (struct muster_metadata){&later, 1});
    muster_rpc_finish(rpc, MUSTER_NOT_FOUND, NULL);
}

static void later_trailers_take_the_place_of_the_former(void **state)
{
    static const struct muster_rpc_method method = {.path = "/test.Echo/Twice",
                                                    .on_start = set_trailers_twice};
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(muster_rpc_server_add(fixture->server, &method, 1, fixture), MUSTER_OK);
    rpc_probe_ask(&probe, fixture, "Twice", "x");

    assert_int_equal(probe.rc, MUSTER_NOT_FOUND);
    assert_string_equal(probe.trailing, "b=2;");
}

static void a_long_status_text_arrives_whole(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    char text[MUSTER_ERROR_TEXT_BYTES];

    memset(text, '\n', sizeof(text) - 1); /* three times as long on the wire */
    memcpy(text, "9 ", 2);
    text[sizeof(text) - 1] = '\0';
    rpc_probe_ask(&probe, fixture, "Fail", text);

    assert_int_equal(probe.rc, MUSTER_FAILED_PRECONDITION);
    assert_string_equal(probe.text, text + 2);
}

static void every_status_code_arrives(void **state)
{
    for (unsigned code = 0; code <= 16; code++) {
        char text[8];

        (void)snprintf(text, sizeof(text), "%u", code);
        assert_int_equal(rpc_fixture_ask(*state, "Fail", text).rc, code);
    }
}

static void a_method_without_slash_is_refused_at_start(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_call_options options = {.method = "Unary", .deadline_ns = UINT64_MAX};

    assert_int_equal(rpc_probe_start_with(&probe, fixture, &options), MUSTER_INVALID_ARGUMENT);
    test_env_turn(fixture->env, 4);
    assert_int_equal(probe.done, 0);
}

static void metadata_travels_both_ways(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    const struct muster_metadata_entry entries[] = {
        {"x-text", "plain value", 11}, {"x-raw-bin", "\0\xff~", 3}, {"x-text", "again", 5}};
    struct muster_call_options options = {
        .method = "/test.Echo/Metadata", .deadline_ns = UINT64_MAX, .metadata = {entries, 3}};

    rpc_probe_ask_with(&probe, fixture, &options, "m");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.initial, "x-text=plain value;x-raw-bin=;x-text=again;");
    assert_string_equal(probe.trailing, probe.initial);
}

static void reserved_metadata_is_refused_at_start(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    const char *const names[] = {"grpc-status", "UPPER", ":path", "", "te"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct muster_metadata_entry entry = {names[i], "v", 1};
        struct muster_call_options options = {
            .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .metadata = {&entry, 1}};

        assert_int_equal(rpc_probe_start_with(&probe, fixture, &options), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(probe.call.status.text, "a metadata name must consist of"));
    }
}

static void too_much_metadata_is_refused_at_start(void **state)
{
    struct muster_metadata_entry entries[101];
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .metadata = {entries, 100}};

    for (size_t i = 0; i < 101; i++)
        entries[i] = (struct muster_metadata_entry){"x", "y", 1};
    assert_int_equal(rpc_probe_start_with(&probe, fixture, &options), MUSTER_RESOURCE_EXHAUSTED);

    assert_string_equal(probe.call.status.text, "metadata must have at most 100 entries, got 101");
}

static void headers_beyond_the_limit_exhaust_the_server(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    char *value = malloc(20000);
    const struct muster_metadata_entry entry = {"x-long", value, 20000};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .metadata = {&entry, 1}};

    memset(value, 'v', 20000);
    assert_int_equal(rpc_probe_start_with(&probe, fixture, &options), MUSTER_OK);
    rpc_probe_wait(&probe, fixture);
    free(value);

    assert_int_equal(probe.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(fixture->started, 0);
    assert_int_equal(rpc_fixture_ask(fixture, "Unary", "the connection lives").rc, MUSTER_OK);
}

static void a_deadline_ends_the_call_on_both_sides(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe;

    /* on a busy machine a short one is over before the server has heard of the call */
    for (uint64_t ms = 20; fixture->started == 0 && ms < 60000; ms *= 2) {
        probe = (struct rpc_probe){.done = 0};
        assert_int_equal(
            rpc_probe_start(&probe, fixture, "Hang", rpc_fixture_after_ms(fixture, ms)), MUSTER_OK);
        rpc_probe_wait(&probe, fixture);
        assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
        assert_false(probe.call.is_answered);
    }
    assert_int_equal(fixture->started, 1);
    while (fixture->ended == 0)
        test_env_turn(fixture->env, 1);
    assert_true(fixture->end_rc == MUSTER_DEADLINE_EXCEEDED || fixture->end_rc == MUSTER_CANCELLED);
}

static void the_server_is_told_the_deadline(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    uint64_t deadline_ns = rpc_fixture_after_ms(fixture, 60000);

    assert_int_equal(rpc_probe_start(&probe, fixture, "Unary", deadline_ns), MUSTER_OK);
    rpc_probe_send(&probe, "x");
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_true(fixture->deadline_ns >= deadline_ns);
    assert_true(fixture->deadline_ns < deadline_ns + 30 * MUSTER_NS_PER_S);
}

static void a_deadline_that_passes_at_once_is_told_from_the_loop(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    assert_int_equal(rpc_probe_start(&probe, fixture, "Unary", rpc_fixture_after_ms(fixture, 1)),
                     MUSTER_OK);
    assert_int_equal(probe.done, 0);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
}

static void a_cancelled_call_ends_on_both_sides(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_fixture_wait_hanging(fixture);
    muster_call_cancel(&probe.call);
    muster_call_cancel(&probe.call);
    assert_int_equal(probe.done, 0);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    while (fixture->ended == 0)
        test_env_turn(fixture->env, 1);
    assert_int_equal(fixture->end_rc, MUSTER_CANCELLED);
    assert_int_equal(probe.done, 1);
}

static void a_call_cancelled_at_once_never_starts(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    (void)rpc_fixture_ask(fixture, "Unary", "connect");
    rpc_probe_begin(&probe, fixture, "Hang");
    rpc_probe_cancel(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    test_env_turn(fixture->env, 20);
    assert_int_equal(fixture->started, 1);
}

static void cancel_now(struct rpc_probe *probe)
{
    muster_call_cancel(&probe->call);
}

static void cancel_inside_a_message_stops_the_stream(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.on_message_hook = cancel_now};

    rpc_probe_ask(&probe, fixture, "Source", "1000");

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    assert_int_equal(probe.message_count, 1);
}

struct chain {
    struct rpc_fixture *fixture;
    unsigned left;
    bool is_finished;
};

static void ask_again(struct rpc_probe *probe)
{
    struct chain *chain = probe->data;

    if (chain->left-- == 0) {
        chain->is_finished = true;
        return;
    }
    rpc_probe_begin(probe, chain->fixture, "Unary");
    rpc_probe_send(probe, "again");
    muster_call_half_close(&probe->call);
}

static void the_same_memory_may_be_used_again_in_done(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct chain chain = {fixture, 10, false};
    struct rpc_probe probe = {.on_done_hook = ask_again, .data = &chain};

    ask_again(&probe);
    test_env_run_until(fixture->env, test_env_is_true, &chain.is_finished);

    assert_int_equal(probe.done, 10);
    assert_int_equal(probe.rc, MUSTER_OK);
}

static void a_send_after_half_close_or_done_fails(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Unary");
    rpc_probe_send_last(&probe, "x");
    assert_int_equal(muster_call_send(&probe.call, "y", 1), MUSTER_FAILED_PRECONDITION);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(muster_call_send(&probe.call, "y", 1), MUSTER_FAILED_PRECONDITION);
    muster_call_half_close(&probe.call);
    muster_call_cancel(&probe.call);
    assert_int_equal(probe.done, 1);
}

static void a_unary_method_wants_exactly_one_message(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe none = {.done = 0}, two = {.done = 0};

    rpc_probe_begin(&none, fixture, "Unary");
    rpc_probe_end(&none, fixture);
    assert_int_equal(none.rc, MUSTER_UNIMPLEMENTED);

    rpc_probe_begin(&two, fixture, "Unary");
    rpc_probe_send(&two, "1");
    rpc_probe_send(&two, "2");
    rpc_probe_end(&two, fixture);
    assert_int_equal(two.rc, MUSTER_UNIMPLEMENTED);
    assert_int_equal(fixture->ended, 2);
}

static void a_message_before_the_end_of_the_stream_waits_for_it(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Unary");
    rpc_probe_send(&probe, "held");
    while (fixture->started == 0)
        test_env_turn(fixture->env, 1);
    test_env_turn(fixture->env, 8);
    assert_int_equal(probe.message_count, 0);
    rpc_probe_end(&probe, fixture);

    assert_string_equal(probe.messages, "held");
}

static void a_request_beyond_the_limit_is_refused(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    char *block = calloc(1, (4u << 20) + 1);

    rpc_probe_begin(&probe, fixture, "Unary");
    assert_int_equal(muster_call_send(&probe.call, block, (4u << 20) + 1), MUSTER_OK);
    rpc_probe_end(&probe, fixture);
    free(block);

    assert_int_equal(probe.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(probe.text, "message of 4194305 bytes is larger than 4194304");
}

static void a_slow_stream_tells_when_its_queue_is_empty(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Bidi");
    rpc_probe_send(&probe, "x");
    assert_true(muster_call_queued_bytes(&probe.call) > 0);
    rpc_probe_wait_messages(&probe, fixture, 1);

    assert_int_equal(probe.writable, 1);
    assert_int_equal(muster_call_queued_bytes(&probe.call), 0);
    assert_int_equal(fixture->writable, 1);
    rpc_probe_end(&probe, fixture);
}

static void large_messages_cross_many_windows(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct muster_rpc_server_options server = {.receive_message_max_bytes = 9u << 20};
    struct muster_channel_options channel = {.receive_message_max_bytes = 9u << 20};
    struct rpc_probe probe = {.done = 0};
    char *block = calloc(1, 8u << 20);

    rpc_fixture_serve_with(fixture, &server);
    rpc_fixture_redial(fixture, &channel);
    rpc_probe_begin(&probe, fixture, "Bidi");
    assert_int_equal(muster_call_send(&probe.call, block, 8u << 20), MUSTER_OK);
    rpc_probe_send(&probe, "small");
    assert_int_equal(muster_call_send(&probe.call, block, 8u << 20), MUSTER_OK);
    rpc_probe_end(&probe, fixture);
    free(block);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(probe.message_count, 3);
    assert_int_equal(probe.message_bytes, (16u << 20) + 5);
}

struct loan_probe {
    struct muster_loan loan;
    unsigned released;
};

static void on_released(struct muster_loan *loan)
{
    ((struct loan_probe *)loan->data)->released++;
}

static void lent_pieces_are_sent_in_order_and_returned(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    struct loan_probe loan = {.loan = {.data = &loan}}, nothing = {.loan = {.data = &nothing}};
    size_t bytes = 1u << 20;
    char *block = calloc(1, bytes);
    const struct iovec pieces[] = {
        {(void *)(uintptr_t) "head", 4}, {block, bytes}, {NULL, 0}, {block, 100}};

    rpc_probe_begin(&probe, fixture, "Bidi");
    assert_int_equal(muster_call_send_loan(&probe.call, &loan.loan, pieces, 4, on_released),
                     MUSTER_OK);
    assert_int_equal(muster_call_send_loan(&probe.call, &nothing.loan, NULL, 0, on_released),
                     MUSTER_OK);
    assert_int_equal(nothing.released, 0);
    rpc_probe_end(&probe, fixture);
    test_env_turn(fixture->env, 4);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(probe.message_count, 2);
    assert_int_equal(probe.message_bytes, bytes + 104);
    assert_int_equal(loan.released, 1);
    assert_int_equal(nothing.released, 1);
    free(block);
}

static void a_loan_comes_back_from_a_cancelled_call(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    struct loan_probe first = {.loan = {.data = &first}}, second = {.loan = {.data = &second}};
    static char block[3u << 20];
    const struct iovec piece = {block, sizeof(block)};

    rpc_probe_begin(&probe, fixture, "Hang");
    assert_int_equal(muster_call_send_loan(&probe.call, &first.loan, &piece, 1, on_released),
                     MUSTER_OK);
    rpc_fixture_wait_hanging(fixture);
    muster_call_cancel(&probe.call);
    assert_int_equal(muster_call_send_loan(&probe.call, &second.loan, &piece, 1, on_released),
                     MUSTER_OK);
    rpc_probe_wait(&probe, fixture);
    test_env_turn(fixture->env, 20);

    assert_int_equal(first.released, 1);
    assert_int_equal(second.released, 1);
}

/* A loan that cannot be taken is not returned. */
static void run_loan(struct torture *torture, const void *data)
{
    struct rpc_fixture *fixture = (struct rpc_fixture *)(uintptr_t)data;
    struct rpc_probe probe = {.done = 0};
    struct loan_probe loan = {.loan = {.data = &loan}};
    const struct iovec pieces[] = {{(void *)(uintptr_t) "a", 1}, {(void *)(uintptr_t) "b", 1}};
    enum muster_rc rc;

    rpc_probe_begin(&probe, fixture, "Unary");
    torture_arm_limited(torture, &fixture->test.mem);
    rc = muster_call_send_loan(&probe.call, &loan.loan, pieces, 2, on_released);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    muster_call_half_close(&probe.call);
    assert_int_equal(muster_call_send_loan(&probe.call, &loan.loan, pieces, 2, on_released),
                     MUSTER_FAILED_PRECONDITION);
    rpc_probe_wait(&probe, fixture);
    test_env_turn(fixture->env, 4);

    assert_int_equal(loan.released, rc == MUSTER_OK);
}

static void a_loan_that_cannot_be_taken_is_not_returned(void **state)
{
    torture_run(&(struct torture_scenario){.name = "loan", .run = run_loan, .data = *state});
}

struct unary_probe {
    struct muster_unary unary;
    unsigned done;
    enum muster_rc rc;
    char response[64];
    bool is_done;
};

static void on_unary_done(struct muster_unary *unary, enum muster_rc rc)
{
    struct unary_probe *probe = unary->data;

    probe->done++;
    probe->rc = rc;
    assert_int_equal(unary->status.rc, rc);
    if (rc == MUSTER_OK)
        memcpy(probe->response, unary->response.data, unary->response.size);
    probe->is_done = true;
}

static void unary_ask(struct unary_probe *probe, struct rpc_fixture *fixture, const char *method,
                      const char *text)
{
    memset(probe, 0, sizeof(*probe));
    probe->unary.data = probe;
    assert_int_equal(muster_unary_start(&probe->unary, fixture->channel, method, text, strlen(text),
                                        UINT64_MAX, on_unary_done),
                     MUSTER_OK);
    test_env_run_until(fixture->env, test_env_is_true, &probe->is_done);
}

static void the_unary_helper_asks_and_answers(void **state)
{
    struct unary_probe probe;

    unary_ask(&probe, *state, "/test.Echo/Unary", "question");
    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.response, "question");
    unary_ask(&probe, *state, "/test.Echo/Fail", "7 denied");
    assert_int_equal(probe.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(probe.unary.status.text, "denied");
    unary_ask(&probe, *state, "/test.Echo/Source", "0");
    assert_int_equal(probe.rc, MUSTER_UNIMPLEMENTED);
    unary_ask(&probe, *state, "/test.Echo/Source", "2");
    assert_int_equal(probe.rc, MUSTER_UNIMPLEMENTED);
    assert_int_equal(probe.done, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, rpc_fixture_set_up, rpc_scene_tear_down)
    const struct CMUnitTest rpc[] = {
        CASE(a_unary_call_is_answered),
        CASE(each_method_answers_in_its_way),
        CASE(a_client_stream_is_summed_up),
        CASE(both_sides_of_a_bidirectional_call_take_turns),
        CASE(the_fallback_serves_the_paths_that_nobody_has),
        CASE(more_calls_than_are_kept_for_reuse_end_together),
        CASE(two_hundred_calls_run_at_once),
        CASE(a_call_that_is_not_kept_for_reuse_takes_its_message_along),
        CASE(later_trailers_take_the_place_of_the_former),
        CASE(initial_metadata_is_there_before_the_end),
        CASE(a_long_status_text_arrives_whole),
        CASE(every_status_code_arrives),
        CASE(a_method_without_slash_is_refused_at_start),
        CASE(metadata_travels_both_ways),
        CASE(reserved_metadata_is_refused_at_start),
        CASE(too_much_metadata_is_refused_at_start),
        CASE(headers_beyond_the_limit_exhaust_the_server),
        CASE(a_deadline_ends_the_call_on_both_sides),
        CASE(the_server_is_told_the_deadline),
        CASE(a_deadline_that_passes_at_once_is_told_from_the_loop),
        CASE(a_cancelled_call_ends_on_both_sides),
        CASE(a_call_cancelled_at_once_never_starts),
        CASE(cancel_inside_a_message_stops_the_stream),
        CASE(the_same_memory_may_be_used_again_in_done),
        CASE(a_send_after_half_close_or_done_fails),
        CASE(a_unary_method_wants_exactly_one_message),
        CASE(a_message_before_the_end_of_the_stream_waits_for_it),
        CASE(a_request_beyond_the_limit_is_refused),
        CASE(a_slow_stream_tells_when_its_queue_is_empty),
        CASE(large_messages_cross_many_windows),
        CASE(lent_pieces_are_sent_in_order_and_returned),
        CASE(a_loan_comes_back_from_a_cancelled_call),
        CASE(a_loan_that_cannot_be_taken_is_not_returned),
        CASE(the_unary_helper_asks_and_answers),
    };

    return cmocka_run_group_tests(rpc, NULL, NULL);
}
