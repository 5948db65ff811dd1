/* gRPC's length-prefixed messages (PROTOCOL-HTTP2.md, Length-Prefixed-Message): a parser for bytes
 * cut anywhere, and the prefix of what is sent. inbox.c feeds it and shows what comes out; it does
 * no I/O, and holds at most one message. */
#include "net/grpc/frame.h"

#include <stdio.h>
#include <string.h>

/* Smaller buffers would grow again with the next message. */
#define CAPACITY_MIN  1024
#define CAPACITY_KEPT (16u << 10) /* a larger buffer is given back between messages */
#define INFLATE_SLICE (64u << 10) /* of one message, before others have their turn */

enum { FLAG_PLAIN, FLAG_COMPRESSED };

void muster_grpc_parser_init(struct muster_grpc_parser *parser, struct muster_mem *mem,
                             size_t message_max_bytes)
{
    memset(parser, 0, sizeof(*parser));
    parser->mem = mem;
    parser->message_max_bytes = message_max_bytes;
}

void muster_grpc_parser_drop_plain(struct muster_grpc_parser *parser)
{
    muster_mem_free(parser->mem, parser->plain);
    parser->plain = NULL;
    parser->plain_bytes = 0;
}

static void drop_inflater(struct muster_grpc_parser *parser)
{
    muster_grpc_inflater_free(parser->inflater);
    parser->inflater = NULL;
}

size_t muster_grpc_parser_held_bytes(const struct muster_grpc_parser *parser)
{
    size_t inflating =
        parser->inflater != NULL ? muster_grpc_inflater_held_bytes(parser->inflater) : 0;

    return parser->capacity + parser->plain_bytes + inflating;
}

void muster_grpc_parser_fini(struct muster_grpc_parser *parser)
{
    muster_mem_free(parser->mem, parser->buffer);
    parser->buffer = NULL;
    parser->capacity = 0;
    muster_grpc_parser_drop_plain(parser);
    drop_inflater(parser);
}

void muster_grpc_parser_reset(struct muster_grpc_parser *parser)
{
    parser->prefix_filled = 0;
    parser->filled = 0;
    parser->place = NULL;
    parser->is_place_asked = false;
    parser->takes_gzip = false;
    parser->is_compressed = false;
    if (parser->plain != NULL)
        muster_grpc_parser_drop_plain(parser);
    if (parser->inflater != NULL)
        drop_inflater(parser);
    if (parser->capacity > CAPACITY_KEPT)
        muster_grpc_parser_fini(parser);
}

bool muster_grpc_parser_is_empty(const struct muster_grpc_parser *parser)
{
    return parser->prefix_filled == 0 && parser->inflater == NULL;
}

static void bytes_skip(struct muster_bytes *bytes, size_t count)
{
    bytes->data = (const uint8_t *)bytes->data + count;
    bytes->size -= count;
}

/* The prefix is one byte of flag and the length, big-endian. True when it is complete; it may come
 * in pieces. */
