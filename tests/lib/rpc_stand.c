/* A gRPC server on a virtual clock before clients that are played by hand. */
#include "rpc_stand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "proto/guard.h"
#include "tests/proto/guard_sample.pb-c.h"

#define SENT_MAX    (8u << 20)
#define GIVEN_BYTES (1u << 20)
#define POUR_BYTES  (64u << 10)

/* The service. */

static struct rpc_stand *stand_of(const struct muster_rpc *rpc)
{
    return muster_rpc_service(rpc);
}

static void on_start(struct muster_rpc *rpc)
{
    stand_of(rpc)->started++;
    stand_of(rpc)->deadline_ns = muster_rpc_deadline_ns(rpc);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    stand_of(rpc)->ended++;
    stand_of(rpc)->end_rc = rc;
}

static void on_take(struct muster_rpc *rpc, struct muster_bytes message)
{
    stand_of(rpc)->messages++;
    stand_of(rpc)->message_bytes += message.size;
}

static void on_echo(struct muster_rpc *rpc, struct muster_bytes message)
{
    on_take(rpc, message);
    if (muster_rpc_send(rpc, message.data, message.size) == MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_give(struct muster_rpc *rpc, struct muster_bytes message)
{
    static const char given[GIVEN_BYTES];

    on_take(rpc, message);
    if (muster_rpc_send(rpc, given, sizeof(given)) == MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_given_back(struct muster_loan *loan)
{
    struct muster_mem *mem = loan->data;

    muster_mem_free(mem, loan);
}

static void on_lend(struct muster_rpc *rpc, struct muster_bytes message)
{
    static const char given[GIVEN_BYTES];
    const struct iovec piece = {(void *)(uintptr_t)given, sizeof(given)};
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    struct muster_loan *loan = muster_mem_alloc_zero(mem, 1, sizeof(*loan));

    on_take(rpc, message);
    assert_non_null(loan);
    loan->data = mem;
    if (muster_rpc_send_loan(rpc, loan, &piece, 1, on_given_back) == MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
    else
        muster_mem_free(mem, loan);
}

static void rpc_pour(struct muster_rpc *rpc)
{
    static const char block[POUR_BYTES];

    while (muster_rpc_queued_bytes(rpc) < 4 * POUR_BYTES) {
        if (muster_rpc_send(rpc, block, sizeof(block)) != MUSTER_OK)
            return;
    }
}

static void on_pour(struct muster_rpc *rpc, struct muster_bytes message)
{
    on_take(rpc, message);
    rpc_pour(rpc);
}

static void on_proto(struct muster_rpc *rpc, struct muster_bytes message)
{
    void *tree = NULL;
    struct muster_error error;
    enum muster_rc rc;

    on_take(rpc, message);
    rc = muster_proto_unpack(muster_rpc_env(rpc)->mem, &sample__tree__descriptor, message.data,
                             message.size, NULL, &tree, &error);
    muster_proto_free(tree);
    muster_rpc_finish(rpc, rc, rc != MUSTER_OK ? error.text : NULL);
}

#define UNARY(name, function)                                                                      \
    {                                                                                              \
        .path = "/t/" name, .on_start = on_start, .on_message = (function), .on_end = on_end,      \
        .is_unary = true                                                                           \
    }
static const struct muster_rpc_method methods[] = {
    UNARY("Echo", on_echo),
    UNARY("Give", on_give),
    UNARY("Lend", on_lend),
    UNARY("Proto", on_proto),
    {.path = "/t/Pour",
     .on_start = on_start,
     .on_message = on_pour,
     .on_writable = rpc_pour,
     .on_end = on_end,
     .is_unary = true},
    {.path = "/t/Take", .on_start = on_start, .on_message = on_take, .on_end = on_end},
};

/* The stand. */

void rpc_stand_open(struct rpc_stand *stand, const struct muster_rpc_server_options *options)
{
    struct muster_env *env = &stand->test.env;

    memset(stand, 0, sizeof(*stand));
    test_env_open(&stand->test);
    virtual_loop_init(&stand->loop);
    stand->real_loop = env->loop;
    env->loop = &stand->loop.loop;
    assert_int_equal(muster_rpc_server_open(env, options, &stand->server), MUSTER_OK);
    muster_rpc_server_set_data(stand->server, stand);
    assert_int_equal(
        muster_rpc_server_add(stand->server, methods, sizeof(methods) / sizeof(methods[0]), stand),
        MUSTER_OK);
}

static void on_closed(struct muster_rpc_server *server)
{
    ((struct rpc_stand *)muster_rpc_server_data(server))->is_closed = true;
}

void rpc_stand_begin_close(struct rpc_stand *stand, uint64_t grace_ns)
{
    muster_rpc_server_close(stand->server, stand->loop.now_ns + grace_ns, on_closed);
}

void rpc_stand_close(struct rpc_stand *stand)
{
    if (!stand->is_closed)
        rpc_stand_begin_close(stand, 0);
    rpc_stand_advance(stand, 60 * MUSTER_NS_PER_S);
    assert_true(stand->is_closed);
    assert_int_equal(stand->started, stand->ended);
    for (unsigned i = 0; i < stand->client_count; i++)
        played_stream_fini(&stand->clients[i].played);
    stand->test.env.loop = stand->real_loop;
    test_env_close(&stand->test);
}

int rpc_stand_set_up_with(void **state, const struct muster_rpc_server_options *options)
{
    struct rpc_stand *stand = calloc(1, sizeof(*stand));

    assert_non_null(stand);
    rpc_stand_open(stand, options);
    *state = stand;
    return 0;
}

int rpc_stand_tear_down(void **state)
{
    rpc_stand_close(*state);
    free(*state);
    return 0;
}

void rpc_stand_advance(struct rpc_stand *stand, uint64_t delta_ns)
{
    virtual_loop_advance(&stand->loop, delta_ns);
}

/* Frames that a client sends. */

static void on_turn(void *data)
{
    rpc_stand_advance(data, 0);
}

struct rpc_raw *rpc_raw_connect(struct rpc_stand *stand)
{
    struct rpc_raw *raw;

    assert_true(stand->client_count < RPC_STAND_CLIENTS_MAX);
    raw = &stand->clients[stand->client_count++];
    raw->stand = stand;
    played_stream_init(&raw->played, &stand->test.env, SENT_MAX);
    raw->played.turn = on_turn;
    raw->played.turn_data = stand;
    raw->is_attached = muster_rpc_server_attach(stand->server, &raw->played.stream) == MUSTER_OK;
    rpc_stand_advance(stand, 0);
    return raw;
}

void rpc_raw_greet(struct rpc_raw *raw, const uint32_t (*entries)[2], size_t count)
{
    uint8_t payload[6 * 32];

    for (size_t i = 0; i < count; i++) {
        const uint32_t id = entries[i][0], value = entries[i][1];
        const uint8_t entry[6] = {(uint8_t)(id >> 8),     (uint8_t)id,
                                  (uint8_t)(value >> 24), (uint8_t)(value >> 16),
                                  (uint8_t)(value >> 8),  (uint8_t)value};

        memcpy(payload + 6 * i, entry, 6);
    }
    (void)played_stream_feed(&raw->played, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    rpc_raw_frame(raw, FRAME_SETTINGS, 0, 0, payload, 6 * count);
    rpc_raw_frame(raw, FRAME_SETTINGS, FLAG_ACK, 0, NULL, 0);
    rpc_stand_advance(raw->stand, 0);
}

struct rpc_raw *rpc_raw_open(struct rpc_stand *stand)
{
    struct rpc_raw *raw = rpc_raw_connect(stand);

    rpc_raw_greet(raw, NULL, 0);
    return raw;
}

void rpc_raw_frame(struct rpc_raw *raw, uint8_t type, uint8_t flags, uint32_t stream,
                   const void *payload, size_t bytes)
{
    played_stream_feed_frame(&raw->played, type, flags, stream, payload, bytes);
}

size_t rpc_raw_header_put(uint8_t *out, const char *name, const char *value)
{
    size_t at = 0;

    assert_true(strlen(name) < 127 && strlen(value) < 127);
    out[at++] = 0x00;
    out[at++] = (uint8_t)strlen(name);
    memcpy(out + at, name, strlen(name));
    at += strlen(name);
    out[at++] = (uint8_t)strlen(value);
    memcpy(out + at, value, strlen(value));
    return at + strlen(value);
}

size_t rpc_raw_block_put(uint8_t *out, const char *path)
{
    size_t at = 0;

    out[at++] = 0x83; /* POST */
    out[at++] = 0x86; /* http */
    at += rpc_raw_header_put(out + at, ":path", path);
    at += rpc_raw_header_put(out + at, ":authority", "x");
    at += rpc_raw_header_put(out + at, "content-type", "application/grpc");
    return at + rpc_raw_header_put(out + at, "te", "trailers");
}

void rpc_raw_headers(struct rpc_raw *raw, uint32_t stream, const char *path, const char *timeout,
                     const char *encoding, uint8_t flags)
{
    uint8_t block[512];
    size_t at = rpc_raw_block_put(block, path);

    if (timeout != NULL)
        at += rpc_raw_header_put(block + at, "grpc-timeout", timeout);
    if (encoding != NULL)
        at += rpc_raw_header_put(block + at, "grpc-encoding", encoding);
    rpc_raw_frame(raw, FRAME_HEADERS, FLAG_END_HEADERS | flags, stream, block, at);
}

void rpc_raw_message(struct rpc_raw *raw, uint32_t stream, uint8_t flag, size_t claimed,
                     const void *bytes, size_t count, uint8_t flags)
{
    static uint8_t message[65536];

    assert_true(count + 5 <= sizeof(message));
    message[0] = flag;
    message[1] = (uint8_t)(claimed >> 24);
    message[2] = (uint8_t)(claimed >> 16);
    message[3] = (uint8_t)(claimed >> 8);
    message[4] = (uint8_t)claimed;
    if (count > 0)
        memcpy(message + 5, bytes, count);
    rpc_raw_frame(raw, FRAME_DATA, flags, stream, message, count + 5);
}

static void put_number(uint8_t *out, uint32_t number)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = (uint8_t)(number >> (24 - 8 * i));
}

void rpc_raw_window(struct rpc_raw *raw, uint32_t stream, uint32_t bytes)
{
    uint8_t payload[4];

    put_number(payload, bytes);
    rpc_raw_frame(raw, FRAME_WINDOW, 0, stream, payload, 4);
}

void rpc_raw_reset(struct rpc_raw *raw, uint32_t stream, uint32_t code)
{
    uint8_t payload[4];

    put_number(payload, code);
    rpc_raw_frame(raw, FRAME_RST, 0, stream, payload, 4);
}

/* Frames that the server has sent. */

static uint32_t number_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static size_t frame_bytes(const uint8_t *frame)
{
    return (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];
}

/* The next frame of any type behind *at, or NULL. */
static const uint8_t *next_frame(const struct rpc_raw *raw, size_t *at)
{
    const uint8_t *frame = raw->played.sent + *at;

    if (*at + 9 > raw->played.sent_bytes)
        return NULL;
    *at += 9 + frame_bytes(frame);
    return frame;
}

static const uint8_t *last_goaway(const struct rpc_raw *raw)
{
    const uint8_t *frame, *last = NULL;
    size_t at = 0;

    while ((frame = next_frame(raw, &at)) != NULL) {
        if (frame[3] == FRAME_GOAWAY)
            last = frame;
    }
    return last;
}

int64_t rpc_raw_goaway_code(const struct rpc_raw *raw)
{
    const uint8_t *frame = last_goaway(raw);

    return frame != NULL ? (int64_t)number_at(frame + 13) : -1;
}

bool rpc_raw_has_goaway_text(const struct rpc_raw *raw, const char *text)
{
    const uint8_t *frame = last_goaway(raw);

    return frame != NULL && frame_bytes(frame) == 8 + strlen(text) &&
           memcmp(frame + 17, text, strlen(text)) == 0;
}

int64_t rpc_raw_reset_code(const struct rpc_raw *raw, uint32_t stream)
{
    const uint8_t *frame;
    size_t at = 0;

    while ((frame = next_frame(raw, &at)) != NULL) {
        if (frame[3] == FRAME_RST && number_at(frame + 5) == stream)
            return number_at(frame + 9);
    }
    return -1;
}

/* Whether one header block has that header. Every block must go through the table. */
static bool block_find(nghttp2_hd_inflater *inflater, const uint8_t *block, size_t bytes,
                       const char *name, char *value, size_t room)
{
    size_t name_bytes = strlen(name);
    bool is_found = false;

    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, block, bytes, 1);

        assert_true(used >= 0);
        block += used;
        bytes -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) && nv.namelen == name_bytes &&
            memcmp(nv.name, name, name_bytes) == 0) {
            (void)snprintf(value, room, "%.*s", (int)nv.valuelen, (const char *)nv.value);
            is_found = true;
        }
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) || (used == 0 && bytes == 0))
            break;
    }
    assert_int_equal(nghttp2_hd_inflate_end_headers(inflater), 0);
    return is_found;
}

