/* A stream under TLS: bytes go through the engine on their way to and from the inner stream. All
 * work is done in stream_drive, which the loop and the inner stream enter; the operations of the
 * owner only queue and ask for a turn, so that no callback runs inside them. */
#include "net/tls/stream_internal.h"
#include "net/stream/request.h"

#define TURN_BYTES_MAX    (1u << 20) /* as they come from the peer; then others have their turn */
#define TURN_RECEIVES_MAX 64 /* small reads of one owner; then others have their turn, too */
#define CONTROL_BURST     64 /* KeyUpdates and tickets after the handshake; one costs 0.1 ms */
#define CONTROL_PER_S     1
#define DRAIN_BYTES_MAX   (64u << 10) /* more comes only from a peer that goes on sending */

static void stream_drive(struct muster_tls_stream *tls_stream);

/* Receiving. */

/* Bytes for the engine: those that were awaited, then what the inner stream holds. */
static size_t pull_inner(void *data, void *bytes, size_t count)
{
    struct muster_tls_stream *tls_stream = data;
    size_t taken = count < tls_stream->wait_count ? count : tls_stream->wait_count;

    if (tls_stream->turn_left == 0)
        return 0;
    memcpy(bytes, tls_stream->wait + tls_stream->wait_at, taken);
    tls_stream->wait_at += taken;
    tls_stream->wait_count -= taken;
    if (taken < count && tls_stream->may_have_more && !tls_stream->is_reading) {
        size_t more =
            muster_stream_take_now(tls_stream->inner, (uint8_t *)bytes + taken, count - taken);

        tls_stream->may_have_more = more == count - taken;
        taken += more;
    }
    tls_stream->turn_left -= taken < tls_stream->turn_left ? taken : tls_stream->turn_left;
    return taken;
}

static bool take_control(void *data)
{
    struct muster_tls_stream *tls_stream = data;

    return muster_token_bucket_take(&tls_stream->controls,
                                    muster_loop_now_ns(tls_stream->tls->env->loop));
}

/* The end of the inner stream without close_notify may be forged by anybody on the way (RFC 8446
 * 6.1), so it is a failure and not an end. */
static void break_off(struct muster_tls_stream *tls_stream)
{
    tls_stream->receive = MUSTER_TLS_RECEIVE_FAILED;
    if (tls_stream->error.rc == MUSTER_OK)
        (void)muster_error_set(&tls_stream->error, MUSTER_UNAVAILABLE,
                               tls_stream->inner_state == MUSTER_TLS_INNER_ENDED
                                   ? "the connection was cut off: no close_notify came before its "
                                     "end"
                                   : "connection lost");
}

/* Decrypt into buffer until it is full, the engine is hungry or the turn is over. */
static size_t decrypt_into(struct muster_tls_stream *tls_stream, uint8_t *buffer, size_t bytes_max)
{
    size_t bytes = 0;

    while (bytes < bytes_max && tls_stream->receive == MUSTER_TLS_RECEIVE_OPEN) {
        size_t count = 0;

        switch (
            muster_tls_engine_read(tls_stream->engine, buffer + bytes, bytes_max - bytes, &count)) {
        case MUSTER_TLS_DONE:
            bytes += count;
            break;
        case MUSTER_TLS_HUNGRY:
            if (muster_tls_stream_is_inner_over(tls_stream) && tls_stream->turn_left > 0)
                break_off(tls_stream);
            return bytes;
        case MUSTER_TLS_ENDED:
            tls_stream->receive = MUSTER_TLS_RECEIVE_ENDED;
            break;
        case MUSTER_TLS_FAILED:
            muster_tls_stream_fail(tls_stream, muster_tls_engine_error(tls_stream->engine));
            break;
        }
    }
    return bytes;
}

static void finish_read(struct muster_tls_stream *tls_stream, enum muster_rc rc)
{
    struct muster_stream_read *read = tls_stream->read;

    MUSTER_ASSERT(read != NULL);
    tls_stream->read = NULL;
    muster_stream_read_finish(read, rc);
}

/* One step of the open read. Returns whether another may follow. */
static bool receive_once(struct muster_tls_stream *tls_stream)
{
    struct muster_stream_read *read = tls_stream->read;

    if (read->bytes_done < read->bytes_min)
        read->bytes_done += decrypt_into(tls_stream, read->buffer + read->bytes_done,
                                         read->bytes_max - read->bytes_done);
    if (read->bytes_done >= read->bytes_min) {
        finish_read(tls_stream, MUSTER_OK);
        return true;
    }
    if (tls_stream->receive != MUSTER_TLS_RECEIVE_OPEN) {
        read->is_eof = tls_stream->receive == MUSTER_TLS_RECEIVE_ENDED;
        finish_read(tls_stream, MUSTER_UNAVAILABLE);
    }
    return false;
}

