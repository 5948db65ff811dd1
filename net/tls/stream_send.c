/* The sending half of a stream under TLS: writes become records, records become batches. While one
 * batch is with the inner stream the next is filled; a write is done when the inner stream has
 * taken the batch with its last byte. The buffer of a write is free once it is encrypted, but its
 * owner must not believe it sent before. */
#include "net/tls/stream_internal.h"
#include "net/stream/request.h"

#define RECORD_BYTES     (16u << 10)                          /* of plain text; RFC 8446 5.1 */
#define BATCH_BYTES_MAX  (256u << 10)                         /* for a peer that does not read */
#define RECORD_EXTRA     64                                   /* head, tag and type of one */
#define BATCH_ROOM_MAX   (BATCH_BYTES_MAX + 2 * RECORD_BYTES) /* one record may cross */
#define BATCH_BYTES_MIN  1024 /* a handshake message or a small request */
#define PIECE_BYTES_LONG 4096 /* shorter neighbours share a record */

/* The batch is bounded by what is encrypted at a time; few answers to the peer (take_control) come
 * beyond it. */
bool muster_tls_stream_push(void *data, const void *bytes, size_t count)
{
    struct muster_tls_stream *tls_stream = data;
    struct muster_tls_batch *batch = &tls_stream->filling;
    size_t room = batch->room != 0 ? batch->room : BATCH_BYTES_MIN;
    uint8_t *grown;

    while (room < batch->count + count)
        room *= 2;
    if (room != batch->room) {
        grown = muster_mem_realloc(tls_stream->tls->env->mem, batch->bytes, room);
        if (grown == NULL)
            return false;
        batch->bytes = grown;
        batch->room = room;
    }
    memcpy(batch->bytes + batch->count, bytes, count);
    batch->count += count;
    return true;
}

/* Room for the records of count bytes, so that they are not moved while they come. Without memory
 * push will find out. */
static void reserve_batch(struct muster_tls_stream *tls_stream, size_t count)
{
    struct muster_tls_batch *batch = &tls_stream->filling;
    size_t room = batch->count + count + (count / RECORD_BYTES + 2) * RECORD_EXTRA;
    uint8_t *grown;

    if (room > BATCH_ROOM_MAX)
        room = BATCH_ROOM_MAX;
    if (room <= batch->room)
        return;
    grown = muster_mem_realloc(tls_stream->tls->env->mem, batch->bytes, room);
    if (grown == NULL)
        return;
    batch->bytes = grown;
    batch->room = room;
}

/* Not kept for the next batch: an idle connection holds no buffer. */
static void batch_free(struct muster_tls_stream *tls_stream, struct muster_tls_batch *batch)
{
    muster_mem_free(tls_stream->tls->env->mem, batch->bytes);
    *batch = (struct muster_tls_batch){.bytes = NULL};
}

static struct muster_stream_write *first_write(const struct muster_tls_stream *tls_stream)
{
    if (muster_list_is_empty(&tls_stream->writes))
        return NULL;
    return MUSTER_CONTAINER_OF(tls_stream->writes.next, struct muster_stream_write, node);
}

/* Its callback waits for the batch that holds its last byte. */
static void finish_write(struct muster_tls_stream *tls_stream, struct muster_stream_write *write)
{
    muster_list_remove(&write->node);
    write->sends_end = tls_stream->batches_done + (tls_stream->is_writing ? 1 : 0) +
                       (tls_stream->filling.count > 0 ? 1 : 0);
    muster_list_append(&tls_stream->finished, &write->node);
    tls_stream->first_iov = 0;
    tls_stream->first_offset = 0;
    if (tls_stream->rest == MUSTER_TLS_REST_FIRST)
        tls_stream->rest = MUSTER_TLS_REST_NONE;
}

static void fail_writes(struct muster_tls_stream *tls_stream)
{
    struct muster_stream_write *write;

    tls_stream->rest = MUSTER_TLS_REST_NONE;
    while ((write = first_write(tls_stream)) != NULL)
        finish_write(tls_stream, write);
}

static bool encrypt_bytes(struct muster_tls_stream *tls_stream, const void *bytes, size_t count)
{
    if (muster_tls_engine_write(tls_stream->engine, bytes, count) == MUSTER_TLS_DONE)
        return true;
    muster_tls_stream_fail(tls_stream, muster_tls_engine_error(tls_stream->engine));
    return false;
}

