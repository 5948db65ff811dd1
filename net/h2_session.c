/* An HTTP/2 connection over any byte stream: turns bytes into stream events and nothing else. */
#include "net/h2_session.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <string.h>

#include "net/h2_guard.h"

#define READ_BYTES           (64u << 10)
#define FRAME_SEND_MAX       (256u << 10)
#define QUEUED_FRAMES_MAX    1000 /* beyond it a peer that does not read is not read either */
#define RESET_BURST          1000 /* streams that the peer's errors make us reset */
#define RESET_PER_SECOND     33
#define EMPTY_BURST          1000 /* DATA frames without data or end */
#define EMPTY_PER_SECOND     33
#define SETTINGS_ENTRIES_MAX 32
#define CONTINUATIONS_MAX    8
#define ACKS_QUEUED_MAX      1000

static const uint8_t drain_ping[8] = "mstrdrn";

enum session_state {
    SESSION_OPEN,
    SESSION_ENDING, /* error is known, on_down is due */
    SESSION_DOWN,   /* on_down was called */
    SESSION_CLOSED,
};

struct muster_h2_session {
    struct muster_env *env;
    struct muster_stream *stream;
    const struct muster_h2_events *events;
    void *data;
    struct muster_h2_options options;
    nghttp2_session *ng;
    enum session_state state;
    struct muster_error error;
    struct muster_list streams;
    struct muster_list drained;
    struct muster_task flush_task;
    struct muster_stream_read read;
    uint8_t *read_buffer;
    struct muster_stream_write write;
    struct muster_h2_output output;
    uint64_t received_bytes;
    struct muster_h2_ids ids;
    struct muster_h2_bucket resets, empties;
    unsigned depth; /* of calls into nghttp2 and of events */
    bool is_writing, is_reading;
    bool is_terminating;
    bool is_close_wanted;
    bool has_settings;
    muster_h2_session_close_fn *closed;
};

static struct muster_h2_stream *stream_of(struct muster_h2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session->ng, id);
}

static void wake(struct muster_h2_session *session)
{
    if (session->depth == 0)
        muster_task_post(&session->flush_task, session->env->loop);
}

static void fail(struct muster_h2_session *session, enum muster_rc rc, const char *text)
{
    if (session->state != SESSION_OPEN)
        return;
    session->state = SESSION_ENDING;
    (void)muster_error_set(&session->error, rc, "%s", text);
    wake(session);
}

/* Memory of nghttp2 comes from the environment. */
static void *ng_malloc(size_t bytes, void *mem)
{
    return muster_mem_alloc(mem, bytes);
}
static void ng_free(void *ptr, void *mem)
{
    muster_mem_free(mem, ptr);
}
static void *ng_calloc(size_t count, size_t bytes, void *mem)
{
    return muster_mem_alloc_zero(mem, count, bytes);
}
static void *ng_realloc(void *ptr, size_t bytes, void *mem)
{
    return muster_mem_realloc(mem, ptr, bytes);
}

/* Events of nghttp2: receiving. */

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *data)
{
    struct muster_h2_session *session = data;

    /* nghttp2 drops such a frame without the connection error that RFC 9113 5.1.1 asks for. */
    if (hd->type == NGHTTP2_HEADERS && session->options.is_server && hd->stream_id % 2 == 1 &&
        !muster_h2_ids_open(&session->ids, hd->stream_id))
        return nghttp2_session_terminate_session(ng, NGHTTP2_PROTOCOL_ERROR);
    return 0;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, frame->hd.stream_id);

    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        stream = session->events->on_begin(session);
        if (stream == NULL)
            return nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                             NGHTTP2_REFUSED_STREAM);
        stream->session = session;
        stream->id = frame->hd.stream_id;
        stream->is_sent = true;
        muster_list_append(&session->streams, &stream->node);
        (void)nghttp2_session_set_stream_user_data(ng, stream->id, stream);
    }
    if (stream != NULL)
        stream->header_bytes = 0;
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, frame->hd.stream_id);

    (void)flags;
    if (stream == NULL || stream->is_over_limit)
        return 0;
    stream->header_bytes += name_bytes + value_bytes + 32;
    if (stream->header_bytes > session->options.header_list_max_bytes) {
        stream->is_over_limit = true;
        session->events->on_over_limit(stream);
        return nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, stream->id,
                                         NGHTTP2_ENHANCE_YOUR_CALM);
    }
    session->events->on_header(stream, (const char *)name, name_bytes, (const char *)value,
                               value_bytes);
    return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                         size_t count, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, id);

    /* Streams hold back each on its own window; none may starve the others. */
    (void)nghttp2_session_consume_connection(ng, count);
    if (stream == NULL || stream->is_over_limit)
        return nghttp2_session_consume_stream(ng, id, count);
    session->events->on_data(stream, bytes, count, (flags & NGHTTP2_FLAG_END_STREAM) != 0);
    return 0;
}

