/* An HTTP/2 connection over any byte stream: its opening, one gathered write per turn, its end. The
 * frames themselves are nghttp2's work. This file sets it up, with limits that a hostile peer
 * meets; net/h2/session_turn.c moves the bytes, and net/h2/session_events.c tells the owner. */
#include "net/h2/session.h"

#include <string.h>

#include "net/h2/h2_session_internal.h"

/* Resets cost a peer one small frame and us a request each (CVE-2023-44487, CVE-2025-8671). The
 * numbers are those of nghttp2: a burst for a client that cancels all it has, then a trickle. */
#define RESET_BURST          1000
#define RESET_PER_SECOND     33
/* DATA frames without data or end, and SETTINGS after the first, help no call: the same bound. */
#define EMPTY_BURST          1000
#define EMPTY_PER_SECOND     33
/* RFC 9113 10.5 lets an endpoint treat an excess of these as an attack. Real peers send six
 * settings or so; eight CONTINUATION frames hold 128 KiB of headers (CVE-2024-27316). */
#define SETTINGS_ENTRIES_MAX 32
#define CONTINUATIONS_MAX    8
#define ACKS_QUEUED_MAX      1000 /* acknowledgements that a peer may leave unread (PING, SETTINGS) */

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

/* Opening. */

static int ng_open(struct muster_h2_session *session, nghttp2_session_callbacks *callbacks,
                   nghttp2_option *option)
{
    nghttp2_mem mem = {session->mem, ng_malloc, ng_free, ng_calloc, ng_realloc};

    muster_h2_session_set_callbacks(callbacks);
    /* A stream's window is given back as its owner consumes: that is how a slow reader holds up the
     * sender (RFC 9113 5.2). */
    nghttp2_option_set_no_auto_window_update(option, 1);
    /* Closed streams would be kept for priorities, which are not used; net/h2/watch.c finds frames
     * on them instead. */
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_settings(option, SETTINGS_ENTRIES_MAX);
    nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX);
    nghttp2_option_set_max_outbound_ack(option, ACKS_QUEUED_MAX);
    /* Our own count, in net/h2/session_events.c, comes first and names the reason in its GOAWAY. */
    nghttp2_option_set_stream_reset_rate_limit(option, 2 * RESET_BURST, 2 * RESET_PER_SECOND);
    /* A server judges requests by itself: see net/h2/session_request.h. */
    nghttp2_option_set_no_http_messaging(option, session->options.is_server);
    return session->options.is_server
               ? nghttp2_session_server_new3(&session->ng, callbacks, session, option, &mem)
               : nghttp2_session_client_new3(&session->ng, callbacks, session, option, &mem);
}

/* The first frames of either side (RFC 9113 3.4). Only a server limits streams, because only
 * clients open them here, and a client refuses pushes (RFC 9113 8.4), which nobody here would
 * take. */
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
    /* SETTINGS cannot change the connection's own window: WINDOW_UPDATE does (RFC 9113 6.9.2). */
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
    stream->data = session;
    muster_list_init(&session->streams);
    muster_list_init(&session->drained);
    muster_h2_session_turns_init(session);
    muster_h2_watch_init(&session->watch);
    muster_token_bucket_init(&session->resets, RESET_BURST, RESET_PER_SECOND);
    muster_token_bucket_init(&session->empties, EMPTY_BURST, EMPTY_PER_SECOND);
}

enum muster_rc muster_h2_session_open(struct muster_env *env, struct muster_stream *stream,
                                      const struct muster_h2_options *options,
                                      const struct muster_h2_events *events, void *data,
                                      struct muster_h2_session **ret_session)
{
    struct muster_mem *mem = options->mem != NULL ? options->mem : env->mem;
    struct muster_h2_session *session = muster_mem_alloc_zero(mem, 1, sizeof(*session));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (session == NULL)
        goto fail;
    session_init(session, env, stream, options);
    session->mem = mem;
    session->events = events;
    session->data = data;
    rc = ng_new(session);
    if (rc != MUSTER_OK)
        goto fail;
    muster_h2_session_read(session);
    muster_h2_session_wake(session);
    *ret_session = session;
    return MUSTER_OK;
fail:
    muster_h2_session_free(session);
    muster_stream_close(stream, NULL);
    return rc;
}

