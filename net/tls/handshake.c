/* The handshake that opens a stream under TLS: its steps, its deadline, its failures. The engine
 * says what to do next; the stream (net/tls/stream.c) moves the bytes and drives this. A failed
 * handshake first sends its alert and closes the inner stream, and only then tells the caller. */
#include "net/tls/stream_internal.h"

/* The callback rule: done is there when start has returned, and is called once. */
static void handshake_tell(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    muster_tls_handshake_fn *done = handshake->done;

    MUSTER_ASSERT(done != NULL);
    handshake->done = NULL;
    done(handshake, rc);
}

/* The alert that tells the peer why (RFC 8446 6.2) is its last words: LEAVING waits for them. */
static void handshake_fail(struct muster_tls_stream *tls_stream, enum muster_rc rc)
{
    MUSTER_ASSERT(rc != MUSTER_OK);
    tls_stream->handshake_rc = rc;
    tls_stream->has_last_words = true;
    muster_tls_stream_leave(tls_stream);
}

static void handshake_finish(struct muster_tls_stream *tls_stream)
{
    struct muster_tls_handshake *handshake = tls_stream->handshake;

    MUSTER_ASSERT(handshake != NULL);
    muster_timer_stop(&tls_stream->timer);
    muster_tls_stream_move(tls_stream, MUSTER_TLS_OPEN);
    tls_stream->handshake = NULL;
    handshake->tls_stream = NULL;
    handshake->stream = &tls_stream->stream;
    handshake_tell(handshake, MUSTER_OK);
}

static void handshake_step(struct muster_tls_stream *tls_stream)
{
    switch (muster_tls_engine_handshake(tls_stream->engine)) {
    case MUSTER_TLS_DONE:
        muster_tls_stream_move(tls_stream, MUSTER_TLS_SHAKEN);
        break;
    case MUSTER_TLS_HUNGRY:
        if (!muster_tls_stream_is_inner_over(tls_stream))
            break;
        (void)muster_error_set(&tls_stream->error, MUSTER_UNAVAILABLE,
                               "the peer ended the connection within the TLS handshake: does it "
                               "serve plain text?");
        handshake_fail(tls_stream, MUSTER_UNAVAILABLE);
        break;
    case MUSTER_TLS_ENDED:
    case MUSTER_TLS_FAILED:
        tls_stream->error = *muster_tls_engine_error(tls_stream->engine);
        if (tls_stream->error.rc == MUSTER_OK)
            (void)muster_error_set(&tls_stream->error, MUSTER_UNAVAILABLE,
                                   "the peer ended the TLS handshake");
        handshake_fail(tls_stream, tls_stream->error.rc);
        break;
    }
}

/* The handshake is done when its last bytes (a server's tickets, too) have left: a caller that
 * closed before would cut them off. */
void muster_tls_handshake_drive(struct muster_tls_stream *tls_stream)
{
    if (tls_stream->life == MUSTER_TLS_SHAKING)
        handshake_step(tls_stream);
    if (tls_stream->life == MUSTER_TLS_LEAVING)
        return;
    if (tls_stream->has_send_failed)
        handshake_fail(tls_stream, MUSTER_UNAVAILABLE);
    else if (tls_stream->life == MUSTER_TLS_SHAKEN && tls_stream->filling.count == 0 &&
             !tls_stream->is_writing)
        handshake_finish(tls_stream);
}

void muster_tls_handshake_expire(struct muster_tls_stream *tls_stream)
{
    (void)muster_error_set(&tls_stream->error, MUSTER_DEADLINE_EXCEEDED,
                           "the peer did not finish the TLS handshake in time");
    handshake_fail(tls_stream, MUSTER_DEADLINE_EXCEEDED);
}

void muster_tls_handshake_finish_failed(struct muster_tls_stream *tls_stream)
{
    struct muster_tls_handshake *handshake = tls_stream->handshake;
    enum muster_rc rc = tls_stream->handshake_rc;

    MUSTER_ASSERT(rc != MUSTER_OK);
    handshake->error = tls_stream->error;
    handshake->error.rc = rc;
    handshake->is_unheard =
        (muster_tls_stream_is_inner_over(tls_stream) || tls_stream->has_send_failed) &&
        !muster_tls_engine_has_heard(tls_stream->engine);
    handshake->tls_stream = NULL;
    muster_tls_stream_free(tls_stream);
    handshake_tell(handshake, rc);
}

void muster_tls_handshake_cancel(struct muster_tls_handshake *handshake)
{
    struct muster_tls_stream *tls_stream = handshake->tls_stream;

    if (tls_stream == NULL || tls_stream->life >= MUSTER_TLS_OPEN)
        return; /* done was called, or is on its way with another reason */
    (void)muster_error_set(&tls_stream->error, MUSTER_CANCELLED, "cancelled");
    handshake_fail(tls_stream, MUSTER_CANCELLED);
}