static void headers_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    struct muster_h2_stream *stream = stream_of(session, frame->hd.stream_id);
    bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (stream == NULL || stream->is_over_limit)
        return;
    session->events->on_headers(stream, is_end);
    if (is_end)
        session->events->on_end(stream);
}

static void data_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    struct muster_h2_stream *stream = stream_of(session, frame->hd.stream_id);

    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        if (stream != NULL)
            session->events->on_end(stream);
    } else if (frame->hd.length == 0 &&
               !muster_h2_bucket_take(&session->empties, muster_loop_now_ns(session->env->loop))) {
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "empty_data_flood");
    }
}

static void ping_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
        session->events->on_ping(session);
    } else if (memcmp(frame->ping.opaque_data, drain_ping, sizeof(drain_ping)) == 0) {
        /* All requests sent before our notice are here: now the last one can be named. */
        (void)nghttp2_submit_goaway(session->ng, NGHTTP2_FLAG_NONE,
                                    nghttp2_session_get_last_proc_stream_id(session->ng),
                                    NGHTTP2_NO_ERROR, NULL, 0);
    } else {
        session->events->on_pong(session);
    }
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *data)
{
    struct muster_h2_session *session = data;

    (void)ng;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        headers_received(session, frame);
        break;
    case NGHTTP2_DATA:
        data_received(session, frame);
        break;
    case NGHTTP2_SETTINGS:
        if (!session->has_settings && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
            session->has_settings = true;
            session->events->on_settings(session);
        }
        break;
    case NGHTTP2_PING:
        ping_received(session, frame);
        break;
    case NGHTTP2_GOAWAY:
        session->events->on_goaway(session, frame->goaway.error_code,
                                   (const char *)frame->goaway.opaque_data,
                                   frame->goaway.opaque_data_len);
        break;
    default:
        break;
    }
    return 0;
}

/* Events of nghttp2: sending. */

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream;

    if (frame->hd.type == NGHTTP2_HEADERS) {
        stream = stream_of(session, frame->hd.stream_id);
        if (stream != NULL)
            stream->is_sent = true;
    }
    /* An answer before the end of the request: the client shall stop (RFC 9113 8.1). */
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        session->options.is_server && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        nghttp2_session_get_stream_remote_close(ng, frame->hd.stream_id) == 0)
        (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    /* Errors that a client provokes cost as much as its own resets (CVE-2025-8671). */
    if (frame->hd.type == NGHTTP2_RST_STREAM && session->options.is_server &&
        frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
        frame->rst_stream.error_code != NGHTTP2_CANCEL &&
        !muster_h2_bucket_take(&session->resets, muster_loop_now_ns(session->env->loop)))
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "stream_error_flood");
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, id);

    if (stream == NULL)
        return 0;
    (void)nghttp2_session_set_stream_user_data(ng, id, NULL);
    muster_list_remove(&stream->node);
    muster_list_remove(&stream->drained_node);
    session->events->on_close(stream, stream->is_sent ? code : MUSTER_H2_REFUSED_STREAM);
    return 0;
}

static ssize_t on_body_length(nghttp2_session *ng, uint8_t type, int32_t id, int32_t session_window,
                              int32_t stream_window, uint32_t frame_max, void *data)
{
    (void)ng;
    (void)type;
    (void)id;
    (void)session_window;
    (void)stream_window;
    (void)data;
    return frame_max < FRAME_SEND_MAX ? (ssize_t)frame_max : (ssize_t)FRAME_SEND_MAX;
}

