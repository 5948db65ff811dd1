/* An HTTP/2 session before a stream that is played by hand: a case feeds frames and reads what was
 * sent. */
#ifndef MUSTER_TEST_H2_STAGE_H
#define MUSTER_TEST_H2_STAGE_H

#include "net/h2/session.h"

#include "played_stream.h"
#include "test_env.h"

#define H2_STAGE_STREAMS_MAX         4096
#define H2_STAGE_REQUEST_BLOCK_BYTES 6

/* POST / of http://x, without Huffman. */
extern const uint8_t h2_stage_request_block[H2_STAGE_REQUEST_BLOCK_BYTES];

struct h2_stage {
    struct test_env test;
    struct played_stream played;
    struct muster_h2_session *session;
    bool is_gone;
    /* events */
    struct muster_h2_stream streams[H2_STAGE_STREAMS_MAX];
    unsigned begun, closes, settings, pongs, goaways, downs, ends, over_limits, trailers, drained;
    uint32_t close_code;
    size_t data_bytes;
    char down_text[MUSTER_ERROR_TEXT_BYTES];
    /* answers */
    const struct muster_h2_header *trailing; /* NULL: grpc-status alone */
    size_t trailing_count;
};

/** stage is all zero. */
void h2_stage_init(struct h2_stage *stage);
/** Fails the case when the session, a stream or a block is left. */
void h2_stage_fini(struct h2_stage *stage);
/** For cmocka: *state is a stage; tear_down closes its session. */
int h2_stage_set_up(void **state);
int h2_stage_tear_down(void **state);

/** Counts what it is told; expects the stage as the session's data. */
extern const struct muster_h2_events h2_stage_events;
/** Ignores what it is told, whatever the session's data are; without on_begin, on_data, on_end, on_trailers, on_close
 * and on_down, which the case gives. */
extern const struct muster_h2_events h2_stage_deaf_events;
void h2_stage_on_gone(struct muster_h2_session *session);

void h2_stage_open(struct h2_stage *stage, bool is_server);
/** *state, opened as a server and greeted by a client. */
struct h2_stage *h2_stage_greet(void **state);
/** A few turns of the loop. */
void h2_stage_turn(struct h2_stage *stage);
/** The peer sends. */
void h2_stage_feed(struct h2_stage *stage, const void *bytes, size_t count);
void h2_stage_feed_frame(struct h2_stage *stage, uint8_t type, uint8_t flags, uint32_t stream,
                         const void *payload, size_t bytes);
void h2_stage_feed_request(struct h2_stage *stage, uint32_t stream, uint8_t flags);
/** The n-th frame of a type that a server has sent (from 0), or NULL. */
const uint8_t *h2_stage_sent_frame(const struct h2_stage *stage, uint8_t type, unsigned n);
/** The error code of the first GOAWAY that was sent; there must be one. */
uint32_t h2_stage_goaway_code(const struct h2_stage *stage);

#endif
