/* The costs of one call so far, and where they are counted in the end: muster/rpc.h. */
#ifndef MUSTER_NET_RPC_TALLY_H
#define MUSTER_NET_RPC_TALLY_H

#include <muster/loop.h>
#include <muster/metrics.h>
#include <muster/rpc.h>
#include <muster/status.h>

struct muster_rpc_series; /* of one method, at a client of one target */

enum muster_rpc_side { MUSTER_RPC_SERVER, MUSTER_RPC_CLIENT };

/** Counters of the connections of a server or channel. Counted always; shown when there are
 * metrics. */
struct muster_rpc_counters {
    int64_t connections, connections_opened;
    int64_t streams_started, streams_succeeded, streams_failed;
    int64_t messages_sent, messages_received;
    int64_t keepalives_sent;
    int64_t unsent_bytes, unsent_refusals, unsent_expulsions; /* of a server */
};

/** The costs of a call, which embeds it. */
struct muster_rpc_tally {
    struct muster_rpc_series *series; /* NULL: the call is not counted */
    uint64_t start_ns;                /* of the call */
    uint64_t attempt_ns;              /* of the attempt under way */
    bool is_attempting;
    uint64_t sent_bytes, received_bytes;
};

/** Begins with the time of the loop's turn. series NULL: the call is not counted. */
void muster_rpc_tally_start(struct muster_rpc_tally *tally, struct muster_rpc_series *series,
                            const struct muster_loop *loop);
/** Idempotent; ends an open attempt too. */
void muster_rpc_tally_end(struct muster_rpc_tally *tally, enum muster_rc rc,
                          const struct muster_loop *loop);
/** A client's attempt begins: the call goes to a connection; the first attempt began with the call.
 */
void muster_rpc_tally_attempt(struct muster_rpc_tally *tally, unsigned attempt,
                              const struct muster_loop *loop);
/** Idempotent. */
void muster_rpc_tally_attempt_end(struct muster_rpc_tally *tally, enum muster_rc rc,
                                  const struct muster_loop *loop);

/* net/grpc/metrics.c */
/** metrics NULL: NULL. method "/package.Service/Method", target "" at a server. Method NULL, or one
 * too many: the series of all others. */
struct muster_rpc_series *muster_rpc_metrics_series(struct muster_rpc_metrics *metrics,
                                                    enum muster_rpc_side side, const char *method,
                                                    const char *target);
/** The counters to be shown under that name, shared by all that use it; own without metrics. */
struct muster_rpc_counters *muster_rpc_metrics_counters(struct muster_rpc_metrics *metrics,
                                                        enum muster_rpc_side side, const char *name,
                                                        struct muster_rpc_counters *own);

#endif