static ssize_t on_body_read(nghttp2_session *ng, int32_t id, uint8_t *buffer, size_t length,
                            uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = source->ptr;
    size_t count = muster_h2_body_promise(&stream->body, length);

    (void)ng;
    (void)id;
    (void)buffer;
    if (count == 0 && !stream->body.is_ended)
        return NGHTTP2_ERR_DEFERRED;
    if (count > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (count == stream->body.bytes && stream->body.is_ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->has_trailers) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            session->events->on_trailers(stream);
        }
    }
    return (ssize_t)count;
}

static int on_body_send(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head,
                        size_t length, nghttp2_data_source *source, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = source->ptr;

    (void)ng;
    (void)length;
    if (muster_h2_output_is_full(&session->output))
        return NGHTTP2_ERR_WOULDBLOCK;
    if (frame->data.padlen > 0 || stream->body.promised_bytes > stream->body.bytes)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    muster_h2_output_copy(&session->output, head, 9);
    if (!muster_h2_body_write(&stream->body, &session->output))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (stream->body.bytes == 0 && !stream->body.is_ended) {
        muster_list_remove(&stream->drained_node);
        muster_list_append(&session->drained, &stream->drained_node);
    }
    return 0;
}

/* The life of the connection. */

static void lose_streams(struct muster_h2_session *session)
{
    struct muster_list *node;

    session->depth++;
    while ((node = muster_list_pop(&session->streams)) != NULL) {
        struct muster_h2_stream *stream = MUSTER_CONTAINER_OF(node, struct muster_h2_stream, node);

        muster_list_remove(&stream->drained_node);
        session->events->on_close(stream,
                                  stream->is_sent ? MUSTER_H2_LOST : MUSTER_H2_REFUSED_STREAM);
    }
    session->depth--;
}

static void session_free(struct muster_h2_session *session)
{
    struct muster_mem *mem;

    if (session == NULL)
        return;
    mem = session->env->mem;
    nghttp2_session_del(session->ng);
    muster_h2_output_fini(&session->output);
    muster_mem_free(mem, session->read_buffer);
    muster_mem_free(mem, session);
}

static void on_stream_closed(struct muster_stream *stream)
{
    struct muster_h2_session *session = stream->data;

    if (session->closed != NULL)
        session->closed(session);
    session_free(session);
}

static void tear_down(struct muster_h2_session *session)
{
    bool was_open = session->state == SESSION_OPEN || session->state == SESSION_ENDING;

    session->state = SESSION_CLOSED;
    muster_task_cancel(&session->flush_task);
    if (was_open)
        lose_streams(session);
    muster_stream_close(session->stream, on_stream_closed);
}

/* The last act of every entry from the loop: what could not be done amid events is done here. */
static void settle(struct muster_h2_session *session)
{
    if (session->state == SESSION_ENDING && !session->is_close_wanted) {
        session->state = SESSION_DOWN;
        lose_streams(session);
        session->depth++;
        session->events->on_down(session, &session->error);
        session->depth--;
    }
    if (session->is_close_wanted && session->state != SESSION_CLOSED)
        tear_down(session);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc);
static void read_start(struct muster_h2_session *session);

static void tell_drained(struct muster_h2_session *session)
{
    struct muster_list *node;

    session->depth++;
    while ((node = muster_list_pop(&session->drained)) != NULL)
        session->events->on_drained(
            MUSTER_CONTAINER_OF(node, struct muster_h2_stream, drained_node));
    session->depth--;
}

/* Fill the output with all that nghttp2 has to send. */
static void gather(struct muster_h2_session *session)
{
    session->depth++;
    while (!muster_h2_output_is_full(&session->output)) {
        const uint8_t *bytes = NULL;
        ssize_t count = nghttp2_session_mem_send(session->ng, &bytes);

        if (count < 0)
            fail(session, MUSTER_INTERNAL, nghttp2_strerror((int)count));
        if (count <= 0)
            break;
        muster_h2_output_copy(&session->output, bytes, (size_t)count);
    }
    session->depth--;
}

static bool is_finished(const struct muster_h2_session *session)
{
    return (session->is_terminating || !nghttp2_session_want_read(session->ng)) &&
           !nghttp2_session_want_write(session->ng);
}

