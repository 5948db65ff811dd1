/* What one peer may do to an HTTP/2 connection before it is closed: counters without any protocol
 * code. */
#ifndef MUSTER_NET_H2_GUARD_H
#define MUSTER_NET_H2_GUARD_H

#include <muster/base.h>

#define MUSTER_H2_GAPS_MAX  8
#define MUSTER_H2_ENDED_MAX 16

/** A bucket of `burst` tokens that fills at per_second. */
struct muster_h2_bucket {
    uint32_t tokens;
    uint32_t burst;
    uint32_t per_second;
    uint64_t filled_ns;
};
void muster_h2_bucket_init(struct muster_h2_bucket *bucket, uint32_t burst, uint32_t per_second);
/** False when it is empty. */
bool muster_h2_bucket_take(struct muster_h2_bucket *bucket, uint64_t now_ns);

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
