/* The bytes that an HTTP/2 connection has received go to nghttp2, once the first of them show that the
 * peer speaks HTTP/2 at all. A wrong port or a missing TLS setting is a common mistake, so the first bytes are looked
 * at for a text that names it; nghttp2 would only report a bad frame. */
#include "net/h2/h2_session_internal.h"
#include "net/tls/stream.h"

#include <string.h>

/* RFC 8446 5.1 */
#define TLS_ALERT     0x15
#define TLS_HANDSHAKE 0x16
#define TLS_MAJOR     0x03

bool muster_h2_session_is_reader(const struct muster_h2_session *session)
{
    return session->state == MUSTER_H2_SESSION_OPEN || session->state == MUSTER_H2_SESSION_PARTING;
}

/* An unrecoverable protocol error: send GOAWAY if the session still allows it. */
static void connection_fail(struct muster_h2_session *session, int failure)
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
        /* Otherwise an event has queued the GOAWAY that says why. */
        if (session->goaway < MUSTER_H2_GOAWAY_LAST)
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
static void recognise_server(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
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

static void recognise_client(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
{
    if (session->events->on_tls != NULL && count >= 2 && bytes[0] == TLS_HANDSHAKE &&
        bytes[1] == TLS_MAJOR)
        session->events->on_tls(session);
}

void muster_h2_session_feed(struct muster_h2_session *session, const uint8_t *bytes, size_t count)
{
    uint32_t code = MUSTER_H2_NO_ERROR;
    size_t good = session->options.is_server
                      ? muster_h2_watch_feed(&session->watch, bytes, count, &code)
                      : count;
    bool is_first = session->received_bytes == 0;
    ssize_t used;

    MUSTER_ASSERT(count > 0 && muster_h2_session_is_reader(session));
    session->received_bytes += count;
    if (is_first && session->options.is_server)
        recognise_client(session, bytes, count);
    else if (is_first)
        recognise_server(session, bytes, count);
    if (!muster_h2_session_is_reader(session))
        return;
    /* Bytes after our last GOAWAY are read only so that the kernel does not send a reset. */
    if (session->goaway >= MUSTER_H2_GOAWAY_LAST || session->state == MUSTER_H2_SESSION_PARTING) {
        session->discarded_bytes += count;
        return;
    }
    session->depth++;
    used = nghttp2_session_mem_recv(session->ng, bytes, good);
    session->depth--;
    /* The frames before the bad one count, so they are handled first. */
    if (used >= 0 && code != MUSTER_H2_NO_ERROR)
        used = nghttp2_session_terminate_session(session->ng, code);
    if (used < 0)
        connection_fail(session, (int)used);
}
