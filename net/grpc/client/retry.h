/* Whether and when a failed call is sent again: the count of one call, the tokens of a channel
 * (gRPC A6). No I/O. */
#ifndef MUSTER_NET_RPC_RETRY_H
#define MUSTER_NET_RPC_RETRY_H

#include <muster/channel.h>
#include <muster/env.h>

/** The tokens of a channel, in thousandths. All zero: no throttle. */
struct muster_rpc_throttle {
    uint32_t tokens;
    uint32_t tokens_max; /* 0: no throttle */
    uint32_t ratio;
};

/** Errors: INVALID_ARGUMENT, with the field. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_throttle_init(
    struct muster_rpc_throttle *throttle, const struct muster_retry_throttle *options,
    struct muster_error *ret_error);
/** Errors: INVALID_ARGUMENT, with the field. */
MUSTER_MUST_CHECK enum muster_rc muster_retry_policy_check(const struct muster_retry_policy *policy,
                                                           struct muster_error *ret_error);

/** The retries of one call. All zero but policy before the first attempt. */
struct muster_rpc_retry {
    const struct muster_retry_policy *policy; /* NULL: none; borrowed */
    unsigned repeated;                        /* so many repetitions so far */
    unsigned growth;                          /* of the wait: starts anew after a pushback */
    bool has_pushback;
    int64_t pushback_ms; /* of the attempt that has ended; < 0: do not repeat */
};

/** The value of grpc-retry-pushback-ms. */
void muster_rpc_retry_parse_pushback(struct muster_rpc_retry *retry, const char *value,
                                     size_t bytes);

/**
 * An attempt has ended with rc: count it, and tell whether another one is due.
 *
 * Units:  *ret_delay_ns from now.
 * Source: gRPC A6, "Throttling Retry Attempts", "Server Pushback", "Exponential Backoff".
 */
bool muster_rpc_retry_next(struct muster_rpc_retry *retry, struct muster_rpc_throttle *throttle,
                           struct muster_rng *rng, enum muster_rc rc, bool is_committed,
                           uint64_t *ret_delay_ns);

#endif
