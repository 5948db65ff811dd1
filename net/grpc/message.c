/* A message on its way into a body: gRPC's prefix, then a copy of the bytes, or the lent pieces
 * themselves, or either compressed when that is smaller. Both sides send through it. Lent pieces
 * are queued without a copy, and come back by released when the last of their buffers has gone. */
#include "net/grpc/message.h"

#include <string.h>

#include "net/grpc/frame.h"
#include "net/grpc/gzip.h"

size_t muster_rpc_message_bytes(const struct iovec *pieces, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        if (pieces[i].iov_len > UINT32_MAX - bytes)
            return SIZE_MAX;
        bytes += pieces[i].iov_len;
    }
    return bytes;
}

/* The message compressed; NULL: it would not be smaller, or there is no memory for it. */
static struct muster_h2_buffer *compress_message(struct muster_mem *mem, const struct iovec *pieces,
                                                 size_t count)
{
    size_t bytes = muster_rpc_message_bytes(pieces, count), less = 0;
    struct muster_h2_buffer *buffer;

    if (bytes == 0)
        return NULL;
    /* One byte less than the plain message: what does not fit would not be smaller. */
    buffer = muster_h2_buffer_new(mem, MUSTER_GRPC_PREFIX_BYTES + bytes - 1);
    if (buffer == NULL)
        return NULL;
    if (muster_grpc_gzip_deflate(mem, pieces, count, buffer->bytes + MUSTER_GRPC_PREFIX_BYTES,
                                 bytes - 1, &less) != MUSTER_OK) {
        muster_h2_buffer_unref(buffer);
        return NULL;
    }
    muster_grpc_prefix_format(less, true, buffer->bytes);
    return muster_h2_buffer_shrink(buffer, MUSTER_GRPC_PREFIX_BYTES + less);
}

static bool send_compressed(struct muster_h2_stream *stream, struct muster_mem *mem,
                            const struct iovec *pieces, size_t count)
{
    struct muster_h2_buffer *buffer = compress_message(mem, pieces, count);

    if (buffer != NULL)
        muster_h2_stream_send(stream, buffer);
    return buffer != NULL;
}

enum muster_rc muster_rpc_message_send(struct muster_h2_stream *stream, struct muster_mem *mem,
                                       const void *message, size_t bytes, bool is_compressing)
{
    const struct iovec whole = {(void *)(uintptr_t)message, bytes};
    struct muster_h2_buffer *buffer;

    if (is_compressing && send_compressed(stream, mem, &whole, 1))
        return MUSTER_OK;
    buffer = muster_h2_buffer_new(mem, MUSTER_GRPC_PREFIX_BYTES + bytes);
    if (buffer == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_grpc_prefix_format(bytes, false, buffer->bytes);
    if (bytes > 0)
        memcpy(buffer->bytes + MUSTER_GRPC_PREFIX_BYTES, message, bytes);
    muster_h2_stream_send(stream, buffer);
    return MUSTER_OK;
}

/* The lender hears of it from the loop, because the last buffer may go inside its own send or
 * close. */
static void on_released(struct muster_task *task)
{
    struct muster_loan *loan = task->data;

    loan->released(loan);
}

static void loan_init(struct muster_loan *loan, struct muster_env *env, muster_loan_fn *released)
{
    loan->released = released;
    loan->loop = env->loop;
    loan->buffer_count = 0;
    muster_task_init(&loan->task, on_released, loan);
}

void muster_rpc_message_return(struct muster_loan *loan, struct muster_env *env,
                               muster_loan_fn *released)
{
    loan_init(loan, env, released);
    muster_task_post(&loan->task, loan->loop);
}

static void buffer_released(void *lender)
{
    struct muster_loan *loan = lender;

    if (--loan->buffer_count == 0)
        muster_task_post(&loan->task, loan->loop);
}

/* Nothing was lent after all: the buffers go without counting for the loan. */
static void buffers_drop(struct muster_list *buffers)
{
    struct muster_list *node;

    while ((node = muster_list_pop(buffers)) != NULL) {
        struct muster_h2_buffer *buffer = MUSTER_CONTAINER_OF(node, struct muster_h2_buffer, node);

        buffer->release = NULL;
        muster_h2_buffer_unref(buffer);
    }
}

/* Makes the guard, the prefix and one buffer for each piece. */
static enum muster_rc buffers_make(struct muster_list *buffers, struct muster_mem *mem,
                                   struct muster_loan *loan, const struct iovec *pieces,
                                   size_t count)
{
    struct muster_h2_buffer *buffer =
        muster_h2_buffer_lend(mem, NULL, 0, buffer_released, loan); /* stands for no piece at all */

    if (buffer == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_list_append(buffers, &buffer->node);
    loan->buffer_count = 1;
    buffer = muster_h2_buffer_new(mem, MUSTER_GRPC_PREFIX_BYTES);
    if (buffer == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    /* The prefix is our own memory; only the pieces are counted for the loan. */
    muster_grpc_prefix_format(muster_rpc_message_bytes(pieces, count), false, buffer->bytes);
    muster_list_append(buffers, &buffer->node);
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].iov_len == 0)
            continue;
        buffer = muster_h2_buffer_lend(mem, pieces[i].iov_base, pieces[i].iov_len, buffer_released,
                                       loan);
        if (buffer == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        loan->buffer_count++;
        muster_list_append(buffers, &buffer->node);
    }
    return MUSTER_OK;
}

enum muster_rc muster_rpc_message_lend(struct muster_h2_stream *stream, struct muster_env *env,
                                       struct muster_loan *loan, const struct iovec *pieces,
                                       size_t count, bool is_compressing, muster_loan_fn *released)
{
    struct muster_list buffers;
    struct muster_list *node;
    struct muster_h2_buffer *guard;
    enum muster_rc rc;

    if (is_compressing && send_compressed(stream, env->mem, pieces, count)) {
        muster_rpc_message_return(loan, env, released);
        return MUSTER_OK;
    }
    muster_list_init(&buffers);
    loan_init(loan, env, released);
    rc = buffers_make(&buffers, env->mem, loan, pieces, count);
    if (rc != MUSTER_OK) {
        buffers_drop(&buffers);
        return rc;
    }
    /* The guard keeps the count above zero while the pieces are handed over, since a send may
     * release some of them at once. */
    guard = MUSTER_CONTAINER_OF(muster_list_pop(&buffers), struct muster_h2_buffer, node);
    while ((node = muster_list_pop(&buffers)) != NULL)
        muster_h2_stream_send(stream, MUSTER_CONTAINER_OF(node, struct muster_h2_buffer, node));
    muster_h2_buffer_unref(guard); /* an empty message is returned at once */
    return MUSTER_OK;
}
