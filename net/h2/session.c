/* An HTTP/2 connection over any byte stream: its opening, one gathered write per turn, its end. */
#include "net/h2/session.h"

#include <string.h>

#include "net/h2/h2_session_internal.h"

#define RESET_BURST          1000 /* streams that the peer's errors make us reset */
#define RESET_PER_SECOND     33
#define EMPTY_BURST          1000 /* DATA frames without data or end */
#define EMPTY_PER_SECOND     33
#define PARTING_NS           MUSTER_NS_PER_S
#define SETTINGS_ENTRIES_MAX 32
#define CONTINUATIONS_MAX    8
#define ACKS_QUEUED_MAX      1000

void muster_h2_session_wake(struct muster_h2_session *session)
{
    if (session->depth == 0)
        muster_task_post(&session->flush_task, session->env->loop);
}

void muster_h2_session_end(struct muster_h2_session *session, enum muster_rc rc, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN && session->state != MUSTER_H2_SESSION_PARTING)
        return;
    muster_timer_stop(&session->parting_timer);
    session->state = MUSTER_H2_SESSION_ENDING;
    session->error = muster_mem_alloc(session->mem, sizeof(*session->error));
    if (session->error != NULL)
        (void)muster_error_set(session->error, rc, "%s", text);
    muster_h2_session_wake(session);
}

