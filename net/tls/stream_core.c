/* The base of the parts of a stream under TLS: the states of its life, how it fails, leaves and is
 * freed. It calls none of the other parts; what follows from a change of state is done by
 * stream_drive (net/tls/stream.c), in a turn of its own. */
#include "net/tls/stream_internal.h"

#define LEAVE_NS MUSTER_NS_PER_S /* for the last words to a peer that does not read */

static const bool life_moves[5][5] = {
    [MUSTER_TLS_SHAKING] = {[MUSTER_TLS_SHAKEN] = true, [MUSTER_TLS_LEAVING] = true},
    [MUSTER_TLS_SHAKEN] = {[MUSTER_TLS_OPEN] = true, [MUSTER_TLS_LEAVING] = true},
    [MUSTER_TLS_OPEN] = {[MUSTER_TLS_LEAVING] = true},
    [MUSTER_TLS_LEAVING] = {[MUSTER_TLS_CLOSING] = true},
};

void muster_tls_stream_move(struct muster_tls_stream *tls_stream, enum muster_tls_life life)
{
    MUSTER_ASSERT(life_moves[tls_stream->life][life]);
    tls_stream->life = life;
}

/* Either half only goes forward; a failure is told by `receive`, or by has_send_failed. */
void muster_tls_stream_move_send(struct muster_tls_stream *tls_stream, enum muster_tls_send send)
{
    MUSTER_ASSERT((unsigned)send == (unsigned)tls_stream->send + 1);
    tls_stream->send = send;
}

void muster_tls_stream_schedule(struct muster_tls_stream *tls_stream)
{
    muster_task_post(&tls_stream->task, tls_stream->tls->env->loop);
}

/* Bytes that were awaited stay in `wait` for the next read. */
void muster_tls_stream_recall_read(struct muster_tls_stream *tls_stream)
{
    if (!tls_stream->is_reading)
        return;
    tls_stream->is_reading = false;
    tls_stream->wait_at = 0;
    tls_stream->wait_count =
        muster_stream_receive_recall(&tls_stream->inner_read, tls_stream->inner);
}

void muster_tls_stream_leave(struct muster_tls_stream *tls_stream)
{
    struct muster_loop *loop = tls_stream->tls->env->loop;

    muster_tls_stream_recall_read(tls_stream);
    muster_tls_stream_move(tls_stream, MUSTER_TLS_LEAVING);
    muster_timer_start(&tls_stream->timer, loop, muster_loop_after_ns(loop, LEAVE_NS));
    muster_tls_stream_schedule(tls_stream);
}

/* Both halves fail together: TLS cannot go on after a record that is lost or false (RFC 8446
 * 6.2). */
void muster_tls_stream_fail(struct muster_tls_stream *tls_stream, const struct muster_error *error)
{
    MUSTER_ASSERT(error->rc != MUSTER_OK);
    if (tls_stream->error.rc == MUSTER_OK)
        tls_stream->error = *error;
    if (tls_stream->receive == MUSTER_TLS_RECEIVE_OPEN)
        tls_stream->receive = MUSTER_TLS_RECEIVE_FAILED;
    tls_stream->has_send_failed = true;
    if (tls_stream->life < MUSTER_TLS_CLOSING)
        muster_tls_stream_schedule(tls_stream);
}

void muster_tls_stream_free(struct muster_tls_stream *tls_stream)
{
    struct muster_tls *tls = tls_stream->tls;
    struct muster_mem *mem = tls->env->mem;

    MUSTER_ASSERT(!tls_stream->is_writing && tls_stream->read == NULL);
    muster_timer_stop(&tls_stream->timer);
    muster_task_cancel(&tls_stream->task);
    muster_tls_engine_close(tls_stream->engine);
    muster_mem_free(mem, tls_stream->filling.bytes);
    muster_mem_free(mem, tls_stream->sending.bytes);
    muster_mem_free(mem, tls_stream);
    muster_tls_close(tls);
}
