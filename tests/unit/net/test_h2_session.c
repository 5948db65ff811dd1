/* The HTTP/2 session before a stream that is played by hand: order, limits and hostile frames. */
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "net/h2_session.h"

#define SENT_MAX    (1u << 20)
#define STREAMS_MAX 4096
#define PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum { DATA = 0, HEADERS = 1, RST = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW = 8, CONT = 9 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

/* POST / of http://x, without Huffman. */
static const uint8_t request_block[] = {0x83, 0x86, 0x84, 0x41, 1, 'x'};

struct fixture {
    struct test_env test;
    struct muster_stream stream; /* first for the fake transport */
    struct muster_stream_read *read;
    struct muster_stream_write *write;
    struct muster_task write_task, close_task;
    muster_stream_close_fn *closed;
    uint8_t *sent;
    size_t sent_bytes;
    unsigned writes;
    struct muster_h2_session *session;
    bool is_gone;
    /* events */
    struct muster_h2_stream streams[STREAMS_MAX];
    unsigned begun, closes, settings, pongs, goaways, downs, ends, over_limits, trailers, drained;
    uint32_t close_code;
    size_t data_bytes;
    char down_text[MUSTER_ERROR_TEXT_BYTES];
};

static struct fixture *fixture_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct fixture, stream);
}

/* The transport: takes all writes in the next turn, receives what the case feeds. */

static enum muster_rc fake_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct fixture *fixture = fixture_of(stream);

    assert_null(fixture->write);
    fixture->write = write;
    fixture->writes++;
    for (size_t i = 0; i < write->iov_count; i++) {
        assert_true(fixture->sent_bytes + write->iov[i].iov_len <= SENT_MAX);
        memcpy(fixture->sent + fixture->sent_bytes, write->iov[i].iov_base, write->iov[i].iov_len);
        fixture->sent_bytes += write->iov[i].iov_len;
    }
    muster_task_post(&fixture->write_task, fixture->test.env.loop);
    return MUSTER_OK;
}

static void on_write_task(struct muster_task *task)
{
    struct fixture *fixture = task->data;
    struct muster_stream_write *write = fixture->write;

    fixture->write = NULL;
    write->done(write, MUSTER_OK);
}

static enum muster_rc fake_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    assert_null(fixture_of(stream)->read);
    fixture_of(stream)->read = read;
    return MUSTER_OK;
}

static void on_close_task(struct muster_task *task)
{
    struct fixture *fixture = task->data;

    if (fixture->closed != NULL)
        fixture->closed(&fixture->stream);
}

static void fake_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct fixture *fixture = fixture_of(stream);

    fixture->closed = closed;
    fixture->read = NULL;
    muster_task_cancel(&fixture->write_task);
    fixture->write = NULL;
    muster_task_post(&fixture->close_task, fixture->test.env.loop);
}

static const struct muster_stream_ops fake_ops = {
    .submit = fake_submit, .receive = fake_receive, .close = fake_close};

/* Events. */

static struct fixture *owner(const struct muster_h2_session *session)
{
    return muster_h2_session_data(session);
}

static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    struct fixture *fixture = owner(session);
    struct muster_h2_stream *stream;

    if (fixture->begun == STREAMS_MAX)
        return NULL;
    stream = &fixture->streams[fixture->begun++];
    muster_h2_stream_init(stream, fixture, 0);
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
    ((struct fixture *)stream->data)->data_bytes += count;
}

static void on_end(struct muster_h2_stream *stream)
{
    ((struct fixture *)stream->data)->ends++;
}

static void on_over_limit(struct muster_h2_stream *stream)
{
    ((struct fixture *)stream->data)->over_limits++;
}

static void on_trailers(struct muster_h2_stream *stream)
{
    static const struct muster_h2_header trailer = MUSTER_H2_STATIC("grpc-status", "0");

    ((struct fixture *)stream->data)->trailers++;
    muster_h2_stream_submit_trailers(stream, &trailer, 1);
}

static void on_drained(struct muster_h2_stream *stream)
{
    ((struct fixture *)stream->data)->drained++;
}