void muster_h2_session_close(struct muster_h2_session *session, muster_h2_session_close_fn *closed)
{
    if (session->is_close_wanted)
        return;
    session->is_close_wanted = true;
    session->closed = closed;
    /* Inside an event nghttp2 still works on its frames: the turn closes when it has come back. */
    if (session->depth == 0)
        muster_h2_session_tear_down(session);
}

void *muster_h2_session_data(const struct muster_h2_session *session)
{
    return session->data;
}

struct muster_stream *muster_h2_session_stream(const struct muster_h2_session *session)
{
    return session->stream;
}

bool muster_h2_session_is_unheard(const struct muster_h2_session *session)
{
    return session->is_unheard;
}

uint64_t muster_h2_session_received_bytes(const struct muster_h2_session *session)
{
    return session->received_bytes;
}

uint64_t muster_h2_session_sent_frames(const struct muster_h2_session *session)
{
    return session->sent_frames;
}

uint64_t muster_h2_session_write_mark(const struct muster_h2_session *session)
{
    return session->is_writing ? session->write_count : 0;
}

uint64_t muster_h2_session_waits_since_ns(struct muster_h2_session *session)
{
    uint64_t since_ns = session->is_writing ? session->write_started_ns : UINT64_MAX;
    struct muster_h2_stream *stream = NULL;

    while ((stream = muster_h2_session_next_stream(session, stream)) != NULL) {
        if (stream->body.bytes > 0 && stream->waits_since_ns < since_ns)
            since_ns = stream->waits_since_ns;
    }
    return since_ns;
}

struct muster_h2_stream *muster_h2_session_next_stream(struct muster_h2_session *session,
                                                       struct muster_h2_stream *stream)
{
    struct muster_list *next = stream == NULL ? session->streams.next : stream->node.next;

    if (next == &session->streams)
        return NULL;
    return MUSTER_CONTAINER_OF(next, struct muster_h2_stream, node);
}

uint32_t muster_h2_session_streams_max(const struct muster_h2_session *session)
{
    return nghttp2_session_get_remote_settings(session->ng,
                                               NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

bool muster_h2_session_has_streams(const struct muster_h2_session *session)
{
    return !muster_list_is_empty(&session->streams);
}

void muster_h2_session_fail(struct muster_h2_session *session, const struct muster_error *error)
{
    muster_h2_session_end(session, error->rc, error->text);
}

void muster_h2_session_ping(struct muster_h2_session *session)
{
    if (session->state != MUSTER_H2_SESSION_OPEN)
        return;
    muster_h2_session_check(session, nghttp2_submit_ping(session->ng, NGHTTP2_FLAG_NONE, NULL));
    muster_h2_session_wake(session);
}

/* RFC 9113 6.8: requests may be under way when a server decides to go. It first sends a GOAWAY that
 * names no last stream and a PING; when the PING's answer is here, so are those requests, and the
 * GOAWAY that names the last one can follow. Nothing comes towards a client unasked, so it needs
 * one GOAWAY only. */
void muster_h2_session_drain(struct muster_h2_session *session, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN || session->goaway != MUSTER_H2_GOAWAY_NONE)
        return;
    if (!session->options.is_server) {
        muster_h2_session_drain_now(session, text);
        return;
    }
    session->drain_text = text;
    muster_h2_session_goaway_move(session, MUSTER_H2_GOAWAY_ANNOUNCED);
    muster_h2_session_check(session, nghttp2_submit_shutdown_notice(session->ng));
    muster_h2_session_check(session, nghttp2_submit_ping(session->ng, NGHTTP2_FLAG_NONE,
                                                         (const uint8_t *)MUSTER_H2_DRAIN_PING));
    muster_h2_session_wake(session);
}
