/* When a client sends a failed call again (gRPC A6).
 *
 * A call is repeated while nothing of a response has come: the server answered with a status alone
 * (Trailers-Only), reset the stream, or the connection broke. What the call has sent is kept for
 * that, up to replay_max_bytes of the channel's options; beyond them, and from the first response
 * headers on, the call is committed to its attempt. The call's deadline spans all attempts. What
 * the server has never seen is sent again without any policy and does not count. */
#ifndef MUSTER_RETRY_POLICY_H
#define MUSTER_RETRY_POLICY_H

#include <muster/base.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_RETRY_ATTEMPTS_MAX 5

/** The bit of a status in codes. */
#define MUSTER_RETRY_ON(rc) (1u << (rc))

/** attempts_max 0 or 1: no repetition. The wait before the n-th one is backoff_base_ns times
 * backoff_multiplier to the power of n - 1, at most backoff_max_ns, jittered by 20 %. A server
 * that sends "grpc-retry-pushback-ms" sets the wait itself; one that it makes negative (or no
 * number) ends the call. */
struct muster_retry_policy {
    unsigned attempts_max;     /* with the first; above MUSTER_RETRY_ATTEMPTS_MAX: that many */
    uint32_t codes;            /* MUSTER_RETRY_ON(MUSTER_UNAVAILABLE) | ... */
    uint64_t backoff_base_ns;  /* of the first repetition; > 0 */
    uint64_t backoff_max_ns;   /* > 0 */
    double backoff_multiplier; /* > 0 */
};

/** A channel counts tokens, tokens_max at first: a failure with a retryable status (or a negative
 * pushback) costs one, a success gives token_ratio back. At tokens_max / 2 or fewer nothing is
 * repeated. */
struct muster_retry_throttle {
    unsigned tokens_max; /* 1 ... 1,000; 0: no throttle */
    double token_ratio;  /* > 0; to three decimals */
};

MUSTER_END

#endif