static void on_close(struct muster_h2_stream *stream, uint32_t code)
{
    struct fixture *fixture = stream->data;

    fixture->closes++;
    fixture->close_code = code;
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

static void on_gone(struct muster_h2_session *session)
{
    owner(session)->is_gone = true;
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct fixture *fixture = owner(session);

    assert_int_equal(fixture->closes, fixture->begun);
    fixture->downs++;
    memcpy(fixture->down_text, error->text, sizeof(fixture->down_text));
    muster_h2_session_close(session, on_gone);
}

static const struct muster_h2_events events = {
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

static void turn(struct fixture *fixture)
{
    test_env_turn(&fixture->test.env, 4);
}

static void feed(struct fixture *fixture, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0 && fixture->read != NULL) {
        struct muster_stream_read *read = fixture->read;
        size_t part = count < read->bytes_max ? count : read->bytes_max;

        fixture->read = NULL;
        memcpy(read->buffer, at, part);
        read->bytes_done = part;
        read->done(read, MUSTER_OK);
        at += part;
        count -= part;
    }
}

static size_t frame_put(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream,
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

static void feed_frame(struct fixture *fixture, uint8_t type, uint8_t flags, uint32_t stream,
                       const void *payload, size_t bytes)
{
    static uint8_t frame[70000];

    feed(fixture, frame, frame_put(frame, type, flags, stream, payload, bytes));
}

static void feed_request(struct fixture *fixture, uint32_t stream, uint8_t flags)
{
    feed_frame(fixture, HEADERS, END_HEADERS | flags, stream, request_block, sizeof(request_block));
}

/* The n-th frame of a type that was sent (from 0), or NULL. */
static const uint8_t *sent_frame(const struct fixture *fixture, uint8_t type, unsigned n)
{
    for (size_t at = 0; at + 9 <= fixture->sent_bytes;) {
        const uint8_t *frame = fixture->sent + at;
        size_t bytes = (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];

        if (frame[3] == type && n-- == 0)
            return frame;
        at += 9 + bytes;
    }
    return NULL;
}

static uint32_t goaway_code(const struct fixture *fixture)
{
    const uint8_t *frame = sent_frame(fixture, GOAWAY, 0);

    assert_non_null(frame);
    return frame[16];
}

static void open_session(struct fixture *fixture, bool is_server)
{
    const struct muster_h2_options options = {.is_server = is_server,
                                              .stream_window_bytes = 1u << 20,
                                              .connection_window_bytes = 4u << 20,
                                              .concurrent_streams_max = 100,
                                              .header_list_max_bytes = 16u << 10,
                                              .frame_max_bytes = 64u << 10};

    fixture->stream.ops = &fake_ops;
    muster_task_init(&fixture->write_task, on_write_task, fixture);
    muster_task_init(&fixture->close_task, on_close_task, fixture);
    assert_int_equal(muster_h2_session_open(&fixture->test.env, &fixture->stream, &options, &events,
                                            fixture, &fixture->session),
                     MUSTER_OK);
    turn(fixture);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    fixture->sent = malloc(SENT_MAX);
    test_env_open(&fixture->test);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    if (fixture->downs == 0)
        muster_h2_session_close(fixture->session, on_gone);
    turn(fixture);
    assert_true(fixture->is_gone);
    assert_int_equal(fixture->closes, fixture->begun);
    test_env_close(&fixture->test);
    free(fixture->sent);
    free(fixture);
    return 0;
}

static struct fixture *greeted_server(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, true);
    feed(fixture, PREFACE, sizeof(PREFACE) - 1);
    feed_frame(fixture, SETTINGS, 0, 0, NULL, 0);
    feed_frame(fixture, SETTINGS, ACK, 0, NULL, 0);
    turn(fixture);
    return fixture;
}

static void settings_are_the_first_frame_sent(void **state)
{
    struct fixture *fixture = greeted_server(state);

    assert_int_equal(fixture->sent[3], SETTINGS);
    assert_int_equal(fixture->settings, 1);
    assert_int_equal(fixture->downs, 0);
}

static void a_client_sends_its_preface_first(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, false);

    assert_memory_equal(fixture->sent, PREFACE, sizeof(PREFACE) - 1);
}

