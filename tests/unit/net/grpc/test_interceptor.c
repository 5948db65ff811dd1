/* Interceptors of channels and servers: what they see, add and refuse, and in which order. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#include "assertion_count.h"

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
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    witness_init(&scene->a, 'a', scene->book);
    witness_init(&scene->b, 'b', scene->book);
    return 0;
}

/* The channel, or the server, again, with both witnesses and an empty book. */
static void scene_watch(struct scene *scene, bool is_server)
{
    const struct muster_interceptor *const chain[] = {&scene->a.interceptor, &scene->b.interceptor};
    const struct muster_channel_options options = {.interceptors = chain, .interceptor_count = 2};
    const struct muster_rpc_server_options server = {.interceptors = chain, .interceptor_count = 2};

    scene->book[0] = '\0';
    scene->rpc.started = scene->rpc.ended = 0;
    rpc_fixture_hang_up(&scene->rpc);
    rpc_fixture_serve_with(&scene->rpc, is_server ? &server : NULL);
    rpc_fixture_redial(&scene->rpc, is_server ? NULL : &options);
}

#define SENT(method) "a:start(" method ") b:start(" method ") a:send b:send a:attempt1 b:attempt1 "
#define ANSWERED     "b:receive a:receive b:ended0 a:ended0 b:end(0,) a:end(0,) "
#define SERVED                                                                                     \
    "a:start(Unary) b:start(Unary) b:receive a:receive a:send b:send b:end(0,) a:end(0,) "

static void calls_are_seen_in_and_out(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *name;
        bool is_server;
        const char *method, *request;
        const char *a_adds, *b_adds;
        enum muster_rc b_refusal, rc;
        const char *text, *book;
        const char *initial; /* metadata of the answer */
        unsigned started;
    } rows[] = {
        {"a client sees all", false, "Unary", "hello", .started = 1,
         .book = SENT("Unary") ANSWERED},
        {"a server sees all", true, "Unary", "hello", .started = 1, .book = SERVED},
        {"a server sees the status that it sent", true, "Fail", "5 no such thing", .started = 1,
         .rc = MUSTER_NOT_FOUND, .text = "no such thing",
         .book = "a:start(Fail) b:start(Fail) b:receive a:receive b:end(5,) a:end(5,) "},
        {"a client sees status and text", false, "Fail", "5 no such thing", .started = 1,
         .rc = MUSTER_NOT_FOUND, .text = "no such thing",
         .book = SENT("Fail") "b:ended5 a:ended5 b:end(5,no such thing) a:end(5,no such thing) "},
        {"a client adds metadata", false, "Metadata", "x", "one", "two", .started = 1,
         .initial = "x-added=one;x-added=two;", .book = SENT("Metadata") ANSWERED},
        {"a server adds metadata to its answer", true, "Unary", "x", "one", .started = 1,
         .initial = "x-added=one;", .book = SERVED},
        {"a call that the server refuses never reaches its method", true, "Unary", "x",
         .b_refusal = MUSTER_UNAUTHENTICATED, .rc = MUSTER_UNAUTHENTICATED, .text = "not for you",
         .book = "a:start(Unary) b:start(Unary) a:end(16,not for you) "},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rpc_probe probe;

        scene->a.adds = rows[i].a_adds;
        scene->b.adds = rows[i].b_adds;
        scene->b.refusal = rows[i].b_refusal;
        scene->a.trailing[0] = '\0';
        scene_watch(scene, rows[i].is_server);
        probe = rpc_fixture_ask(&scene->rpc, rows[i].method, rows[i].request);
        rpc_fixture_stop_serving(&scene->rpc, MUSTER_NS_PER_S);
        fail_if(probe.rc != rows[i].rc || !probe.call.is_answered, "%s: rc %d", rows[i].name,
                probe.rc);
        fail_if(strcmp(probe.text, rows[i].text != NULL ? rows[i].text : "") != 0, "%s: %s",
                rows[i].name, probe.text);
        fail_if(strcmp(scene->book, rows[i].book) != 0, "%s: %s", rows[i].name, scene->book);
        fail_if(strcmp(probe.initial, rows[i].initial != NULL ? rows[i].initial : "") != 0,
                "%s: %s", rows[i].name, probe.initial);
        fail_if(rows[i].b_adds != NULL && strcmp(scene->a.trailing, "x-added") != 0, "%s: %s",
                rows[i].name, scene->a.trailing);
        fail_if(scene->rpc.started != rows[i].started || scene->rpc.ended != rows[i].started,
                "%s: %u started", rows[i].name, scene->rpc.started);
    }
}

static void sizes_and_times_are_told(void **state)
{
    for (unsigned is_server = 0; is_server < 2; is_server++) {
        struct scene *scene = *state;

        scene->a.bytes_sent = scene->a.wire_sent = scene->b.bytes_received = 0;
        scene->b.wire_received = scene->a.duration_ns = 0;
        scene_watch(scene, is_server > 0);
        (void)rpc_fixture_ask(&scene->rpc, "Unary", "hello");
        rpc_fixture_stop_serving(&scene->rpc, MUSTER_NS_PER_S);

        assert_int_equal(scene->a.bytes_sent, 5);
        assert_int_equal(scene->a.wire_sent, 5);
        assert_int_equal(scene->b.bytes_received, 5);
        assert_int_equal(scene->b.wire_received, 5);
        assert_true(is_server > 0 || scene->a.duration_ns > 0);
    }
}

static void compressed_messages_have_two_sizes(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_call_options options = {.method = "/test.Echo/Sink",
                                          .deadline_ns = UINT64_MAX,
                                          .compression = MUSTER_COMPRESSION_GZIP};
    char text[2001];

    scene_watch(scene, false);
    memset(text, 'z', 2000);
    text[2000] = '\0';
    rpc_probe_ask_with(&probe, &scene->rpc, &options, text);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(scene->a.bytes_sent, 2000);
    assert_in_range(scene->a.wire_sent, 1, 200);
}

static void metadata_of_the_request_is_seen(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    const struct muster_metadata_entry entry = {"x-asked", "1", 1};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .metadata = {&entry, 1}};

    scene_watch(scene, true);
    rpc_probe_ask_with(&probe, &scene->rpc, &options, "x");

    assert_non_null(strstr(scene->book, "a:asked b:start(Unary) b:asked "));
}

static void a_refused_call_is_not_sent(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->b.refusal = MUSTER_PERMISSION_DENIED;
    scene_watch(scene, false);
    rpc_probe_begin(&probe, &scene->rpc, "Unary");
    assert_int_equal(probe.done, 0);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(probe.text, "not for you");
    assert_true(probe.call.is_unsent);
    assert_int_equal(scene->rpc.started, 0);
    assert_string_equal(scene->book, "a:start(Unary) b:start(Unary) a:end(7,not for you) ");
}

static void a_cancelled_call_ends_once(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_watch(scene, false);
    rpc_probe_begin(&probe, &scene->rpc, "Hang");
    rpc_probe_cancel(&probe, &scene->rpc);

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
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest interceptors[] = {
        CASE(calls_are_seen_in_and_out),
        CASE(sizes_and_times_are_told),
        CASE(compressed_messages_have_two_sizes),
        CASE(metadata_of_the_request_is_seen),
        CASE(a_refused_call_is_not_sent),
        CASE(a_cancelled_call_ends_once),
        CASE(a_chain_has_a_bound),
    };

    return cmocka_run_group_tests(interceptors, NULL, NULL);
}