/* The next bytes of the first write; NULL: it is whole. */
static const uint8_t *next_piece(struct muster_tls_stream *tls_stream,
                                 const struct muster_stream_write *write, size_t *ret_count)
{
    while (tls_stream->first_iov < write->iov_count) {
        const struct iovec *iov = &write->iov[tls_stream->first_iov];

        if (tls_stream->first_offset < iov->iov_len) {
            *ret_count = iov->iov_len - tls_stream->first_offset;
            return (const uint8_t *)iov->iov_base + tls_stream->first_offset;
        }
        tls_stream->first_iov++;
        tls_stream->first_offset = 0;
    }
    return NULL;
}

static void advance_write(struct muster_tls_stream *tls_stream, struct muster_stream_write *write,
                          size_t count)
{
    tls_stream->first_offset += count;
    write->bytes_done += count;
}

/* One record's worth: a long piece from where it lies, short ones gathered. Bytes that could not be
 * encrypted are not done, so that their write is not told as sent. */
static void encrypt_some(struct muster_tls_stream *tls_stream, struct muster_stream_write *write)
{
    uint8_t gathered[RECORD_BYTES];
    size_t used = 0;
    size_t count = 0;
    const uint8_t *piece;

    while ((piece = next_piece(tls_stream, write, &count)) != NULL && used < RECORD_BYTES) {
        if (used == 0 && count >= PIECE_BYTES_LONG) {
            count = count < RECORD_BYTES ? count : RECORD_BYTES;
            if (encrypt_bytes(tls_stream, piece, count))
                advance_write(tls_stream, write, count);
            return;
        }
        count = count < RECORD_BYTES - used ? count : RECORD_BYTES - used;
        memcpy(gathered + used, piece, count);
        advance_write(tls_stream, write, count);
        used += count;
    }
    if (used > 0 && !encrypt_bytes(tls_stream, gathered, used))
        write->bytes_done -= used;
}

/* A recalled write that was partly encrypted has left a message half sent, so nothing may follow
 * before its rest (REST_DUE), close_notify neither. */
static void encrypt_writes(struct muster_tls_stream *tls_stream)
{
    struct muster_stream_write *write;
    size_t left;

    while (tls_stream->rest != MUSTER_TLS_REST_DUE && !tls_stream->has_send_failed &&
           tls_stream->filling.count < BATCH_BYTES_MAX &&
           (write = first_write(tls_stream)) != NULL) {
        if (write->bytes_done < write->bytes_total) {
            left = write->bytes_total - write->bytes_done;
            reserve_batch(tls_stream, left < BATCH_ROOM_MAX ? left : BATCH_ROOM_MAX);
            encrypt_some(tls_stream, write);
        }
        if (write->bytes_done == write->bytes_total)
            finish_write(tls_stream, write);
    }
    if (tls_stream->send == MUSTER_TLS_SEND_SHUT && !tls_stream->has_send_failed &&
        tls_stream->rest != MUSTER_TLS_REST_DUE && first_write(tls_stream) == NULL) {
        muster_tls_stream_move_send(tls_stream, MUSTER_TLS_SEND_ENDED);
        muster_tls_engine_end(tls_stream->engine);
    }
}

/* Bytes that the peer has sent before may still be read. */
static void lose_connection(struct muster_tls_stream *tls_stream)
{
    tls_stream->has_send_failed = true;
    if (tls_stream->error.rc == MUSTER_OK)
        (void)muster_error_set(&tls_stream->error, MUSTER_UNAVAILABLE, "connection lost");
}

void muster_tls_stream_batch_done(struct muster_tls_stream *tls_stream, enum muster_rc rc)
{
    MUSTER_ASSERT(tls_stream->is_writing);
    tls_stream->is_writing = false;
    batch_free(tls_stream, &tls_stream->sending);
    if (rc == MUSTER_OK)
        tls_stream->batches_done++;
    else
        lose_connection(tls_stream);
}

static void submit_batch(struct muster_tls_stream *tls_stream, muster_stream_write_fn *written)
{
    MUSTER_ASSERT(!tls_stream->is_writing && tls_stream->filling.count > 0);
    tls_stream->sending = tls_stream->filling;
    tls_stream->filling = (struct muster_tls_batch){.bytes = NULL};
    tls_stream->inner_iov =
        (struct iovec){.iov_base = tls_stream->sending.bytes, .iov_len = tls_stream->sending.count};
    tls_stream->inner_write.data = tls_stream;
    tls_stream->is_writing = muster_stream_submit(&tls_stream->inner_write, tls_stream->inner,
                                                  &tls_stream->inner_iov, 1, written) == MUSTER_OK;
    if (tls_stream->is_writing)
        return;
    batch_free(tls_stream, &tls_stream->sending);
    lose_connection(tls_stream);
}