static void a_bad_preface_ends_the_connection(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, true);
    feed(fixture, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
}

static void all_answers_of_a_turn_leave_in_one_write(void **state)
{
    static const struct muster_h2_header ok = MUSTER_H2_STATIC(":status", "200");
    struct fixture *fixture = greeted_server(state);
    unsigned writes = fixture->writes;

    for (uint32_t i = 0; i < 20; i++)
        feed_request(fixture, 1 + 2 * i, END_STREAM);
    for (unsigned i = 0; i < 20; i++) {
        struct muster_h2_buffer *body = muster_h2_buffer_new(fixture->test.env.mem, 100);

        memset(body->bytes, 'b', 100);
        muster_h2_stream_respond(&fixture->streams[i], &ok, 1, false, true);
        muster_h2_stream_send(&fixture->streams[i], body);
        muster_h2_stream_end(&fixture->streams[i]);
    }
    turn(fixture);

    assert_int_equal(fixture->writes, writes + 1);
    assert_int_equal(fixture->closes, 20);
    assert_int_equal(fixture->trailers, 20);
    assert_int_equal(fixture->close_code, MUSTER_H2_NO_ERROR);
    assert_non_null(sent_frame(fixture, DATA, 19));
    assert_null(sent_frame(fixture, DATA, 20));
}

static void a_body_waits_for_the_peers_window(void **state)
{
    static const struct muster_h2_header ok = MUSTER_H2_STATIC(":status", "200");
    static const uint8_t more[4] = {0, 1, 0, 0};
    struct fixture *fixture = greeted_server(state);
    struct muster_h2_buffer *body = muster_h2_buffer_new(fixture->test.env.mem, 100000);

    memset(body->bytes, 'b', 100000);
    feed_request(fixture, 1, 0);
    muster_h2_stream_respond(&fixture->streams[0], &ok, 1, false, false);
    muster_h2_stream_send(&fixture->streams[0], body);
    turn(fixture);
    assert_int_equal(fixture->streams[0].body.bytes, 100000 - 65535);
    assert_int_equal(fixture->drained, 0);
    feed_frame(fixture, WINDOW, 0, 0, more, 4);
    feed_frame(fixture, WINDOW, 0, 1, more, 4);
    turn(fixture);

    assert_int_equal(fixture->streams[0].body.bytes, 0);
    assert_int_equal(fixture->drained, 1);
}

static void an_early_answer_stops_the_request(void **state)
{
    static const struct muster_h2_header ok = MUSTER_H2_STATIC(":status", "200");
    struct fixture *fixture = greeted_server(state);

    feed_request(fixture, 1, 0);
    muster_h2_stream_respond(&fixture->streams[0], &ok, 1, true, false);
    turn(fixture);

    assert_non_null(sent_frame(fixture, RST, 0));
    assert_int_equal(sent_frame(fixture, RST, 0)[12], MUSTER_H2_NO_ERROR);
    assert_int_equal(fixture->closes, 1);
}

static void bytes_not_consumed_keep_the_window_shut(void **state)
{
    static uint8_t block[32768];
    struct fixture *fixture = greeted_server(state);
    unsigned stream_updates = 0;
    const uint8_t *frame;

    feed_request(fixture, 1, 0);
    for (unsigned i = 0; i < 32; i++)
        feed_frame(fixture, DATA, 0, 1, block, sizeof(block));
    turn(fixture);
    assert_int_equal(fixture->data_bytes, 1u << 20);
    for (unsigned n = 0; (frame = sent_frame(fixture, WINDOW, n)) != NULL; n++)
        stream_updates += frame[8] == 1;
    assert_int_equal(stream_updates, 0);
    muster_h2_stream_consume(&fixture->streams[0], 1u << 20);
    turn(fixture);

    for (unsigned n = 0; (frame = sent_frame(fixture, WINDOW, n)) != NULL; n++)
        stream_updates += frame[8] == 1;
    assert_true(stream_updates > 0);
}

