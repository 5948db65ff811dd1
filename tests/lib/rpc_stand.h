/* A gRPC server on a virtual clock before clients that are played by hand, frame by frame. */
#ifndef MUSTER_TEST_RPC_STAND_H
#define MUSTER_TEST_RPC_STAND_H

#include <muster/rpc.h>

#include "played_stream.h"
#include "virtual_loop.h"

#define RPC_STAND_CLIENTS_MAX 64

/** One connection. What the server sent is in played; rpc_stand_forget makes room. */
struct rpc_raw {
    struct rpc_stand *stand;
    struct played_stream played;
    bool is_attached;
};

struct rpc_stand {
    struct test_env test;
    struct virtual_loop loop;
    struct muster_loop *real_loop;
    struct muster_rpc_server *server;
    struct rpc_raw clients[RPC_STAND_CLIENTS_MAX];
    unsigned client_count;
    bool is_closed;
    /* seen by the service */
    unsigned started, ended, messages;
    size_t message_bytes;
    enum muster_rc end_rc;
    uint64_t deadline_ns;
};

/* Methods: /t/Echo (unary), /t/Take (counts messages, never answers), /t/Give (unary: 1 MiB at
 * once), /t/Lend (as /t/Give, without a copy), /t/Pour (unary: sends without end, a quarter of a
 * MiB at a time), /t/Proto (unary: unpacks a sample.Tree behind the guard). */

void rpc_stand_open(struct rpc_stand *stand, const struct muster_rpc_server_options *options);
/** Fails the case when a block is left. */
void rpc_stand_close(struct rpc_stand *stand);
/** For set-ups of cmocka: *state is a stand with these options. Returns 0. */
int rpc_stand_set_up_with(void **state, const struct muster_rpc_server_options *options);
int rpc_stand_tear_down(void **state);
/** The server closes, within grace_ns; rpc_stand_close follows. */
void rpc_stand_begin_close(struct rpc_stand *stand, uint64_t grace_ns);
void rpc_stand_advance(struct rpc_stand *stand, uint64_t delta_ns);

/** One more connection. It has not said a word. */
struct rpc_raw *rpc_raw_connect(struct rpc_stand *stand);
/** Preface, SETTINGS and the answer to the server's; entries are pairs of id and value. */
void rpc_raw_greet(struct rpc_raw *raw, const uint32_t (*entries)[2], size_t count);
/** A greeted connection. */
struct rpc_raw *rpc_raw_open(struct rpc_stand *stand);
void rpc_raw_frame(struct rpc_raw *raw, uint8_t type, uint8_t flags, uint32_t stream,
                   const void *payload, size_t bytes);
/** Request headers; timeout and encoding may be NULL. */
void rpc_raw_headers(struct rpc_raw *raw, uint32_t stream, const char *path, const char *timeout,
                     const char *encoding, uint8_t flags);
/** A DATA frame with one message: prefix saying `claimed`, then the bytes that are there. */
void rpc_raw_message(struct rpc_raw *raw, uint32_t stream, uint8_t flag, size_t claimed,
                     const void *bytes, size_t count, uint8_t flags);
void rpc_raw_window(struct rpc_raw *raw, uint32_t stream, uint32_t bytes);
void rpc_raw_reset(struct rpc_raw *raw, uint32_t stream, uint32_t code);
/** One header as a literal, without Huffman. Returns its size. */
size_t rpc_raw_header_put(uint8_t *out, const char *name, const char *value);
/** The start of a request block for path, up to te. Returns its size. */
size_t rpc_raw_block_put(uint8_t *out, const char *path);

/** The error code of the server's GOAWAY; -1: it sent none. */
int64_t rpc_raw_goaway_code(const struct rpc_raw *raw);
/** Whether the last GOAWAY carries that text. */
bool rpc_raw_has_goaway_text(const struct rpc_raw *raw, const char *text);
int64_t rpc_raw_reset_code(const struct rpc_raw *raw, uint32_t stream);
/** Whether the server has sent that header on the stream, and its last value; needs all that the server ever
 * sent on the connection. */
bool rpc_raw_header(const struct rpc_raw *raw, uint32_t stream, const char *name, char *value,
                    size_t room);
/** grpc-status of the stream; needs all that the server ever sent on the connection. */
int64_t rpc_raw_status(const struct rpc_raw *raw, uint32_t stream);
/** Bytes of DATA on the stream. */
size_t rpc_raw_data_bytes(const struct rpc_raw *raw, uint32_t stream);

#endif
