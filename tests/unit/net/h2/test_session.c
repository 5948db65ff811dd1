/* The HTTP/2 session before a stream that is played by hand: order, windows, ends. */
#include "h2_stage.h"

#include <string.h>

static void settings_are_the_first_frame_sent(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    assert_int_equal(stage->played.sent[3], FRAME_SETTINGS);
    assert_int_equal(stage->settings, 1);
    assert_int_equal(stage->downs, 0);
}

static void a_client_sends_its_preface_first(void **state)
{
    struct h2_stage *stage = *state;

    h2_stage_open(stage, false);

    assert_memory_equal(stage->played.sent, H2_PREFACE, sizeof(H2_PREFACE) - 1);
}

static const struct muster_h2_header ok = MUSTER_H2_STATIC(":status", "200");

static void append_body(struct h2_stage *stage, unsigned stream, size_t bytes)
{
    struct muster_h2_buffer *body = muster_h2_buffer_new(stage->test.env.mem, bytes);

    memset(body->bytes, 'b', bytes);
    muster_h2_stream_send(&stage->streams[stream], body);
}

static void all_answers_of_a_turn_leave_in_one_write(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);
    unsigned writes = stage->played.writes;

    for (uint32_t i = 0; i < 20; i++)
        h2_stage_feed_request(stage, 1 + 2 * i, FLAG_END_STREAM);
    for (unsigned i = 0; i < 20; i++) {
        muster_h2_stream_respond(&stage->streams[i], &ok, 1, false, true);
        append_body(stage, i, 100);
        muster_h2_stream_end(&stage->streams[i]);
    }
    h2_stage_turn(stage);

    assert_int_equal(stage->played.writes, writes + 1);
    assert_int_equal(stage->closes, 20);
    assert_int_equal(stage->trailers, 20);
    assert_int_equal(stage->close_code, MUSTER_H2_NO_ERROR);
    assert_non_null(h2_stage_sent_frame(stage, FRAME_DATA, 19));
    assert_null(h2_stage_sent_frame(stage, FRAME_DATA, 20));
}

#define LONG_HEADERS 11 /* a status, and ten that take about 1 KiB each */

/* nghttp2 goes on from a DATA frame to the next frame without asking whether there is room for it:
 * here the copies of a body in small pieces nearly fill the output before its trailers come. */
static void long_trailers_do_not_need_room_behind_copied_data(void **state)
{
    static char value[1000];
    struct muster_h2_header headers[LONG_HEADERS] = {ok};
    struct h2_stage *stage = h2_stage_greet(state);
    const uint8_t *trailers;

    memset(value, '~', sizeof(value)); /* 13 bits in HPACK's code, so it goes out as it is */
    for (size_t i = 1; i < LONG_HEADERS; i++)
        headers[i] = (struct muster_h2_header){.name = "x",
                                               .value = value,
                                               .name_bytes = 1,
                                               .value_bytes = sizeof(value),
                                               .is_volatile = true};
    stage->trailing = headers + 1;
    stage->trailing_count = LONG_HEADERS - 1;
    h2_stage_feed_request(stage, 1, FLAG_END_STREAM);
    muster_h2_stream_respond(&stage->streams[0], headers, LONG_HEADERS, false, true);
    for (unsigned i = 0; i < 12; i++)
        append_body(stage, 0, MUSTER_H2_COPY_BYTES_MAX);
    muster_h2_stream_end(&stage->streams[0]);
    h2_stage_turn(stage);

    trailers = h2_stage_sent_frame(stage, FRAME_HEADERS, 1);
    assert_non_null(trailers);
    assert_int_equal(trailers[4], FLAG_END_HEADERS | FLAG_END_STREAM);
    assert_int_equal(trailers[9 + (trailers[1] << 8 | trailers[2]) - 1], '~');
    assert_int_equal(stage->closes, 1);
    assert_int_equal(stage->downs, 0);
}

