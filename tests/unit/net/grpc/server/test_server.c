/* The gRPC server before a client that is played by hand, on a virtual clock. */
#include "h2_stage.h"
#include "rpc_stand.h"
#include "virtual_loop.h"

#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#define PATH "/test.Echo/Hang"

struct fixture {
    struct h2_stage stage;
    struct virtual_loop loop;
    struct muster_loop *real_loop;
    struct muster_rpc_server *server;
    struct muster_rpc *rpc;
    unsigned started, messages, ended;
    bool refuses_place;
    uint64_t deadline_ns;
    enum muster_rc end_rc;
};

static void on_start(struct muster_rpc *rpc)
{
    struct fixture *fixture = muster_rpc_service(rpc);

    fixture->rpc = rpc;
    fixture->started++;
    fixture->deadline_ns = muster_rpc_deadline_ns(rpc);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    (void)message;
    ((struct fixture *)muster_rpc_service(rpc))->messages++;
}

static void *on_place(struct muster_rpc *rpc, size_t bytes)
{
    (void)bytes;
    if (((struct fixture *)muster_rpc_service(rpc))->refuses_place)
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no room");
    return NULL;
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct fixture *fixture = muster_rpc_service(rpc);

    fixture->ended++;
    fixture->end_rc = rc;
}

static const struct muster_rpc_method hang = {.path = PATH,
                                              .on_start = on_start,
                                              .on_place = on_place,
                                              .on_message = on_message,
                                              .on_end = on_end};

static void on_closed(struct muster_rpc_server *server)
{
    ((struct fixture *)muster_rpc_server_data(server))->stage.is_gone = true;
}

static void feed_frame(struct fixture *fixture, uint8_t type, uint8_t flags, uint32_t stream,
                       const void *payload, size_t bytes)
{
    h2_stage_feed_frame(&fixture->stage, type, flags, stream, payload, bytes);
    virtual_loop_advance(&fixture->loop, 0);
}

static int set_up_with(void **state, const struct muster_rpc_server_options *options)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct muster_env *env = &fixture->stage.test.env;

    h2_stage_init(&fixture->stage);
    virtual_loop_init(&fixture->loop);
    fixture->real_loop = env->loop;
    env->loop = &fixture->loop.loop;
    assert_int_equal(muster_rpc_server_open(env, options, &fixture->server), MUSTER_OK);
    muster_rpc_server_set_data(fixture->server, fixture);
    assert_int_equal(muster_rpc_server_add(fixture->server, &hang, 1, fixture), MUSTER_OK);
    assert_int_equal(muster_rpc_server_attach(fixture->server, &fixture->stage.played.stream),
                     MUSTER_OK);
    virtual_loop_advance(&fixture->loop, 0);
    h2_stage_feed(&fixture->stage, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    feed_frame(fixture, FRAME_SETTINGS, 0, 0, NULL, 0);
    *state = fixture;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, NULL);
}

/* A connection's calls may hold next to nothing. */
static int set_up_scarce(void **state)
{
    const struct muster_rpc_server_options options = {.connection_memory_max_bytes = 1};

    return set_up_with(state, &options);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_rpc_server_close(fixture->server, fixture->loop.now_ns, on_closed);
    virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_S);
    fixture->stage.test.env.loop = fixture->real_loop;
    h2_stage_fini(&fixture->stage);
    free(fixture);
    return 0;
}

static void feed_typed(struct fixture *fixture, const char *type, const char *timeout)
{
    uint8_t block[256] = {0x83, 0x86}; /* POST, http */
    size_t at = 2;

    at += rpc_raw_header_put(block + at, ":path", PATH);
    at += rpc_raw_header_put(block + at, ":authority", "x");
    at += rpc_raw_header_put(block + at, "content-type", type);
    at += rpc_raw_header_put(block + at, "te", "trailers");
    if (timeout != NULL)
        at += rpc_raw_header_put(block + at, "grpc-timeout", timeout);
    feed_frame(fixture, FRAME_HEADERS, FLAG_END_HEADERS, 1, block, at);
}

static void feed_call(struct fixture *fixture, const char *timeout)
{
    feed_typed(fixture, "application/grpc", timeout);
}

/* The client does not reset it. */
static void a_call_ends_at_its_deadline_whatever_the_client_does(void **state)
{
    struct fixture *fixture = *state;

    feed_call(fixture, "10m");
    assert_int_equal(fixture->started, 1);
    assert_true(fixture->deadline_ns == fixture->loop.now_ns + 10 * MUSTER_NS_PER_MS);
    virtual_loop_advance(&fixture->loop, 10 * MUSTER_NS_PER_MS - 1);
    assert_int_equal(fixture->ended, 0);
    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 0));
    virtual_loop_advance(&fixture->loop, 1);

    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->end_rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 0));
}

