/* Frames of a client on streams that it has ended or skipped. */
#include "played_stream.h"

#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/h2/watch.h"

#define PREFACE_BYTES (sizeof(H2_PREFACE) - 1)

/* The preface, then frames as a case puts them. */
struct bytes {
    uint8_t at[4096];
    size_t count;
};

static void frame_put(struct bytes *bytes, uint8_t type, uint8_t flags, uint32_t stream, size_t payload)
{
    static const uint8_t zeros[512];

    if (bytes->count == 0) {
        memcpy(bytes->at, H2_PREFACE, PREFACE_BYTES);
        bytes->count = PREFACE_BYTES;
    }
    bytes->count +=
        played_frame_put(bytes->at + bytes->count, type, flags, stream, zeros, payload);
}

/* The code, and whether it does not depend on how the bytes are cut. */
static uint32_t code_of(const struct bytes *bytes)
{
    struct muster_h2_watch whole, cut;
    uint32_t code = 0, cut_code = 0;
    size_t good, sum = 0;

    muster_h2_watch_init(&whole);
    muster_h2_watch_init(&cut);
    good = muster_h2_watch_feed(&whole, bytes->at, bytes->count, &code);
    while (sum < bytes->count && cut_code == 0)
        sum += muster_h2_watch_feed(&cut, bytes->at + sum, 1, &cut_code);
    assert_int_equal(cut_code, code);
    if (code == 0)
        assert_int_equal(good, bytes->count);
    else
        assert_true(good < bytes->count);
    if (code != 0) { /* a peer that goes on sending meets the same error */
        assert_int_equal(muster_h2_watch_feed(&whole, bytes->at, 1, &cut_code), 0);
        assert_int_equal(cut_code, code);
    }
    return code;
}

static void frames_of_open_streams_pass(void **state)
{
    struct bytes bytes = {.count = 0};

    (void)state;
    frame_put(&bytes, FRAME_SETTINGS, 0, 0, 0);
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS, 1, 20);
    frame_put(&bytes, FRAME_DATA, 0, 1, 300);
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 3, 20);
    frame_put(&bytes, FRAME_DATA, FLAG_END_STREAM, 1, 0);
    frame_put(&bytes, FRAME_WINDOW, 0, 1, 4);
    frame_put(&bytes, FRAME_RST, 0, 1, 4);
    frame_put(&bytes, FRAME_PING, 0, 0, 8);

    assert_int_equal(code_of(&bytes), MUSTER_H2_NO_ERROR);
}

static void data_of_an_ended_stream_do_not(void **state)
{
    struct bytes bytes = {.count = 0};

    (void)state;
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS, 1, 20);
    frame_put(&bytes, FRAME_DATA, FLAG_END_STREAM, 1, 3);
    frame_put(&bytes, FRAME_DATA, 0, 1, 3);

    assert_int_equal(code_of(&bytes), MUSTER_H2_STREAM_CLOSED);
}

static void headers_after_a_reset_do_not(void **state)
{
    struct bytes bytes = {.count = 0};

    (void)state;
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS, 1, 20);
    frame_put(&bytes, FRAME_RST, 0, 1, 4);
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS, 1, 20);

    assert_int_equal(code_of(&bytes), MUSTER_H2_STREAM_CLOSED);
}

static void a_skipped_stream_does_not_begin(void **state)
{
    struct bytes bytes = {.count = 0};

    (void)state;
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS, 5, 20);
    frame_put(&bytes, FRAME_HEADERS, FLAG_END_HEADERS, 3, 20);

    assert_int_equal(code_of(&bytes), MUSTER_H2_PROTOCOL_ERROR);
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest h2_watch[] = {
        CASE(frames_of_open_streams_pass),
        CASE(data_of_an_ended_stream_do_not),
        CASE(headers_after_a_reset_do_not),
        CASE(a_skipped_stream_does_not_begin),
    };

    return cmocka_run_group_tests(h2_watch, NULL, NULL);
}
