/* The callbacks of nghttp2: frames received become stream events, queued bodies become DATA frames.
 * Each runs inside a call into nghttp2 and so must not delete the session: what an owner asks for
 * meanwhile waits for the end of the turn. A result other than 0 is fatal to the connection; what
 * is wrong with one stream is answered by a reset of that stream. */
#include <string.h>

#include "net/h2/h2_session_internal.h"

#define FRAME_SEND_MIN     (16u << 10) /* every peer takes this much (RFC 9113 4.2) */
#define FRAME_SEND_MAX     (256u << 10) /* then other streams have their turn */
#define TAKEN_MIN_BYTES    (16u << 10) /* a peer that takes a byte now and then counts as stalled */
#define HEADER_BOMB_FACTOR 8 /* times the limit of a header list: no mistake any more */
#define FIELD_OVERHEAD     32 /* bytes that each header counts beyond its text (RFC 9113 6.5.2) */

/* Several events of one stream usually follow each other, so the last look-up is remembered. */
static struct muster_h2_stream *stream_of(struct muster_h2_session *session, int32_t id)
{
    if (session->latest == NULL || session->latest->id != id)
        session->latest = nghttp2_session_get_stream_user_data(session->ng, id);
    return session->latest;
}

/* Events of nghttp2: receiving. */

/* Nothing more of this stream is told but its close. */
static int stream_discard(struct muster_h2_stream *stream, uint32_t code)
{
    stream->is_discarded = true;
    return nghttp2_submit_rst_stream(stream->session->ng, NGHTTP2_FLAG_NONE, stream->id, code);
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
        MUSTER_ASSERT(muster_list_is_empty(&stream->node));
        muster_list_append(&session->streams, &stream->node);
        (void)nghttp2_session_set_stream_user_data(ng, stream->id, stream);
    }
    if (stream != NULL)
        stream->header_bytes = 0;
    return 0;
}

/* The list of a block's headers has grown by one: is it within SETTINGS_MAX_HEADER_LIST_SIZE? */
static bool is_within_limit(struct muster_h2_stream *stream, size_t bytes)
{
    stream->header_bytes += bytes + FIELD_OVERHEAD;
    return stream->header_bytes <= stream->session->options.header_list_max_bytes;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, frame->hd.stream_id);
    enum muster_h2_header_verdict verdict = MUSTER_H2_HEADER_TAKEN;
    bool is_within;

    (void)ng;
    (void)flags;
    if (stream == NULL)
        return 0;
    is_within = is_within_limit(stream, name_bytes + value_bytes);
    if (stream->header_bytes / HEADER_BOMB_FACTOR > session->options.header_list_max_bytes) {
        /* HPACK lets one byte stand for kilobytes, all of which are checked here: going on would
         * cost us far more than the peer. */
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "header_bomb");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (stream->is_discarded)
        return 0;
    if (!is_within) {
        stream->is_discarded = true; /* before the event, whose answer is the last of this stream */
        session->events->on_over_limit(stream);
        return stream_discard(stream, NGHTTP2_ENHANCE_YOUR_CALM);
    }
    if (session->options.is_server)
        verdict = muster_h2_request_header(&stream->request, name, name_bytes, value, value_bytes);
    if (verdict == MUSTER_H2_HEADER_MALFORMED)
        return stream_discard(stream, NGHTTP2_PROTOCOL_ERROR);
    if (verdict == MUSTER_H2_HEADER_TAKEN)
        session->events->on_header(stream, (const char *)name, name_bytes, (const char *)value,
                                   value_bytes);
    return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                         size_t count, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, id);

    /* The connection's window opens at once: each stream is held back by its own window, and one
     * whose owner does not read must not starve the others. */
    muster_h2_session_check(session, nghttp2_session_consume_connection(ng, count));
    if (stream != NULL && session->options.is_server &&
        !muster_h2_request_data(&stream->request, count) && !stream->is_discarded)
        muster_h2_session_check(session, stream_discard(stream, NGHTTP2_PROTOCOL_ERROR));
    if (stream == NULL || stream->is_discarded) /* no owner will consume these bytes */
        return nghttp2_session_consume_stream(ng, id, count);
    session->events->on_data(stream, bytes, count, (flags & NGHTTP2_FLAG_END_STREAM) != 0);
    return 0;
}

static int headers_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    struct muster_h2_stream *stream = stream_of(session, frame->hd.stream_id);
    bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (stream == NULL || stream->is_discarded)
        return 0;
    if (session->options.is_server && !muster_h2_request_headers(&stream->request, is_end))
        return stream_discard(stream, NGHTTP2_PROTOCOL_ERROR);
    session->events->on_headers(stream, is_end);
    if (is_end)
        session->events->on_end(stream);
    return 0;
}

static int body_received(struct muster_h2_session *session, struct muster_h2_stream *stream)
{
    if (stream == NULL || stream->is_discarded)
        return 0;
    if (session->options.is_server && !muster_h2_request_end(&stream->request))
        return stream_discard(stream, NGHTTP2_PROTOCOL_ERROR);
    session->events->on_end(stream);
    return 0;
}

static int data_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        return body_received(session, stream_of(session, frame->hd.stream_id));
    if (frame->hd.length <= frame->data.padlen && /* padding alone carries nothing */
        !muster_token_bucket_take(&session->empties, muster_loop_now_ns(session->env->loop)))
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "empty_data_flood");
    return 0;
}

static void ping_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
        session->events->on_ping(session);
    } else if (memcmp(frame->ping.opaque_data, MUSTER_H2_DRAIN_PING,
                      sizeof(MUSTER_H2_DRAIN_PING)) == 0) {
        /* The peer answers PING after what it had sent before: all requests from before it heard of
         * our notice are here, so the last one can be named. */
        muster_h2_session_drain_now(session, "");
    } else {
        session->events->on_pong(session);
    }
}

