/* Streams of an HTTP/2 session: requests, responses, bodies, trailers and resets. These are the
 * calls of the streams' owners. Each only queues with nghttp2; the bytes leave in one write when
 * the loop comes back to the session. */
#include <string.h>

#include "net/h2/h2_session_internal.h"

/* An owner need not know that its connection has ended under it: what it still sends is dropped,
 * and on_close tells it. */
static bool is_live(const struct muster_h2_stream *stream)
{
    return stream->session != NULL && stream->session->state == MUSTER_H2_SESSION_OPEN;
}

static void headers_convert(nghttp2_nv *ret_nv, const struct muster_h2_header *headers,
                            size_t count)
{
    MUSTER_ASSERT(count <= MUSTER_H2_HEADERS_MAX);
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
    nghttp2_data_provider provider = {{.ptr = stream}, muster_h2_on_body_read};
    int32_t id;

    MUSTER_ASSERT(!session->options.is_server && muster_list_is_empty(&stream->node));
    if (session->state != MUSTER_H2_SESSION_OPEN)
        return MUSTER_FAILED_PRECONDITION;
    headers_convert(nv, headers, count);
    id = nghttp2_submit_request(session->ng, NULL, nv, count, &provider, stream);
    if (id < 0)
        return id == NGHTTP2_ERR_NOMEM ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_FAILED_PRECONDITION;
    stream->session = session;
    stream->id = id;
    stream->is_sent = false; /* until its HEADERS leave: a connection lost before may be retried */
    muster_list_append(&session->streams, &stream->node);
    muster_h2_session_wake(session);
    return MUSTER_OK;
}

void muster_h2_stream_respond(struct muster_h2_stream *stream,
                              const struct muster_h2_header *headers, size_t count, bool is_end,
                              bool has_trailers)
{
    nghttp2_nv nv[MUSTER_H2_HEADERS_MAX];
    nghttp2_data_provider provider = {{.ptr = stream}, muster_h2_on_body_read};
    int failed;

    if (!is_live(stream))
        return;
    stream->has_trailers = has_trailers;
    headers_convert(nv, headers, count);
    failed = nghttp2_submit_response(stream->session->ng, stream->id, nv, count,
                                     is_end ? NULL : &provider);
    muster_h2_session_check(stream->session, failed);
    if (failed != 0)
        muster_h2_stream_reset(stream, MUSTER_H2_INTERNAL_ERROR);
    muster_h2_session_wake(stream->session);
}

static void stream_resume(struct muster_h2_stream *stream)
{
    if (!is_live(stream))
        return;
    /* nghttp2 asks a body that had nothing for it again only when told so. On any other body the
     * call fails, and harmlessly. */
    muster_h2_session_check(stream->session,
                            nghttp2_session_resume_data(stream->session->ng, stream->id));
    muster_h2_session_wake(stream->session);
}

void muster_h2_stream_send(struct muster_h2_stream *stream, struct muster_h2_buffer *buffer)
{
    /* A wait begins when there is something to wait for. */
    if (stream->body.bytes == 0 && stream->session != NULL) {
        stream->waits_since_ns = muster_loop_now_ns(stream->session->env->loop);
        stream->taken_bytes = 0;
    }
    muster_h2_buffer_count(buffer, stream->holding);
    muster_h2_body_append(&stream->body, buffer);
    stream_resume(stream);
}

void muster_h2_stream_end(struct muster_h2_stream *stream)
{
    stream->body.is_ended = true;
    stream_resume(stream);
}

void muster_h2_stream_submit_trailers(struct muster_h2_stream *stream,
                                      const struct muster_h2_header *headers, size_t count)
{
    nghttp2_nv nv[MUSTER_H2_HEADERS_MAX];
    int failed;

    MUSTER_ASSERT(stream->session != NULL && stream->session->depth > 0);
    headers_convert(nv, headers, count);
    failed = nghttp2_submit_trailer(stream->session->ng, stream->id, nv, count);
    muster_h2_session_check(stream->session, failed);
    if (failed != 0)
        muster_h2_stream_reset(stream, MUSTER_H2_INTERNAL_ERROR);
}

void muster_h2_stream_reset(struct muster_h2_stream *stream, uint32_t code)
{
    if (!is_live(stream))
        return;
    muster_h2_session_check(
        stream->session,
        nghttp2_submit_rst_stream(stream->session->ng, NGHTTP2_FLAG_NONE, stream->id, code));
    muster_h2_session_wake(stream->session);
}

void muster_h2_stream_consume(struct muster_h2_stream *stream, size_t count)
{
    if (!is_live(stream) || count == 0)
        return;
    muster_h2_session_check(stream->session,
                            nghttp2_session_consume_stream(stream->session->ng, stream->id, count));
    muster_h2_session_wake(stream->session);
}