/* The owner starts its next read inside the callback of the last one: a loop here, instead of a
 * turn for each, as long as bytes are there. */
static void receive_some(struct muster_tls_stream *tls_stream)
{
    for (unsigned count = 0; count < TURN_RECEIVES_MAX && tls_stream->turn_left > 0; count++) {
        if (tls_stream->life != MUSTER_TLS_OPEN || tls_stream->read == NULL ||
            !receive_once(tls_stream))
            return;
    }
    if (tls_stream->read != NULL)
        muster_tls_stream_schedule(tls_stream);
}

static void on_inner_read(struct muster_stream_read *inner_read, enum muster_rc rc)
{
    struct muster_tls_stream *tls_stream = inner_read->data;

    MUSTER_ASSERT(tls_stream->is_reading);
    tls_stream->is_reading = false;
    if (tls_stream->life > MUSTER_TLS_OPEN)
        return;
    tls_stream->wait_at = 0;
    tls_stream->wait_count = inner_read->bytes_done;
    tls_stream->may_have_more = inner_read->bytes_done == sizeof(tls_stream->wait);
    if (rc != MUSTER_OK) {
        tls_stream->inner_state =
            inner_read->is_eof ? MUSTER_TLS_INNER_ENDED : MUSTER_TLS_INNER_LOST;
    }
    stream_drive(tls_stream);
}

static bool is_hungry(const struct muster_tls_stream *tls_stream)
{
    return tls_stream->life == MUSTER_TLS_SHAKING ||
           (tls_stream->life == MUSTER_TLS_OPEN && tls_stream->read != NULL &&
            tls_stream->receive == MUSTER_TLS_RECEIVE_OPEN);
}

/* Nothing is awaited while no reader wants bytes: the kernel's buffer then fills, and holds the
 * peer up. */
static void await_bytes(struct muster_tls_stream *tls_stream)
{
    if (tls_stream->is_reading || !is_hungry(tls_stream) ||
        muster_task_is_posted(&tls_stream->task))
        return;
    if (tls_stream->turn_left == 0) {
        muster_tls_stream_schedule(tls_stream);
        return;
    }
    if (muster_tls_stream_is_inner_over(tls_stream))
        return;
    tls_stream->inner_read.data = tls_stream;
    tls_stream->is_reading =
        muster_stream_receive_into(&tls_stream->inner_read, tls_stream->inner, tls_stream->wait, 1,
                                   sizeof(tls_stream->wait), on_inner_read) == MUSTER_OK;
    if (!tls_stream->is_reading) {
        tls_stream->inner_state = MUSTER_TLS_INNER_LOST;
        muster_tls_stream_schedule(tls_stream);
    }
}

/* Ending. */

static void on_inner_closed(struct muster_stream *inner)
{
    struct muster_tls_stream *tls_stream = inner->data;

    MUSTER_ASSERT(tls_stream->life == MUSTER_TLS_CLOSING);
    if (tls_stream->handshake != NULL) {
        muster_tls_handshake_finish_failed(tls_stream);
        return;
    }
    if (tls_stream->closed != NULL)
        tls_stream->closed(&tls_stream->stream);
    muster_tls_stream_free(tls_stream);
}

/* Unread bytes (tickets, say) would make the kernel reset the connection, and our last bytes be
 * lost. */
static void drain_inner(struct muster_tls_stream *tls_stream)
{
    uint8_t nobody[4096];
    size_t bytes = 0;
    size_t count;

    while (bytes < DRAIN_BYTES_MAX &&
           (count = muster_stream_take_now(tls_stream->inner, nobody, sizeof(nobody))) > 0)
        bytes += count;
}

/* The owner's callback, or that of the failed handshake, follows when the inner stream is closed:
 * until then it borrows our buffers. */
static void close_inner(struct muster_tls_stream *tls_stream)
{
    if (tls_stream->life == MUSTER_TLS_CLOSING)
        return;
    muster_tls_stream_move(tls_stream, MUSTER_TLS_CLOSING);
    muster_timer_stop(&tls_stream->timer);
    muster_task_cancel(&tls_stream->task);
    if (!tls_stream->has_send_failed)
        drain_inner(tls_stream);
    tls_stream->inner->data = tls_stream;
    muster_stream_close(tls_stream->inner, on_inner_closed);
}

static void cancel_requests(struct muster_tls_stream *tls_stream)
{
    muster_tls_stream_cancel_writes(tls_stream);
    if (tls_stream->read != NULL)
        finish_read(tls_stream, MUSTER_CANCELLED);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_tls_stream *tls_stream = timer->data;

    if (tls_stream->life < MUSTER_TLS_OPEN) {
        muster_tls_handshake_expire(tls_stream);
        return;
    }
    cancel_requests(tls_stream); /* a process that stood still comes here before its task */
    close_inner(tls_stream);
}

