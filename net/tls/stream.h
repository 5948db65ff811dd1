/* TLS as a filter over any byte stream, and the handshake that opens it. */
#ifndef MUSTER_NET_TLS_STREAM_H
#define MUSTER_NET_TLS_STREAM_H

#include <muster/stream.h>
#include <muster/tls.h>

struct muster_tls_handshake;
struct muster_tls_sessions;
struct muster_tls_stream;

typedef void muster_tls_handshake_fn(struct muster_tls_handshake *handshake, enum muster_rc rc);

/** One handshake. Caller's memory. */
struct muster_tls_handshake {
    void *data;
    struct muster_stream *stream; /* at done with OK: the secured stream (gives) */
    struct muster_error error;    /* detail of a failure */
    bool is_unheard;              /* at a failure: the peer ended it before it said a byte */
    /* private */
    muster_tls_handshake_fn *done;
    struct muster_tls_stream *tls_stream;
};

struct muster_tls_handshake_options {
    bool is_server;
    const char *server_name; /* of a client: the name or address that the certificate is for … */
    const char
        *other_name; /* … or this DNS name, borrowed until the stream is closed; NULL: none */
    const char *protocols;   /* ALPN: "h2", or several joined by commas, the preferred first */
    struct muster_tls_sessions *sessions; /* of a client, borrowed until the stream is closed */
};

/**
 * Secure a connected stream.
 *
 * Owns:    takes inner (also on failure); borrows handshake until done; shares tls.
 * Errors:  returned RESOURCE_EXHAUSTED, FAILED_PRECONDITION (a server without a certificate); by
 *          done UNAUTHENTICATED (a certificate), FAILED_PRECONDITION (the peer speaks plain text;
 *          a server sends it a TLS alert), UNAVAILABLE (anything else that the peer does or says),
 *          DEADLINE_EXCEEDED, CANCELLED; inner is closed before.
 */
MUSTER_MUST_CHECK enum muster_rc muster_tls_handshake_start(
    struct muster_tls_handshake *handshake, struct muster_tls *tls, struct muster_stream *inner,
    const struct muster_tls_handshake_options *options, uint64_t deadline_ns,
    muster_tls_handshake_fn *done);
void muster_tls_handshake_cancel(struct muster_tls_handshake *handshake);

bool muster_tls_stream_is_one(const struct muster_stream *stream);
/* For a secured stream. */
const struct muster_identity *muster_tls_stream_identity(const struct muster_stream *stream);
const char *muster_tls_stream_protocol(const struct muster_stream *stream);
bool muster_tls_stream_is_resumed(const struct muster_stream *stream);
MUSTER_MUST_CHECK enum muster_rc muster_tls_stream_export(struct muster_stream *stream,
                                                          const char *label, uint8_t *ret_key,
                                                          size_t key_bytes);

#endif
