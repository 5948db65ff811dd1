/* What gRPC calls cost, under the names of gRFC A66, and what connections do, as channelz counts
 * it: for env->metrics, and so for /metrics. */
#ifndef MUSTER_RPC_METRICS_H
#define MUSTER_RPC_METRICS_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_rpc_metrics;

/**
 * Count the calls of all servers and channels that are opened while env->rpc_metrics is what this
 * gives: open it before them, close it after them.
 *
 * Servers:  grpc_server_call_started_total{grpc_method}, grpc_server_call_duration_seconds,
 *           grpc_server_call_sent_total_compressed_message_size_bytes and …_rcvd_…
 *           {grpc_method, grpc_status}.
 * Channels: grpc_client_attempt_started_total{grpc_method, grpc_target},
 *           grpc_client_attempt_duration_seconds, grpc_client_attempt_sent_… and _rcvd_…,
 *           grpc_client_call_duration_seconds {grpc_method, grpc_target, grpc_status}.
 * Both:     muster_rpc_server_…{server} and muster_rpc_channel_…{target}: connections,
 *           connections_opened_total, streams_started_total, streams_succeeded_total,
 *           streams_failed_total, messages_sent_total, messages_received_total,
 *           keepalives_sent_total. server is the first address listened on.
 *           Of servers also unsent_bytes, unsent_refusals_total, unsent_expulsions_total: answers
 *           that wait to be sent, and what came of too many (unsent_max_bytes in muster/rpc.h).
 *
 * Units:    seconds, from the turn of the loop in which a call came or began; bytes of messages as they are
 *           on the wire, without gRPC's and HTTP/2's framing.
 * Bounds:   methods that a server has not are "other". 512 pairs of method and target, 128 servers
 *           and targets have series of their own; what comes behind them is "other".
 * Owns:     gives; borrows env until closed.
 * Errors:   FAILED_PRECONDITION (env->metrics is NULL), RESOURCE_EXHAUSTED.
 * Source:   gRFC A66 (names, labels, buckets), gRFC A14 (counters of sockets).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_metrics_open(
    struct muster_env *env, struct muster_rpc_metrics **ret_metrics);
/** Takes; NULL is accepted. Before env->metrics is closed. */
MUSTER_API void muster_rpc_metrics_close(struct muster_rpc_metrics *metrics);

MUSTER_END

#endif
