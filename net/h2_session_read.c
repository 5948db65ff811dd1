/* An HTTP/2 connection's reading: how much at once, how soon again, and when not. */
#include "net/h2_session_internal.h"

#define READ_BYTES          (64u << 10)
#define LINGER_BYTES_MIN    (16u << 10)
#define LINGER_TURNS        256
#define GATHER_NS           40000
#define QUEUED_FRAMES_MAX   1000 /* beyond it a peer that does not read is not read either */
#define DISCARDED_BYTES_MAX (256u << 10) /* read only so that our GOAWAY is not lost */

/* What came cannot be gone on from: say so, if that may be said. */
static void give_up(struct muster_h2_session *session, int failure)
{
    switch (failure) {
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
        muster_h2_session_terminate(session, MUSTER_H2_PROTOCOL_ERROR, "no HTTP/2 preface");
        break;
    case NGHTTP2_ERR_FLOODED:
    case NGHTTP2_ERR_TOO_MANY_SETTINGS:
    case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS:
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "flood");
        break;
    default:
        if (!session->is_terminating) /* else an event has said why */
            muster_h2_session_end(session, MUSTER_UNAVAILABLE, nghttp2_strerror(failure));
        break;
    }
}

static void feed(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
{
    uint32_t code = MUSTER_H2_NO_ERROR;
    size_t good = session->options.is_server
                      ? muster_h2_watch_feed(&session->watch, bytes, count, &code)
                      : count;
    ssize_t used;

    session->received_bytes += count;
    if (session->is_terminating || session->state == MUSTER_H2_SESSION_PARTING) {
        session->discarded_bytes += count;
        return;
    }
    session->depth++;
    used = nghttp2_session_mem_recv(session->ng, bytes, good);
    session->depth--;
    if (used >= 0 && code != MUSTER_H2_NO_ERROR)
        used = nghttp2_session_terminate_session(session->ng, code);
    if (used < 0)
        give_up(session, (int)used);
}

/* A read that filled its room: more is there, which large room awaits. Else small room does. */
static void rest_expect(struct muster_h2_session *session, bool is_more)
{
    if (is_more && session->rest == NULL) {
        session->rest = muster_mem_alloc(session->mem, READ_BYTES); /* if not: slower */
    } else if (!is_more && session->rest != NULL) {
        muster_mem_free(session->mem, session->rest);
        session->rest = NULL;
    }
}

/* A bulk transfer goes on: the next read waits until more is there than one piece, and the loop does
 * not sleep meanwhile. Who takes each piece at once leaves the kernel's work for all of them to the
 * sender, and waking up costs both sides more than looking again (1 MiB requests between two
 * processors of a virtual machine: a quarter and a third of their time). */
static void linger(struct muster_h2_session *session)
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
    muster_h2_session_settle(session);
}

static bool is_reader(const struct muster_h2_session *session)
{
    return session->state == MUSTER_H2_SESSION_OPEN || session->state == MUSTER_H2_SESSION_PARTING;
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct muster_h2_session *session = read->data;
    bool is_first = session->rest == NULL;
    bool is_full = read->bytes_done == (is_first ? sizeof(session->first) : READ_BYTES);
    bool is_bulk = read->bytes_done >= LINGER_BYTES_MIN;

    session->is_reading = false;
    if (session->state == MUSTER_H2_SESSION_CLOSED)
        return;
    if (read->bytes_done > 0 && is_reader(session))
        feed(session, is_first ? session->first : session->rest, read->bytes_done);
    rest_expect(session, is_full);
    if (is_bulk)
        linger(session);
    if (rc != MUSTER_OK)
        muster_h2_session_lose(session,
                               read->is_eof ? "connection closed by peer" : "connection lost");
    if (!is_bulk || is_full)
        muster_h2_session_read(session);
    if (is_first && is_full && rc == MUSTER_OK)
        muster_h2_session_wake(session); /* the rest comes at once: answer all of it together */
    else
        muster_h2_session_flush(session);
    muster_h2_session_settle(session);
}

void muster_h2_session_read(struct muster_h2_session *session)
{
    uint8_t *buffer = session->rest != NULL ? session->rest : session->first;
    size_t room = session->rest != NULL ? READ_BYTES : sizeof(session->first);

    if (!is_reader(session) || session->is_reading || session->is_close_wanted)
        return;
    if (session->discarded_bytes > DISCARDED_BYTES_MAX) {
        if (session->state == MUSTER_H2_SESSION_PARTING)
            muster_h2_session_end(session, MUSTER_UNAVAILABLE, MUSTER_H2_ENDED_BY_GOAWAY);
        return;
    }
    if (session->is_writing &&
        nghttp2_session_get_outbound_queue_size(session->ng) > QUEUED_FRAMES_MAX)
        return;
    if (muster_stream_receive_into(&session->read, session->stream, buffer, 1, room, on_read) ==
        MUSTER_OK)
        session->is_reading = true;
    else
        muster_h2_session_end(session, MUSTER_UNAVAILABLE, "connection is closed");
}

void muster_h2_session_reader_init(struct muster_h2_session *session)
{
    session->read.data = session;
    muster_task_init(&session->linger_task, on_linger, session);
}
