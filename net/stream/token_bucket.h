/* A token bucket: how often a peer may do what costs this side something. */
#ifndef MUSTER_NET_TOKEN_BUCKET_H
#define MUSTER_NET_TOKEN_BUCKET_H

#include <muster/base.h>

/** A bucket of `burst` tokens that fills at per_second; both are at least 1, and per_second at most
 * 10^9. It begins full. */
struct muster_token_bucket {
    uint32_t tokens;
    uint32_t burst;
    uint32_t per_second;
    uint64_t filled_ns;
};
void muster_token_bucket_init(struct muster_token_bucket *bucket, uint32_t burst,
                              uint32_t per_second);
/** One token less. now_ns is loop time and does not go back. False when it is empty. */
bool muster_token_bucket_take(struct muster_token_bucket *bucket, uint64_t now_ns);

#endif
