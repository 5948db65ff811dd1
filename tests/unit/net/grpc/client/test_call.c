/* The client's call before a server that breaks the contract, refuses, resets and answers as plain
 * HTTP. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#include "assertion_count.h"
#include "h2_stage.h"

#define STREAMS_MAX 32

/* How the server treats a request. */
struct script {
    unsigned refuse_count;              /* first streams are refused unseen */
    uint32_t reset_code;                /* != 0: reset instead of an answer */
    const char *status;                 /* NULL: 200 */
    const char *content_type;           /* NULL: gRPC's */
    const char *head_name, *head_value; /* one more header */
    const char *body;
    size_t body_bytes;
    const char *grpc_status; /* NULL: END_STREAM on the body */
    bool is_trailers_only;
    bool goes_away; /* GOAWAY with the answer */
};

struct world {
    struct rpc_fixture rpc;
    struct muster_listener *listener;
    struct muster_h2_events events;
    struct muster_h2_session *sessions[8];
    unsigned session_count, sessions_gone;
    struct muster_h2_stream streams[STREAMS_MAX];
    unsigned begun, seen, closes;
    size_t data_bytes;
    struct script script;
};

static struct world *world_of(const struct muster_h2_session *session)
{
    return muster_h2_session_data(session);
}

static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    struct world *world = world_of(session);

    assert_true(world->begun < STREAMS_MAX);
    if (world->seen++ < world->script.refuse_count)
        return NULL;
    muster_h2_stream_init(&world->streams[world->begun], world, 0);
    return &world->streams[world->begun++];
}

static void on_data(struct muster_h2_stream *stream, const void *bytes, size_t count, bool is_end)
{
    (void)bytes;
    (void)is_end;
    ((struct world *)stream->data)->data_bytes += count;
    muster_h2_stream_consume(stream, count);
}

static struct muster_h2_header header_of(const char *name, const char *value)
{
    return (struct muster_h2_header){.name = name,
                                     .value = value,
                                     .name_bytes = (uint16_t)strlen(name),
                                     .value_bytes = (uint32_t)strlen(value)};
}

static void on_end(struct muster_h2_stream *stream)
{
    struct world *world = stream->data;
    const struct script *script = &world->script;
    struct muster_h2_header headers[4];
    size_t count = 0;

    if (script->reset_code != 0) {
        muster_h2_stream_reset(stream, script->reset_code);
        return;
    }
    headers[count++] = header_of(":status", script->status != NULL ? script->status : "200");
    headers[count++] = header_of("content-type", script->content_type != NULL ? script->content_type
                                                                              : "application/grpc");
    if (script->head_name != NULL)
        headers[count++] = header_of(script->head_name, script->head_value);
    if (script->is_trailers_only && script->grpc_status != NULL)
        headers[count++] = header_of("grpc-status", script->grpc_status);
    muster_h2_stream_respond(stream, headers, count, script->is_trailers_only,
                             script->grpc_status != NULL);
    if (!script->is_trailers_only) {
        struct muster_h2_buffer *body =
            muster_h2_buffer_new(world->rpc.env->mem, script->body_bytes);

        if (script->body_bytes > 0)
            memcpy(body->bytes, script->body, script->body_bytes);
        muster_h2_stream_send(stream, body);
        muster_h2_stream_end(stream);
    }
    if (script->goes_away)
        muster_h2_session_drain(stream->session, "");
}

static void on_trailers(struct muster_h2_stream *stream)
{
    const struct script *script = &((struct world *)stream->data)->script;
    struct muster_h2_header status = header_of("grpc-status", script->grpc_status);

    muster_h2_stream_submit_trailers(stream, &status, 1);
}

static void on_close(struct muster_h2_stream *stream, uint32_t code)
{
    (void)code;
    ((struct world *)stream->data)->closes++;
    muster_h2_stream_fini(stream);
}

static void on_gone(struct muster_h2_session *session)
{
    world_of(session)->sessions_gone++;
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct world *world = world_of(session);

    (void)error;
    for (unsigned i = 0; i < world->session_count; i++) {
        if (world->sessions[i] == session)
            world->sessions[i] = NULL;
    }
    muster_h2_session_close(session, on_gone);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    static const struct muster_h2_options options = {.is_server = true,
                                                     .stream_window_bytes = 65535,
                                                     .connection_window_bytes = 65535,
                                                     .concurrent_streams_max = 100,
                                                     .header_list_max_bytes = 16384,
                                                     .frame_max_bytes = 16384};
    struct world *world = listener->data;

    world->events = h2_stage_deaf_events;
    world->events.on_begin = on_begin;
    world->events.on_data = on_data;
    world->events.on_end = on_end;
    world->events.on_trailers = on_trailers;
    world->events.on_close = on_close;
    world->events.on_down = on_down;
    assert_true(world->session_count < 8);
    assert_int_equal(muster_h2_session_open(world->rpc.env, stream, &options, &world->events, world,
                                            &world->sessions[world->session_count]),
                     MUSTER_OK);
    world->session_count++;
}