static bool take_prefix(struct muster_grpc_parser *parser, struct muster_bytes *bytes)
{
    size_t count = (size_t)(MUSTER_GRPC_PREFIX_BYTES - parser->prefix_filled);
    const uint8_t *p = parser->prefix;

    if (count > bytes->size)
        count = bytes->size;
    if (count > 0) {
        memcpy(parser->prefix + parser->prefix_filled, bytes->data, count);
        parser->prefix_filled = (uint8_t)(parser->prefix_filled + count);
        bytes_skip(bytes, count);
    }
    if (parser->prefix_filled < MUSTER_GRPC_PREFIX_BYTES)
        return false;
    parser->message_bytes =
        (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | (size_t)p[4];
    return true;
}

/* Room for `more` bytes after what is filled: the declared size is a claim, so growth follows
 * arrival. */
static bool reserve_bytes(struct muster_grpc_parser *parser, size_t more)
{
    size_t need = parser->filled + more;
    size_t capacity = parser->capacity * 2;
    uint8_t *buffer;

    if (need <= parser->capacity)
        return true;
    if (capacity < need)
        capacity = need;
    if (capacity < CAPACITY_MIN)
        capacity = CAPACITY_MIN;
    /* Doubling must not go beyond the end of the message. */
    if (capacity > parser->message_bytes && parser->message_bytes >= CAPACITY_MIN)
        capacity = parser->message_bytes;
    buffer = muster_mem_realloc(parser->mem, parser->buffer, capacity);
    if (buffer == NULL)
        return false;
    parser->buffer = buffer;
    parser->capacity = capacity;
    return true;
}

static enum muster_grpc_parsed collect_bytes(struct muster_grpc_parser *parser,
                                             struct muster_bytes *bytes)
{
    size_t count = parser->message_bytes - parser->filled;

    if (count > bytes->size)
        count = bytes->size;
    if (count > 0) {
        if (parser->place == NULL && !reserve_bytes(parser, count))
            return MUSTER_GRPC_NO_MEMORY;
        memcpy((parser->place != NULL ? parser->place : parser->buffer) + parser->filled,
               bytes->data, count);
        parser->filled += count;
        bytes_skip(bytes, count);
    }
    return parser->filled < parser->message_bytes ? MUSTER_GRPC_NEED_MORE : MUSTER_GRPC_MESSAGE;
}

static enum muster_grpc_parsed refuse_gzip(enum muster_rc rc)
{
    switch (rc) {
    case MUSTER_OUT_OF_RANGE:
        return MUSTER_GRPC_PLAIN_TOO_LARGE;
    case MUSTER_RESOURCE_EXHAUSTED:
        return MUSTER_GRPC_NO_MEMORY;
    default:
        return MUSTER_GRPC_BAD_GZIP;
    }
}

/* A slice of what is left of the turn, or without a bound all. The work is taken from a number that
 * all calls of the server or channel share. */
static enum muster_rc inflate_slice(struct muster_grpc_parser *parser, bool *ret_is_done)
{
    size_t work = SIZE_MAX;
    size_t given;
    enum muster_rc rc;

    if (parser->inflate_left == NULL)
        return muster_grpc_inflater_step(parser->inflater, &work, ret_is_done);
    given = *parser->inflate_left < INFLATE_SLICE ? *parser->inflate_left : INFLATE_SLICE;
    work = given;
    rc = muster_grpc_inflater_step(parser->inflater, &work, ret_is_done);
    *parser->inflate_left -= given - work;
    return rc;
}

static enum muster_grpc_parsed inflate_on(struct muster_grpc_parser *parser,
                                          struct muster_bytes *ret_message)
{
    bool is_done = false;
    enum muster_rc rc = inflate_slice(parser, &is_done);

    if (rc == MUSTER_OK && !is_done)
        /* The message keeps its inflater; the inbox comes back in a later turn. */
        return MUSTER_GRPC_LATER;
    if (rc == MUSTER_OK) {
        *ret_message = muster_grpc_inflater_take(parser->inflater, &parser->plain_bytes);
        parser->plain = (uint8_t *)(uintptr_t)ret_message->data;
    }
    drop_inflater(parser);
    return rc == MUSTER_OK ? MUSTER_GRPC_MESSAGE : refuse_gzip(rc);
}

/* The message lies in bytes of the session when it came whole: these go when the call returns, so
 * an inflater that is not done copies what it still needs. */
static enum muster_grpc_parsed inflate_message(struct muster_grpc_parser *parser,
                                               struct muster_bytes *message)
{
    bool is_borrowed = message->data != parser->buffer;
    enum muster_grpc_parsed parsed;

    if (muster_grpc_inflater_new(parser->mem, *message, parser->message_max_bytes,
                                 &parser->inflater) != MUSTER_OK)
        return MUSTER_GRPC_NO_MEMORY;
    parsed = inflate_on(parser, message);
    if (parsed != MUSTER_GRPC_LATER || !is_borrowed || muster_grpc_inflater_keep(parser->inflater))
        return parsed;
    drop_inflater(parser);
    return MUSTER_GRPC_NO_MEMORY;
}

/* A compressed message needs a grpc-encoding in the headers (PROTOCOL-HTTP2.md); other flags do not
 * exist. */
static bool is_flag_known(const struct muster_grpc_parser *parser)
{
    return parser->prefix[0] == FLAG_PLAIN ||
           (parser->prefix[0] == FLAG_COMPRESSED && parser->takes_gzip);
}

/* The owner is asked once, before the first byte. A compressed message has no place: its size is
 * not that of the message inside. */
static void ask_place(struct muster_grpc_parser *parser)
{
    if (parser->is_place_asked)
        return;
    parser->is_place_asked = true;
    parser->place = NULL;
    if (parser->on_place != NULL && parser->prefix[0] == FLAG_PLAIN)
        parser->place = parser->on_place(parser->owner, parser->message_bytes);
}

enum muster_grpc_parsed muster_grpc_parser_next(struct muster_grpc_parser *parser,
                                                struct muster_bytes *bytes,
                                                struct muster_bytes *ret_message)
{
    enum muster_grpc_parsed parsed = MUSTER_GRPC_MESSAGE;

    if (parser->inflater != NULL)
        return inflate_on(parser, ret_message);
    /* The message shown last is over: it was promised until this call only. */
    if (parser->plain != NULL)
        muster_grpc_parser_drop_plain(parser);
    if (parser->prefix_filled == 0 && parser->capacity > CAPACITY_KEPT)
        muster_grpc_parser_fini(parser);
    if (!take_prefix(parser, bytes))
        return MUSTER_GRPC_NEED_MORE;
    if (!is_flag_known(parser))
        return MUSTER_GRPC_BAD_FLAG;
    /* The declared length is enough to refuse it, before anything is stored. */
    if (parser->message_bytes > parser->message_max_bytes)
        return MUSTER_GRPC_TOO_LARGE;
    ask_place(parser);
    /* The common case: the message is whole in what came, and is shown there without a copy. */
    if (parser->place == NULL && parser->filled == 0 && bytes->size >= parser->message_bytes) {
        ret_message->data = bytes->data;
        ret_message->size = parser->message_bytes;
        bytes_skip(bytes, parser->message_bytes);
    } else {
        parsed = collect_bytes(parser, bytes);
        if (parsed != MUSTER_GRPC_MESSAGE)
            return parsed;
        ret_message->data = parser->place != NULL ? parser->place : parser->buffer;
        ret_message->size = parser->filled;
    }
    parser->prefix_filled = 0;
    parser->filled = 0;
    parser->is_place_asked = false;
    parser->is_compressed = parser->prefix[0] == FLAG_COMPRESSED;
    return parser->is_compressed ? inflate_message(parser, ret_message) : parsed;
}

/* A message in memory of the parser, or in a place, stays valid anyhow; one in the session's bytes
 * is copied. */
bool muster_grpc_parser_hold(struct muster_grpc_parser *parser, struct muster_bytes *message)
{
    if (message->data != NULL && (message->data == parser->buffer ||
                                  message->data == parser->plain || message->data == parser->place))
        return true;
    parser->message_bytes = message->size;
    if (!reserve_bytes(parser, message->size > 0 ? message->size : 1))
        return false;
    if (message->size > 0)
        memcpy(parser->buffer, message->data, message->size);
    message->data = parser->buffer;
    return true;
}

enum muster_rc muster_grpc_parser_explain(const struct muster_grpc_parser *parser,
                                          enum muster_grpc_parsed parsed,
                                          char ret_text[MUSTER_GRPC_EXPLANATION_BYTES])
{
    const size_t bytes = MUSTER_GRPC_EXPLANATION_BYTES;

    MUSTER_ASSERT(parsed > MUSTER_GRPC_LATER);
    switch (parsed) {
    case MUSTER_GRPC_TOO_LARGE:
        (void)snprintf(ret_text, bytes, "message of %zu bytes is larger than %zu",
                       parser->message_bytes, parser->message_max_bytes);
        return MUSTER_RESOURCE_EXHAUSTED;
    case MUSTER_GRPC_PLAIN_TOO_LARGE:
        (void)snprintf(ret_text, bytes, "compressed message of %zu bytes holds more than %zu",
                       parser->message_bytes, parser->message_max_bytes);
        return MUSTER_RESOURCE_EXHAUSTED;
    case MUSTER_GRPC_NO_MEMORY:
        (void)snprintf(ret_text, bytes, "out of memory");
        return MUSTER_RESOURCE_EXHAUSTED;
    case MUSTER_GRPC_BAD_GZIP:
        (void)snprintf(ret_text, bytes, "compressed message is not in gzip format");
        return MUSTER_INTERNAL;
    default:
        if (parser->prefix[0] == FLAG_COMPRESSED)
            (void)snprintf(ret_text, bytes, "compressed message without grpc-encoding");
        else
            (void)snprintf(ret_text, bytes, "message has the unknown flag %d", parser->prefix[0]);
        return MUSTER_INTERNAL;
    }
}

void muster_grpc_prefix_format(size_t bytes, bool is_compressed,
                               uint8_t ret_prefix[MUSTER_GRPC_PREFIX_BYTES])
{
    MUSTER_ASSERT(bytes <= UINT32_MAX);
    ret_prefix[0] = is_compressed ? FLAG_COMPRESSED : FLAG_PLAIN;
    ret_prefix[1] = (uint8_t)(bytes >> 24);
    ret_prefix[2] = (uint8_t)(bytes >> 16);
    ret_prefix[3] = (uint8_t)(bytes >> 8);
    ret_prefix[4] = (uint8_t)bytes;
}
