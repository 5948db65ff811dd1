/* An HTTP/2 connection's turns of the loop: what came is read, one gathered write goes out, and
 * what could not be done amid events is settled last. Every entry from the loop (a read, a write, a
 * task, a timer) ends in session_settle, which closes the session if its owner wants that. */
#include <string.h>

#include "net/h2/h2_session_internal.h"

#define PARTING_NS          MUSTER_NS_PER_S /* for a client that does not end after our FIN */
#define READ_BYTES          (64u << 10) /* a loaded socket has about so much at once */
#define LINGER_BYTES_MIN    (16u << 10) /* a read of more is part of a bulk transfer */
#define LINGER_TURNS        256 /* of the loop without anything to read: then it may sleep again */
#define GATHER_NS           40000 /* about one read's worth at 10 Gbit/s; no call notices it */
#define QUEUED_FRAMES_MAX   1000 /* beyond it a peer that does not read is not read either */
#define DISCARDED_BYTES_MAX (256u << 10) /* read only so that our GOAWAY is not lost */

static void on_written(struct muster_stream_write *write, enum muster_rc rc);
static void session_flush(struct muster_h2_session *session);

/* A stream whose HEADERS never left is told as refused: the peer has not acted, so its owner may
 * send it again elsewhere (RFC 9113 8.7). Each stream leaves the list before its event, which may
 * free it. */
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

static void output_drop(struct muster_h2_session *session)
{
    muster_h2_output_free(session->output);
    session->output = NULL;
}

static void on_stream_closed(struct muster_stream *stream)
{
    struct muster_h2_session *session = stream->data;

    MUSTER_ASSERT(session->state == MUSTER_H2_SESSION_CLOSED);
    output_drop(session); /* before its owner goes, which counts the buffers in it */
    if (session->closed != NULL)
        session->closed(session);
    muster_h2_session_free(session);
}

void muster_h2_session_tear_down(struct muster_h2_session *session)
{
    bool was_open = session->state < MUSTER_H2_SESSION_DOWN;

    MUSTER_ASSERT(session->depth == 0);
    muster_h2_session_move(session, MUSTER_H2_SESSION_CLOSED);
    muster_timer_stop(&session->parting_timer);
    muster_task_cancel(&session->flush_task);
    muster_task_cancel(&session->linger_task);
    if (was_open)
        lose_streams(session);
    muster_stream_close(session->stream, on_stream_closed);
}

/* The last step of every turn, when neither nghttp2 nor an event is on the stack. on_down comes
 * after the on_close of every stream; an owner that closes in one of these is torn down last. */
static void session_settle(struct muster_h2_session *session)
{
    MUSTER_ASSERT(session->depth == 0);
    if (session->state == MUSTER_H2_SESSION_PARTING)
        lose_streams(session);
    if (session->state == MUSTER_H2_SESSION_ENDING && !session->is_close_wanted) {
        muster_h2_session_move(session, MUSTER_H2_SESSION_DOWN);
        lose_streams(session);
        session->depth++;
        session->events->on_down(session, muster_h2_session_error(session));
        session->depth--;
    }
    if (session->is_close_wanted && session->state != MUSTER_H2_SESSION_CLOSED)
        muster_h2_session_tear_down(session);
}

/* A read that filled its room leaves more behind, for which a large buffer is taken. An idle
 * connection waits with its small one: a server has thousands of those. */
static void rest_expect(struct muster_h2_session *session, bool is_more)
{
    if (is_more && session->rest == NULL) {
        session->rest = muster_mem_alloc(session->mem, READ_BYTES); /* if not: slower */
    } else if (!is_more && session->rest != NULL) {
        muster_mem_free(session->mem, session->rest);
        session->rest = NULL;
    }
}

/* A bulk transfer goes on: the next read waits GATHER_NS for more than one piece, and the loop does
 * not sleep meanwhile. A receiver that takes each piece at once makes the sender do the kernel's
 * work once for each of them, and waking up costs both sides more than looking again (1 MiB
 * requests between two processors of a virtual machine: a quarter and a third of their time). */
static void linger_start(struct muster_h2_session *session)
{
    session->linger_turns = LINGER_TURNS;
    session->gather_until_ns = muster_loop_after_ns(session->env->loop, GATHER_NS);
    muster_task_post(&session->linger_task, session->env->loop);
}

static void on_linger(struct muster_task *task)
{
    struct muster_h2_session *session = task->data;

    if (session->linger_turns > 0 && --session->linger_turns > 0)
        muster_task_post(&session->linger_task, session->env->loop);
    if (session->linger_turns > 0 &&
        muster_loop_now_ns(session->env->loop) < session->gather_until_ns)
        return;
    muster_h2_session_read(session);
    session_settle(session);
}

static const char *loss_text(const struct muster_h2_session *session,
                             const struct muster_stream_read *read)
{
    if (!read->is_eof)
        return "connection lost";
    if (!session->options.is_server && session->received_bytes == 0)
        return "the peer ended the connection before it said anything";
    return "connection closed by peer";
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct muster_h2_session *session = read->data;
    bool is_first = session->rest == NULL;
    bool is_full = read->bytes_done == (is_first ? sizeof(session->first) : READ_BYTES);
    bool is_bulk = read->bytes_done >= LINGER_BYTES_MIN;

    MUSTER_ASSERT(session->is_reading);
    session->is_reading = false;
    if (session->state == MUSTER_H2_SESSION_CLOSED)
        return;
    if (read->bytes_done > 0 && muster_h2_session_is_reader(session))
        muster_h2_session_feed(session, is_first ? session->first : session->rest,
                               read->bytes_done);
    rest_expect(session, is_full);
    if (is_bulk)
        linger_start(session);
    if (rc != MUSTER_OK)
        muster_h2_session_lose(session, loss_text(session, read));
    if (!is_bulk || is_full)
        muster_h2_session_read(session);
    if (is_first && is_full && rc == MUSTER_OK)
        muster_h2_session_wake(session); /* the rest comes at once: answer all of it together */
    else
        session_flush(session);
    session_settle(session);
}

