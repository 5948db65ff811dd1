/* gzip of single messages (RFC 1952) on zlib, with a bound on what comes out. This is the one file
 * that includes zlib; frame.c inflates and message.c deflates with it. Inflating goes in steps, so
 * that a few bytes that hold a gigabyte cannot hold up the loop. */
#include "net/grpc/gzip.h"

#include <limits.h>
#include <string.h>

#include <zlib.h>

#define WINDOW_BITS (15 + 16) /* with gzip's header and trailer */
/* zlib's own default: 256 KiB while a message is deflated. */
#define MEMORY_LEVEL 8
#define PLAIN_MIN    1024
/* The usual ratio of text: the first room for what comes out, and the price of a byte that goes in
 * when nothing comes out. */
#define GUESSED_RATIO 4

/* So much input at a time, so that input that yields nothing is paid for as well. */
#define INPUT_PIECE         (16u << 10)
#define INFLATE_STATE_BYTES (40u << 10) /* zlib's, with its window */

static void *gzip_allocate(void *mem, unsigned count, unsigned bytes)
{
    return muster_mem_alloc_zero(mem, count, bytes);
}

static void gzip_release(void *mem, void *memory)
{
    muster_mem_free(mem, memory);
}

static z_stream stream_in(struct muster_mem *mem)
{
    return (z_stream){.zalloc = gzip_allocate, .zfree = gzip_release, .opaque = mem};
}

enum muster_rc muster_grpc_gzip_deflate(struct muster_mem *mem, const struct iovec *pieces,
                                        size_t count, uint8_t *into, size_t bytes_max,
                                        size_t *ret_bytes)
{
    z_stream stream = stream_in(mem);
    int code;

    /* zlib counts in unsigned. */
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
        /* The room is used up: the message would not be smaller than it is, and goes uncompressed.
         */
        if (stream.avail_in > 0)
            code = Z_BUF_ERROR;
    }
    if (code == Z_OK)
        code = deflate(&stream, Z_FINISH);
    *ret_bytes = bytes_max - stream.avail_out;
    (void)deflateEnd(&stream);
    return code == Z_STREAM_END ? MUSTER_OK : MUSTER_FAILED_PRECONDITION;
}

struct muster_grpc_inflater {
    struct muster_mem *mem;
    z_stream stream;
    const uint8_t *input;
    size_t input_left;
    uint8_t *kept; /* the input, if it is ours */
    size_t kept_bytes;
    uint8_t *plain;
    size_t capacity;
    size_t plain_bytes_max;
};

/* One byte more than allowed, so that a message of the allowed size reaches its end, and a longer
 * one shows that it is longer. */
static size_t capacity_max(const struct muster_grpc_inflater *inflater)
{
    return inflater->plain_bytes_max < UINT_MAX ? inflater->plain_bytes_max + 1 : UINT_MAX;
}

enum muster_rc muster_grpc_inflater_new(struct muster_mem *mem, struct muster_bytes compressed,
                                        size_t plain_bytes_max,
                                        struct muster_grpc_inflater **ret_inflater)
{
    struct muster_grpc_inflater *inflater = muster_mem_alloc_zero(mem, 1, sizeof(*inflater));
    size_t max;

