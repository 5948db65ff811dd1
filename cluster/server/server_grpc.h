/* The protocol that every task's server speaks: a gRPC server with the worker service, the health
 * service and, if wanted, the coordination service. */
#ifndef MUSTER_CLUSTER_SERVER_GRPC_H
#define MUSTER_CLUSTER_SERVER_GRPC_H

#include <muster/server.h>

#include "cluster/server/worker_service.h"

struct muster_server_grpc;

/** The server that it serves for, and where it stands. Borrowed during open. */
struct muster_server_grpc_place {
    struct muster_server *server;
    void (*on_stopped)(struct muster_server *server); /* once after stop, from the loop */
    const char *name;                                 /* "/job:worker/replica:0/task:1" */
    uint64_t incarnation;
    const struct muster_server_def *def;
};

/** Bind. Gives. Errors as muster_server_open. */
MUSTER_MUST_CHECK enum muster_rc
muster_server_grpc_open(struct muster_env *env, const struct muster_server_options *options,
                        const struct muster_server_grpc_place *place,
                        struct muster_server_grpc **ret_grpc, struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_server_grpc_start(struct muster_server_grpc *grpc,
                                                          struct muster_error *ret_error);
/** on_stopped follows. */
void muster_server_grpc_stop(struct muster_server_grpc *grpc, uint64_t deadline_ns);
void muster_server_grpc_free(struct muster_server_grpc *grpc);

const char *muster_server_grpc_target(const struct muster_server_grpc *grpc);
const struct muster_address *muster_server_grpc_address(const struct muster_server_grpc *grpc);
const char *muster_server_grpc_device_name(const struct muster_server_grpc *grpc, size_t i);
struct muster_rpc_server *muster_server_grpc_rpc_server(const struct muster_server_grpc *grpc);
struct muster_worker_service *muster_server_grpc_worker(struct muster_server_grpc *grpc);

#endif
