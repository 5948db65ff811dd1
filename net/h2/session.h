/* An HTTP/2 connection over any byte stream: turns bytes into stream events and nothing else. */
#ifndef MUSTER_NET_H2_SESSION_H
#define MUSTER_NET_H2_SESSION_H

#include <muster/env.h>
#include <muster/stream.h>

#include "net/h2/h2_code.h"
#include "net/h2/body.h"
#include "net/h2/session_request.h"

/* Close codes beside RFC 9113's: the connection went away under the stream. */
#define MUSTER_H2_LOST UINT32_MAX

struct muster_h2_session;

/** One header. Borrowed during the call that takes it; static names and values are not even copied.
 */
struct muster_h2_header {
    const char *name;
    const char *value;
    uint16_t name_bytes;
    uint32_t value_bytes;
    bool is_stable;   /* name and value stay until on_close of the stream */
    bool is_volatile; /* a value unlikely to come again: not indexed */
};
#define MUSTER_H2_HEADERS_MAX 128
#define MUSTER_H2_STATIC(text_name, text_value)                                                    \
    {                                                                                              \
        .name = (text_name), .value = (text_value), .name_bytes = sizeof(text_name) - 1,           \
        .value_bytes = sizeof(text_value) - 1, .is_stable = true                                   \
    }

/** One stream; its owner embeds it. From begin (request, on_begin) until on_close it is the
 * session's too. */
struct muster_h2_stream {
    void *data; /* the owner's */
    struct muster_h2_session *session;
    int32_t id;
    /* private */
    struct muster_h2_body body;
    struct muster_h2_holding *holding; /* of what is queued; NULL: nobody counts it */
    uint64_t waits_since_ns;           /* while body has bytes: since then the peer took too few */
    size_t taken_bytes;                /* of the body, since then */
    struct muster_list node;
    struct muster_list drained_node;
    struct muster_h2_request request; /* server: as far as it was received */
    size_t header_bytes;              /* of the block being received */
    bool is_sent;                     /* client: the peer may have seen it */
    bool has_trailers;
    bool is_discarded; /* it is being reset: what still comes is passed over */
};

/** Told by the session, on the loop, never inside a function of this header but close. Static
 * table. */
struct muster_h2_events {
    /* Server: a request begins; return its stream (initialised), or NULL to refuse it. */
    struct muster_h2_stream *(*on_begin)(struct muster_h2_session *session);
    void (*on_header)(struct muster_h2_stream *stream, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes);
    /* A header block is complete: the first one, or trailers. */
    void (*on_headers)(struct muster_h2_stream *stream, bool is_end);
    /* is_end: nothing follows these bytes. The owner gives the window back by consume. */
    void (*on_data)(struct muster_h2_stream *stream, const void *bytes, size_t count, bool is_end);
    /* The peer sends no more on this stream. */
    void (*on_end)(struct muster_h2_stream *stream);
    /* The header list limit is exceeded; the stream is being reset with ENHANCE_YOUR_CALM. */
    void (*on_over_limit)(struct muster_h2_stream *stream);
    /* The body is framed and its end reached: call submit_trailers now. */
    void (*on_trailers)(struct muster_h2_stream *stream);
    /* The send queue has run empty. */
    void (*on_drained)(struct muster_h2_stream *stream);
    /* The last event of a stream; its memory is the owner's again. MUSTER_H2_REFUSED_STREAM: never
     * processed. */
    void (*on_close)(struct muster_h2_stream *stream, uint32_t code);
    void (*on_settings)(struct muster_h2_session *session); /* the peer's first */
    void (*on_ping)(struct muster_h2_session *session);
    void (*on_pong)(struct muster_h2_session *session);
    void (*on_goaway)(struct muster_h2_session *session, uint32_t code, const char *text,
                      size_t length);
    /* The connection has ended (after on_close of every stream). The last event; the owner must
     * close. */
    void (*on_down)(struct muster_h2_session *session, const struct muster_error *error);
    /* A server's client begins with a TLS handshake; the session ends by itself. NULL: not told. */
    void (*on_tls)(struct muster_h2_session *session);
};

struct muster_h2_options {
    struct muster_mem *mem; /* of all that the connection allocates, borrowed; NULL: env's */
    bool is_server;
    uint32_t stream_window_bytes;
    uint32_t connection_window_bytes;
    uint32_t concurrent_streams_max;
    uint32_t header_list_max_bytes;
    uint32_t frame_max_bytes;
};

typedef void muster_h2_session_close_fn(struct muster_h2_session *session);