    if (inflater == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    inflater->mem = mem;
    inflater->input = compressed.data;
    inflater->input_left = compressed.size;
    inflater->plain_bytes_max = plain_bytes_max;
    max = capacity_max(inflater);
    inflater->capacity =
        compressed.size < max / GUESSED_RATIO ? compressed.size * GUESSED_RATIO : max;
    if (inflater->capacity < PLAIN_MIN)
        inflater->capacity = PLAIN_MIN < max ? PLAIN_MIN : max;
    inflater->plain = muster_mem_alloc(mem, inflater->capacity);
    inflater->stream = stream_in(mem);
    if (inflater->plain == NULL || inflateInit2(&inflater->stream, WINDOW_BITS) != Z_OK) {
        muster_mem_free(mem, inflater->plain);
        muster_mem_free(mem, inflater);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_inflater = inflater;
    return MUSTER_OK;
}

void muster_grpc_inflater_free(struct muster_grpc_inflater *inflater)
{
    struct muster_mem *mem;

    if (inflater == NULL)
        return;
    mem = inflater->mem;
    (void)inflateEnd(&inflater->stream);
    muster_mem_free(mem, inflater->kept);
    muster_mem_free(mem, inflater->plain);
    muster_mem_free(mem, inflater);
}

bool muster_grpc_inflater_keep(struct muster_grpc_inflater *inflater)
{
    inflater->kept = muster_mem_alloc(inflater->mem, inflater->input_left + 1);
    if (inflater->kept == NULL)
        return false;
    if (inflater->input_left > 0)
        memcpy(inflater->kept, inflater->input, inflater->input_left);
    inflater->kept_bytes = inflater->input_left;
    inflater->input = inflater->kept;
    return true;
}

size_t muster_grpc_inflater_held_bytes(const struct muster_grpc_inflater *inflater)
{
    return sizeof(*inflater) + INFLATE_STATE_BYTES + inflater->kept_bytes + inflater->capacity;
}

/* Memory follows what has come out, so that a few bytes cannot ask for all of it. */
static bool grow_output(struct muster_grpc_inflater *inflater)
{
    size_t max = capacity_max(inflater);
    size_t wanted = inflater->capacity < max / 2 ? inflater->capacity * 2 : max;
    uint8_t *grown = muster_mem_realloc(inflater->mem, inflater->plain, wanted);

    if (grown == NULL)
        return false;
    inflater->plain = grown;
    inflater->capacity = wanted;
    return true;
}

/* Inflates as much as *work pays for, and takes the cost from it. */
static int inflate_some(struct muster_grpc_inflater *inflater, size_t *work)
{
    z_stream *stream = &inflater->stream;
    size_t given = inflater->input_left < INPUT_PIECE ? inflater->input_left : INPUT_PIECE;
    size_t room = inflater->capacity - stream->total_out;
    size_t used, made, cost;
    int code;

    room = room < *work ? room : *work;
    stream->next_in = (Bytef *)(uintptr_t)inflater->input;
    stream->avail_in = (unsigned)given;
    stream->next_out = inflater->plain + stream->total_out;
    stream->avail_out = (unsigned)room;
    code = inflate(stream, Z_NO_FLUSH);
    used = given - stream->avail_in;
    made = room - stream->avail_out;
    inflater->input += used;
    inflater->input_left -= used;
    /* A damaged or hostile input may use much and yield nothing; it must not be free of charge. */
    cost = made > used * GUESSED_RATIO ? made : used * GUESSED_RATIO;
    *work -= cost < *work ? cost : *work;
    return code;
}

/* A second member is allowed by RFC 1952 2.2, but a message of gRPC is one: anything after it is
 * damage. */
static enum muster_rc judge_end(const struct muster_grpc_inflater *inflater)
{
    if (inflater->input_left > 0)
        return MUSTER_DATA_LOSS;
    return inflater->stream.total_out > inflater->plain_bytes_max ? MUSTER_OUT_OF_RANGE : MUSTER_OK;
}

enum muster_rc muster_grpc_inflater_step(struct muster_grpc_inflater *inflater, size_t *work,
                                         bool *ret_is_done)
{
    *ret_is_done = false;
    while (*work > 0) {
        int code = inflate_some(inflater, work);

        *ret_is_done = code == Z_STREAM_END;
        if (code == Z_STREAM_END)
            return judge_end(inflater);
        if (code == Z_MEM_ERROR)
            return MUSTER_RESOURCE_EXHAUSTED;
        if (code != Z_OK && code != Z_BUF_ERROR) /* no progress: more input, or room */
            return MUSTER_DATA_LOSS;
        /* There is room, and the input is over before its end mark: it was cut off. */
        if (inflater->stream.avail_out > 0 && inflater->input_left == 0)
            return MUSTER_DATA_LOSS;
        if (inflater->stream.total_out < inflater->capacity)
            continue;
        if (inflater->capacity == capacity_max(inflater))
            return MUSTER_OUT_OF_RANGE;
        if (!grow_output(inflater))
            return MUSTER_RESOURCE_EXHAUSTED;
    }
    return MUSTER_OK;
}

struct muster_bytes muster_grpc_inflater_take(struct muster_grpc_inflater *inflater,
                                              size_t *ret_capacity)
{
    const struct muster_bytes plain = {inflater->plain, inflater->stream.total_out};

    *ret_capacity = inflater->capacity;
    inflater->plain = NULL;
    return plain;
}
