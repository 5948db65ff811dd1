/* gRPC's length-prefixed messages: a parser for bytes cut anywhere, and the prefix of what is sent.
 */
#ifndef MUSTER_NET_GRPC_FRAME_H
#define MUSTER_NET_GRPC_FRAME_H

#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>

#include "net/grpc/gzip.h"

#define MUSTER_GRPC_PREFIX_BYTES 5

/** Where a message of so many bytes shall be collected, or NULL: in the parser's own memory. */
typedef void *muster_grpc_place_fn(void *owner, size_t bytes);

/** Collects one message at a time. Caller's memory. */
struct muster_grpc_parser {
    struct muster_mem *mem;
    muster_grpc_place_fn *on_place; /* asked once for each uncompressed message; may be NULL */
    void *owner;
    uint8_t *place; /* where the message at hand goes; NULL: to buffer */
    bool is_place_asked;
    size_t message_max_bytes;
    uint8_t prefix[MUSTER_GRPC_PREFIX_BYTES];
    uint8_t prefix_filled;
    size_t message_bytes; /* valid once the prefix is complete */
    uint8_t *buffer;      /* NULL until a message comes in pieces */
    size_t capacity;
    size_t filled;
    bool takes_gzip;    /* the peer said grpc-encoding: gzip */
    bool is_compressed; /* the message shown last was */
    uint8_t *plain;     /* the message shown last, inflated; NULL: it was not compressed */
    size_t plain_bytes;
    struct muster_grpc_inflater *inflater; /* of the message at hand */
    size_t *inflate_left; /* work that may be done now, shared with others; NULL: all */
};

enum muster_grpc_parsed {
    MUSTER_GRPC_NEED_MORE,
    MUSTER_GRPC_MESSAGE,
    MUSTER_GRPC_LATER,           /* is being inflated: call again when there is something left of
                                  * *inflate_left, even without bytes */
    MUSTER_GRPC_TOO_LARGE,       /* refused before it is buffered; message_bytes tells the size */
    MUSTER_GRPC_BAD_FLAG,        /* compressed without takes_gzip, or a flag that does not exist */
    MUSTER_GRPC_PLAIN_TOO_LARGE, /* it was small, but not what came out of it */
    MUSTER_GRPC_BAD_GZIP,
    MUSTER_GRPC_NO_MEMORY,
};

void muster_grpc_parser_init(struct muster_grpc_parser *parser, struct muster_mem *mem,
                             size_t message_max_bytes);
void muster_grpc_parser_fini(struct muster_grpc_parser *parser);
/** Forget a message in progress, and keep a small buffer for the next call. */
void muster_grpc_parser_reset(struct muster_grpc_parser *parser);

/**
 * Take bytes from the front of *bytes until a message is complete. A message that lies whole in
 * *bytes is shown in place, else it is collected (never reserving more than twice what has come).
 * A compressed one is shown inflated, at most message_max_bytes of it. One with a place is put
 * there as it comes, and shown there.
 *
 * Owns: borrows bytes; *ret_message is valid until the next call and while bytes are.
 */
MUSTER_MUST_CHECK enum muster_grpc_parsed muster_grpc_parser_next(struct muster_grpc_parser *parser,
                                                                  struct muster_bytes *bytes,
                                                                  struct muster_bytes *ret_message);

/** The message shown last is over: what was inflated goes. */
void muster_grpc_parser_drop_plain(struct muster_grpc_parser *parser);
/** The bytes of memory that the parser holds, without places, which are the owner's. */
size_t muster_grpc_parser_held_bytes(const struct muster_grpc_parser *parser);

/** Keep a message that was shown in place beyond its bytes, until the next call. False: no memory.
 */
MUSTER_MUST_CHECK bool muster_grpc_parser_hold(struct muster_grpc_parser *parser,
                                               struct muster_bytes *message);

#define MUSTER_GRPC_EXPLANATION_BYTES 96
/** The status for the peer of a message that was refused, and the text of at most
 * MUSTER_GRPC_EXPLANATION_BYTES; parsed is TOO_LARGE or one after it. */
enum muster_rc muster_grpc_parser_explain(const struct muster_grpc_parser *parser,
                                          enum muster_grpc_parsed parsed,
                                          char ret_text[MUSTER_GRPC_EXPLANATION_BYTES]);

/** Whether no message is in progress. */
bool muster_grpc_parser_is_empty(const struct muster_grpc_parser *parser);

/** The prefix of a message; bytes <= UINT32_MAX. */
void muster_grpc_prefix_format(size_t bytes, bool is_compressed,
                               uint8_t ret_prefix[MUSTER_GRPC_PREFIX_BYTES]);

#endif