static void flush(struct muster_h2_session *session)
{
    enum muster_rc rc;

    if (session->state != SESSION_OPEN || session->is_writing)
        return;
    gather(session);
    if (session->state != SESSION_OPEN)
        return;
    if (session->output.piece_count > 0) {
        rc = muster_stream_submit(&session->write, session->stream, session->output.pieces,
                                  session->output.piece_count, on_written);
        if (rc == MUSTER_OK)
            session->is_writing = true;
        else
            fail(session, MUSTER_UNAVAILABLE, "connection is closed");
    } else if (is_finished(session)) {
        fail(session, MUSTER_UNAVAILABLE, "connection ended by GOAWAY");
    }
    tell_drained(session);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_h2_session *session = write->data;

    session->is_writing = false;
    muster_h2_output_reset(&session->output);
    if (session->state == SESSION_CLOSED)
        return;
    if (rc != MUSTER_OK)
        fail(session, MUSTER_UNAVAILABLE, "connection lost");
    flush(session);
    read_start(session);
    settle(session);
}

static void on_flush(struct muster_task *task)
{
    struct muster_h2_session *session = task->data;

    flush(session);
    settle(session);
}

static void feed(struct muster_h2_session *session, size_t count)
{
    ssize_t used;

    session->received_bytes += count;
    session->depth++;
    used = nghttp2_session_mem_recv(session->ng, session->read_buffer, count);
    session->depth--;
    if (used < 0)
        fail(session, MUSTER_UNAVAILABLE, nghttp2_strerror((int)used));
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct muster_h2_session *session = read->data;

    session->is_reading = false;
    if (session->state == SESSION_CLOSED)
        return;
    if (read->bytes_done > 0 && session->state == SESSION_OPEN)
        feed(session, read->bytes_done);
    if (rc != MUSTER_OK)
        fail(session, MUSTER_UNAVAILABLE,
             read->is_eof ? "connection closed by peer" : "connection lost");
    read_start(session);
    flush(session);
    settle(session);
}

static void read_start(struct muster_h2_session *session)
{
    if (session->state != SESSION_OPEN || session->is_reading || session->is_close_wanted)
        return;
    if (session->is_writing &&
        nghttp2_session_get_outbound_queue_size(session->ng) > QUEUED_FRAMES_MAX)
        return;
    if (muster_stream_receive_into(&session->read, session->stream, session->read_buffer, 1,
                                   READ_BYTES, on_read) == MUSTER_OK)
        session->is_reading = true;
    else
        fail(session, MUSTER_UNAVAILABLE, "connection is closed");
}

/* Opening. */

static int ng_open(struct muster_h2_session *session, nghttp2_session_callbacks *callbacks,
                   nghttp2_option *option)
{
    nghttp2_mem mem = {session->env->mem, ng_malloc, ng_free, ng_calloc, ng_realloc};

    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_body_length);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_body_send);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_settings(option, SETTINGS_ENTRIES_MAX);
    nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX);
    nghttp2_option_set_max_outbound_ack(option, ACKS_QUEUED_MAX);
    nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESET_PER_SECOND);
    return session->options.is_server
               ? nghttp2_session_server_new3(&session->ng, callbacks, session, option, &mem)
               : nghttp2_session_client_new3(&session->ng, callbacks, session, option, &mem);
}

static int ng_greet(struct muster_h2_session *session)
{
    const struct muster_h2_options *options = &session->options;
    nghttp2_settings_entry entries[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options->frame_max_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options->header_list_max_bytes},
        {options->is_server ? NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
                            : NGHTTP2_SETTINGS_ENABLE_PUSH,
         options->is_server ? options->concurrent_streams_max : 0},
    };
    int failed = nghttp2_submit_settings(session->ng, NGHTTP2_FLAG_NONE, entries,
                                         sizeof(entries) / sizeof(entries[0]));

    if (failed != 0)
        return failed;
    return nghttp2_session_set_local_window_size(session->ng, NGHTTP2_FLAG_NONE, 0,
                                                 (int32_t)options->connection_window_bytes);
}

