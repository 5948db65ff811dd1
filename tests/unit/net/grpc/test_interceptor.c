/* Interceptors of channels and servers: what they see, add and refuse, and in which order. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

/* Writes down all it sees. */
struct witness {
    struct muster_interceptor interceptor;
    char name;
    enum muster_rc refusal; /* of each call */
    const char *adds;       /* this value of "x-added" */
    char *book;
    size_t bytes_sent, bytes_received, wire_sent, wire_received;
    uint64_t duration_ns;
    char trailing[64];
};

struct scene {
    struct rpc_fixture rpc;
    struct witness a, b;
    char book[1024];
};

static struct witness *witness_of(const struct muster_intercepted *call)
{
    return call->interceptor->data;
}

static void note_event(struct witness *witness, const char *what)
{
    size_t length = strlen(witness->book);

    (void)snprintf(witness->book + length, 1024 - length, "%c:%s ", witness->name, what);
}

static enum muster_rc on_start(struct muster_intercepted *call, struct muster_error *ret_error)
{
    struct witness *witness = witness_of(call);
    char text[96];

    assert_null(call->data);
    call->data = witness;
    (void)snprintf(text, sizeof(text), "start(%s)", strrchr(call->method, '/') + 1);
    note_event(witness, text);
    if (muster_metadata_find(&call->metadata, "x-asked") != NULL)
        note_event(witness, "asked");
    if (witness->adds != NULL)
        assert_int_equal(
            muster_intercepted_add(call, "x-added", witness->adds, strlen(witness->adds)),
            MUSTER_OK);
    if (witness->refusal != MUSTER_OK)
        return muster_error_set(ret_error, witness->refusal, "not for you");
    return MUSTER_OK;
}

static void on_send(struct muster_intercepted *call,
                    const struct muster_intercepted_message *message)
{
    struct witness *witness = witness_of(call);

    assert_ptr_equal(call->data, witness);
    witness->bytes_sent += message->bytes;
    witness->wire_sent += message->wire_bytes;
    note_event(witness, "send");
}

static void on_receive(struct muster_intercepted *call,
                       const struct muster_intercepted_message *message)
{
    struct witness *witness = witness_of(call);

    witness->bytes_received += message->bytes;
    witness->wire_received += message->wire_bytes;
    note_event(witness, "receive");
}

static void on_attempt(struct muster_intercepted *call, unsigned attempt)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "attempt%u", attempt);
    note_event(witness_of(call), text);
}

static void on_attempt_end(struct muster_intercepted *call, enum muster_rc rc)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "ended%d", (int)rc);
    note_event(witness_of(call), text);
}

static void on_end(struct muster_intercepted *call, const struct muster_intercepted_end *end)
{
    struct witness *witness = witness_of(call);
    char text[96];

    assert_ptr_equal(call->data, witness);
    assert_int_equal(muster_intercepted_add(call, "x-late", "1", 1), MUSTER_FAILED_PRECONDITION);
    (void)snprintf(text, sizeof(text), "end(%d,%s)", (int)end->rc, end->text);
    note_event(witness, text);
    witness->duration_ns = end->duration_ns;
    if (end->trailing.count > 0)
        (void)snprintf(witness->trailing, sizeof(witness->trailing), "%s",
                       end->trailing.entries[0].name);
}

static void witness_init(struct witness *witness, char name, char *book)
{
    witness->name = name;
    witness->book = book;
    witness->interceptor = (struct muster_interceptor){.data = witness,
                                                       .on_start = on_start,
                                                       .on_send = on_send,
                                                       .on_receive = on_receive,
                                                       .on_attempt = on_attempt,
                                                       .on_attempt_end = on_attempt_end,
                                                       .on_end = on_end};
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    witness_init(&scene->a, 'a', scene->book);
    witness_init(&scene->b, 'b', scene->book);
    rpc_fixture_open(&scene->rpc, NULL, NULL);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    rpc_fixture_close(&scene->rpc);
    free(scene);
    return 0;
}

/* The channel or the server, again, with both witnesses. */
static void watch_client(struct scene *scene)
{
    const struct muster_interceptor *const chain[] = {&scene->a.interceptor, &scene->b.interceptor};
    const struct muster_channel_options options = {.interceptors = chain, .interceptor_count = 2};
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    rpc_fixture_hang_up(&scene->rpc);
    rpc_fixture_dial(&scene->rpc, muster_address_format(&scene->rpc.address, target), &options);
}

static void watch_server(struct scene *scene)
{
    const struct muster_interceptor *const chain[] = {&scene->a.interceptor, &scene->b.interceptor};
    const struct muster_rpc_server_options options = {.interceptors = chain,
                                                      .interceptor_count = 2};

    rpc_fixture_stop_serving(&scene->rpc, 0);
    rpc_fixture_serve(&scene->rpc, &options);
}

static void a_client_sees_calls_in_and_out(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    watch_client(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Unary", "hello");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(scene->book, "a:start(Unary) b:start(Unary) a:send b:send "
                                     "a:attempt1 b:attempt1 b:receive a:receive "
                                     "b:ended0 a:ended0 b:end(0,) a:end(0,) ");
    assert_int_equal(scene->a.bytes_sent, 5);
    assert_int_equal(scene->a.wire_sent, 5);
    assert_int_equal(scene->b.bytes_received, 5);
    assert_int_equal(scene->b.wire_received, 5);
    assert_true(scene->a.duration_ns > 0);
}

