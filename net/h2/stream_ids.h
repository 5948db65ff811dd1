/* The ids of an HTTP/2 connection's streams, from which a frame on a stream that is over is known. */
#ifndef MUSTER_NET_H2_STREAM_IDS_H
#define MUSTER_NET_H2_STREAM_IDS_H

#include <muster/base.h>

#define MUSTER_H2_GAPS_MAX  8
#define MUSTER_H2_ENDED_MAX 16

/** Stream ids that a client skipped, or has ended by END_STREAM or a reset: using one later is an
 * error of the connection (RFC 9113 5.1.1, 5.1). */
struct muster_h2_ids {
    int32_t highest;
    uint32_t gap_count;
    struct {
        int32_t first, last;
    } gaps[MUSTER_H2_GAPS_MAX]; /* the newest */
    uint32_t ended_count;
    int32_t ended[MUSTER_H2_ENDED_MAX]; /* the newest */
};
/** False when the id was skipped before, and so is closed without having been open. */
bool muster_h2_ids_open(struct muster_h2_ids *ids, int32_t id);
/** The client has ended this one, and it is closed. */
void muster_h2_ids_end(struct muster_h2_ids *ids, int32_t id);
bool muster_h2_ids_is_ended(const struct muster_h2_ids *ids, int32_t id);

#endif
