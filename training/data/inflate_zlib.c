/* gzip by zlib. */
#include "training/data/inflate.h"

#include <zlib.h>

#define GZIP_WINDOW_BITS (15 + 16) /* with gzip's head and CRC, and nothing else */

struct gzip_state {
    struct muster_mem *mem;
    z_stream stream;
    bool is_ended; /* a member has ended, and the next one has not begun */
};

static void *block_alloc(void *data, unsigned count, unsigned bytes)
{
    return muster_mem_alloc_zero(data, count, bytes);
}

static void block_free(void *data, void *block)
{
    muster_mem_free(data, block);
}

static enum muster_rc gzip_open(struct muster_mem *mem, void **ret_state)
{
    struct gzip_state *state = muster_mem_alloc_zero(mem, 1, sizeof(*state));

    if (state == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    state->mem = mem;
    state->stream = (z_stream){.zalloc = block_alloc, .zfree = block_free, .opaque = mem};
    if (inflateInit2(&state->stream, GZIP_WINDOW_BITS) != Z_OK) {
        muster_mem_free(mem, state);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_state = state;
    return MUSTER_OK;
}

static enum muster_rc member_step(struct gzip_state *state)
{
    switch (inflate(&state->stream, Z_NO_FLUSH)) {
    case Z_OK:
    case Z_BUF_ERROR: /* no room, or nothing to read */
        return MUSTER_OK;
    case Z_STREAM_END:
        state->is_ended = true;
        return MUSTER_OK;
    case Z_MEM_ERROR:
        return MUSTER_RESOURCE_EXHAUSTED;
    default:
        return MUSTER_DATA_LOSS;
    }
}

static enum muster_rc gzip_step(void *data, struct muster_data_pipe *pipe)
{
    struct gzip_state *state = data;
    z_stream *stream = &state->stream;
    enum muster_rc rc = MUSTER_OK;

    stream->next_in = (z_const Bytef *)(uintptr_t)pipe->in;
    stream->avail_in = (uInt)pipe->in_left;
    stream->next_out = pipe->out;
    stream->avail_out = (uInt)pipe->out_left;
    while (rc == MUSTER_OK && stream->avail_out > 0) {
        if (state->is_ended && stream->avail_in == 0)
            break;
        if (state->is_ended)
            (void)inflateReset(stream);
        state->is_ended = false;
        rc = member_step(state);
        if (!state->is_ended && stream->avail_in == 0)
            break;
    }
    pipe->in = stream->next_in;
    pipe->in_left = stream->avail_in;
    pipe->out = stream->next_out;
    pipe->out_left = stream->avail_out;
    pipe->is_whole = state->is_ended;
    return rc;
}

static void gzip_close(void *data)
{
    struct gzip_state *state = data;

    (void)inflateEnd(&state->stream);
    muster_mem_free(state->mem, state);
}

const struct muster_data_codec muster_data_codec_gzip = {".gz", gzip_open, gzip_step, gzip_close};