static void a_server_sees_calls_in_and_out(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    watch_server(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Unary", "hello");
    rpc_fixture_stop_serving(&scene->rpc, MUSTER_NS_PER_S);

    assert_string_equal(scene->book, "a:start(Unary) b:start(Unary) b:receive a:receive "
                                     "a:send b:send b:end(0,) a:end(0,) ");
    assert_int_equal(scene->b.bytes_sent, 5);
    assert_int_equal(scene->b.wire_sent, 5);
}

static void a_server_sees_the_status_that_it_sent(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    watch_server(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Fail", "5 no such thing");
    rpc_fixture_stop_serving(&scene->rpc, MUSTER_NS_PER_S);

    assert_int_equal(probe.rc, MUSTER_NOT_FOUND);
    assert_non_null(strstr(scene->book, "b:end(5,) a:end(5,) "));
}

static void a_client_sees_status_and_text(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    watch_client(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Fail", "5 no such thing");

    assert_non_null(strstr(scene->book, "a:ended5 b:end(5,no such thing) a:end(5,no such thing) "));
}

static void compressed_messages_have_two_sizes(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_call_options options = {.method = "/test.Echo/Sink",
                                          .deadline_ns = UINT64_MAX,
                                          .compression = MUSTER_COMPRESSION_GZIP};
    char text[2001];

    watch_client(scene);
    memset(text, 'z', 2000);
    text[2000] = '\0';
    assert_int_equal(rpc_probe_start_with(&probe, &scene->rpc, &options), MUSTER_OK);
    rpc_probe_send(&probe, text);
    muster_call_half_close(&probe.call);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(scene->a.bytes_sent, 2000);
    assert_in_range(scene->a.wire_sent, 1, 200);
}

static void a_client_adds_metadata(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->a.adds = "one";
    scene->b.adds = "two";
    watch_client(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Metadata", "x");

    assert_string_equal(probe.initial, "x-added=one;x-added=two;");
    assert_string_equal(scene->a.trailing, "x-added");
}

static void a_server_adds_metadata_to_its_answer(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->a.adds = "one";
    watch_server(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Unary", "x");

    assert_string_equal(probe.initial, "x-added=one;");
}

static void metadata_of_the_request_is_seen(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    const struct muster_metadata_entry entry = {"x-asked", "1", 1};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .metadata = {&entry, 1}};

    watch_server(scene);
    assert_int_equal(rpc_probe_start_with(&probe, &scene->rpc, &options), MUSTER_OK);
    rpc_probe_send(&probe, "x");
    muster_call_half_close(&probe.call);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_non_null(strstr(scene->book, "a:asked b:start(Unary) b:asked "));
}

static void a_refused_call_is_not_sent(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->b.refusal = MUSTER_PERMISSION_DENIED;
    watch_client(scene);
    assert_int_equal(rpc_probe_start(&probe, &scene->rpc, "Unary", UINT64_MAX), MUSTER_OK);
    assert_int_equal(probe.done, 0);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(probe.text, "not for you");
    assert_true(probe.call.is_unsent);
    assert_int_equal(scene->rpc.started, 0);
    assert_string_equal(scene->book, "a:start(Unary) b:start(Unary) a:end(7,not for you) ");
}

static void a_call_refused_by_the_server_never_reaches_its_method(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->b.refusal = MUSTER_UNAUTHENTICATED;
    watch_server(scene);
    rpc_probe_ask(&probe, &scene->rpc, "Unary", "x");

    assert_int_equal(probe.rc, MUSTER_UNAUTHENTICATED);
    assert_true(probe.call.is_answered);
    assert_string_equal(probe.text, "not for you");
    assert_int_equal(scene->rpc.started, 0);
    assert_int_equal(scene->rpc.ended, 0);
    assert_string_equal(scene->book, "a:start(Unary) b:start(Unary) a:end(16,not for you) ");
}

static void a_cancelled_call_ends_once(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    watch_client(scene);
    assert_int_equal(rpc_probe_start(&probe, &scene->rpc, "Hang", UINT64_MAX), MUSTER_OK);
    muster_call_cancel(&probe.call);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_string_equal(scene->book,
                        "a:start(Hang) b:start(Hang) b:end(1,cancelled) a:end(1,cancelled) ");
}

static void a_chain_has_a_bound(void **state)
{
    struct scene *scene = *state;
    const struct muster_interceptor *chain[MUSTER_INTERCEPTORS_MAX + 1];
    const struct muster_channel_options options = {
        .interceptors = chain, .interceptor_count = MUSTER_INTERCEPTORS_MAX + 1};
    const struct muster_rpc_server_options server_options = {
        .interceptors = chain, .interceptor_count = MUSTER_INTERCEPTORS_MAX + 1};
    struct muster_channel *channel;
    struct muster_rpc_server *server;
    struct muster_error error;

    for (size_t i = 0; i <= MUSTER_INTERCEPTORS_MAX; i++)
        chain[i] = &scene->a.interceptor;

    assert_int_equal(muster_channel_open(scene->rpc.env, "127.0.0.1:1", &options, &channel, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "at most 8"));
    assert_int_equal(muster_rpc_server_open(scene->rpc.env, &server_options, &server),
                     MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest interceptors[] = {
        CASE(a_client_sees_calls_in_and_out),
        CASE(a_server_sees_calls_in_and_out),
        CASE(a_server_sees_the_status_that_it_sent),
        CASE(a_client_sees_status_and_text),
        CASE(compressed_messages_have_two_sizes),
        CASE(a_client_adds_metadata),
        CASE(a_server_adds_metadata_to_its_answer),
        CASE(metadata_of_the_request_is_seen),
        CASE(a_refused_call_is_not_sent),
        CASE(a_call_refused_by_the_server_never_reaches_its_method),
        CASE(a_cancelled_call_ends_once),
        CASE(a_chain_has_a_bound),
    };

    return cmocka_run_group_tests(interceptors, NULL, NULL);
}
