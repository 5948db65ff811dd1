/* A stream under TLS: what its driving part and its sending part share. */
#ifndef MUSTER_NET_TLS_STREAM_INTERNAL_H
#define MUSTER_NET_TLS_STREAM_INTERNAL_H

#include "net/stream/token_bucket.h"
#include "net/stream/unread.h"
#include "net/tls/tls_internal.h"
#include "net/tls/stream.h"

#define MUSTER_TLS_WAIT_BYTES 2048 /* where the next bytes are awaited; the rest is fetched */

enum muster_tls_receive {
    MUSTER_TLS_RECEIVE_OPEN,
    MUSTER_TLS_RECEIVE_ENDED, /* close_notify has come */
    MUSTER_TLS_RECEIVE_FAILED,
};

enum muster_tls_life {
    MUSTER_TLS_SHAKING, /* the handshake is under way; no owner has the stream */
    MUSTER_TLS_SHAKEN,  /* the handshake is done; its last bytes (a server's tickets) are leaving */
    MUSTER_TLS_OPEN,
    MUSTER_TLS_LEAVING, /* the last bytes (alert, close_notify) are on their way */
    MUSTER_TLS_CLOSING, /* the inner stream closes */
};

/** The progress of the owner's shutdown; it only goes forward, by one. */
enum muster_tls_send {
    MUSTER_TLS_SEND_OPEN,
    MUSTER_TLS_SEND_SHUT,  /* asked for: close_notify follows what is queued */
    MUSTER_TLS_SEND_ENDED, /* close_notify is encrypted */
    MUSTER_TLS_SEND_INNER_SHUT,
};

/** The rest of a write that was recalled when it was partly encrypted: nothing may come before it.
 */
enum muster_tls_rest {
    MUSTER_TLS_REST_NONE,
    MUSTER_TLS_REST_DUE,   /* the owner has to submit it */
    MUSTER_TLS_REST_FIRST, /* it is the first of `writes` */
};

/** The state of the inner stream's receiving half. */
enum muster_tls_inner {
    MUSTER_TLS_INNER_OPEN,
    MUSTER_TLS_INNER_ENDED, /* the peer's FIN */
    MUSTER_TLS_INNER_LOST,
};

/** Bytes for the peer: one batch is the inner stream's, the next is being filled. */
struct muster_tls_batch {
    uint8_t *bytes;
    size_t count, room;
};

struct muster_tls_stream {
    struct muster_stream stream;
    struct muster_tls *tls;
    struct muster_stream *inner;
    struct muster_tls_engine *engine;
    struct muster_task task;
    struct muster_timer timer; /* the handshake's deadline, then the time to leave */
    enum muster_tls_life life;
    bool is_in_turn; /* reads and writes are looked after later in this entry from the loop */
    struct muster_error error;
    struct muster_tls_handshake *handshake; /* NULL once it is done */
    enum muster_rc handshake_rc;            /* how it ends when the inner stream is closed */
    muster_stream_close_fn *closed;

    /* sending */
    struct muster_list writes;   /* only the first may be partly encrypted */
    struct muster_list finished; /* encrypted or failed; their callbacks are due */
    size_t first_iov, first_offset;
    enum muster_tls_send send;
    enum muster_tls_rest rest;
    bool has_send_failed;
    bool has_last_words; /* an alert or close_notify that should still reach the peer */
    struct muster_tls_batch filling, sending;
    uint32_t batches_done;
    struct muster_stream_write inner_write;
    struct iovec inner_iov;
    bool is_writing;

    /* receiving */
    enum muster_tls_receive receive;
    struct muster_stream_read *read;
    struct muster_stream_unread unread;
    struct muster_stream_read inner_read;
    bool is_reading;
    enum muster_tls_inner inner_state;
    size_t turn_left;   /* that may be taken from the inner stream before others have their turn */
    bool may_have_more; /* the inner stream may hold bytes that can be taken now */
    struct muster_token_bucket controls;
    size_t wait_at, wait_count;
    uint8_t wait[MUSTER_TLS_WAIT_BYTES];
};

static inline struct muster_tls_stream *muster_tls_stream_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct muster_tls_stream, stream);
}

static inline bool muster_tls_stream_is_inner_over(const struct muster_tls_stream *tls_stream)
{
    return tls_stream->inner_state != MUSTER_TLS_INNER_OPEN;
}

/* net/tls/stream_core.c */

void muster_tls_stream_move(struct muster_tls_stream *tls_stream, enum muster_tls_life life);
void muster_tls_stream_move_send(struct muster_tls_stream *tls_stream, enum muster_tls_send send);
void muster_tls_stream_free(struct muster_tls_stream *tls_stream);
/** The loop drives the stream in its next turn. */
void muster_tls_stream_schedule(struct muster_tls_stream *tls_stream);
/** Bytes that were awaited stay in `wait` for the next read. */
void muster_tls_stream_recall_read(struct muster_tls_stream *tls_stream);
/** Send what is left to send, for a short time, then close the inner stream. */
void muster_tls_stream_leave(struct muster_tls_stream *tls_stream);
/** Nothing is sent or received any more; the first error stays. */
void muster_tls_stream_fail(struct muster_tls_stream *tls_stream, const struct muster_error *error);

/* net/tls/stream_send.c */

/** Takes bytes of the engine. False: no memory. */
bool muster_tls_stream_push(void *data, const void *bytes, size_t count);
/** Encrypt what is queued, as far as there is room, and hand it to the inner stream. written calls
 * muster_tls_stream_batch_done. */
void muster_tls_stream_flush(struct muster_tls_stream *tls_stream, muster_stream_write_fn *written);
/** The inner stream has taken the batch, or has failed. */
void muster_tls_stream_batch_done(struct muster_tls_stream *tls_stream, enum muster_rc rc);
/** Tell of the writes that the inner stream has taken. */
void muster_tls_stream_run_finished(struct muster_tls_stream *tls_stream);
void muster_tls_stream_cancel_writes(struct muster_tls_stream *tls_stream);
MUSTER_MUST_CHECK enum muster_rc muster_tls_stream_submit(struct muster_stream *stream,
                                                          struct muster_stream_write *write);
void muster_tls_stream_cancel_write(struct muster_stream *stream,
                                    struct muster_stream_write *write);

/* net/tls/handshake.c */

/** A step of the handshake; ends with the stream OPEN, LEAVING, SHAKEN or still SHAKING. */
void muster_tls_handshake_drive(struct muster_tls_stream *tls_stream);
/** Its deadline has passed. */
void muster_tls_handshake_expire(struct muster_tls_stream *tls_stream);
/** The inner stream is closed before the handshake was done. */
void muster_tls_handshake_finish_failed(struct muster_tls_stream *tls_stream);

#endif