/** Takes stream (also on failure). Borrows events and env until closed has run. Gives. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_h2_session_open(
    struct muster_env *env, struct muster_stream *stream, const struct muster_h2_options *options,
    const struct muster_h2_events *events, void *data, struct muster_h2_session **ret_session);
/** Ends the open streams by on_close, then closed (may be NULL) runs, and the session is freed. It may
 * be called from any callback. */
void muster_h2_session_close(struct muster_h2_session *session, muster_h2_session_close_fn *closed);
void *muster_h2_session_data(const struct muster_h2_session *session);
struct muster_stream *muster_h2_session_stream(const struct muster_h2_session *session);
/** Bytes ever received: tells whether the peer lives. */
uint64_t muster_h2_session_received_bytes(const struct muster_h2_session *session);
/** The byte stream has ended before the peer said anything. */
bool muster_h2_session_is_unheard(const struct muster_h2_session *session);
/** HEADERS and DATA frames ever sent: a peer may ping after such. */
uint64_t muster_h2_session_sent_frames(const struct muster_h2_session *session);
/** 0 while nothing is being written, else a number of its own for each write: one that stays says
 * that the peer does not read. */
uint64_t muster_h2_session_write_mark(const struct muster_h2_session *session);
/** Since when the peer lets bytes wait: of the stream, or of the write, that waits longest. UINT64_MAX:
 * nothing waits. A wait begins anew when the peer has taken 16 KiB of a stream. */
uint64_t muster_h2_session_waits_since_ns(struct muster_h2_session *session);
/** The open streams one by one; NULL: from the first, and after the last. */
struct muster_h2_stream *muster_h2_session_next_stream(struct muster_h2_session *session,
                                                       struct muster_h2_stream *stream);
/** Streams that the peer lets us have open at once. */
uint32_t muster_h2_session_streams_max(const struct muster_h2_session *session);
bool muster_h2_session_has_streams(const struct muster_h2_session *session);
/** Whether its end has begun; muster_h2_session_error says why. */
bool muster_h2_session_has_failed(const struct muster_h2_session *session);
/** Why the connection ended; valid from the on_close of a lost stream on. */
const struct muster_error *muster_h2_session_error(const struct muster_h2_session *session);
/** The owner knows that the connection is dead: streams are lost, on_down follows from the loop. */
void muster_h2_session_fail(struct muster_h2_session *session, const struct muster_error *error);
void muster_h2_session_ping(struct muster_h2_session *session);
/** Take (client: begin) no new streams, let the open ones end; then on_down comes (RFC 9113 6.8).
 * text is the debug data of the GOAWAY; static. */
void muster_h2_session_drain(struct muster_h2_session *session, const char *text);
/** The same without waiting for streams that the peer has begun before it hears of it. A drain's
 * text goes first. */
void muster_h2_session_drain_now(struct muster_h2_session *session, const char *text);
/** GOAWAY with a code (no NO_ERROR) and a reason, then on_down at once, whatever is open. text is
 * static. */
void muster_h2_session_terminate(struct muster_h2_session *session, uint32_t code,
                                 const char *text);

void muster_h2_stream_init(struct muster_h2_stream *stream, void *data, size_t keep_max_bytes);
/** Free what is queued; after on_close (or for a stream that never began). */
void muster_h2_stream_fini(struct muster_h2_stream *stream);
/** Client: open with these headers; the body follows as it is queued. Errors: FAILED_PRECONDITION (the
 * connection ends or its stream ids are used up), RESOURCE_EXHAUSTED; stream is untouched then. */
MUSTER_MUST_CHECK enum muster_rc muster_h2_stream_request(struct muster_h2_stream *stream,
                                                          struct muster_h2_session *session,
                                                          const struct muster_h2_header *headers,
                                                          size_t count);
/** Server: response headers; is_end: nothing follows, else has_trailers are expected after the
 * body. */
void muster_h2_stream_respond(struct muster_h2_stream *stream,
                              const struct muster_h2_header *headers, size_t count, bool is_end,
                              bool has_trailers);
/** Queue; takes buffer. */
void muster_h2_stream_send(struct muster_h2_stream *stream, struct muster_h2_buffer *buffer);
/** The body is complete. */
void muster_h2_stream_end(struct muster_h2_stream *stream);
/** Within on_trailers only. */
void muster_h2_stream_submit_trailers(struct muster_h2_stream *stream,
                                      const struct muster_h2_header *headers, size_t count);
/** RST_STREAM with the code; on_close follows. Nothing happens when the connection has ended. */
void muster_h2_stream_reset(struct muster_h2_stream *stream, uint32_t code);
/** The owner has taken count received bytes: the peer may send as many more. */
void muster_h2_stream_consume(struct muster_h2_stream *stream, size_t count);

#endif