void muster_h2_session_check(struct muster_h2_session *session, int result)
{
    if (nghttp2_is_fatal(result))
        muster_h2_session_end(session, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
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

/* The life of the connection. */

static void lose_streams(struct muster_h2_session *session)
{
    struct muster_list *node;

    session->depth++;
    session->latest = NULL;
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
    mem = session->mem;
    nghttp2_session_del(session->ng);
    muster_h2_output_free(session->output);
    muster_mem_free(mem, session->rest);
    muster_mem_free(mem, session->error);
    muster_mem_free(mem, session);
}

static void output_drop(struct muster_h2_session *session)
{
    muster_h2_output_free(session->output);
    session->output = NULL;
}

static void on_stream_closed(struct muster_stream *stream)
{
    struct muster_h2_session *session = stream->data;

    output_drop(session); /* before its owner goes, which counts the buffers in it */
    if (session->closed != NULL)
        session->closed(session);
    session_free(session);
}

static void tear_down(struct muster_h2_session *session)
{
    bool was_open = session->state < MUSTER_H2_SESSION_DOWN;

    session->state = MUSTER_H2_SESSION_CLOSED;
    muster_timer_stop(&session->parting_timer);
    muster_task_cancel(&session->flush_task);
    muster_task_cancel(&session->linger_task);
    if (was_open)
        lose_streams(session);
    muster_stream_close(session->stream, on_stream_closed);
}

void muster_h2_session_settle(struct muster_h2_session *session)
{
    if (session->state == MUSTER_H2_SESSION_PARTING)
        lose_streams(session);
    if (session->state == MUSTER_H2_SESSION_ENDING && !session->is_close_wanted) {
        session->state = MUSTER_H2_SESSION_DOWN;
        lose_streams(session);
        session->depth++;
        session->events->on_down(session, muster_h2_session_error(session));
        session->depth--;
    }
    if (session->is_close_wanted && session->state != MUSTER_H2_SESSION_CLOSED)
        tear_down(session);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc);

static void tell_drained(struct muster_h2_session *session)
{
    struct muster_list *node;

    session->depth++;
    while ((node = muster_list_pop(&session->drained)) != NULL)
        session->events->on_drained(
            MUSTER_CONTAINER_OF(node, struct muster_h2_stream, drained_node));
    session->depth--;
}

/* Fill an output with all that nghttp2 has to send. */
static void gather(struct muster_h2_session *session)
{
    if (session->is_goaway_out || !nghttp2_session_want_write(session->ng))
        return;
    session->output = muster_h2_output_new(session->mem);
    if (session->output == NULL) {
        muster_h2_session_end(session, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    session->depth++;
    while (!muster_h2_output_is_full(session->output) && !session->is_goaway_out) {
        const uint8_t *bytes = NULL;
        ssize_t count = nghttp2_session_mem_send(session->ng, &bytes);

        if (count < 0)
            muster_h2_session_end(session, MUSTER_INTERNAL, nghttp2_strerror((int)count));
        if (count <= 0)
            break;
        muster_h2_output_copy(session->output, bytes, (size_t)count);
    }
    session->depth--;
    if (session->output->piece_count == 0)
        output_drop(session);
}

static bool is_finished(const struct muster_h2_session *session)
{
    return session->is_goaway_out ||
           (!nghttp2_session_want_read(session->ng) && !nghttp2_session_want_write(session->ng));
}

static void on_parting_over(struct muster_timer *timer)
{
    struct muster_h2_session *session = timer->data;

    muster_h2_session_end(session, MUSTER_UNAVAILABLE, MUSTER_H2_ENDED_BY_GOAWAY);
    muster_h2_session_settle(session);
}

/* All is said. A server that closed now would answer what still comes with a reset, and a reset takes
 * away what the client has not read yet, our last answer or the reason of our GOAWAY. So it sends FIN
 * and drops what comes until the client ends, too. */
static void part(struct muster_h2_session *session)
{
    if (!session->options.is_server) {
        muster_h2_session_end(session, MUSTER_UNAVAILABLE, MUSTER_H2_ENDED_BY_GOAWAY);
        return;
    }
    session->state = MUSTER_H2_SESSION_PARTING;
    muster_timer_start(&session->parting_timer, session->env->loop,
                       muster_loop_after_ns(session->env->loop, PARTING_NS));
    muster_stream_shutdown(session->stream);
    muster_h2_session_read(session);
}

void muster_h2_session_flush(struct muster_h2_session *session)
{
    enum muster_rc rc;

    if (session->state != MUSTER_H2_SESSION_OPEN || session->is_writing)
        return;
    gather(session);
    if (session->state != MUSTER_H2_SESSION_OPEN)
        return;
    if (session->output != NULL) {
        rc = muster_stream_submit(&session->write, session->stream, session->output->pieces,
                                  session->output->piece_count, on_written);
        session->write_count++;
        session->write_started_ns = muster_loop_now_ns(session->env->loop);
        if (rc == MUSTER_OK)
            session->is_writing = true;
        else
            muster_h2_session_end(session, MUSTER_UNAVAILABLE, "connection is closed");
    } else if (is_finished(session)) {
        part(session);
    }
    tell_drained(session);
}

/* Under TLS 1.3 a server judges a client's certificate when that believes the handshake done. */
void muster_h2_session_lose(struct muster_h2_session *session, const char *text)
{
    const struct muster_error *error = muster_stream_error(session->stream);
    bool is_refused = error != NULL && error->rc == MUSTER_UNAUTHENTICATED;

    session->is_unheard = session->state == MUSTER_H2_SESSION_OPEN && session->received_bytes == 0;
    muster_h2_session_end(session, is_refused ? MUSTER_UNAUTHENTICATED : MUSTER_UNAVAILABLE,
                          error != NULL ? error->text : text);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_h2_session *session = write->data;

    session->is_writing = false;
    output_drop(session);
    if (session->state == MUSTER_H2_SESSION_CLOSED)
        return;
    if (rc != MUSTER_OK)
        muster_h2_session_lose(session, "connection lost");
    muster_h2_session_flush(session);
    muster_h2_session_read(session);
    muster_h2_session_settle(session);
}

static void on_flush(struct muster_task *task)
{
    struct muster_h2_session *session = task->data;

    muster_h2_session_flush(session);
    muster_h2_session_settle(session);
}

/* Opening. */

static int ng_open(struct muster_h2_session *session, nghttp2_session_callbacks *callbacks,
                   nghttp2_option *option)
{
    nghttp2_mem mem = {session->mem, ng_malloc, ng_free, ng_calloc, ng_realloc};

    muster_h2_session_set_callbacks(callbacks);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_settings(option, SETTINGS_ENTRIES_MAX);
    nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX);
    nghttp2_option_set_max_outbound_ack(option, ACKS_QUEUED_MAX);
    nghttp2_option_set_stream_reset_rate_limit(option, 2 * RESET_BURST, 2 * RESET_PER_SECOND);
    nghttp2_option_set_no_http_messaging(option,
                                         session->options.is_server); /* net/h2/session_request.c */
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
    session->write.data = session;
    stream->data = session;
    muster_list_init(&session->streams);
    muster_list_init(&session->drained);
    muster_task_init(&session->flush_task, on_flush, session);
    muster_h2_session_reader_init(session);
    muster_timer_init(&session->parting_timer, on_parting_over, session);
    muster_h2_watch_init(&session->watch);
    muster_h2_bucket_init(&session->resets, RESET_BURST, RESET_PER_SECOND);
    muster_h2_bucket_init(&session->empties, EMPTY_BURST, EMPTY_PER_SECOND);
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

const struct muster_error *muster_h2_session_error(const struct muster_h2_session *session)
{
    static const struct muster_error untold = {.rc = MUSTER_UNAVAILABLE, .text = "connection lost"};

    return session->error != NULL ? session->error : &untold;
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

void muster_h2_session_drain(struct muster_h2_session *session, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN || session->drain_text != NULL)
        return;
    session->drain_text = text;
    if (!session->options.is_server) {
        muster_h2_session_drain_now(session, text);
        return;
    }
    muster_h2_session_check(session, nghttp2_submit_shutdown_notice(session->ng));
    muster_h2_session_check(session, nghttp2_submit_ping(session->ng, NGHTTP2_FLAG_NONE,
                                                         (const uint8_t *)MUSTER_H2_DRAIN_PING));
    muster_h2_session_wake(session);
}

static void goaway(struct muster_h2_session *session, uint32_t code, const char *text)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->ng);

    muster_h2_session_check(session,
                            nghttp2_submit_goaway(session->ng, NGHTTP2_FLAG_NONE, last, code,
                                                  (const uint8_t *)text, strlen(text)));
    muster_h2_session_wake(session);
}

void muster_h2_session_drain_now(struct muster_h2_session *session, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN || session->is_drained)
        return;
    session->is_drained = true;
    goaway(session, NGHTTP2_NO_ERROR, session->drain_text != NULL ? session->drain_text : text);
}

void muster_h2_session_terminate(struct muster_h2_session *session, uint32_t code, const char *text)
{
    if (session->state != MUSTER_H2_SESSION_OPEN || session->is_terminating)
        return;
    session->is_terminating = true;
    goaway(session, code, text);
}