static void data_beyond_the_window_is_an_error(void **state)
{
    static uint8_t block[65536];
    struct fixture *fixture = greeted_server(state);

    feed_request(fixture, 1, 0);
    for (unsigned i = 0; i < 17; i++)
        feed_frame(fixture, DATA, 0, 1, block, sizeof(block));
    turn(fixture);

    assert_int_equal(sent_frame(fixture, RST, 0)[12], MUSTER_H2_FLOW_CONTROL_ERROR);
    assert_true(fixture->closes == 1);
}

static void a_ping_is_answered(void **state)
{
    struct fixture *fixture = greeted_server(state);

    feed_frame(fixture, PING, 0, 0, "12345678", 8);
    turn(fixture);

    assert_memory_equal(sent_frame(fixture, PING, 0) + 9, "12345678", 8);
}

static void a_stream_id_once_skipped_ends_the_connection(void **state)
{
    struct fixture *fixture = greeted_server(state);

    feed_request(fixture, 5, END_STREAM);
    feed_request(fixture, 3, END_STREAM);
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
    assert_int_equal(goaway_code(fixture), MUSTER_H2_PROTOCOL_ERROR);
}

static void trailers_of_a_reset_stream_are_harmless(void **state)
{
    struct fixture *fixture = greeted_server(state);

    feed_request(fixture, 1, 0);
    muster_h2_stream_reset(&fixture->streams[0], MUSTER_H2_CANCEL);
    turn(fixture);
    feed_frame(fixture, DATA, 0, 1, "late", 4);
    feed_request(fixture, 3, END_STREAM);
    turn(fixture);

    assert_int_equal(fixture->downs, 0);
    assert_int_equal(fixture->begun, 2);
}

static void rapid_resets_end_the_connection(void **state)
{
    static const uint8_t cancel[4] = {0, 0, 0, 8};
    struct fixture *fixture = greeted_server(state);
    uint32_t id = 1;

    for (; id < 2 * 3000 && fixture->downs == 0; id += 2) {
        feed_request(fixture, id, 0);
        feed_frame(fixture, RST, 0, id, cancel, 4);
        if (id % 64 == 1)
            turn(fixture);
    }
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
    assert_true(fixture->begun <= 1200);
}

static void stream_errors_that_the_peer_provokes_end_the_connection(void **state)
{
    static const uint8_t none[4] = {0, 0, 0, 0}; /* WINDOW_UPDATE of 0: a stream error */
    struct fixture *fixture = greeted_server(state);
    uint32_t id = 1;

    for (; id < 2 * 3000 && fixture->downs == 0; id += 2) {
        feed_request(fixture, id, 0);
        feed_frame(fixture, WINDOW, 0, id, none, 4);
        if (id % 64 == 1)
            turn(fixture);
    }
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
    assert_true(fixture->begun <= 1200);
}

static void a_flood_of_empty_data_ends_the_connection(void **state)
{
    struct fixture *fixture = greeted_server(state);

    feed_request(fixture, 1, 0);
    for (unsigned i = 0; i < 1100 && fixture->downs == 0; i++)
        feed_frame(fixture, DATA, 0, 1, NULL, 0);
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
    assert_int_equal(goaway_code(fixture), MUSTER_H2_ENHANCE_YOUR_CALM);
}

static void a_flood_of_continuations_ends_the_connection(void **state)
{
    struct fixture *fixture = greeted_server(state);

    feed_frame(fixture, HEADERS, 0, 1, request_block, sizeof(request_block));
    for (unsigned i = 0; i < 20; i++)
        feed_frame(fixture, CONT, 0, 1, NULL, 0);
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
}

static void a_flood_of_settings_entries_ends_the_connection(void **state)
{
    static uint8_t entries[6 * 40];
    struct fixture *fixture = greeted_server(state);

    for (size_t i = 0; i < 40; i++)
        entries[6 * i + 1] = 0x5a;
    feed_frame(fixture, SETTINGS, 0, 0, entries, sizeof(entries));
    turn(fixture);

    assert_int_equal(fixture->downs, 1);
}

