/* Frames of a client on streams that it has ended or skipped. */
#include "played_stream.h"

#include <string.h>

#include "assertion_count.h"
#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/h2/watch.h"

#define PREFACE_BYTES (sizeof(H2_PREFACE) - 1)

/* The preface, then frames as a case puts them. */
struct bytes {
    uint8_t at[4096];
    size_t count;
};

static void frame_put(struct bytes *bytes, uint8_t type, uint8_t flags, uint32_t stream,
                      size_t payload)
{
    static const uint8_t zeros[512];

    if (bytes->count == 0) {
        memcpy(bytes->at, H2_PREFACE, PREFACE_BYTES);
        bytes->count = PREFACE_BYTES;
    }
    bytes->count += played_frame_put(bytes->at + bytes->count, type, flags, stream, zeros, payload);
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

static void frames_of_ended_and_skipped_streams_do_not_pass(void **state)
{
#define HEADERS(stream, flags)                                                                     \
    {                                                                                              \
        FRAME_HEADERS, FLAG_END_HEADERS | (flags), (stream), 20                                    \
    }
    static const struct {
        const char *name;
        uint32_t code;
        struct {
            uint8_t type, flags;
            uint32_t stream;
            size_t payload;
        } frames[9]; /* up to one of stream 0 without payload */
    } rows[] = {
        {"open streams",
         MUSTER_H2_NO_ERROR,
         {{FRAME_SETTINGS, 0, 0, 6},
          HEADERS(1, 0),
          {FRAME_DATA, 0, 1, 300},
          HEADERS(3, FLAG_END_STREAM),
          {FRAME_DATA, FLAG_END_STREAM, 1, 0},
          {FRAME_WINDOW, 0, 1, 4},
          {FRAME_RST, 0, 1, 4},
          {FRAME_PING, 0, 0, 8}}},
        {"DATA of an ended stream",
         MUSTER_H2_STREAM_CLOSED,
         {HEADERS(1, 0), {FRAME_DATA, FLAG_END_STREAM, 1, 3}, {FRAME_DATA, 0, 1, 3}}},
        {"HEADERS after a reset",
         MUSTER_H2_STREAM_CLOSED,
         {HEADERS(1, 0), {FRAME_RST, 0, 1, 4}, HEADERS(1, 0)}},
        {"a skipped stream", MUSTER_H2_PROTOCOL_ERROR, {HEADERS(5, 0), HEADERS(3, 0)}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bytes bytes = {.count = 0};
        uint32_t code;

        for (unsigned k = 0; rows[i].frames[k].stream + rows[i].frames[k].payload > 0; k++)
            frame_put(&bytes, rows[i].frames[k].type, rows[i].frames[k].flags,
                      rows[i].frames[k].stream, rows[i].frames[k].payload);
        code = code_of(&bytes);
        fail_if(code != rows[i].code, "%s: %u", rows[i].name, code);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest h2_watch[] = {
        CASE(frames_of_ended_and_skipped_streams_do_not_pass),
    };

    return cmocka_run_group_tests(h2_watch, NULL, NULL);
}
