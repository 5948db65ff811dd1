/* An HTTP/2 connection's reading: how much at once, how soon again, and when not. */
#include "net/h2/h2_session_internal.h"
#include "net/tls/stream.h"

#include <string.h>

#define READ_BYTES       (64u << 10)
#define LINGER_BYTES_MIN (16u << 10)
#define LINGER_TURNS     256
#define GATHER_NS        40000
/* RFC 8446 5.1 */
#define TLS_ALERT           0x15
#define TLS_HANDSHAKE       0x16
#define TLS_MAJOR           0x03
#define QUEUED_FRAMES_MAX   1000 /* beyond it a peer that does not read is not read either */
#define DISCARDED_BYTES_MAX (256u << 10) /* read only so that our GOAWAY is not lost */

static bool is_reader(const struct muster_h2_session *session)
{
    return session->state == MUSTER_H2_SESSION_OPEN || session->state == MUSTER_H2_SESSION_PARTING;
}

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

static bool is_http1(const uint8_t *bytes, size_t count)
{
    static const char http1[] = "HTTP/1.";

    return count >= sizeof(http1) - 1 && memcmp(bytes, http1, sizeof(http1) - 1) == 0;
}

/* A server under TLS answers a client in plain text with an alert (RFC 8446 6), or in HTTP/1 with a
 * text that names HTTPS, as Go's and nginx do. Its answer is one segment. */
static bool is_answer_of_tls(const uint8_t *bytes, size_t count)
{
    static const char https[] = "HTTPS";

    if (count >= 2 && bytes[0] == TLS_ALERT && bytes[1] == TLS_MAJOR)
        return true;
    return is_http1(bytes, count) && memmem(bytes, count, https, sizeof(https) - 1) != NULL;
}

/* A server begins with SETTINGS (RFC 9113 3.4), of which the length's first byte is 0. */
static bool is_settings(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && (count < 4 || bytes[3] == NGHTTP2_SETTINGS);
}

/* The first bytes of a server tell that it speaks something else. */
static void server_recognise(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
{
    if (!muster_tls_stream_is_one(session->stream) && is_answer_of_tls(bytes, count))
        muster_h2_session_end(session, MUSTER_FAILED_PRECONDITION,
                              "the peer speaks TLS, and this side speaks plain text");
    else if (is_http1(bytes, count))
        muster_h2_session_end(session, MUSTER_UNIMPLEMENTED,
                              "the peer speaks HTTP/1.1, not HTTP/2 (gRPC)");
    else if (!is_settings(bytes, count))
        muster_h2_session_end(session, MUSTER_UNIMPLEMENTED,
                              "the peer does not speak HTTP/2 (gRPC)");
}

static void client_recognise(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
{
    if (session->events->on_tls != NULL && count >= 2 && bytes[0] == TLS_HANDSHAKE &&
        bytes[1] == TLS_MAJOR)
        session->events->on_tls(session);
}

static void feed(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
{
    uint32_t code = MUSTER_H2_NO_ERROR;
    size_t good = session->options.is_server
                      ? muster_h2_watch_feed(&session->watch, bytes, count, &code)
                      : count;
    bool is_first = session->received_bytes == 0;
    ssize_t used;

    session->received_bytes += count;
    if (is_first && session->options.is_server)
        client_recognise(session, bytes, count);
    else if (is_first)
        server_recognise(session, bytes, count);
    if (!is_reader(session))
        return;
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

    session->is_reading = false;
    if (session->state == MUSTER_H2_SESSION_CLOSED)
        return;
    if (read->bytes_done > 0 && is_reader(session))
        feed(session, is_first ? session->first : session->rest, read->bytes_done);
    rest_expect(session, is_full);
    if (is_bulk)
        linger(session);
    if (rc != MUSTER_OK)
        muster_h2_session_lose(session, loss_text(session, read));
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