static void headers_beyond_the_limit_reset_their_stream_alone(void **state)
{
    static uint8_t block[12000];
    struct fixture *fixture = greeted_server(state);
    size_t at = sizeof(request_block);

    memcpy(block, request_block, at);
    for (unsigned i = 0; i < 300; i++) { /* literal "a: 16 bytes": 49 bytes of header list each */
        block[at++] = 0x00;
        block[at++] = 1;
        block[at++] = 'a';
        block[at++] = 16;
        memset(block + at, 'v', 16);
        at += 16;
    }
    feed_frame(fixture, HEADERS, END_HEADERS, 1, block, at);
    feed_request(fixture, 3, END_STREAM);
    turn(fixture);
    assert_int_equal(fixture->over_limits, 0); /* 14,700 + 100 are below 16,384 */
    for (unsigned i = 0; i < 100; i++) {
        block[at++] = 0x00;
        block[at++] = 1;
        block[at++] = 'a';
        block[at++] = 16;
        memset(block + at, 'v', 16);
        at += 16;
    }
    feed_frame(fixture, HEADERS, END_HEADERS, 5, block, at);
    turn(fixture);

    assert_int_equal(fixture->over_limits, 1);
    assert_int_equal(sent_frame(fixture, RST, 0)[12], MUSTER_H2_ENHANCE_YOUR_CALM);
    assert_int_equal(fixture->downs, 0);
}

static void a_cut_connection_closes_streams_then_goes_down(void **state)
{
    struct fixture *fixture = greeted_server(state);
    struct muster_stream_read *read;

    feed_request(fixture, 1, 0);
    read = fixture->read;
    fixture->read = NULL;
    read->bytes_done = 0;
    read->is_eof = true;
    read->done(read, MUSTER_UNAVAILABLE);
    turn(fixture);

    assert_int_equal(fixture->close_code, MUSTER_H2_LOST);
    assert_string_equal(fixture->down_text, "connection closed by peer");
}

static void requests(struct fixture *fixture, unsigned count)
{
    static const struct muster_h2_header headers[] = {
        MUSTER_H2_STATIC(":method", "POST"), MUSTER_H2_STATIC(":scheme", "http"),
        MUSTER_H2_STATIC(":path", "/"), MUSTER_H2_STATIC(":authority", "x")};

    for (unsigned i = 0; i < count; i++) {
        struct muster_h2_stream *stream = &fixture->streams[fixture->begun];

        muster_h2_stream_init(stream, fixture, 0);
        assert_int_equal(muster_h2_stream_request(stream, fixture->session, headers, 4), MUSTER_OK);
        fixture->begun++;
    }
}

static void streams_above_goaways_last_were_never_processed(void **state)
{
    static const uint8_t goaway[8] = {0, 0, 0, 1, 0, 0, 0, 0};
    struct fixture *fixture = *state;

    open_session(fixture, false);
    feed_frame(fixture, SETTINGS, 0, 0, NULL, 0);
    requests(fixture, 2);
    turn(fixture);
    feed_frame(fixture, GOAWAY, 0, 0, goaway, 8);
    turn(fixture);
    assert_int_equal(fixture->closes, 1);
    assert_int_equal(fixture->close_code, MUSTER_H2_REFUSED_STREAM);
    requests(fixture, 1);
    turn(fixture);

    assert_int_equal(fixture->closes, 2);
    assert_int_equal(fixture->close_code, MUSTER_H2_REFUSED_STREAM);
    assert_int_equal(fixture->downs, 0);
    assert_int_equal(fixture->goaways, 1);
}

static void a_request_cancelled_before_it_left_is_closed(void **state)
{
    struct fixture *fixture = *state;

    open_session(fixture, false);
    feed_frame(fixture, SETTINGS, 0, 0, NULL, 0);
    turn(fixture);
    requests(fixture, 1);
    muster_h2_stream_reset(&fixture->streams[0], MUSTER_H2_CANCEL);
    turn(fixture);

    assert_int_equal(fixture->closes, 1);
    assert_null(sent_frame(fixture, HEADERS, 0));
}

