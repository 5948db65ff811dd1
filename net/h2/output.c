/* The bytes of one gathered write of an HTTP/2 session: small frames copied, large payloads by
 * reference. The session fills an output until it is full or nghttp2 has no more, hands its pieces
 * to the byte stream in one write, and frees it when that write is done. */
#include "net/h2/output.h"

#include <string.h>

/* A holding may be part of a larger one (a call's of its server's): each sum is kept up to date, so
 * that reading one costs nothing. */
void muster_h2_holding_add(struct muster_h2_holding *holding, size_t bytes)
{
    for (; holding != NULL; holding = holding->whole) {
        holding->bytes += bytes;
        if (holding->gauge != NULL)
            *holding->gauge += (int64_t)bytes;
    }
}

void muster_h2_holding_subtract(struct muster_h2_holding *holding, size_t bytes)
{
    for (; holding != NULL; holding = holding->whole) {
        MUSTER_ASSERT(holding->bytes >= bytes);
        holding->bytes -= bytes;
        if (holding->gauge != NULL)
            *holding->gauge -= (int64_t)bytes;
    }
}

struct muster_h2_buffer *muster_h2_buffer_new(struct muster_mem *mem, size_t size)
{
    struct muster_h2_buffer *buffer = muster_mem_alloc(mem, sizeof(*buffer) + size);

    if (buffer == NULL)
        return NULL;
    muster_list_init(&buffer->node);
    buffer->mem = mem;
    buffer->size = size;
    buffer->offset = 0;
    buffer->refs = 1;
    buffer->data = buffer->bytes;
    buffer->release = NULL;
    buffer->lender = NULL;
    buffer->holding = NULL;
    return buffer;
}

struct muster_h2_buffer *muster_h2_buffer_lend(struct muster_mem *mem, const void *data,
                                               size_t size, void (*release)(void *lender),
                                               void *lender)
{
    struct muster_h2_buffer *buffer = muster_h2_buffer_new(mem, 0);

    if (buffer == NULL)
        return NULL;
    buffer->size = size;
    buffer->data = data;
    buffer->release = release;
    buffer->lender = lender;
    return buffer;
}

struct muster_h2_buffer *muster_h2_buffer_shrink(struct muster_h2_buffer *buffer, size_t size)
{
    struct muster_h2_buffer *shrunk;

    MUSTER_ASSERT(buffer->refs == 1 && buffer->data == buffer->bytes && size <= buffer->size);
    shrunk = muster_mem_realloc(buffer->mem, buffer, sizeof(*buffer) + size);
    if (shrunk == NULL) /* the larger block does as well */
        shrunk = buffer;
    muster_list_init(&shrunk->node);
    shrunk->data = shrunk->bytes;
    shrunk->size = size;
    return shrunk;
}

void muster_h2_buffer_count(struct muster_h2_buffer *buffer, struct muster_h2_holding *holding)
{
    MUSTER_ASSERT(buffer->holding == NULL);
    buffer->holding = holding;
    muster_h2_holding_add(holding, buffer->size);
}

void muster_h2_buffer_ref(struct muster_h2_buffer *buffer)
{
    MUSTER_ASSERT(buffer->refs > 0);
    buffer->refs++;
}

void muster_h2_buffer_unref(struct muster_h2_buffer *buffer)
{
    if (buffer == NULL)
        return;
    MUSTER_ASSERT(buffer->refs > 0);
    if (--buffer->refs > 0)
        return;
    muster_h2_holding_subtract(buffer->holding, buffer->size);
    if (buffer->release != NULL)
        buffer->release(buffer->lender);
    muster_mem_free(buffer->mem, buffer);
}

struct muster_h2_output *muster_h2_output_new(struct muster_mem *mem)
{
    struct muster_h2_output *output = muster_mem_alloc(mem, sizeof(*output));

    if (output == NULL)
        return NULL;
    output->mem = mem;
    output->gather_used = 0;
    output->piece_count = 0;
    output->bytes = 0;
    return output;
}

void muster_h2_output_free(struct muster_h2_output *output)
{
    if (output == NULL)
        return;
    for (size_t i = 0; i < output->piece_count; i++)
        muster_h2_buffer_unref(output->held[i]);
    muster_mem_free(output->mem, output);
}

bool muster_h2_output_is_full(const struct muster_h2_output *output)
{
    /* A frame cannot be taken back halfway, so there must be room for the largest; the piece more
     * is for the frame after it. */
    return output->gather_used + MUSTER_H2_GATHER_RESERVE > MUSTER_H2_GATHER_BYTES ||
           output->piece_count + MUSTER_H2_FRAME_PIECES_MAX + 1 > MUSTER_H2_OUTPUT_PIECES ||
           output->bytes >= MUSTER_H2_OUTPUT_BYTES;
}

/* Copied bytes lie one after the other in gather, so a run of small frames is one piece. */
static bool continues_last_piece(const struct muster_h2_output *output, const void *bytes)
{
    const struct iovec *last;

    if (output->piece_count == 0)
        return false;
    last = &output->pieces[output->piece_count - 1];
    return output->held[output->piece_count - 1] == NULL &&
           (const uint8_t *)last->iov_base + last->iov_len == (const uint8_t *)bytes;
}

static void piece_add(struct muster_h2_output *output, const void *bytes, size_t count,
                      struct muster_h2_buffer *held)
{
    output->bytes += count;
    if (held == NULL && continues_last_piece(output, bytes)) {
        output->pieces[output->piece_count - 1].iov_len += count;
        return;
    }
    MUSTER_ASSERT(output->piece_count < MUSTER_H2_OUTPUT_PIECES);
    output->pieces[output->piece_count].iov_base = (void *)(uintptr_t)bytes;
    output->pieces[output->piece_count].iov_len = count;
    output->held[output->piece_count] = held;
    output->piece_count++;
}

void muster_h2_output_copy(struct muster_h2_output *output, const void *bytes, size_t count)
{
    uint8_t *at = output->gather + output->gather_used;

    if (count == 0)
        return;
    MUSTER_ASSERT(count <= MUSTER_H2_GATHER_BYTES - output->gather_used);
    memcpy(at, bytes, count);
    output->gather_used += count;
    piece_add(output, at, count, NULL);
}

/* A frame of headers can be larger than what a DATA frame before it has left of gather, and nghttp2
 * makes frames as long as the longest DATA frame until then, if the peer takes such. */
bool muster_h2_output_append(struct muster_h2_output *output, const void *bytes, size_t count)
{
    struct muster_h2_buffer *own;

    if (count <= MUSTER_H2_GATHER_BYTES - output->gather_used) {
        muster_h2_output_copy(output, bytes, count);
        return true;
    }
    own = muster_h2_buffer_new(output->mem, count);
    if (own == NULL)
        return false;
    memcpy(own->bytes, bytes, count);
    piece_add(output, own->data, count, own);
    return true;
}

void muster_h2_output_refer(struct muster_h2_output *output, struct muster_h2_buffer *buffer,
                            size_t offset, size_t count)
{
    if (count <= MUSTER_H2_COPY_BYTES_MAX) {
        muster_h2_output_copy(output, buffer->data + offset, count);
        return;
    }
    muster_h2_buffer_ref(buffer);
    piece_add(output, buffer->data + offset, count, buffer);
}