/* Each SETTINGS must be acknowledged (RFC 9113 6.5.3), so many of them are a flood. */
static void settings_received(struct muster_h2_session *session, const nghttp2_frame *frame)
{
    if (frame->hd.flags & NGHTTP2_FLAG_ACK)
        return;
    if (session->has_settings) {
        if (!muster_token_bucket_take(&session->empties, muster_loop_now_ns(session->env->loop)))
            muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "settings_flood");
        return;
    }
    session->has_settings = true;
    session->events->on_settings(session);
}

/* nghttp2 counts resets as well, but its GOAWAY says INTERNAL_ERROR. */
static void reset_received(struct muster_h2_session *session)
{
    if (session->options.is_server &&
        !muster_token_bucket_take(&session->resets, muster_loop_now_ns(session->env->loop)))
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "rapid_reset");
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *data)
{
    struct muster_h2_session *session = data;

    (void)ng;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        return headers_received(session, frame);
    case NGHTTP2_DATA:
        return data_received(session, frame);
    case NGHTTP2_SETTINGS:
        settings_received(session, frame);
        break;
    case NGHTTP2_PING:
        ping_received(session, frame);
        break;
    case NGHTTP2_RST_STREAM:
        reset_received(session);
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

    /* A drain's GOAWAY may have been queued before, with NO_ERROR; the last one has a code. */
    if (frame->hd.type == NGHTTP2_GOAWAY && session->goaway == MUSTER_H2_GOAWAY_LAST &&
        frame->goaway.error_code != NGHTTP2_NO_ERROR)
        muster_h2_session_goaway_move(session, MUSTER_H2_GOAWAY_LAST_SENT);
    if (frame->hd.type == NGHTTP2_HEADERS) {
        stream = stream_of(session, frame->hd.stream_id);
        if (stream != NULL)
            stream->is_sent = true;
    }
    if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)
        session->sent_frames++;
    /* An answer before the end of the request: the client shall stop (RFC 9113 8.1). */
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        session->options.is_server && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        nghttp2_session_get_stream_remote_close(ng, frame->hd.stream_id) == 0)
        muster_h2_session_check(session,
                                nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE,
                                                          frame->hd.stream_id, NGHTTP2_NO_ERROR));
    /* Errors that a client provokes cost as much as its own resets (CVE-2025-8671). */
    if (frame->hd.type == NGHTTP2_RST_STREAM && session->options.is_server &&
        frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
        frame->rst_stream.error_code != NGHTTP2_CANCEL &&
        !muster_token_bucket_take(&session->resets, muster_loop_now_ns(session->env->loop)))
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "stream_error_flood");
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = stream_of(session, id);

    if (stream == NULL)
        return 0;
    /* The owner may free the stream in on_close, so nothing here points to it any more by then. */
    (void)nghttp2_session_set_stream_user_data(ng, id, NULL);
    session->latest = NULL;
    muster_list_remove(&stream->node);
    muster_list_remove(&stream->drained_node);
    session->events->on_close(stream, stream->is_sent ? code : MUSTER_H2_REFUSED_STREAM);
    return 0;
}

static ssize_t on_body_length(nghttp2_session *ng, uint8_t type, int32_t id, int32_t session_window,
                              int32_t stream_window, uint32_t frame_max, void *data)
{
    const struct muster_h2_stream *stream = stream_of(data, id);
    size_t length = stream != NULL ? stream->body.bytes : 0;

    (void)type;
    (void)session_window;
    (void)stream_window;
    (void)ng;
    /* nghttp2 keeps room for the longest frame so announced, though it never copies one there. */
    if (length < FRAME_SEND_MIN)
        length = FRAME_SEND_MIN;
    if (length > FRAME_SEND_MAX)
        length = FRAME_SEND_MAX;
    return length < frame_max ? (ssize_t)length : (ssize_t)frame_max;
}

/* The payload itself is not copied here (NO_COPY): on_body_send moves it once the head of its frame
 * is known. Trailers are asked for before the last DATA frame, because nghttp2 must know that
 * END_STREAM will be on them instead. */
ssize_t muster_h2_on_body_read(nghttp2_session *ng, int32_t id, uint8_t *buffer, size_t length,
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

/* The peer's window let count bytes of the body go: its wait begins anew when that is a fair
 * number. */
static void body_taken(struct muster_h2_stream *stream, size_t count)
{
    stream->taken_bytes += count;
    if (stream->taken_bytes < TAKEN_MIN_BYTES)
        return;
    stream->taken_bytes = 0;
    stream->waits_since_ns = muster_loop_now_ns(stream->session->env->loop);
}

static int on_body_send(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head,
                        size_t length, nghttp2_data_source *source, void *data)
{
    struct muster_h2_session *session = data;
    struct muster_h2_stream *stream = source->ptr;

    (void)ng;
    if (muster_h2_output_is_full(session->output))
        return NGHTTP2_ERR_WOULDBLOCK;
    /* All that can fail comes before the head: half a frame would break the connection. */
    if (frame->data.padlen > 0 || stream->body.promised_bytes != length)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    muster_h2_output_copy(session->output, head, MUSTER_H2_FRAME_HEAD_BYTES);
    if (!muster_h2_body_write(&stream->body, session->output))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    body_taken(stream, length);
    if (stream->body.bytes == 0 && !stream->body.is_ended) {
        muster_list_remove(&stream->drained_node);
        muster_list_append(&session->drained, &stream->drained_node);
    }
    return 0;
}

void muster_h2_session_set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_body_length);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_body_send);
}
