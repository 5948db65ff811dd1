/* The health service of a gRPC server (grpc.health.v1): what load balancers, `grpc` probes of
 * Kubernetes and clients ask before they send calls. */
#ifndef MUSTER_RPC_HEALTH_H
#define MUSTER_RPC_HEALTH_H

#include <muster/base.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_rpc_health;

/** grpc.health.v1.HealthCheckResponse.ServingStatus. */
enum muster_health_status {
    MUSTER_HEALTH_UNKNOWN = 0,
    MUSTER_HEALTH_SERVING = 1,
    MUSTER_HEALTH_NOT_SERVING = 2,
    MUSTER_HEALTH_SERVICE_UNKNOWN = 3,
};

/**
 * Serve Check, Watch and List on `server`. The empty name, the whole server, is SERVING at first.
 *
 * When the server begins to close, all services are NOT_SERVING and each Watch ends with
 * UNAVAILABLE after it has been told, so that none of them holds up the drain.
 *
 * Bounds:  1,000 open Watch calls, beyond them RESOURCE_EXHAUSTED; a Watch that does not read is
 *          told the newest status alone; List answers RESOURCE_EXHAUSTED beyond 100 services;
 *          names of at most 1,024 bytes.
 * Owns:    the health belongs to server and ends with it.
 * Errors:  ALREADY_EXISTS when somebody serves it, RESOURCE_EXHAUSTED.
 * Source:  grpc/doc/health-checking.md, gRFC A90.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_health_open(
    struct muster_rpc_server *server, struct muster_rpc_health **ret_health);
/** service: "package.Service", "" for the whole server. MUSTER_HEALTH_SERVICE_UNKNOWN forgets it.
 * After a shut-down nothing changes any more. Errors: INVALID_ARGUMENT (name too long),
 * RESOURCE_EXHAUSTED. */
MUSTER_API enum muster_rc muster_rpc_health_set(struct muster_rpc_health *health,
                                                const char *service,
                                                enum muster_health_status status);
/** All services are NOT_SERVING from now on, before the server closes: so that clients go elsewhere
 * first. */
MUSTER_API void muster_rpc_health_shut_down(struct muster_rpc_health *health);

MUSTER_END

#endif
