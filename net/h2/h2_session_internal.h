/* Shared by the files of the HTTP/2 adapter, the only ones that know nghttp2. */
#ifndef MUSTER_NET_H2_SESSION_INTERNAL_H
#define MUSTER_NET_H2_SESSION_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "net/stream/token_bucket.h"
#include "net/h2/session.h"
#include "net/h2/watch.h"

#define MUSTER_H2_DRAIN_PING "mstrdrn" /* eight bytes with its NUL */

#define MUSTER_H2_ENDED_BY_GOAWAY "connection ended by GOAWAY"

/* A connection waits for bytes with as much room as a small request takes. */
#define MUSTER_H2_FIRST_BYTES 160

enum muster_h2_session_state {
    MUSTER_H2_SESSION_OPEN,
    MUSTER_H2_SESSION_PARTING, /* a server's: FIN is sent, what comes is dropped */
    MUSTER_H2_SESSION_ENDING,  /* error is known, on_down is due */
    MUSTER_H2_SESSION_DOWN,    /* on_down was called */
    MUSTER_H2_SESSION_CLOSED,
};

/** How far the GOAWAYs of this side have come (RFC 9113 6.8). */
enum muster_h2_goaway {
    MUSTER_H2_GOAWAY_NONE,
    MUSTER_H2_GOAWAY_ANNOUNCED, /* a server's, without a last stream: requests are still taken */
    MUSTER_H2_GOAWAY_NAMED,     /* it names the last stream */
    MUSTER_H2_GOAWAY_LAST,      /* one with a code is queued: nothing that comes is read any more */
    MUSTER_H2_GOAWAY_LAST_SENT, /* that one is on its way: nothing is sent any more */
};

struct muster_h2_session {
    struct muster_env *env;
    struct muster_mem *mem;
    struct muster_stream *stream;
    const struct muster_h2_events *events;
    void *data;
    struct muster_h2_options options;
    nghttp2_session *ng;
    enum muster_h2_session_state state;
    struct muster_error *error; /* NULL: it has not ended, or there was no memory to say why */
    struct muster_list streams;
    struct muster_h2_stream *latest; /* the stream of the last event; NULL: look it up */
    struct muster_list drained;
    struct muster_task flush_task;
    struct muster_task linger_task;
    unsigned linger_turns;
    uint64_t gather_until_ns;
    struct muster_timer parting_timer;
    struct muster_stream_read read;
    uint8_t first[MUSTER_H2_FIRST_BYTES];
    uint8_t *rest; /* while more than first is coming in */
    struct muster_stream_write write;
    struct muster_h2_output *output; /* while something is being sent */
    uint64_t received_bytes;
    uint64_t write_count, write_started_ns;
    size_t discarded_bytes;
    uint64_t sent_frames;         /* HEADERS and DATA */
    enum muster_h2_goaway goaway;
    const char *drain_text;       /* the debug data of a drain's GOAWAY; NULL: no drain */
    struct muster_h2_watch watch; /* a server's */
    struct muster_token_bucket resets, empties;
    unsigned depth; /* of calls into nghttp2 and of events */
    bool is_writing, is_reading;
    bool is_close_wanted;
    bool has_settings;
    bool is_unheard; /* the stream has ended before the peer's first byte */
    muster_h2_session_close_fn *closed;
};

/* net/h2/session_core.c */
void muster_h2_session_move(struct muster_h2_session *session, enum muster_h2_session_state state);
void muster_h2_session_goaway_move(struct muster_h2_session *session, enum muster_h2_goaway goaway);
void muster_h2_session_free(struct muster_h2_session *session);
/** To be called when something is to be sent: flushes when the loop is back. */
void muster_h2_session_wake(struct muster_h2_session *session);
/** Ends the connection; on_down follows at the end of the turn. The first reason counts. */
void muster_h2_session_end(struct muster_h2_session *session, enum muster_rc rc, const char *text);
/** Ends the connection when nghttp2 had no memory: the frame that it lacks is never sent. To be
 * called with every result of nghttp2 that is not passed on. */
void muster_h2_session_check(struct muster_h2_session *session, int result);
/** Ends the connection for the reason that the byte stream has, or else for text. */
void muster_h2_session_lose(struct muster_h2_session *session, const char *text);

/* net/h2/session_read.c */
bool muster_h2_session_is_reader(const struct muster_h2_session *session);
/** Handles bytes of the peer, as they came. */
void muster_h2_session_feed(struct muster_h2_session *session, const uint8_t *bytes, size_t count);

/* net/h2/session_turn.c */
void muster_h2_session_turns_init(struct muster_h2_session *session);
/** Ends all streams, then closes the byte stream. */
void muster_h2_session_tear_down(struct muster_h2_session *session);
/** Starts a read, unless one is under way or nothing may be read. */
void muster_h2_session_read(struct muster_h2_session *session);

/* net/h2/session_events.c */
void muster_h2_session_set_callbacks(nghttp2_session_callbacks *callbacks);
ssize_t muster_h2_on_body_read(nghttp2_session *ng, int32_t id, uint8_t *buffer, size_t length,
                               uint32_t *flags, nghttp2_data_source *source, void *data);

#endif