static void a_body_waits_for_the_peers_window(void **state)
{
    static const uint8_t more[4] = {0, 1, 0, 0};
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    muster_h2_stream_respond(&stage->streams[0], &ok, 1, false, false);
    append_body(stage, 0, 100000);
    h2_stage_turn(stage);
    assert_int_equal(stage->streams[0].body.bytes, 100000 - 65535);
    assert_int_equal(stage->drained, 0);
    h2_stage_feed_frame(stage, FRAME_WINDOW, 0, 0, more, 4);
    h2_stage_feed_frame(stage, FRAME_WINDOW, 0, 1, more, 4);
    h2_stage_turn(stage);

    assert_int_equal(stage->streams[0].body.bytes, 0);
    assert_int_equal(stage->drained, 1);
}

static void an_early_answer_stops_the_request(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    muster_h2_stream_respond(&stage->streams[0], &ok, 1, true, false);
    h2_stage_turn(stage);

    assert_non_null(h2_stage_sent_frame(stage, FRAME_RST, 0));
    assert_int_equal(h2_stage_sent_frame(stage, FRAME_RST, 0)[12], MUSTER_H2_NO_ERROR);
    assert_int_equal(stage->closes, 1);
}

static void bytes_not_consumed_keep_the_window_shut(void **state)
{
    static uint8_t block[32768];
    struct h2_stage *stage = h2_stage_greet(state);
    unsigned stream_updates = 0;
    const uint8_t *frame;

    h2_stage_feed_request(stage, 1, 0);
    for (unsigned i = 0; i < 32; i++)
        h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, block, sizeof(block));
    h2_stage_turn(stage);
    assert_int_equal(stage->data_bytes, 1u << 20);
    for (unsigned n = 0; (frame = h2_stage_sent_frame(stage, FRAME_WINDOW, n)) != NULL; n++)
        stream_updates += frame[8] == 1;
    assert_int_equal(stream_updates, 0);
    muster_h2_stream_consume(&stage->streams[0], 1u << 20);
    h2_stage_turn(stage);

    for (unsigned n = 0; (frame = h2_stage_sent_frame(stage, FRAME_WINDOW, n)) != NULL; n++)
        stream_updates += frame[8] == 1;
    assert_true(stream_updates > 0);
}

static void after_a_large_piece_the_next_read_waits_a_little(void **state)
{
    static const uint8_t block[20000];
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, block, 1000);
    assert_non_null(stage->played.read);
    h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, block, 15000);
    h2_stage_turn(stage);
    h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, block, sizeof(block));
    assert_null(stage->played.read);

    test_env_turn(&stage->test.env, 256);
    assert_non_null(stage->played.read);
    assert_int_equal(stage->data_bytes, 36000);
}

static void a_ping_is_answered(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_frame(stage, FRAME_PING, 0, 0, "12345678", 8);
    h2_stage_turn(stage);

    assert_memory_equal(h2_stage_sent_frame(stage, FRAME_PING, 0) + 9, "12345678", 8);
}

static void a_cut_connection_closes_streams_then_goes_down(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);
    struct muster_stream_read *read;

    h2_stage_feed_request(stage, 1, 0);
    read = stage->played.read;
    stage->played.read = NULL;
    read->bytes_done = 0;
    read->is_eof = true;
    read->done(read, MUSTER_UNAVAILABLE);
    h2_stage_turn(stage);

    assert_int_equal(stage->close_code, MUSTER_H2_LOST);
    assert_string_equal(stage->down_text, "connection closed by peer");
}

static void send_requests(struct h2_stage *stage, unsigned count)
{
    static const struct muster_h2_header headers[] = {
        MUSTER_H2_STATIC(":method", "POST"), MUSTER_H2_STATIC(":scheme", "http"),
        MUSTER_H2_STATIC(":path", "/"), MUSTER_H2_STATIC(":authority", "x")};

    for (unsigned i = 0; i < count; i++) {
        struct muster_h2_stream *stream = &stage->streams[stage->begun];

        muster_h2_stream_init(stream, stage, 0);
        assert_int_equal(muster_h2_stream_request(stream, stage->session, headers, 4), MUSTER_OK);
        stage->begun++;
    }
}

