/* Which pings of a client are too many (gRPC A8): a server counts them; no protocol code. */
#ifndef MUSTER_NET_RPC_PING_STRIKES_H
#define MUSTER_NET_RPC_PING_STRIKES_H

#include <muster/base.h>

/* gRPC A8: so many pings that come too early are forgiven. */
#define MUSTER_RPC_PING_STRIKES_MAX 2

/** Its owner sets the first two; the rest is zero. */
struct muster_rpc_ping_strikes {
    uint64_t interval_min_ns;      /* between two pings */
    uint64_t idle_interval_min_ns; /* while no call is open */
    /* private */
    uint64_t last_valid_ns;
    uint64_t seen_frames;
    uint32_t count;
    bool has_last;
};

/** A ping has come. sent_frames: HEADERS and DATA frames sent so far; having sent one forgives
 * all. False: it is one too many, the client has to go. */
MUSTER_MUST_CHECK bool muster_rpc_ping_strikes_take(struct muster_rpc_ping_strikes *strikes,
                                                    uint64_t now_ns, uint64_t sent_frames,
                                                    bool has_calls);

#endif
