/* The HTTP/2 session before a peer that breaks the rules or floods it. */
#include "h2_stage.h"

#include <string.h>

/* The connection is down, for that reason. */
static void check_down(struct h2_stage *stage, uint32_t code)
{
    h2_stage_turn(stage);
    assert_int_equal(stage->downs, 1);
    assert_int_equal(h2_stage_goaway_code(stage), code);
}

static void a_bad_preface_ends_the_connection(void **state)
{
    struct h2_stage *stage = *state;

    h2_stage_open(stage, true);
    h2_stage_feed(stage, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    h2_stage_turn(stage);

    assert_int_equal(stage->downs, 1);
}

static void data_beyond_the_window_is_an_error(void **state)
{
    static uint8_t block[65536];
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    for (unsigned i = 0; i < 17; i++)
        h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, block, sizeof(block));
    h2_stage_turn(stage);

    assert_int_equal(h2_stage_sent_frame(stage, FRAME_RST, 0)[12], MUSTER_H2_FLOW_CONTROL_ERROR);
    assert_true(stage->closes == 1);
}

static void a_stream_id_once_skipped_ends_the_connection(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 5, FLAG_END_STREAM);
    h2_stage_feed_request(stage, 3, FLAG_END_STREAM);
    check_down(stage, MUSTER_H2_PROTOCOL_ERROR);
}

static void trailers_of_a_reset_stream_are_harmless(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    muster_h2_stream_reset(&stage->streams[0], MUSTER_H2_CANCEL);
    h2_stage_turn(stage);
    h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, "late", 4);
    h2_stage_feed_request(stage, 3, FLAG_END_STREAM);
    h2_stage_turn(stage);

    assert_int_equal(stage->downs, 0);
    assert_int_equal(stage->begun, 2);
}

static void data_after_the_end_of_a_closed_stream_end_the_connection(void **state)
{
    static const struct muster_h2_header status = MUSTER_H2_STATIC(":status", "200");
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, FLAG_END_STREAM);
    muster_h2_stream_respond(&stage->streams[0], &status, 1, true, false);
    h2_stage_turn(stage);
    assert_int_equal(stage->closes, 1);
    h2_stage_feed_frame(stage, FRAME_DATA, FLAG_END_STREAM, 1, "late", 4);
    check_down(stage, MUSTER_H2_STREAM_CLOSED);
}

static void headers_after_a_reset_by_the_same_peer_end_the_connection(void **state)
{
    static const uint8_t cancel[4] = {0, 0, 0, MUSTER_H2_CANCEL};
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    h2_stage_feed_frame(stage, FRAME_RST, 0, 1, cancel, sizeof(cancel));
    h2_stage_feed_request(stage, 1, FLAG_END_STREAM);
    check_down(stage, MUSTER_H2_STREAM_CLOSED);
}

/* Opens streams and sends such a frame on each, until the connection goes. */
static void flood_with(struct h2_stage *stage, uint8_t type, const uint8_t payload[4])
{
    for (uint32_t id = 1; id < 2 * 3000 && stage->downs == 0; id += 2) {
        h2_stage_feed_request(stage, id, 0);
        h2_stage_feed_frame(stage, type, 0, id, payload, 4);
        if (id % 64 == 1)
            h2_stage_turn(stage);
    }
    h2_stage_turn(stage);

    assert_int_equal(stage->downs, 1);
    assert_true(stage->begun <= 1200);
}

static void rapid_resets_end_the_connection(void **state)
{
    static const uint8_t cancel[4] = {0, 0, 0, MUSTER_H2_CANCEL};

    flood_with(h2_stage_greet(state), FRAME_RST, cancel);
}

static void stream_errors_that_the_peer_provokes_end_the_connection(void **state)
{
    static const uint8_t beyond[4] = {0x7f, 0xff, 0xff, 0xff}; /* a window above 2^31 */
    struct h2_stage *stage = h2_stage_greet(state);

    flood_with(stage, FRAME_WINDOW, beyond);
    assert_int_equal(h2_stage_goaway_code(stage), MUSTER_H2_ENHANCE_YOUR_CALM);
}

static void a_flood_of_empty_data_ends_the_connection(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_request(stage, 1, 0);
    for (unsigned i = 0; i < 1100 && stage->downs == 0; i++)
        h2_stage_feed_frame(stage, FRAME_DATA, 0, 1, NULL, 0);
    check_down(stage, MUSTER_H2_ENHANCE_YOUR_CALM);
}

static void a_flood_of_continuations_ends_the_connection(void **state)
{
    struct h2_stage *stage = h2_stage_greet(state);

    h2_stage_feed_frame(stage, FRAME_HEADERS, 0, 1, h2_stage_request_block,
                        sizeof(h2_stage_request_block));
    for (unsigned i = 0; i < 20; i++)
        h2_stage_feed_frame(stage, FRAME_CONT, 0, 1, NULL, 0);
    h2_stage_turn(stage);

    assert_int_equal(stage->downs, 1);
}

static void a_flood_of_settings_entries_ends_the_connection(void **state)
{
    static uint8_t entries[6 * 40];
    struct h2_stage *stage = h2_stage_greet(state);

    for (size_t i = 0; i < 40; i++)
        entries[6 * i + 1] = 0x5a;
    h2_stage_feed_frame(stage, FRAME_SETTINGS, 0, 0, entries, sizeof(entries));
    h2_stage_turn(stage);

    assert_int_equal(stage->downs, 1);
}