void muster_h2_session_read(struct muster_h2_session *session)
{
    uint8_t *buffer = session->rest != NULL ? session->rest : session->first;
    size_t room = session->rest != NULL ? READ_BYTES : sizeof(session->first);

    if (!muster_h2_session_is_reader(session) || session->is_reading || session->is_close_wanted)
        return;
    if (session->discarded_bytes > DISCARDED_BYTES_MAX) {
        if (session->state == MUSTER_H2_SESSION_PARTING)
            muster_h2_session_end(session, MUSTER_UNAVAILABLE, MUSTER_H2_ENDED_BY_GOAWAY);
        return;
    }
    if (session->is_writing &&
        nghttp2_session_get_outbound_queue_size(session->ng) > QUEUED_FRAMES_MAX)
        return; /* on_written reads on */
    if (muster_stream_receive_into(&session->read, session->stream, buffer, 1, room, on_read) ==
        MUSTER_OK)
        session->is_reading = true;
    else
        muster_h2_session_end(session, MUSTER_UNAVAILABLE, "connection is closed");
}

/* This follows the write, because an owner that hears of its empty queue fills it again. */
static void tell_drained(struct muster_h2_session *session)
{
    struct muster_list *node;

    session->depth++;
    while ((node = muster_list_pop(&session->drained)) != NULL)
        session->events->on_drained(
            MUSTER_CONTAINER_OF(node, struct muster_h2_stream, drained_node));
    session->depth--;
}

/* Fill an output with all that nghttp2 has to send. The payloads of DATA frames come by
 * on_body_send, while the call to nghttp2 runs. */
static void gather_output(struct muster_h2_session *session)
{
    MUSTER_ASSERT(session->output == NULL);
    if (session->goaway == MUSTER_H2_GOAWAY_LAST_SENT ||
        !nghttp2_session_want_write(session->ng))
        return;
    session->output = muster_h2_output_new(session->mem);
    if (session->output == NULL) {
        muster_h2_session_end(session, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    session->depth++;
    while (!muster_h2_output_is_full(session->output) &&
           session->goaway != MUSTER_H2_GOAWAY_LAST_SENT) {
        const uint8_t *bytes = NULL;
        ssize_t count = nghttp2_session_mem_send(session->ng, &bytes);

        if (count < 0)
            muster_h2_session_end(session, MUSTER_INTERNAL, nghttp2_strerror((int)count));
        if (count <= 0)
            break;
        if (!muster_h2_output_append(session->output, bytes, (size_t)count)) {
            muster_h2_session_end(session, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
            break;
        }
    }
    session->depth--;
    if (session->output->piece_count == 0)
        output_drop(session);
}

static bool is_finished(const struct muster_h2_session *session)
{
    return session->goaway == MUSTER_H2_GOAWAY_LAST_SENT ||
           (!nghttp2_session_want_read(session->ng) && !nghttp2_session_want_write(session->ng));
}

static void on_parting_over(struct muster_timer *timer)
{
    struct muster_h2_session *session = timer->data;

    muster_h2_session_end(session, MUSTER_UNAVAILABLE, MUSTER_H2_ENDED_BY_GOAWAY);
    session_settle(session);
}

/* All frames have left. If a server closed now, the kernel would answer whatever still comes with a
 * reset, and a reset destroys what the client has not read yet: our last answer, or the reason in
 * our GOAWAY. So the server sends FIN and drops what comes until the client ends, too. */
static void session_part(struct muster_h2_session *session)
{
    MUSTER_ASSERT(session->state == MUSTER_H2_SESSION_OPEN);
    if (!session->options.is_server) {
        muster_h2_session_end(session, MUSTER_UNAVAILABLE, MUSTER_H2_ENDED_BY_GOAWAY);
        return;
    }
    muster_h2_session_move(session, MUSTER_H2_SESSION_PARTING);
    muster_timer_start(&session->parting_timer, session->env->loop,
                       muster_loop_after_ns(session->env->loop, PARTING_NS));
    muster_stream_shutdown(session->stream);
    muster_h2_session_read(session);
}

static void session_flush(struct muster_h2_session *session)
{
    enum muster_rc rc;

    if (session->state != MUSTER_H2_SESSION_OPEN || session->is_writing)
        return;
    gather_output(session);
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
        session_part(session);
    }
    tell_drained(session);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_h2_session *session = write->data;

    MUSTER_ASSERT(session->is_writing);
    session->is_writing = false;
    output_drop(session);
    if (session->state == MUSTER_H2_SESSION_CLOSED)
        return;
    if (rc != MUSTER_OK)
        muster_h2_session_lose(session, "connection lost");
    session_flush(session);
    muster_h2_session_read(session);
    session_settle(session);
}

static void on_flush(struct muster_task *task)
{
    struct muster_h2_session *session = task->data;

    session_flush(session);
    session_settle(session);
}

void muster_h2_session_turns_init(struct muster_h2_session *session)
{
    session->write.data = session;
    muster_task_init(&session->flush_task, on_flush, session);
    muster_timer_init(&session->parting_timer, on_parting_over, session);
    session->read.data = session;
    muster_task_init(&session->linger_task, on_linger, session);
}