bool rpc_raw_header(const struct rpc_raw *raw, uint32_t stream, const char *name, char *value,
                    size_t room)
{
    nghttp2_hd_inflater *inflater = NULL;
    const uint8_t *frame;
    size_t at = 0;
    bool is_found = false;

    assert_int_equal(nghttp2_hd_inflate_new(&inflater), 0);
    while ((frame = next_frame(raw, &at)) != NULL) {
        char text[4096];

        if (frame[3] == FRAME_HEADERS &&
            block_find(inflater, frame + 9, frame_bytes(frame), name, text, sizeof(text)) &&
            number_at(frame + 5) == stream) {
            (void)snprintf(value, room, "%s", text);
            is_found = true;
        }
    }
    nghttp2_hd_inflate_del(inflater);
    return is_found;
}

int64_t rpc_raw_status(const struct rpc_raw *raw, uint32_t stream)
{
    char text[16];

    return rpc_raw_header(raw, stream, "grpc-status", text, sizeof(text)) ? atoi(text) : -1;
}

size_t rpc_raw_data_bytes(const struct rpc_raw *raw, uint32_t stream)
{
    const uint8_t *frame;
    size_t at = 0, bytes = 0;

    while ((frame = next_frame(raw, &at)) != NULL) {
        if (frame[3] == FRAME_DATA && number_at(frame + 5) == stream)
            bytes += frame_bytes(frame);
    }
    return bytes;
}
