/* Zstandard by libzstd. */
#include "training/data/inflate.h"

#include <zstd.h>
#include <zstd_errors.h>

static enum muster_rc zstd_open(struct muster_mem *mem, void **ret_state)
{
    (void)mem; /* an allocator is not part of libzstd's stable calls */
    *ret_state = ZSTD_createDStream();
    return *ret_state != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static enum muster_rc zstd_step(void *state, struct muster_data_pipe *pipe)
{
    ZSTD_inBuffer in = {pipe->in, pipe->in_left, 0};
    ZSTD_outBuffer out = {pipe->out, pipe->out_left, 0};
    size_t left = pipe->is_whole ? 0 : 1;

    do {
        size_t in_before = in.pos, out_before = out.pos;

        left = ZSTD_decompressStream(state, &out, &in);
        if (ZSTD_isError(left))
            return ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation
                       ? MUSTER_RESOURCE_EXHAUSTED
                       : MUSTER_DATA_LOSS;
        if (in.pos == in_before && out.pos == out_before)
            break;
    } while (in.pos < in.size && out.pos < out.size);
    pipe->in += in.pos;
    pipe->in_left -= in.pos;
    pipe->out += out.pos;
    pipe->out_left -= out.pos;
    pipe->is_whole = left == 0;
    return MUSTER_OK;
}

static void zstd_close(void *state)
{
    (void)ZSTD_freeDStream(state);
}

const struct muster_data_codec muster_data_codec_zstd = {".zst", zstd_open, zstd_step, zstd_close};
