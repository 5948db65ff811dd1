/* Shared by net/grpc/metrics.c and net/grpc/tally.c: the series of a method. */
#ifndef MUSTER_NET_RPC_METRICS_INTERNAL_H
#define MUSTER_NET_RPC_METRICS_INTERNAL_H

#include "net/grpc/tally.h"

#define MUSTER_RPC_STATUS_COUNT 17

/** The histograms of one method and status; made when the first call ends so. */
struct muster_rpc_outcome {
    struct muster_histogram duration, sent, received;
    struct muster_histogram call; /* client: of the whole call */
    char labels[];
};

struct muster_rpc_series {
    struct muster_list node;
    struct muster_rpc_metrics *metrics;
    enum muster_rpc_side side;
    uint64_t hash;
    const char *method, *target; /* as they came */
    char *labels;
    struct muster_metric started;
    struct muster_rpc_outcome *outcomes[MUSTER_RPC_STATUS_COUNT];
};

/** The histograms of a status, made when it first comes. NULL: no memory. */
struct muster_rpc_outcome *muster_rpc_series_outcome(struct muster_rpc_series *series,
                                                     enum muster_rc rc);

#endif