static void streams_above_goaways_last_were_never_processed(void **state)
{
    static const uint8_t goaway[8] = {0, 0, 0, 1, 0, 0, 0, 0};
    struct h2_stage *stage = *state;

    h2_stage_open(stage, false);
    h2_stage_feed_frame(stage, FRAME_SETTINGS, 0, 0, NULL, 0);
    send_requests(stage, 2);
    h2_stage_turn(stage);
    h2_stage_feed_frame(stage, FRAME_GOAWAY, 0, 0, goaway, 8);
    h2_stage_turn(stage);
    assert_int_equal(stage->closes, 1);
    assert_int_equal(stage->close_code, MUSTER_H2_REFUSED_STREAM);
    send_requests(stage, 1);
    h2_stage_turn(stage);

    assert_int_equal(stage->closes, 2);
    assert_int_equal(stage->close_code, MUSTER_H2_REFUSED_STREAM);
    assert_int_equal(stage->downs, 0);
    assert_int_equal(stage->goaways, 1);
}

static void send_goaway(struct h2_stage *stage)
{
    stage->played.is_patient = true;
    h2_stage_feed_frame(stage, FRAME_GOAWAY, 0, 0, "\0\0\0\0\0\0\0", 8);
    h2_stage_turn(stage);
    assert_true(stage->played.is_shut);
    assert_int_equal(stage->downs, 0);
}

/* A close would answer it with a reset, which takes away what the peer has not read. */
static void what_comes_after_the_end_is_dropped_until_the_peer_ends(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);
    unsigned writes;

    send_goaway(stage);
    writes = stage->played.writes;
    h2_stage_feed_frame(stage, FRAME_PING, 0, 0, "12345678", 8);
    h2_stage_turn(stage);
    assert_int_equal(stage->downs, 0);
    assert_int_equal(stage->played.writes, writes);

    played_stream_feed_end(&stage->played);
    h2_stage_turn(stage);
    assert_int_equal(stage->downs, 1);
    assert_string_equal(stage->down_text, "connection closed by peer");
}

static void a_peer_that_does_not_end_but_sends_on_is_cut_off(void **state)
{
    static const uint8_t block[32768];
    struct h2_stage *stage = h2_stage_greet(state);
    uint64_t begin_ns = muster_loop_now_ns(stage->test.env.loop);
    unsigned sent = 0;

    send_goaway(stage);
    for (; stage->downs == 0 && sent < 100; sent++)
        h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, block, sizeof(block));
    assert_true(sent <= 9);
    if (muster_loop_now_ns(stage->test.env.loop) - begin_ns <
        MUSTER_NS_PER_S)        /* it may have taken too long */
        assert_true(sent >= 8); /* 256 KiB are taken */
    assert_string_equal(stage->down_text, "connection ended by GOAWAY");
}

static void a_request_cancelled_before_it_left_is_closed(void **state)
{
    struct h2_stage *stage = *state;

    h2_stage_open(stage, false);
    h2_stage_feed_frame(stage, FRAME_SETTINGS, 0, 0, NULL, 0);
    h2_stage_turn(stage);
    send_requests(stage, 1);
    muster_h2_stream_reset(&stage->streams[0], MUSTER_H2_CANCEL);
    h2_stage_turn(stage);

    assert_int_equal(stage->closes, 1);
    assert_null(h2_stage_sent_frame(stage, FRAME_HEADERS, 0));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, h2_stage_set_up, h2_stage_tear_down)
    const struct CMUnitTest session[] = {
        CASE(settings_are_the_first_frame_sent),
        CASE(a_client_sends_its_preface_first),
        CASE(all_answers_of_a_turn_leave_in_one_write),
        CASE(long_trailers_do_not_need_room_behind_copied_data),
        CASE(a_body_waits_for_the_peers_window),
        CASE(an_early_answer_stops_the_request),
        CASE(bytes_not_consumed_keep_the_window_shut),
        CASE(after_a_large_piece_the_next_read_waits_a_little),
        CASE(a_ping_is_answered),
        CASE(a_cut_connection_closes_streams_then_goes_down),
        CASE(streams_above_goaways_last_were_never_processed),
        CASE(what_comes_after_the_end_is_dropped_until_the_peer_ends),
        CASE(a_peer_that_does_not_end_but_sends_on_is_cut_off),
        CASE(a_request_cancelled_before_it_left_is_closed),
    };

    return cmocka_run_group_tests(session, NULL, NULL);
}
