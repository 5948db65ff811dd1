/* Services that every gRPC server of this folder has besides its own: health and reflection. */
#ifndef MUSTER_CLUSTER_STANDARD_SERVICE_H
#define MUSTER_CLUSTER_STANDARD_SERVICE_H

#include <muster/rpc.h>
#include <muster/status.h>

enum muster_standard_kind { MUSTER_STANDARD_REGISTRY, MUSTER_STANDARD_COORDINATION };

/** All services of the kind are SERVING. Errors: RESOURCE_EXHAUSTED, ALREADY_EXISTS. */
MUSTER_MUST_CHECK enum muster_rc muster_standard_service_add(struct muster_rpc_server *server,
                                                             enum muster_standard_kind kind);

#endif
