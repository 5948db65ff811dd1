/* An HTTP/2 session before a stream that is played by hand. */
#include "h2_stage.h"

#include <stdlib.h>
#include <string.h>

#define SENT_MAX (1u << 20)

const uint8_t h2_stage_request_block[H2_STAGE_REQUEST_BLOCK_BYTES] = {0x83, 0x86, 0x84,
                                                                      0x41, 1,    'x'};

/* Events. */

static struct h2_stage *owner_of(const struct muster_h2_session *session)
{
    return muster_h2_session_data(session);
}

static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    struct h2_stage *stage = owner_of(session);
    struct muster_h2_stream *stream;

    if (stage->begun == H2_STAGE_STREAMS_MAX)
        return NULL;
    stream = &stage->streams[stage->begun++];
    muster_h2_stream_init(stream, stage, 0);
    return stream;
}

static void on_header(struct muster_h2_stream *stream, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes)
{
    (void)stream;
    (void)name;
    (void)name_bytes;
    (void)value;
    (void)value_bytes;
}

static void on_headers(struct muster_h2_stream *stream, bool is_end)
{
    (void)stream;
    (void)is_end;
}

static void on_data(struct muster_h2_stream *stream, const void *bytes, size_t count, bool is_end)
{
    (void)bytes;
    (void)is_end;
    ((struct h2_stage *)stream->data)->data_bytes += count;
}

static void on_end(struct muster_h2_stream *stream)
{
    ((struct h2_stage *)stream->data)->ends++;
}

static void on_over_limit(struct muster_h2_stream *stream)
{
    ((struct h2_stage *)stream->data)->over_limits++;
}

static void on_trailers(struct muster_h2_stream *stream)
{
    static const struct muster_h2_header trailer = MUSTER_H2_STATIC("grpc-status", "0");

    struct h2_stage *stage = stream->data;

    stage->trailers++;
    if (stage->trailing != NULL)
        muster_h2_stream_submit_trailers(stream, stage->trailing, stage->trailing_count);
    else
        muster_h2_stream_submit_trailers(stream, &trailer, 1);
}

static void on_drained(struct muster_h2_stream *stream)
{
    ((struct h2_stage *)stream->data)->drained++;
}

static void on_close(struct muster_h2_stream *stream, uint32_t code)
{
    struct h2_stage *stage = stream->data;

    stage->closes++;
    stage->close_code = code;
    muster_h2_stream_fini(stream);
}

static void on_settings(struct muster_h2_session *session)
{
    owner_of(session)->settings++;
}

static void ignore_session(struct muster_h2_session *session)
{
    (void)session;
}

static void on_pong(struct muster_h2_session *session)
{
    owner_of(session)->pongs++;
}

static void on_goaway(struct muster_h2_session *session, uint32_t code, const char *text,
                      size_t length)
{
    (void)code;
    (void)text;
    (void)length;
    owner_of(session)->goaways++;
}

void h2_stage_on_gone(struct muster_h2_session *session)
{
    owner_of(session)->is_gone = true;
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct h2_stage *stage = owner_of(session);

    assert_int_equal(stage->closes, stage->begun);
    stage->downs++;
    memcpy(stage->down_text, error->text, sizeof(stage->down_text));
    muster_h2_session_close(session, h2_stage_on_gone);
}

const struct muster_h2_events h2_stage_events = {
    .on_begin = on_begin,
    .on_header = on_header,
    .on_headers = on_headers,
    .on_data = on_data,
    .on_end = on_end,
    .on_over_limit = on_over_limit,
    .on_trailers = on_trailers,
    .on_drained = on_drained,
    .on_close = on_close,
    .on_settings = on_settings,
    .on_ping = ignore_session,
    .on_pong = on_pong,
    .on_goaway = on_goaway,
    .on_down = on_down,
};

static void ignore_stream(struct muster_h2_stream *stream)
{
    (void)stream;
}

static void ignore_goaway(struct muster_h2_session *session, uint32_t code, const char *text,
                          size_t length)
{
    (void)session, (void)code, (void)text, (void)length;
}

const struct muster_h2_events h2_stage_deaf_events = {
    .on_header = on_header,
    .on_headers = on_headers,
    .on_over_limit = ignore_stream,
    .on_drained = ignore_stream,
    .on_settings = ignore_session,
    .on_ping = ignore_session,
    .on_pong = ignore_session,
    .on_goaway = ignore_goaway,
};

/* Actions of a case. */

void h2_stage_turn(struct h2_stage *stage)
{
    test_env_turn(&stage->test.env, 4);
}

void h2_stage_feed(struct h2_stage *stage, const void *bytes, size_t count)
{
    (void)played_stream_feed(&stage->played, bytes, count);
}

void h2_stage_feed_frame(struct h2_stage *stage, uint8_t type, uint8_t flags, uint32_t stream,
                         const void *payload, size_t bytes)
{
    played_stream_feed_frame(&stage->played, type, flags, stream, payload, bytes);
}

void h2_stage_feed_request(struct h2_stage *stage, uint32_t stream, uint8_t flags)
{
    h2_stage_feed_frame(stage, FRAME_HEADERS, FLAG_END_HEADERS | flags, stream,
                        h2_stage_request_block, sizeof(h2_stage_request_block));
}

const uint8_t *h2_stage_sent_frame(const struct h2_stage *stage, uint8_t type, unsigned n)
{
    return played_stream_sent_frame(&stage->played, type, n);
}

uint32_t h2_stage_goaway_code(const struct h2_stage *stage)
{
    const uint8_t *frame = h2_stage_sent_frame(stage, FRAME_GOAWAY, 0);

    assert_non_null(frame);
    return frame[16];
}

void h2_stage_open(struct h2_stage *stage, bool is_server)
{
    const struct muster_h2_options options = {.is_server = is_server,
                                              .stream_window_bytes = 1u << 20,
                                              .connection_window_bytes = 4u << 20,
                                              .concurrent_streams_max = 100,
                                              .header_list_max_bytes = 16u << 10,
                                              .frame_max_bytes = 64u << 10};

    assert_int_equal(muster_h2_session_open(&stage->test.env, &stage->played.stream, &options,
                                            &h2_stage_events, stage, &stage->session),
                     MUSTER_OK);
    h2_stage_turn(stage);
}

void h2_stage_init(struct h2_stage *stage)
{
    test_env_open(&stage->test);
    played_stream_init(&stage->played, &stage->test.env, SENT_MAX);
}

void h2_stage_fini(struct h2_stage *stage)
{
    assert_true(stage->is_gone);
    assert_int_equal(stage->closes, stage->begun);
    test_env_close(&stage->test);
    played_stream_fini(&stage->played);
}

int h2_stage_set_up(void **state)
{
    struct h2_stage *stage = calloc(1, sizeof(*stage));

    h2_stage_init(stage);
    *state = stage;
    return 0;
}

int h2_stage_tear_down(void **state)
{
    struct h2_stage *stage = *state;

    if (stage->downs == 0)
        muster_h2_session_close(stage->session, h2_stage_on_gone);
    h2_stage_turn(stage);
    h2_stage_fini(stage);
    free(stage);
    return 0;
}

struct h2_stage *h2_stage_greet(void **state)
{
    struct h2_stage *stage = *state;

    h2_stage_open(stage, true);
    h2_stage_feed(stage, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    h2_stage_feed_frame(stage, FRAME_SETTINGS, 0, 0, NULL, 0);
    h2_stage_feed_frame(stage, FRAME_SETTINGS, FLAG_ACK, 0, NULL, 0);
    h2_stage_turn(stage);
    return stage;
}