static int set_up(void **state)
{
    static const struct muster_channel_options options = {.backoff_base_ns = MUSTER_NS_PER_MS};
    struct muster_address address;
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct world *world = rpc_scene_open(state, sizeof(*world), NULL, NULL);

    rpc_fixture_hang_up(&world->rpc);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_listener_open(world->rpc.env->net, &address, NULL, on_accept, world,
                                          &world->listener, NULL),
                     MUSTER_OK);
    rpc_fixture_dial(&world->rpc,
                     muster_address_format(muster_listener_address(world->listener), target),
                     &options);
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    rpc_fixture_hang_up(&world->rpc);
    for (unsigned i = 0; i < world->session_count; i++) {
        if (world->sessions[i] != NULL)
            muster_h2_session_close(world->sessions[i], on_gone);
    }
    muster_listener_close(world->listener, NULL);
    test_env_turn(world->rpc.env, 8);
    assert_int_equal(world->sessions_gone, world->session_count);
    assert_int_equal(world->closes, world->begun);
    rpc_fixture_close(&world->rpc);
    free(world);
    return 0;
}

static struct rpc_probe world_ask(struct world *world, struct script script)
{
    struct rpc_probe probe = {.done = 0};

    world->script = script;
    rpc_probe_ask(&probe, &world->rpc, "Any", "request");
    return probe;
}

#define HELLO .body = "\0\0\0\0\5hello", .body_bytes = 10