static void any_cut_of_the_input_is_survived(void **state)
{
    static uint8_t input[512];
    struct fixture *fixture = *state;
    size_t at = sizeof(PREFACE) - 1;

    memcpy(input, PREFACE, at);
    at += frame_put(input + at, SETTINGS, 0, 0, NULL, 0);
    at += frame_put(input + at, HEADERS, END_HEADERS, 1, request_block, sizeof(request_block));
    at += frame_put(input + at, DATA, END_STREAM, 1, "payload", 7);
    open_session(fixture, true);
    for (size_t i = 0; i < at; i++)
        feed(fixture, input + i, 1);

    assert_int_equal(fixture->data_bytes, 7);
    assert_int_equal(fixture->ends, 1);
}

static void any_flipped_bit_of_the_input_is_survived(void **state)
{
    static uint8_t input[512];
    static const uint8_t more[4] = {0, 1, 0, 0}, cancel[4] = {0, 0, 0, 8};
    struct fixture *fixture = *state;
    size_t size = sizeof(PREFACE) - 1;

    memcpy(input, PREFACE, size);
    size += frame_put(input + size, SETTINGS, 0, 0, "\0\4\0\1\0\0", 6);
    size += frame_put(input + size, HEADERS, END_HEADERS, 1, request_block, sizeof(request_block));
    size += frame_put(input + size, WINDOW, 0, 0, more, 4);
    size += frame_put(input + size, DATA, END_STREAM, 1, "payload", 7);
    size += frame_put(input + size, HEADERS, END_HEADERS, 3, request_block, sizeof(request_block));
    size += frame_put(input + size, PING, 0, 0, "12345678", 8);
    size += frame_put(input + size, RST, 0, 3, cancel, 4);
    for (size_t bit = (sizeof(PREFACE) - 1) * 8; bit < size * 8; bit++) {
        fixture->begun = fixture->closes = fixture->downs = 0;
        fixture->sent_bytes = 0;
        fixture->is_gone = false;
        open_session(fixture, true);
        input[bit / 8] ^= (uint8_t)(1u << bit % 8);
        feed(fixture, input, size);
        input[bit / 8] ^= (uint8_t)(1u << bit % 8);
        turn(fixture);
        if (fixture->downs == 0)
            muster_h2_session_close(fixture->session, on_gone);
        turn(fixture);
        assert_true(fixture->is_gone);
        assert_int_equal(fixture->closes, fixture->begun);
    }
    fixture->downs = 1; /* nothing is left for the tear-down */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest session[] = {
        CASE(settings_are_the_first_frame_sent),
        CASE(a_client_sends_its_preface_first),
        CASE(a_bad_preface_ends_the_connection),
        CASE(all_answers_of_a_turn_leave_in_one_write),
        CASE(a_body_waits_for_the_peers_window),
        CASE(an_early_answer_stops_the_request),
        CASE(bytes_not_consumed_keep_the_window_shut),
        CASE(data_beyond_the_window_is_an_error),
        CASE(a_ping_is_answered),
        CASE(a_stream_id_once_skipped_ends_the_connection),
        CASE(trailers_of_a_reset_stream_are_harmless),
        CASE(rapid_resets_end_the_connection),
        CASE(stream_errors_that_the_peer_provokes_end_the_connection),
        CASE(a_flood_of_empty_data_ends_the_connection),
        CASE(a_flood_of_continuations_ends_the_connection),
        CASE(a_flood_of_settings_entries_ends_the_connection),
        CASE(headers_beyond_the_limit_reset_their_stream_alone),
        CASE(a_cut_connection_closes_streams_then_goes_down),
        CASE(streams_above_goaways_last_were_never_processed),
        CASE(a_request_cancelled_before_it_left_is_closed),
        CASE(any_cut_of_the_input_is_survived),
        CASE(any_flipped_bit_of_the_input_is_survived),
    };

    return cmocka_run_group_tests(session, NULL, NULL);
}
