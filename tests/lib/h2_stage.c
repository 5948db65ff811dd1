/* An HTTP/2 session before a stream that is played by hand. */
#include "h2_stage.h"

#include <stdlib.h>
#include <string.h>

#define SENT_MAX (1u << 20)

const uint8_t h2_stage_request_block[H2_STAGE_REQUEST_BLOCK_BYTES] = {0x83, 0x86, 0x84,
                                                                      0x41, 1,    'x'};

static struct h2_stage *stage_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct h2_stage, stream);
}

/* The transport: takes all writes in the next turn, receives what the case feeds. */

static enum muster_rc fake_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct h2_stage *stage = stage_of(stream);

    assert_null(stage->write);
    stage->write = write;
    stage->writes++;
    for (size_t i = 0; i < write->iov_count; i++) {
        assert_true(stage->sent_bytes + write->iov[i].iov_len <= SENT_MAX);
        memcpy(stage->sent + stage->sent_bytes, write->iov[i].iov_base, write->iov[i].iov_len);
        stage->sent_bytes += write->iov[i].iov_len;
    }
    muster_task_post(&stage->write_task, stage->test.env.loop);
    return MUSTER_OK;
}

static void on_write_task(struct muster_task *task)
{
    struct h2_stage *stage = task->data;
    struct muster_stream_write *write = stage->write;

    stage->write = NULL;
    write->done(write, MUSTER_OK);
}

static enum muster_rc fake_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    assert_null(stage_of(stream)->read);
    stage_of(stream)->read = read;
    return MUSTER_OK;
}

static void on_close_task(struct muster_task *task)
{
    struct h2_stage *stage = task->data;

    if (stage->closed != NULL)
        stage->closed(&stage->stream);
}

static void fake_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct h2_stage *stage = stage_of(stream);

    stage->closed = closed;
    stage->read = NULL;
    muster_task_cancel(&stage->write_task);
    stage->write = NULL;
    muster_task_post(&stage->close_task, stage->test.env.loop);
}

static const struct muster_stream_ops fake_ops = {
    .submit = fake_submit, .receive = fake_receive, .close = fake_close};

/* Events. */

static struct h2_stage *owner(const struct muster_h2_session *session)
{
    return muster_h2_session_data(session);
}

static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    struct h2_stage *stage = owner(session);
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

    ((struct h2_stage *)stream->data)->trailers++;
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
    owner(session)->settings++;
}

static void on_ping(struct muster_h2_session *session)
{
    (void)session;
}

static void on_pong(struct muster_h2_session *session)
{
    owner(session)->pongs++;
}

static void on_goaway(struct muster_h2_session *session, uint32_t code, const char *text,
                      size_t length)
{
    (void)code;
    (void)text;
    (void)length;
    owner(session)->goaways++;
}

void h2_stage_on_gone(struct muster_h2_session *session)
{
    owner(session)->is_gone = true;
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct h2_stage *stage = owner(session);

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
    .on_ping = on_ping,
    .on_pong = on_pong,
    .on_goaway = on_goaway,
    .on_down = on_down,
};

/* What a case does. */

void h2_stage_turn(struct h2_stage *stage)
{
    test_env_turn(&stage->test.env, 4);
}

void h2_stage_feed(struct h2_stage *stage, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0 && stage->read != NULL) {
        struct muster_stream_read *read = stage->read;
        size_t part = count < read->bytes_max ? count : read->bytes_max;

        stage->read = NULL;
        memcpy(read->buffer, at, part);
        read->bytes_done = part;
        read->done(read, MUSTER_OK);
        at += part;
        count -= part;
    }
}

size_t h2_stage_frame_put(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream,
                          const void *payload, size_t bytes)
{
    const uint8_t head[9] = {(uint8_t)(bytes >> 16),
                             (uint8_t)(bytes >> 8),
                             (uint8_t)bytes,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};

    memcpy(out, head, 9);
    if (bytes > 0)
        memcpy(out + 9, payload, bytes);
    return 9 + bytes;
}

void h2_stage_feed_frame(struct h2_stage *stage, uint8_t type, uint8_t flags, uint32_t stream,
                         const void *payload, size_t bytes)
{
    static uint8_t frame[70000];

    h2_stage_feed(stage, frame, h2_stage_frame_put(frame, type, flags, stream, payload, bytes));
}

void h2_stage_feed_request(struct h2_stage *stage, uint32_t stream, uint8_t flags)
{
    h2_stage_feed_frame(stage, FRAME_HEADERS, FLAG_END_HEADERS | flags, stream,
                        h2_stage_request_block, sizeof(h2_stage_request_block));
}

const uint8_t *h2_stage_sent_frame(const struct h2_stage *stage, uint8_t type, unsigned n)
{
    for (size_t at = 0; at + 9 <= stage->sent_bytes;) {
        const uint8_t *frame = stage->sent + at;
        size_t bytes = (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];

        if (frame[3] == type && n-- == 0)
            return frame;
        at += 9 + bytes;
    }
    return NULL;
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

    assert_int_equal(muster_h2_session_open(&stage->test.env, &stage->stream, &options,
                                            &h2_stage_events, stage, &stage->session),
                     MUSTER_OK);
    h2_stage_turn(stage);
}

void h2_stage_init(struct h2_stage *stage)
{
    stage->sent = malloc(SENT_MAX);
    test_env_open(&stage->test);
    stage->stream.ops = &fake_ops;
    muster_task_init(&stage->write_task, on_write_task, stage);
    muster_task_init(&stage->close_task, on_close_task, stage);
}

void h2_stage_fini(struct h2_stage *stage)
{
    assert_true(stage->is_gone);
    assert_int_equal(stage->closes, stage->begun);
    test_env_close(&stage->test);
    free(stage->sent);
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
