/* The handshake that opens a stream under TLS: its steps, its deadline, its failures. */
#include "net/tls/stream_internal.h"

static void fail(struct muster_tls_stream *tls_stream, enum muster_rc rc)
{
    tls_stream->handshake_rc = rc;
    tls_stream->has_last_words = true;
    muster_tls_stream_leave(tls_stream);
}

static void finish(struct muster_tls_stream *tls_stream)
{
    struct muster_tls_handshake *handshake = tls_stream->handshake;

    muster_timer_stop(&tls_stream->timer);
    tls_stream->life = MUSTER_TLS_OPEN;
    tls_stream->handshake = NULL;
    handshake->tls_stream = NULL;
    handshake->stream = &tls_stream->stream;
    handshake->done(handshake, MUSTER_OK);
}

static void step(struct muster_tls_stream *tls_stream)
{
    switch (muster_tls_engine_handshake(tls_stream->engine)) {
    case MUSTER_TLS_DONE:
        tls_stream->is_shaken = true;
        break;
    case MUSTER_TLS_HUNGRY:
        if (!tls_stream->is_inner_over)
            break;
        (void)muster_error_set(&tls_stream->error, MUSTER_UNAVAILABLE,
                               "the peer ended the connection within the TLS handshake: does it "
                               "serve plain text?");
        fail(tls_stream, MUSTER_UNAVAILABLE);
        break;
    case MUSTER_TLS_ENDED:
    case MUSTER_TLS_FAILED:
        tls_stream->error = *muster_tls_engine_error(tls_stream->engine);
        if (tls_stream->error.rc == MUSTER_OK)
            (void)muster_error_set(&tls_stream->error, MUSTER_UNAVAILABLE,
                                   "the peer ended the TLS handshake");
        fail(tls_stream, tls_stream->error.rc);
        break;
    }
}

/* It is done when its last bytes (a server's tickets, too) have left. */
void muster_tls_handshake_drive(struct muster_tls_stream *tls_stream)
{
    if (!tls_stream->is_shaken)
        step(tls_stream);
    if (tls_stream->life != MUSTER_TLS_SHAKING)
        return;
    if (tls_stream->has_send_failed)
        fail(tls_stream, MUSTER_UNAVAILABLE);
    else if (tls_stream->is_shaken && tls_stream->filling.count == 0 && !tls_stream->is_writing)
        finish(tls_stream);
}

void muster_tls_handshake_expire(struct muster_tls_stream *tls_stream)
{
    (void)muster_error_set(&tls_stream->error, MUSTER_DEADLINE_EXCEEDED,
                           "the peer did not finish the TLS handshake in time");
    fail(tls_stream, MUSTER_DEADLINE_EXCEEDED);
}

void muster_tls_handshake_finish_failed(struct muster_tls_stream *tls_stream)
{
    struct muster_tls_handshake *handshake = tls_stream->handshake;
    enum muster_rc rc = tls_stream->handshake_rc;

    handshake->error = tls_stream->error;
    handshake->error.rc = rc;
    handshake->is_unheard = (tls_stream->is_inner_over || tls_stream->has_send_failed) &&
                            !muster_tls_engine_has_heard(tls_stream->engine);
    handshake->tls_stream = NULL;
    muster_tls_stream_free(tls_stream);
    handshake->done(handshake, rc);
}

enum muster_rc muster_tls_handshake_start(struct muster_tls_handshake *handshake,
                                          struct muster_tls *tls, struct muster_stream *inner,
                                          const struct muster_tls_handshake_options *options,
                                          uint64_t deadline_ns, muster_tls_handshake_fn *done)
{
    struct muster_tls_stream *tls_stream = NULL;
    enum muster_rc rc = MUSTER_FAILED_PRECONDITION;

    if (!options->is_server || muster_tls_context_has_cert(tls->context))
        rc = muster_tls_stream_new(tls, inner, options, &tls_stream);
    if (rc != MUSTER_OK) {
        muster_stream_close(inner, NULL);
        return rc;
    }
    handshake->stream = NULL;
    handshake->is_unheard = false;
    handshake->error = (struct muster_error){.rc = MUSTER_OK};
    handshake->done = done;
    handshake->tls_stream = tls_stream;
    tls_stream->handshake = handshake;
    muster_timer_start(&tls_stream->timer, tls->env->loop, deadline_ns);
    muster_tls_stream_schedule(tls_stream);
    return MUSTER_OK;
}

void muster_tls_handshake_cancel(struct muster_tls_handshake *handshake)
{
    struct muster_tls_stream *tls_stream = handshake->tls_stream;

    if (tls_stream == NULL || tls_stream->life != MUSTER_TLS_SHAKING)
        return;
    (void)muster_error_set(&tls_stream->error, MUSTER_CANCELLED, "cancelled");
    fail(tls_stream, MUSTER_CANCELLED);
}
