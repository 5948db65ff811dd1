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
    MUSTER_TLS_SHAKING, /* the handshake is under way; nobody has the stream */
    MUSTER_TLS_OPEN,
    MUSTER_TLS_LEAVING, /* the last bytes (alert, close_notify) are on their way */
    MUSTER_TLS_CLOSING, /* the inner stream closes */
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
    struct muster_error error;
    bool is_shaken;                         /* all but its last bytes are out */
    struct muster_tls_handshake *handshake; /* NULL once it is done */
    enum muster_rc handshake_rc;            /* how it ends when the inner stream is closed */
    muster_stream_close_fn *closed;

    /* sending */
    struct muster_list writes;   /* only the first may be partly encrypted */
    struct muster_list finished; /* encrypted or failed; their callbacks are due */
    size_t first_iov, first_offset;
    bool is_rest_due, is_rest; /* the rest of a recalled write must come; is first */
    bool is_shut, is_end_sent, is_inner_shut, has_send_failed;
    bool has_last_words; /* an alert or close_notify that should still reach the peer */
    bool is_flush_due;   /* later in this entry from the loop */
    struct muster_tls_batch filling, sending;
    uint32_t batches_done;
    struct muster_stream_write inner_write;
    struct iovec inner_iov;
    bool is_writing;

    /* receiving */
    enum muster_tls_receive receive;
    struct muster_stream_read *read;
    bool is_receiving; /* the open read is looked after in this entry from the loop */
    struct muster_stream_unread unread;
    struct muster_stream_read inner_read;
    bool is_reading, is_inner_over, is_inner_eof;
    size_t turn_left;   /* that may be taken from the inner stream before others have their turn */
    bool may_have_more; /* the inner stream may hold bytes that can be taken now */
    struct muster_h2_bucket controls;
    size_t wait_at, wait_count;
    uint8_t wait[MUSTER_TLS_WAIT_BYTES];
};

static inline struct muster_tls_stream *muster_tls_stream_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct muster_tls_stream, stream);
}

/* net/tls/stream.c */

/** Gives. Does not take inner when it fails. */
MUSTER_MUST_CHECK enum muster_rc muster_tls_stream_new(
    struct muster_tls *tls, struct muster_stream *inner,
    const struct muster_tls_handshake_options *options, struct muster_tls_stream **ret_tls_stream);
void muster_tls_stream_free(struct muster_tls_stream *tls_stream);
void muster_tls_stream_schedule(struct muster_tls_stream *tls_stream);
/** Do what can be done now: the entry from the loop and from the inner stream. */
void muster_tls_stream_drive(struct muster_tls_stream *tls_stream);
/** Send what is left to send, for a short time, then close the inner stream. */
void muster_tls_stream_leave(struct muster_tls_stream *tls_stream);
/** Nothing is sent or received any more; the first error stays. */
void muster_tls_stream_fail(struct muster_tls_stream *tls_stream, const struct muster_error *error);

/* net/tls/stream_send.c */

/** Takes bytes of the engine. False: no memory. */
bool muster_tls_stream_push(void *data, const void *bytes, size_t count);
/** Encrypt what is queued, as far as there is room, and hand it to the inner stream. */
void muster_tls_stream_flush(struct muster_tls_stream *tls_stream);
/** Tell of the writes that the inner stream has taken. */
void muster_tls_stream_run_finished(struct muster_tls_stream *tls_stream);
void muster_tls_stream_cancel_writes(struct muster_tls_stream *tls_stream);
MUSTER_MUST_CHECK enum muster_rc muster_tls_stream_submit(struct muster_stream *stream,
                                                          struct muster_stream_write *write);
void muster_tls_stream_cancel_write(struct muster_stream *stream,
                                    struct muster_stream_write *write);

/* net/tls/handshake.c */

/** A step of the handshake; ends with the stream OPEN, LEAVING or still SHAKING. */
void muster_tls_handshake_drive(struct muster_tls_stream *tls_stream);
/** Its deadline has passed. */
void muster_tls_handshake_expire(struct muster_tls_stream *tls_stream);
/** The inner stream is closed before the handshake was done. */
void muster_tls_handshake_finish_failed(struct muster_tls_stream *tls_stream);

#endif
