/* The bytes that one stream still has to send, and those kept in case the call must be sent again.
 * The owner appends buffers. nghttp2 asks for one DATA frame at a time: promise names its length,
 * and write moves that many bytes to the output once the frame's head is there. */
#include "net/h2/body.h"

#include <assert.h>
#include <string.h>

/* One frame must fit into an output that is not full: copied bytes before, between and after the
 * large pieces are one piece each, and the frame's head joins the first. */
#define FRAME_LARGE_PIECES_MAX 2
#define FRAME_COPIED_BYTES_MAX (16u << 10)

static_assert(2 * FRAME_LARGE_PIECES_MAX + 1 <= MUSTER_H2_FRAME_PIECES_MAX,
              "an output that is not full has room for the pieces of one frame");
static_assert(FRAME_COPIED_BYTES_MAX + 9 <= MUSTER_H2_GATHER_RESERVE,
              "an output that is not full has room for the copied bytes of one frame");

static struct muster_h2_buffer *buffer_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_h2_buffer, node);
}

static void buffers_drop(struct muster_list *list)
{
    struct muster_list *node;

    while ((node = muster_list_pop(list)) != NULL)
        muster_h2_buffer_unref(buffer_of(node));
}

void muster_h2_body_init(struct muster_h2_body *body, size_t keep_max_bytes)
{
    memset(body, 0, sizeof(*body));
    muster_list_init(&body->buffers);
    muster_list_init(&body->kept);
    body->keep_max_bytes = keep_max_bytes;
}

void muster_h2_body_fini(struct muster_h2_body *body)
{
    buffers_drop(&body->buffers);
    buffers_drop(&body->kept);
    body->bytes = 0;
    body->promised_bytes = 0;
    body->kept_bytes = 0;
}

void muster_h2_body_append(struct muster_h2_body *body, struct muster_h2_buffer *buffer)
{
    MUSTER_ASSERT(muster_list_is_empty(&buffer->node) && buffer->offset == 0);
    muster_list_append(&body->buffers, &buffer->node);
    body->bytes += buffer->size;
}

size_t muster_h2_body_promise(struct muster_h2_body *body, size_t max)
{
    unsigned large = 0;
    size_t copied = 0, total = 0;

    MUSTER_LIST_EACH(&body->buffers, buffer, struct muster_h2_buffer, node)
    {
        size_t count = buffer->size - buffer->offset;

        if (total == max)
            break;
        if (count > max - total)
            count = max - total;
        if (count > MUSTER_H2_COPY_BYTES_MAX) {
            if (large++ == FRAME_LARGE_PIECES_MAX)
                break;
        } else {
            if (copied + count > FRAME_COPIED_BYTES_MAX)
                break;
            copied += count;
        }
        total += count;
    }
    body->promised_bytes = total;
    return total;
}

/* A framed buffer is kept while a replay may still need it. A body that grows beyond keep_max_bytes
 * cannot be sent again whole, so from then on nothing of it is kept. */
static void buffer_framed(struct muster_h2_body *body, struct muster_h2_buffer *buffer)
{
    MUSTER_ASSERT(buffer->offset == buffer->size);
    muster_list_remove(&buffer->node);
    if (body->keep_max_bytes == 0) {
        muster_h2_buffer_unref(buffer);
        return;
    }
    muster_list_append(&body->kept, &buffer->node);
    body->kept_bytes += buffer->size;
    if (body->kept_bytes > body->keep_max_bytes)
        muster_h2_body_commit(body);
}

bool muster_h2_body_write(struct muster_h2_body *body, struct muster_h2_output *output)
{
    size_t left = body->promised_bytes;

    /* Only a fault of ours could take promised bytes away: it costs a stream, not the connection. */
    if (left > body->bytes)
        return false;
    body->promised_bytes = 0;
    body->bytes -= left;
    while (left > 0) {
        struct muster_h2_buffer *buffer = buffer_of(body->buffers.next);
        size_t count = buffer->size - buffer->offset;

        if (count > left)
            count = left;
        muster_h2_output_refer(output, buffer, buffer->offset, count);
        buffer->offset += count;
        left -= count;
        if (buffer->offset == buffer->size)
            buffer_framed(body, buffer);
    }
    return true;
}

/* Buffers are dropped from the end, because the promised bytes are the first ones: the head of
 * their frame may be written already, and a frame shorter than its head says would break the
 * connection. */
void muster_h2_body_discard(struct muster_h2_body *body)
{
    while (!muster_list_is_empty(&body->buffers)) {
        struct muster_h2_buffer *last = buffer_of(body->buffers.prev);
        size_t count = last->size - last->offset;

        if (body->bytes - count < body->promised_bytes)
            return;
        muster_list_remove(&last->node);
        body->bytes -= count;
        muster_h2_buffer_unref(last);
    }
}

void muster_h2_body_commit(struct muster_h2_body *body)
{
    body->keep_max_bytes = 0;
    body->kept_bytes = 0;
    buffers_drop(&body->kept);
}

bool muster_h2_body_rewind(struct muster_h2_body *body)
{
    if (body->keep_max_bytes == 0)
        return false;
    while (!muster_list_is_empty(&body->kept)) {
        struct muster_list *last = body->kept.prev;

        muster_list_remove(last);
        muster_list_prepend(&body->buffers, last);
    }
    body->kept_bytes = 0;
    body->promised_bytes = 0;
    body->bytes = 0;
    MUSTER_LIST_EACH(&body->buffers, buffer, struct muster_h2_buffer, node)
    {
        buffer->offset = 0;
        body->bytes += buffer->size;
    }
    return true;
}
