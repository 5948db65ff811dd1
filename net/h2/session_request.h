/* The headers of one request, and the length of its body, judged by RFC 9113 8. nghttp2 does so for
 * answers; of requests it refuses what other servers take: etcd's client 3.4, when given
 * http://HOST:PORT, says just that as its :authority. */
#ifndef MUSTER_NET_H2_SESSION_REQUEST_H
#define MUSTER_NET_H2_SESSION_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** All zero before the first header. */
struct muster_h2_request {
    uint64_t content_bytes;  /* as content-length says */
    uint64_t received_bytes; /* of the body */
    uint16_t marks;          /* which headers were there, and what they say */
};

enum muster_h2_header_verdict {
    MUSTER_H2_HEADER_TAKEN,
    MUSTER_H2_HEADER_IGNORED, /* a regular one with bytes that no header has */
    MUSTER_H2_HEADER_MALFORMED,
};

/** The next header, of the request or of its trailers. */
enum muster_h2_header_verdict muster_h2_request_header(struct muster_h2_request *request,
                                                       const uint8_t *name, size_t name_bytes,
                                                       const uint8_t *value, size_t value_bytes);
/** A header block is complete: the first, or trailers. false, here and below: malformed. */
bool muster_h2_request_headers(struct muster_h2_request *request, bool is_end);
/** More of the body. */
bool muster_h2_request_data(struct muster_h2_request *request, size_t count);
/** The body is complete; of a request without one, headers has seen to it. */
bool muster_h2_request_end(const struct muster_h2_request *request);

#endif
