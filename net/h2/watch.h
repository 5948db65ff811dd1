/* The frames that a client sends, followed ahead of nghttp2: it is told to forget closed streams,
 * and then drops in silence what RFC 9113 5.1 and 5.1.1 have as errors of the connection. */
#ifndef MUSTER_NET_H2_WATCH_H
#define MUSTER_NET_H2_WATCH_H

#include "net/h2/stream_ids.h"

#define MUSTER_H2_FRAME_HEAD_BYTES 9

struct muster_h2_watch {
    struct muster_h2_ids ids;
    size_t skip_bytes; /* of the preface, or of a payload */
    uint8_t head[MUSTER_H2_FRAME_HEAD_BYTES];
    size_t head_bytes;
};

/** From the first byte of the client's preface on. */
void muster_h2_watch_init(struct muster_h2_watch *watch);
/** How many of these bytes are within the rules: all, or those before the end of the head of a
 * frame on a stream that the client has ended or skipped; *ret_code then says which error of the
 * connection that is. */
size_t muster_h2_watch_feed(struct muster_h2_watch *watch, const uint8_t *bytes, size_t count,
                            uint32_t *ret_code);

#endif