/* Driving. */

static void on_inner_written(struct muster_stream_write *inner_write, enum muster_rc rc)
{
    struct muster_tls_stream *tls_stream = inner_write->data;

    muster_tls_stream_batch_done(tls_stream, rc);
    if (tls_stream->life != MUSTER_TLS_CLOSING)
        stream_drive(tls_stream);
}

/* Do what can be done now: the entry from the loop and from the inner stream. Receiving comes
 * before sending, so that the answers to what was read leave in the same batch; finished writes are
 * told when the batch is on its way, and bytes are awaited last, when it is known who still
 * reads. */
static void stream_drive(struct muster_tls_stream *tls_stream)
{
    bool is_leaving = tls_stream->life == MUSTER_TLS_LEAVING;

    tls_stream->turn_left = TURN_BYTES_MAX;
    if (is_leaving)
        cancel_requests(tls_stream);
    if (tls_stream->life < MUSTER_TLS_OPEN)
        muster_tls_handshake_drive(tls_stream);
    tls_stream->is_in_turn = true;
    receive_some(tls_stream);
    tls_stream->is_in_turn = false;
    muster_tls_stream_flush(tls_stream, on_inner_written);
    muster_tls_stream_run_finished(tls_stream); /* a callback may close: then the task goes on */
    await_bytes(tls_stream);
    if (is_leaving && !(tls_stream->is_writing && tls_stream->has_last_words))
        close_inner(tls_stream);
}

static void on_task(struct muster_task *task)
{
    stream_drive(task->data);
}

/* The operations of a stream. */

static enum muster_rc tls_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);

    if (tls_stream->life != MUSTER_TLS_OPEN || tls_stream->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    read->bytes_done =
        muster_stream_unread_take(&tls_stream->unread, read->buffer, read->bytes_max);
    tls_stream->read = read;
    if (!tls_stream->is_in_turn)
        muster_tls_stream_schedule(tls_stream);
    return MUSTER_OK;
}

/* The inner read ends too: its bytes are for a reader, and there is none. */
static void tls_cancel_read(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);

    if (tls_stream->read != read)
        return;
    tls_stream->read = NULL;
    muster_tls_stream_recall_read(tls_stream);
}

static void tls_shutdown(struct muster_stream *stream)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);

    if (tls_stream->life != MUSTER_TLS_OPEN)
        return;
    if (tls_stream->send == MUSTER_TLS_SEND_OPEN)
        muster_tls_stream_move_send(tls_stream, MUSTER_TLS_SEND_SHUT);
    muster_tls_stream_schedule(tls_stream);
}

static void tls_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);

    MUSTER_ASSERT(tls_stream->life == MUSTER_TLS_OPEN);
    tls_stream->closed = closed;
    /* close_notify says that nothing is missing, so it must not follow writes that are cut off
     * here. */
    if (!tls_stream->has_send_failed && tls_stream->send < MUSTER_TLS_SEND_ENDED &&
        !tls_stream->is_writing && muster_list_is_empty(&tls_stream->writes)) {
        muster_tls_engine_end(tls_stream->engine);
        tls_stream->has_last_words = true;
    }
    muster_tls_stream_leave(tls_stream);
}

static const struct muster_address *tls_peer(const struct muster_stream *stream)
{
    return muster_stream_peer(muster_tls_stream_of(stream)->inner);
}

static const struct muster_address *tls_local(const struct muster_stream *stream)
{
    return muster_stream_local(muster_tls_stream_of(stream)->inner);
}

static size_t tls_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);
    size_t bytes;

    if (tls_stream->life != MUSTER_TLS_OPEN || tls_stream->read != NULL)
        return 0;
    tls_stream->may_have_more = true;
    tls_stream->turn_left = TURN_BYTES_MAX;
    bytes = muster_stream_unread_take(&tls_stream->unread, buffer, bytes_max);
    bytes += decrypt_into(tls_stream, (uint8_t *)buffer + bytes, bytes_max - bytes);
    if (tls_stream->filling.count > 0)
        muster_tls_stream_schedule(tls_stream);
    return bytes;
}

static void tls_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);

    MUSTER_ASSERT(tls_stream->read == NULL);
    muster_stream_unread_put(&tls_stream->unread, bytes, count);
}

static void tls_set_user_timeout(struct muster_stream *stream, uint32_t timeout_ms)
{
    muster_stream_set_user_timeout(muster_tls_stream_of(stream)->inner, timeout_ms);
}

