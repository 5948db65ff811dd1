/* The costs of one call: from its start to the histograms of its method and status (gRPC A66). A
 * server counts the call, a client each attempt and then the whole. The end reads the clock itself,
 * because the loop's time is that of the turn's beginning. */
#include "net/grpc/tally.h"

#include "net/grpc/metrics_internal.h"

#define SECONDS(ns) ((double)(ns) / (double)MUSTER_NS_PER_S)

void muster_rpc_tally_start(struct muster_rpc_tally *tally, struct muster_rpc_series *series,
                            const struct muster_loop *loop)
{
    tally->series = series;
    if (series == NULL)
        return;
    tally->start_ns = muster_loop_now_ns(loop);
    tally->is_attempting = false;
    tally->sent_bytes = tally->received_bytes = 0;
    if (series->side == MUSTER_RPC_SERVER)
        muster_metric_add(&series->started, 1);
}

/* Observe the part that a server's call and a client's attempt have in common. */
static void observe_value(const struct muster_rpc_tally *tally, enum muster_rc rc,
                          uint64_t duration_ns)
{
    struct muster_rpc_outcome *outcome = muster_rpc_series_outcome(tally->series, rc);

    if (outcome == NULL)
        return;
    muster_histogram_observe(&outcome->duration, SECONDS(duration_ns));
    muster_histogram_observe(&outcome->sent, (double)tally->sent_bytes);
    muster_histogram_observe(&outcome->received, (double)tally->received_bytes);
}

void muster_rpc_tally_end(struct muster_rpc_tally *tally, enum muster_rc rc,
                          const struct muster_loop *loop)
{
    struct muster_rpc_series *series = tally->series;
    struct muster_rpc_outcome *outcome;

    if (series == NULL)
        return;
    if (series->side == MUSTER_RPC_SERVER) {
        observe_value(tally, rc, muster_loop_clock_ns(loop) - tally->start_ns);
    } else {
        muster_rpc_tally_attempt_end(tally, rc, loop);
        outcome = muster_rpc_series_outcome(series, rc);
        if (outcome != NULL)
            muster_histogram_observe(&outcome->call,
                                     SECONDS(muster_loop_clock_ns(loop) - tally->start_ns));
    }
    tally->series = NULL;
}

/* Bytes sent before are sent again, so sent_bytes goes on; received_bytes begins anew. */
void muster_rpc_tally_attempt(struct muster_rpc_tally *tally, unsigned attempt,
                              const struct muster_loop *loop)
{
    if (tally->series == NULL)
        return;
    /* A66: the first attempt includes the wait for a connection. */
    tally->attempt_ns = attempt <= 1 ? tally->start_ns : muster_loop_now_ns(loop);
    tally->is_attempting = true;
    tally->received_bytes = 0;
    muster_metric_add(&tally->series->started, 1);
}

void muster_rpc_tally_attempt_end(struct muster_rpc_tally *tally, enum muster_rc rc,
                                  const struct muster_loop *loop)
{
    if (tally->series == NULL || !tally->is_attempting)
        return;
    observe_value(tally, rc, muster_loop_clock_ns(loop) - tally->attempt_ns);
    tally->is_attempting = false;
}