/* Literals "a: 16 bytes", 49 bytes of header list each. */
static size_t put_literals(uint8_t *out, unsigned count)
{
    static const uint8_t literal[20] = "\0\1a\x10vvvvvvvvvvvvvvvv";

    for (unsigned i = 0; i < count; i++)
        memcpy(out + i * sizeof(literal), literal, sizeof(literal));
    return count * sizeof(literal);
}

static void headers_beyond_the_limit_reset_their_stream_alone(void **state)
{
    static uint8_t block[12000];
    struct h2_stage *stage = h2_stage_greet(state);
    size_t at = sizeof(h2_stage_request_block);

    memcpy(block, h2_stage_request_block, at);
    at += put_literals(block + at, 300);
    h2_stage_feed_frame(stage, FRAME_HEADERS, FLAG_END_HEADERS, 1, block, at);
    h2_stage_feed_request(stage, 3, FLAG_END_STREAM);
    h2_stage_turn(stage);
    assert_int_equal(stage->over_limits, 0); /* 14,700 + 100 are below 16,384 */
    at += put_literals(block + at, 100);
    h2_stage_feed_frame(stage, FRAME_HEADERS, FLAG_END_HEADERS, 5, block, at);
    h2_stage_turn(stage);

    assert_int_equal(stage->over_limits, 1);
    assert_int_equal(h2_stage_sent_frame(stage, FRAME_RST, 0)[12], MUSTER_H2_ENHANCE_YOUR_CALM);
    assert_int_equal(stage->downs, 0);
}

static void any_cut_of_the_input_is_survived(void **state)
{
    static uint8_t input[512];
    struct h2_stage *stage = *state;
    size_t at = sizeof(H2_PREFACE) - 1;

    memcpy(input, H2_PREFACE, at);
    at += played_frame_put(input + at, FRAME_SETTINGS, 0, 0, NULL, 0);
    at += played_frame_put(input + at, FRAME_HEADERS, FLAG_END_HEADERS, 1, h2_stage_request_block,
                           sizeof(h2_stage_request_block));
    at += played_frame_put(input + at, FRAME_DATA, FLAG_END_STREAM, 1, "payload", 7);
    h2_stage_open(stage, true);
    for (size_t i = 0; i < at; i++)
        h2_stage_feed(stage, input + i, 1);

    assert_int_equal(stage->data_bytes, 7);
    assert_int_equal(stage->ends, 1);
}

static void any_flipped_bit_of_the_input_is_survived(void **state)
{
    static uint8_t input[512];
    static const uint8_t more[4] = {0, 1, 0, 0}, cancel[4] = {0, 0, 0, 8};
    struct h2_stage *stage = *state;
    size_t size = sizeof(H2_PREFACE) - 1;

    memcpy(input, H2_PREFACE, size);
    size += played_frame_put(input + size, FRAME_SETTINGS, 0, 0, "\0\4\0\1\0\0", 6);
    size += played_frame_put(input + size, FRAME_HEADERS, FLAG_END_HEADERS, 1,
                             h2_stage_request_block, sizeof(h2_stage_request_block));
    size += played_frame_put(input + size, FRAME_WINDOW, 0, 0, more, 4);
    size += played_frame_put(input + size, FRAME_DATA, FLAG_END_STREAM, 1, "payload", 7);
    size += played_frame_put(input + size, FRAME_HEADERS, FLAG_END_HEADERS, 3,
                             h2_stage_request_block, sizeof(h2_stage_request_block));
    size += played_frame_put(input + size, FRAME_PING, 0, 0, "12345678", 8);
    size += played_frame_put(input + size, FRAME_RST, 0, 3, cancel, 4);
    for (size_t bit = (sizeof(H2_PREFACE) - 1) * 8; bit < size * 8; bit++) {
        stage->begun = stage->closes = stage->downs = 0;
        stage->played.sent_bytes = 0;
        stage->is_gone = false;
        h2_stage_open(stage, true);
        input[bit / 8] ^= (uint8_t)(1u << bit % 8);
        h2_stage_feed(stage, input, size);
        input[bit / 8] ^= (uint8_t)(1u << bit % 8);
        h2_stage_turn(stage);
        if (stage->downs == 0)
            muster_h2_session_close(stage->session, h2_stage_on_gone);
        h2_stage_turn(stage);
        assert_true(stage->is_gone);
        assert_int_equal(stage->closes, stage->begun);
    }
    stage->downs = 1; /* nothing is left for the tear-down */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, h2_stage_set_up, h2_stage_tear_down)
    const struct CMUnitTest session[] = {
        CASE(a_bad_preface_ends_the_connection),
        CASE(data_beyond_the_window_is_an_error),
        CASE(a_stream_id_once_skipped_ends_the_connection),
        CASE(trailers_of_a_reset_stream_are_harmless),
        CASE(data_after_the_end_of_a_closed_stream_end_the_connection),
        CASE(headers_after_a_reset_by_the_same_peer_end_the_connection),
        CASE(rapid_resets_end_the_connection),
        CASE(stream_errors_that_the_peer_provokes_end_the_connection),
        CASE(a_flood_of_empty_data_ends_the_connection),
        CASE(a_flood_of_continuations_ends_the_connection),
        CASE(a_flood_of_settings_entries_ends_the_connection),
        CASE(headers_beyond_the_limit_reset_their_stream_alone),
        CASE(any_cut_of_the_input_is_survived),
        CASE(any_flipped_bit_of_the_input_is_survived),
    };

    return cmocka_run_group_tests(session, NULL, NULL);
}
