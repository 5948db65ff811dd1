/* A byte stream whose other end is played by hand, and the frames of HTTP/2 that go over it. */
#ifndef MUSTER_TEST_PLAYED_STREAM_H
#define MUSTER_TEST_PLAYED_STREAM_H

#include <muster/stream.h>

#include "test_env.h"

#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

/* RFC 9113 6 */
enum {
    FRAME_DATA = 0,
    FRAME_HEADERS = 1,
    FRAME_PRIORITY = 2,
    FRAME_RST = 3,
    FRAME_SETTINGS = 4,
    FRAME_PING = 6,
    FRAME_GOAWAY = 7,
    FRAME_WINDOW = 8,
    FRAME_CONT = 9
};
enum { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4 };

struct played_stream {
    struct muster_stream stream; /* first */
    struct muster_env *env;      /* its loop at the time of each act */
    struct muster_stream_read *read;
    struct muster_stream_write *write;
    struct muster_task write_task, close_task, end_task;
    void (*turn)(void *data); /* while the reader pauses; NULL: the environment's loop turns */
    void *turn_data;
    muster_stream_close_fn *closed;
    uint8_t *sent; /* what our side has written, up to sent_max bytes at once */
    size_t sent_bytes, sent_max;
    unsigned writes;
    bool is_stuck;   /* takes the bytes of a write, but does not end it */
    bool is_patient; /* does not end when our side has */
    bool is_shut;    /* our side sent FIN */
    bool is_closed;
};

void played_stream_init(struct played_stream *played, struct muster_env *env, size_t sent_max);
void played_stream_fini(struct played_stream *played);
/** The peer sends; what comes after the reader has stopped is lost. Returns what was taken. */
size_t played_stream_feed(struct played_stream *played, const void *bytes, size_t count);
void played_stream_feed_frame(struct played_stream *played, uint8_t type, uint8_t flags,
                              uint32_t stream, const void *payload, size_t bytes);
/** The peer goes away. */
void played_stream_feed_end(struct played_stream *played);
/** The write that is_stuck kept ends. */
void played_stream_release(struct played_stream *played);

/** A frame in wire form. Returns its size. */
size_t played_frame_put(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream,
                        const void *payload, size_t bytes);
/** The n-th frame of a type that a server has sent (from 0), or NULL. */
const uint8_t *played_stream_sent_frame(const struct played_stream *played, uint8_t type,
                                        unsigned n);

#endif