static void a_call_without_a_deadline_may_take_for_ever(void **state)
{
    struct fixture *fixture = *state;

    feed_call(fixture, NULL);
    assert_true(fixture->deadline_ns == UINT64_MAX);
    virtual_loop_advance(&fixture->loop, 3600 * MUSTER_NS_PER_S);

    assert_int_equal(fixture->ended, 0);
}

static void a_client_that_resets_a_call_ends_it(void **state)
{
    static const uint8_t cancel[4] = {0, 0, 0, MUSTER_H2_CANCEL};
    struct fixture *fixture = *state;

    feed_call(fixture, "10S");
    feed_frame(fixture, FRAME_RST, 0, 1, cancel, sizeof(cancel));

    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->end_rc, MUSTER_CANCELLED);
}

static void feed_ping(struct fixture *fixture, uint64_t then_ns)
{
    feed_frame(fixture, FRAME_PING, 0, 0, "12345678", 8);
    virtual_loop_advance(&fixture->loop, then_ns);
}

static void a_client_that_pings_too_often_is_told_to_calm_down(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < 4; i++) {
        assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_GOAWAY, 0));
        feed_ping(fixture, MUSTER_NS_PER_MS);
    }

    assert_int_equal(h2_stage_goaway_code(&fixture->stage), MUSTER_H2_ENHANCE_YOUR_CALM);
}

static void a_client_that_pings_seldom_stays(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < 8; i++) {
        feed_ping(fixture, 6 * MUSTER_NS_PER_S);
    }

    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_GOAWAY, 0));
}

/* grpc-go measures bandwidth so: a ping for each piece of an answer. */
static void pings_between_pieces_of_an_answer_are_forgiven(void **state)
{
    static const uint8_t more[4] = {0, 0, 0, 100};
    static uint8_t answer[100000];
    struct fixture *fixture = *state;

    feed_call(fixture, NULL);
    assert_int_equal(muster_rpc_send(fixture->rpc, answer, sizeof(answer)), MUSTER_OK);
    virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_MS);
    for (unsigned i = 0; i < 20; i++) {
        h2_stage_feed_frame(&fixture->stage, FRAME_WINDOW, 0, 0, more, sizeof(more));
        h2_stage_feed_frame(&fixture->stage, FRAME_WINDOW, 0, 1, more, sizeof(more));
        virtual_loop_advance(&fixture->loop, MUSTER_NS_PER_MS);
        feed_ping(fixture, MUSTER_NS_PER_MS);
    }

    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_GOAWAY, 0));
    for (unsigned i = 0; i < 4; i++) /* nothing is sent any more */
        feed_ping(fixture, MUSTER_NS_PER_MS);
    assert_int_equal(h2_stage_goaway_code(&fixture->stage), MUSTER_H2_ENHANCE_YOUR_CALM);
}

static const uint8_t get_block[] = {0x82, 0x86, 0x84, 0x41, 1, 'x'}; /* GET / of http://x */

static void the_page_is_sent_when_the_request_has_ended(void **state)
{
    struct fixture *fixture = *state;

    feed_frame(fixture, FRAME_HEADERS, FLAG_END_HEADERS, 1, get_block, sizeof(get_block));
    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 0));
    feed_frame(fixture, FRAME_DATA, FLAG_END_STREAM, 1, NULL, 0);

    assert_non_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 0));
    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_RST, 0));
}

static void answer_page(struct muster_rpc_page *page, struct muster_rpc_page_answer *answer)
{
    assert_int_equal(answer->status, 200);
    answer->status = *(int *)page->data;
}

static void a_page_has_the_status_that_its_owner_gives_it(void **state)
{
    static const uint8_t block[] = {0x82, 0x86, 0x84, 0x41, 1, 'x'}; /* GET / of http://x */
    static const struct {
        int status;
        uint8_t indexed; /* RFC 7541, appendix A; 0: not in the table */
    } rows[] = {{200, 0x88}, {500, 0x8e}, {404, 0x8e}, {503, 0}};
    struct fixture *fixture = *state;
    int status;
    struct muster_rpc_page page = {.data = &status, .path = "/", .on_request = answer_page};

    muster_rpc_server_add_page(fixture->server, &page);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint8_t *frame;

        status = rows[i].status;
        h2_stage_feed_frame(&fixture->stage, FRAME_HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM,
                            1 + 2 * i, block, sizeof(block));
        virtual_loop_advance(&fixture->loop, 0);
        frame = h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, i);
        assert_non_null(frame);
        if (rows[i].indexed != 0)
            assert_int_equal(frame[9], rows[i].indexed);
        else
            assert_int_equal(frame[9] & 0x80, 0); /* a literal with the name of :status */
    }
}