static enum muster_rc ng_new(struct muster_h2_session *session)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int failed = nghttp2_session_callbacks_new(&callbacks);

    if (failed == 0)
        failed = nghttp2_option_new(&option);
    if (failed == 0)
        failed = ng_open(session, callbacks, option);
    if (failed == 0)
        failed = ng_greet(session);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return failed == 0 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static void session_init(struct muster_h2_session *session, struct muster_env *env,
                         struct muster_stream *stream, const struct muster_h2_options *options)
{
    session->env = env;
    session->stream = stream;
    session->options = *options;
    session->read.data = session;
    session->write.data = session;
    stream->data = session;
    muster_list_init(&session->streams);
    muster_list_init(&session->drained);
    muster_task_init(&session->flush_task, on_flush, session);
    muster_h2_bucket_init(&session->resets, RESET_BURST, RESET_PER_SECOND);
    muster_h2_bucket_init(&session->empties, EMPTY_BURST, EMPTY_PER_SECOND);
}

enum muster_rc muster_h2_session_open(struct muster_env *env, struct muster_stream *stream,
                                      const struct muster_h2_options *options,
                                      const struct muster_h2_events *events, void *data,
                                      struct muster_h2_session **ret_session)
{
    struct muster_h2_session *session = muster_mem_alloc_zero(env->mem, 1, sizeof(*session));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (session == NULL)
        goto fail;
    session_init(session, env, stream, options);
    session->events = events;
    session->data = data;
    rc = muster_h2_output_init(&session->output, env->mem);
    if (rc == MUSTER_OK)
        session->read_buffer = muster_mem_alloc(env->mem, READ_BYTES);
    if (rc == MUSTER_OK && session->read_buffer == NULL)
        rc = MUSTER_RESOURCE_EXHAUSTED;
    if (rc == MUSTER_OK)
        rc = ng_new(session);
    if (rc != MUSTER_OK)
        goto fail;
    read_start(session);
    wake(session);
    *ret_session = session;
    return MUSTER_OK;
fail:
    session_free(session);
    muster_stream_close(stream, NULL);
    return rc;
}

void muster_h2_session_close(struct muster_h2_session *session, muster_h2_session_close_fn *closed)
{
    if (session->is_close_wanted)
        return;
    session->is_close_wanted = true;
    session->closed = closed;
    if (session->depth == 0)
        tear_down(session);
}

void *muster_h2_session_data(const struct muster_h2_session *session)
{
    return session->data;
}

struct muster_stream *muster_h2_session_stream(const struct muster_h2_session *session)
{
    return session->stream;
}

uint64_t muster_h2_session_received_bytes(const struct muster_h2_session *session)
{
    return session->received_bytes;
}

bool muster_h2_session_has_streams(const struct muster_h2_session *session)
{
    return !muster_list_is_empty(&session->streams);
}

const struct muster_error *muster_h2_session_error(const struct muster_h2_session *session)
{
    return &session->error;
}

void muster_h2_session_fail(struct muster_h2_session *session, const struct muster_error *error)
{
    fail(session, error->rc, error->text);
}

void muster_h2_session_ping(struct muster_h2_session *session)
{
    if (session->state != SESSION_OPEN)
        return;
    (void)nghttp2_submit_ping(session->ng, NGHTTP2_FLAG_NONE, NULL);
    wake(session);
}