static void each_answer_becomes_a_status(void **state)
{
#define OK(...)                                                                                    \
    {                                                                                              \
        __VA_ARGS__, .grpc_status = "0"                                                            \
    }
#define HTML(code)                                                                                 \
    {                                                                                              \
        .status = (code), .content_type = "text/html", .body = "<html>", .body_bytes = 6           \
    }
    static const struct {
        const char *name;
        struct script script;
        enum muster_rc rc;
        const char *text, *messages; /* text: a part of it */
        const char *trailing;
        bool has_no_headers;
    } rows[] = {
        {"a proper answer", OK(HELLO), .messages = "hello"},
        {"no status", {HELLO}, MUSTER_UNKNOWN, .messages = "hello"},
        {"a status out of range", {HELLO, .grpc_status = "77"}, .rc = MUSTER_UNKNOWN},
        {"another content type", OK(.content_type = "text/html", HELLO), .rc = MUSTER_UNKNOWN},
        {"trailers only",
         {.head_name = "x-why",
          .head_value = "because",
          .grpc_status = "9",
          .is_trailers_only = true},
         MUSTER_FAILED_PRECONDITION,
         .trailing = "x-why=because;",
         .has_no_headers = true},
        {"a message that is cut off", OK(.body = "\0\0\0\0\5hel", .body_bytes = 8), MUSTER_INTERNAL,
         .messages = ""},
        {"a compressed message", OK(.body = "\1\0\0\0\1x", .body_bytes = 6), MUSTER_INTERNAL,
         .text = "without grpc-encoding"},
        {"malformed binary metadata", OK(.head_name = "x-bin", .head_value = "***", HELLO),
         .rc = MUSTER_INTERNAL},
        {"an encoding that is unknown",
         OK(.head_name = "grpc-encoding", .head_value = "zstd", .body = "\1\0\0\0\5hello",
            .body_bytes = 10),
         MUSTER_INTERNAL, .text = "response has an unknown grpc-encoding"},
        {"an unknown encoding beside a message that is not compressed",
         OK(.head_name = "grpc-encoding", .head_value = "zstd", .body = "\0\177\377\377\377hello",
            .body_bytes = 10),
         MUSTER_RESOURCE_EXHAUSTED, .text = "is larger than"},
        {"a reset", {.reset_code = MUSTER_H2_INTERNAL_ERROR}, .rc = MUSTER_INTERNAL},
        {"a reset that cancels", {.reset_code = MUSTER_H2_CANCEL}, .rc = MUSTER_CANCELLED},
        {"a reset to calm down",
         {.reset_code = MUSTER_H2_ENHANCE_YOUR_CALM},
         .rc = MUSTER_RESOURCE_EXHAUSTED},
        {"a reset for security",
         {.reset_code = MUSTER_H2_INADEQUATE_SECURITY},
         .rc = MUSTER_PERMISSION_DENIED},
        {"HTTP 503", HTML("503"), MUSTER_UNAVAILABLE, .text = "503", .messages = ""},
        {"HTTP 404", HTML("404"), MUSTER_UNIMPLEMENTED, .text = "404", .messages = ""},
        {"HTTP 401", HTML("401"), MUSTER_UNAUTHENTICATED, .text = "401", .messages = ""},
        {"HTTP 500", HTML("500"), MUSTER_UNKNOWN, .text = "500", .messages = ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rpc_probe probe = world_ask(*state, rows[i].script);

        fail_if(probe.rc != rows[i].rc || probe.done != 1, "%s: rc %d", rows[i].name, probe.rc);
        fail_if(rows[i].text != NULL && strstr(probe.text, rows[i].text) == NULL, "%s: %s",
                rows[i].name, probe.text);
        fail_if(rows[i].messages != NULL && strcmp(probe.messages, rows[i].messages) != 0, "%s: %s",
                rows[i].name, probe.messages);
        fail_if(rows[i].trailing != NULL && strcmp(probe.trailing, rows[i].trailing) != 0, "%s: %s",
                rows[i].name, probe.trailing);
        fail_if(rows[i].has_no_headers && (probe.headers > 0 || probe.initial[0] != '\0'),
                "%s: %u headers, %s", rows[i].name, probe.headers, probe.initial);
    }
}

static void a_stream_refused_for_ever_is_unavailable(void **state)
{
    struct world *world = *state;

    assert_int_equal(world_ask(world, (struct script){.refuse_count = 100}).rc, MUSTER_UNAVAILABLE);
    assert_int_equal(world->seen, 5);
}

static void a_refused_stream_is_sent_again_with_its_message(void **state)
{
    struct world *world = *state;
    struct rpc_probe probe =
        world_ask(world, (struct script){.refuse_count = 3, HELLO, .grpc_status = "0"});

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(world->seen, 4);
    assert_int_equal(world->data_bytes, 5 + strlen("request"));
}

static void note_attempt_end(struct muster_intercepted *call, enum muster_rc rc)
{
    unsigned *ended = call->interceptor->data;

    assert_int_equal(rc, *ended < 3 ? MUSTER_UNAVAILABLE : MUSTER_OK);
    ++*ended;
}

static void interceptors_see_every_attempt_end(void **state)
{
    struct world *world = *state;
    unsigned ended = 0;
    const struct muster_interceptor interceptor = {.data = &ended,
                                                   .on_attempt_end = note_attempt_end};
    const struct muster_interceptor *const chain[] = {&interceptor};
    const struct muster_channel_options options = {.interceptors = chain, .interceptor_count = 1};
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct rpc_probe probe;

    rpc_fixture_hang_up(&world->rpc);
    rpc_fixture_dial(&world->rpc,
                     muster_address_format(muster_listener_address(world->listener), target),
                     &options);
    probe = world_ask(world, (struct script){.refuse_count = 3, HELLO, .grpc_status = "0"});

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(ended, 4);
}

static void a_message_too_large_to_keep_is_not_sent_again(void **state)
{
    struct world *world = *state;
    struct rpc_probe probe = {.done = 0};
    char *block = calloc(1, 300000);

    world->script = (struct script){.reset_code = MUSTER_H2_REFUSED_STREAM};
    rpc_probe_begin(&probe, &world->rpc, "Any");
    assert_int_equal(muster_call_send(&probe.call, block, 300000), MUSTER_OK);
    rpc_probe_end(&probe, &world->rpc);
    free(block);

    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(world->seen, 1);
}

static void response_headers_beyond_the_limit_exhaust_the_client(void **state)
{
    char *value = malloc(20001);
    struct rpc_probe probe;

    memset(value, 'v', 20000);
    value[20000] = '\0';
    probe = world_ask(
        *state,
        (struct script){.head_name = "x-long", .head_value = value, HELLO, .grpc_status = "0"});
    free(value);

    assert_int_equal(probe.rc, MUSTER_RESOURCE_EXHAUSTED);
}

static void calls_move_to_a_new_connection_after_goaway(void **state)
{
    struct world *world = *state;

    for (unsigned i = 1; i <= 4; i++) {
        struct rpc_probe probe =
            world_ask(world, (struct script){HELLO, .grpc_status = "0", .goes_away = true});

        assert_int_equal(probe.rc, MUSTER_OK);
        test_env_turn(world->rpc.env, 20);
    }
    assert_true(world->session_count > 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest grpc_call[] = {
        CASE(each_answer_becomes_a_status),
        CASE(a_stream_refused_for_ever_is_unavailable),
        CASE(a_refused_stream_is_sent_again_with_its_message),
        CASE(interceptors_see_every_attempt_end),
        CASE(a_message_too_large_to_keep_is_not_sent_again),
        CASE(response_headers_beyond_the_limit_exhaust_the_client),
        CASE(calls_move_to_a_new_connection_after_goaway),
    };

    return cmocka_run_group_tests(grpc_call, NULL, NULL);
}
