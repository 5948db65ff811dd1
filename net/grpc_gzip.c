/* gzip of single messages (RFC 1952), with a bound on what comes out. */
#include "net/grpc_gzip.h"

#include <limits.h>
#include <string.h>

#include <zlib.h>

#define WINDOW_BITS   (15 + 16) /* with gzip's header and trailer */
#define MEMORY_LEVEL  8
#define PLAIN_MIN     1024
#define GUESSED_RATIO 4

static void *allocate(void *mem, unsigned count, unsigned bytes)
{
    return muster_mem_alloc_zero(mem, count, bytes);
}

static void release(void *mem, void *memory)
{
    muster_mem_free(mem, memory);
}

static z_stream stream_in(struct muster_mem *mem)
{
    return (z_stream){.zalloc = allocate, .zfree = release, .opaque = mem};
}

enum muster_rc muster_grpc_gzip_deflate(struct muster_mem *mem, const struct iovec *pieces,
                                        size_t count, uint8_t *into, size_t bytes_max,
                                        size_t *ret_bytes)
{
    z_stream stream = stream_in(mem);
    int code;

    if (bytes_max > UINT_MAX)
        return MUSTER_FAILED_PRECONDITION;
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WINDOW_BITS, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    stream.next_out = into;
    stream.avail_out = (unsigned)bytes_max;
    code = Z_OK;
    for (size_t i = 0; i < count && code == Z_OK; i++) {
        stream.next_in = pieces[i].iov_base;
        stream.avail_in = (unsigned)pieces[i].iov_len;
        if (stream.avail_in > 0)
            code = deflate(&stream, Z_NO_FLUSH);
        if (stream.avail_in > 0)
            code = Z_BUF_ERROR;
    }
    if (code == Z_OK)
        code = deflate(&stream, Z_FINISH);
    *ret_bytes = bytes_max - stream.avail_out;
    (void)deflateEnd(&stream);
    return code == Z_STREAM_END ? MUSTER_OK : MUSTER_FAILED_PRECONDITION;
}

/* Memory follows what has come out, so that a few bytes cannot ask for all of it. */
static bool grow(struct muster_mem *mem, uint8_t **plain, size_t *capacity, size_t bytes_max)
{
    size_t wanted = *capacity < bytes_max / 2 ? *capacity * 2 : bytes_max;
    uint8_t *grown = muster_mem_realloc(mem, *plain, wanted);

    if (grown == NULL)
        return false;
    *plain = grown;
    *capacity = wanted;
    return true;
}

static enum muster_rc inflate_all(struct muster_mem *mem, z_stream *stream, uint8_t **plain,
                                  size_t capacity, size_t bytes_max)
{
    for (;;) {
        size_t room = capacity - stream->total_out;
        int code;

        stream->next_out = *plain + stream->total_out;
        stream->avail_out = (unsigned)room;
        code = inflate(stream, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            return stream->avail_in == 0 ? MUSTER_OK : MUSTER_DATA_LOSS;
        if (code == Z_MEM_ERROR)
            return MUSTER_RESOURCE_EXHAUSTED;
        if (code != Z_OK || stream->avail_out > 0)
            return MUSTER_DATA_LOSS;
        if (capacity == bytes_max)
            return MUSTER_OUT_OF_RANGE;
        if (!grow(mem, plain, &capacity, bytes_max))
            return MUSTER_RESOURCE_EXHAUSTED;
    }
}

enum muster_rc muster_grpc_gzip_inflate(struct muster_mem *mem, struct muster_bytes compressed,
                                        size_t plain_bytes_max, struct muster_bytes *ret_plain)
{
    /* One byte more than allowed, so that a message of the allowed size reaches its end. */
    size_t bytes_max = plain_bytes_max < UINT_MAX ? plain_bytes_max + 1 : UINT_MAX;
    size_t capacity =
        compressed.size < bytes_max / GUESSED_RATIO ? compressed.size * GUESSED_RATIO : bytes_max;
    z_stream stream = stream_in(mem);
    uint8_t *plain;
    enum muster_rc rc;

    if (capacity < PLAIN_MIN)
        capacity = PLAIN_MIN < bytes_max ? PLAIN_MIN : bytes_max;
    plain = muster_mem_alloc(mem, capacity);
    if (plain == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (inflateInit2(&stream, WINDOW_BITS) != Z_OK) {
        muster_mem_free(mem, plain);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    stream.next_in = (Bytef *)(uintptr_t)compressed.data;
    stream.avail_in = (unsigned)compressed.size;
    rc = inflate_all(mem, &stream, &plain, capacity, bytes_max);
    if (rc == MUSTER_OK && stream.total_out > plain_bytes_max)
        rc = MUSTER_OUT_OF_RANGE;
    if (rc == MUSTER_OK)
        *ret_plain = (struct muster_bytes){plain, stream.total_out};
    else
        muster_mem_free(mem, plain);
    (void)inflateEnd(&stream);
    return rc;
}