/* The answer of the abort is still queued, for the client does not read, when the request ends. */
static void the_page_is_not_sent_when_its_request_was_aborted(void **state)
{
    struct fixture *fixture = *state;

    fixture->stage.played.is_stuck = true;
    feed_frame(fixture, FRAME_PING, 0, 0, "12345678", 8);
    h2_stage_feed_frame(&fixture->stage, FRAME_HEADERS, FLAG_END_HEADERS, 1, get_block,
                        sizeof(get_block));
    feed_frame(fixture, FRAME_DATA, 0, 1, "x", 1);
    feed_frame(fixture, FRAME_DATA, FLAG_END_STREAM, 1, NULL, 0);
    fixture->stage.played.is_stuck = false;
    played_stream_release(&fixture->stage.played);
    virtual_loop_advance(&fixture->loop, 0);

    assert_non_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 0)); /* trailers only */
    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 1));
    assert_null(h2_stage_sent_frame(&fixture->stage, FRAME_GOAWAY, 0));
}

static void a_message_for_which_there_is_no_place_is_not_shown(void **state)
{
    struct fixture *fixture = *state;

    fixture->refuses_place = true;
    feed_call(fixture, NULL);
    feed_frame(fixture, FRAME_DATA, 0, 1, "\0\0\0\0\1x", 6);

    assert_int_equal(fixture->messages, 0);
    assert_int_equal(fixture->ended, 1);
    assert_int_equal(fixture->end_rc, MUSTER_OK);
}

static void messages_in_another_codec_are_not_taken(void **state)
{
    struct fixture *fixture = *state;

    feed_typed(fixture, "application/grpc+json", NULL);

    assert_int_equal(fixture->started, 0);
    assert_non_null(h2_stage_sent_frame(&fixture->stage, FRAME_HEADERS, 0)); /* trailers only */
}

static void messages_in_protobuf_may_be_called_so(void **state)
{
    struct fixture *fixture = *state;

    feed_typed(fixture, "application/grpc+proto;charset=x", NULL);

    assert_int_equal(fixture->started, 1);
}

static void on_closing_stream_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    assert_null(closed);
    *(bool *)stream->data = true;
}

static void on_page(struct muster_rpc_page *page, struct muster_rpc_page_answer *answer)
{
    (void)page;
    (void)answer;
}

/* It says so too when it has pages, and would look at the first bytes. */
static void a_server_that_closes_takes_no_stream(void **state)
{
    static const struct muster_stream_ops ops = {.close = on_closing_stream_close};
    struct fixture *fixture = *state;

    for (unsigned has_page = 0; has_page < 2; has_page++) {
        bool is_closed = false;
        struct muster_stream stream = {.ops = &ops, .data = &is_closed};
        struct muster_rpc_page page = {.path = "/health", .on_request = on_page};
        struct muster_rpc_server *server = NULL;

        assert_int_equal(muster_rpc_server_open(&fixture->stage.test.env, NULL, &server),
                         MUSTER_OK);
        if (has_page > 0)
            muster_rpc_server_add_page(server, &page);
        muster_rpc_server_close(server, 0, NULL);
        assert_int_equal(muster_rpc_server_attach(server, &stream), MUSTER_FAILED_PRECONDITION);

        assert_true(is_closed);
        virtual_loop_advance(&fixture->loop, 0);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest server[] = {
        CASE(a_call_ends_at_its_deadline_whatever_the_client_does),
        CASE(a_call_without_a_deadline_may_take_for_ever),
        CASE(a_client_that_resets_a_call_ends_it),
        CASE(a_client_that_pings_too_often_is_told_to_calm_down),
        CASE(a_client_that_pings_seldom_stays),
        CASE(pings_between_pieces_of_an_answer_are_forgiven),
        CASE(the_page_is_sent_when_the_request_has_ended),
        CASE(a_page_has_the_status_that_its_owner_gives_it),
        cmocka_unit_test_setup_teardown(the_page_is_not_sent_when_its_request_was_aborted,
                                        set_up_scarce, tear_down),
        CASE(a_message_for_which_there_is_no_place_is_not_shown),
        CASE(messages_in_another_codec_are_not_taken),
        CASE(messages_in_protobuf_may_be_called_so),
        CASE(a_server_that_closes_takes_no_stream),
    };

    return cmocka_run_group_tests(server, NULL, NULL);
}
