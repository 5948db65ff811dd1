/* A token bucket: how often a peer may do what costs this side something. Tokens are not filled in
 * by a timer; the time since the last take says how many there are. */
#include "net/stream/token_bucket.h"

void muster_token_bucket_init(struct muster_token_bucket *bucket, uint32_t burst,
                              uint32_t per_second)
{
    MUSTER_ASSERT(burst > 0 && per_second > 0 && per_second <= MUSTER_NS_PER_S);
    bucket->tokens = burst;
    bucket->burst = burst;
    bucket->per_second = per_second;
    bucket->filled_ns = 0;
}

bool muster_token_bucket_take(struct muster_token_bucket *bucket, uint64_t now_ns)
{
    uint64_t step_ns = MUSTER_NS_PER_S / bucket->per_second;
    uint64_t fresh;

    MUSTER_ASSERT(bucket->tokens <= bucket->burst && now_ns >= bucket->filled_ns);
    fresh = (now_ns - bucket->filled_ns) / step_ns;
    if (fresh >= bucket->burst - bucket->tokens)
        bucket->tokens = bucket->burst;
    else
        bucket->tokens += (uint32_t)fresh;
    bucket->filled_ns += fresh * step_ns; /* the part of a token that is left counts next time */
    if (bucket->tokens == 0)
        return false;
    bucket->tokens--;
    return true;
}