static const struct muster_error *tls_error(const struct muster_stream *stream)
{
    return &muster_tls_stream_of(stream)->error;
}

static const struct muster_stream_ops tls_ops = {
    .submit = muster_tls_stream_submit,
    .receive = tls_receive,
    .cancel_write = muster_tls_stream_cancel_write,
    .cancel_read = tls_cancel_read,
    .shutdown = tls_shutdown,
    .close = tls_close,
    .peer = tls_peer,
    .local = tls_local,
    .take_now = tls_take_now,
    .unread = tls_unread,
    .set_user_timeout = tls_set_user_timeout,
    .error = tls_error,
};

/* Life. */

static void stream_init(struct muster_tls_stream *tls_stream, struct muster_tls *tls,
                        struct muster_stream *inner)
{
    tls_stream->stream.ops = &tls_ops;
    tls_stream->tls = muster_tls_share(tls);
    tls_stream->inner = inner;
    tls_stream->may_have_more = true;
    muster_token_bucket_init(&tls_stream->controls, CONTROL_BURST, CONTROL_PER_S);
    muster_list_init(&tls_stream->writes);
    muster_list_init(&tls_stream->finished);
    muster_task_init(&tls_stream->task, on_task, tls_stream);
    muster_timer_init(&tls_stream->timer, on_timer, tls_stream);
}

static enum muster_rc stream_new(struct muster_tls *tls, struct muster_stream *inner,
                                 const struct muster_tls_handshake_options *options,
                                 struct muster_tls_stream **ret_tls_stream)
{
    struct muster_tls_stream *tls_stream =
        muster_mem_alloc_zero(tls->env->mem, 1, sizeof(*tls_stream));
    const struct muster_tls_engine_options engine = {
        .mem = tls->env->mem,
        .is_server = options->is_server,
        .is_peer_required = tls->options.is_peer_required,
        .server_name = options->server_name,
        .other_name = options->other_name,
        .protocols = options->protocols,
        .peer_names = tls->options.peer_names,
        .peer_name_count = tls->options.peer_name_count,
        .now_s = muster_tls_now_s(tls->env),
        .sessions = options->sessions,
        .data = tls_stream,
        .pull = pull_inner,
        .push = muster_tls_stream_push,
        .take_control = take_control,
    };
    enum muster_rc rc;

    if (tls_stream == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    stream_init(tls_stream, tls, inner);
    rc = muster_tls_engine_open(tls->context, &engine, &tls_stream->engine, NULL);
    if (rc != MUSTER_OK) {
        muster_tls_stream_free(tls_stream);
        return rc;
    }
    *ret_tls_stream = tls_stream;
    return MUSTER_OK;
}

enum muster_rc muster_tls_handshake_start(struct muster_tls_handshake *handshake,
                                          struct muster_tls *tls, struct muster_stream *inner,
                                          const struct muster_tls_handshake_options *options,
                                          uint64_t deadline_ns, muster_tls_handshake_fn *done)
{
    struct muster_tls_stream *tls_stream = NULL;
    enum muster_rc rc = MUSTER_FAILED_PRECONDITION;

    if (!options->is_server || muster_tls_context_has_cert(tls->context))
        rc = stream_new(tls, inner, options, &tls_stream);
    if (rc != MUSTER_OK) {
        muster_stream_close(inner, NULL);
        return rc;
    }
    handshake->stream = NULL;
    handshake->is_unheard = false;
    handshake->error = (struct muster_error){.rc = MUSTER_OK};
    handshake->done = NULL;
    handshake->tls_stream = tls_stream;
    tls_stream->handshake = handshake;
    muster_timer_start(&tls_stream->timer, tls->env->loop, deadline_ns);
    muster_tls_stream_schedule(tls_stream);
    handshake->done = done;
    return MUSTER_OK;
}

bool muster_tls_stream_is_one(const struct muster_stream *stream)
{
    return stream->ops == &tls_ops;
}

const struct muster_identity *muster_tls_stream_identity(const struct muster_stream *stream)
{
    return muster_tls_engine_identity(muster_tls_stream_of(stream)->engine);
}

const char *muster_tls_stream_protocol(const struct muster_stream *stream)
{
    return muster_tls_engine_protocol(muster_tls_stream_of(stream)->engine);
}

bool muster_tls_stream_is_resumed(const struct muster_stream *stream)
{
    return muster_tls_engine_is_resumed(muster_tls_stream_of(stream)->engine);
}

enum muster_rc muster_tls_stream_export(struct muster_stream *stream, const char *label,
                                        uint8_t *ret_key, size_t key_bytes)
{
    return muster_tls_engine_export(muster_tls_stream_of(stream)->engine, label, ret_key,
                                    key_bytes);
}
