/* tensorflow.WorkerService on a gRPC server: devices, groups, instances, buffers; and what of
 * TensorFlow's services muster does not have, with the way out. */
#ifndef MUSTER_CLUSTER_WORKER_SERVICE_H
#define MUSTER_CLUSTER_WORKER_SERVICE_H

#include <muster/server.h>

#include "cluster/server/buffer_rendezvous.h"
#include "cluster/server/worker_groups.h"

/** The devices that GetStatus reports, with full names. Borrowed by the service. */
struct muster_worker_device {
    char *name;
    struct muster_server_device device;
};

struct muster_worker_service {
    struct muster_env *env;
    uint64_t incarnation;
    const struct muster_worker_device *devices;
    size_t device_count;
    struct muster_worker_groups *groups;
    struct muster_buffer_rendezvous buffers;
};

/** Caller's memory; env, incarnation, devices and groups are set by the caller, and borrowed until
 * the server is closed. Errors: ALREADY_EXISTS, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_worker_service_add(struct muster_worker_service *service,
                                                           struct muster_rpc_server *server);
/** Every wait ends with rc. */
void muster_worker_service_end(struct muster_worker_service *service, enum muster_rc rc,
                               const char *text);

#endif