void muster_tls_stream_flush(struct muster_tls_stream *tls_stream, muster_stream_write_fn *written)
{
    if (tls_stream->life == MUSTER_TLS_OPEN)
        encrypt_writes(tls_stream);
    if (tls_stream->filling.count > 0 && !tls_stream->is_writing &&
        tls_stream->life != MUSTER_TLS_CLOSING)
        submit_batch(tls_stream, written);
    if (tls_stream->send == MUSTER_TLS_SEND_ENDED && tls_stream->filling.count == 0) {
        muster_tls_stream_move_send(tls_stream, MUSTER_TLS_SEND_INNER_SHUT);
        muster_stream_shutdown(tls_stream->inner);
    }
    if (tls_stream->has_send_failed)
        fail_writes(tls_stream);
}

/* The count of batches wraps round; a write is never 2^31 batches old, so the difference tells. */
static bool is_taken(const struct muster_tls_stream *tls_stream,
                     const struct muster_stream_write *write)
{
    return (int32_t)(tls_stream->batches_done - write->sends_end) >= 0;
}

/* In the order of submission, which finish_write keeps. Each callback may submit, cancel or close,
 * so the list is looked at anew after it. */
void muster_tls_stream_run_finished(struct muster_tls_stream *tls_stream)
{
    while (tls_stream->life == MUSTER_TLS_OPEN && !muster_list_is_empty(&tls_stream->finished)) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(tls_stream->finished.next, struct muster_stream_write, node);
        bool has_failed = tls_stream->has_send_failed && !is_taken(tls_stream, write);

        if (!has_failed && !is_taken(tls_stream, write))
            return;
        muster_list_remove(&write->node);
        has_failed = has_failed || write->bytes_done < write->bytes_total;
        muster_stream_write_finish(write, has_failed ? MUSTER_UNAVAILABLE : MUSTER_OK);
    }
}

void muster_tls_stream_cancel_writes(struct muster_tls_stream *tls_stream)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&tls_stream->finished)) != NULL) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(node, struct muster_stream_write, node);

        muster_stream_write_finish(write, is_taken(tls_stream, write) &&
                                                  write->bytes_done == write->bytes_total
                                              ? MUSTER_OK
                                              : MUSTER_CANCELLED);
    }
    while ((node = muster_list_pop(&tls_stream->writes)) != NULL) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(node, struct muster_stream_write, node);

        muster_stream_write_finish(write, MUSTER_CANCELLED);
    }
}

enum muster_rc muster_tls_stream_submit(struct muster_stream *stream,
                                        struct muster_stream_write *write)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);
    bool is_rest = tls_stream->rest == MUSTER_TLS_REST_DUE;

    /* The rest of a begun write is taken even after a shutdown, which waits for it. */
    if (tls_stream->life != MUSTER_TLS_OPEN ||
        (tls_stream->send != MUSTER_TLS_SEND_OPEN && !is_rest))
        return MUSTER_FAILED_PRECONDITION;
    if (is_rest) {
        muster_list_prepend(&tls_stream->writes, &write->node);
        tls_stream->rest = MUSTER_TLS_REST_FIRST;
    } else {
        muster_list_append(&tls_stream->writes, &write->node);
    }
    if (!tls_stream->is_in_turn)
        muster_tls_stream_schedule(tls_stream);
    return MUSTER_OK;
}

/* Bytes that are encrypted cannot be taken back, because the peer counts records (RFC 8446 5.3).
 * The owner has to submit what is left of such a write before anything else. */
void muster_tls_stream_cancel_write(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct muster_tls_stream *tls_stream = muster_tls_stream_of(stream);
    bool is_begun = write->bytes_done > 0 ||
                    (tls_stream->rest == MUSTER_TLS_REST_FIRST && first_write(tls_stream) == write);

    if (muster_list_is_empty(&write->node))
        return;
    muster_list_remove(&write->node);
    if (is_begun && write->bytes_done < write->bytes_total && !tls_stream->has_send_failed) {
        tls_stream->rest = MUSTER_TLS_REST_DUE;
        tls_stream->first_iov = 0;
        tls_stream->first_offset = 0;
    }
    muster_tls_stream_schedule(tls_stream);
}