void muster_h2_session_drain(struct muster_h2_session *session)
{
    if (session->state != SESSION_OPEN)
        return;
    if (session->options.is_server) {
        (void)nghttp2_submit_shutdown_notice(session->ng);
        (void)nghttp2_submit_ping(session->ng, NGHTTP2_FLAG_NONE, drain_ping);
    } else {
        (void)nghttp2_submit_goaway(session->ng, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    }
    wake(session);
}

void muster_h2_session_terminate(struct muster_h2_session *session, uint32_t code, const char *text)
{
    if (session->state != SESSION_OPEN || session->is_terminating)
        return;
    session->is_terminating = true;
    (void)nghttp2_submit_goaway(session->ng, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(session->ng), code,
                                (const uint8_t *)text, strlen(text));
    wake(session);
}

/* Streams. */

static bool is_live(const struct muster_h2_stream *stream)
{
    return stream->session != NULL && stream->session->state == SESSION_OPEN;
}

static void headers_convert(nghttp2_nv *ret_nv, const struct muster_h2_header *headers,
                            size_t count)
{
    assert(count <= MUSTER_H2_HEADERS_MAX);
    for (size_t i = 0; i < count; i++) {
        uint8_t flags = NGHTTP2_NV_FLAG_NONE;

        if (headers[i].is_stable)
            flags |= NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
        if (headers[i].is_volatile)
            flags |= NGHTTP2_NV_FLAG_NO_INDEX;
        ret_nv[i].name = (uint8_t *)(uintptr_t)headers[i].name;
        ret_nv[i].value = (uint8_t *)(uintptr_t)headers[i].value;
        ret_nv[i].namelen = headers[i].name_bytes;
        ret_nv[i].valuelen = headers[i].value_bytes;
        ret_nv[i].flags = flags;
    }
}

void muster_h2_stream_init(struct muster_h2_stream *stream, void *data, size_t keep_max_bytes)
{
    memset(stream, 0, sizeof(*stream));
    stream->data = data;
    muster_list_init(&stream->node);
    muster_list_init(&stream->drained_node);
    muster_h2_body_init(&stream->body, keep_max_bytes);
}

void muster_h2_stream_fini(struct muster_h2_stream *stream)
{
    muster_h2_body_fini(&stream->body);
}

enum muster_rc muster_h2_stream_request(struct muster_h2_stream *stream,
                                        struct muster_h2_session *session,
                                        const struct muster_h2_header *headers, size_t count)
{
    nghttp2_nv nv[MUSTER_H2_HEADERS_MAX];
    nghttp2_data_provider provider = {{.ptr = stream}, on_body_read};
    int32_t id;

    if (session->state != SESSION_OPEN)
        return MUSTER_FAILED_PRECONDITION;
    headers_convert(nv, headers, count);
    id = nghttp2_submit_request(session->ng, NULL, nv, count, &provider, stream);
    if (id < 0)
        return id == NGHTTP2_ERR_NOMEM ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_FAILED_PRECONDITION;
    stream->session = session;
    stream->id = id;
    stream->is_sent = false;
    muster_list_append(&session->streams, &stream->node);
    wake(session);
    return MUSTER_OK;
}

void muster_h2_stream_respond(struct muster_h2_stream *stream,
                              const struct muster_h2_header *headers, size_t count, bool is_end,
                              bool has_trailers)
{
    nghttp2_nv nv[MUSTER_H2_HEADERS_MAX];
    nghttp2_data_provider provider = {{.ptr = stream}, on_body_read};

    if (!is_live(stream))
        return;
    stream->has_trailers = has_trailers;
    headers_convert(nv, headers, count);
    if (nghttp2_submit_response(stream->session->ng, stream->id, nv, count,
                                is_end ? NULL : &provider) != 0)
        muster_h2_stream_reset(stream, MUSTER_H2_INTERNAL_ERROR);
    wake(stream->session);
}

static void resume(struct muster_h2_stream *stream)
{
    if (!is_live(stream))
        return;
    /* Fails harmlessly unless the body had run dry. */
    (void)nghttp2_session_resume_data(stream->session->ng, stream->id);
    wake(stream->session);
}

void muster_h2_stream_send(struct muster_h2_stream *stream, struct muster_h2_buffer *buffer)
{
    muster_h2_body_append(&stream->body, buffer);
    resume(stream);
}

void muster_h2_stream_end(struct muster_h2_stream *stream)
{
    stream->body.is_ended = true;
    resume(stream);
}

void muster_h2_stream_submit_trailers(struct muster_h2_stream *stream,
                                      const struct muster_h2_header *headers, size_t count)
{
    nghttp2_nv nv[MUSTER_H2_HEADERS_MAX];

    headers_convert(nv, headers, count);
    if (nghttp2_submit_trailer(stream->session->ng, stream->id, nv, count) != 0)
        muster_h2_stream_reset(stream, MUSTER_H2_INTERNAL_ERROR);
}

void muster_h2_stream_reset(struct muster_h2_stream *stream, uint32_t code)
{
    if (!is_live(stream))
        return;
    (void)nghttp2_submit_rst_stream(stream->session->ng, NGHTTP2_FLAG_NONE, stream->id, code);
    wake(stream->session);
}

void muster_h2_stream_consume(struct muster_h2_stream *stream, size_t count)
{
    if (!is_live(stream) || count == 0)
        return;
    (void)nghttp2_session_consume_stream(stream->session->ng, stream->id, count);
    wake(stream->session);
}
