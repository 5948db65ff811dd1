/* Services that every gRPC server of this folder has besides its own: health and reflection. Tools (grpcurl,
 * probes of Kubernetes) expect them at the port of the service itself. */
#include "cluster/service/standard_service.h"

#include <stddef.h>

#include <muster/rpc.h>

#include "proto/coordination_tensorflow.muster.h"
#include "proto/etcd.muster.h"
#include "proto/etcd_election.muster.h"
#include "proto/etcd_lock.muster.h"

static const struct {
    const struct muster_descriptors *descriptors[4]; /* NULL after the last, both */
    const char *services[9];
} kinds[] = {
    [MUSTER_STANDARD_REGISTRY] = {{&proto_etcd_descriptors, &proto_etcd_lock_descriptors,
                                   &proto_etcd_election_descriptors},
                                  {"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease",
                                   "etcdserverpb.Cluster", "etcdserverpb.Maintenance",
                                   "etcdserverpb.Auth", "v3lockpb.Lock", "v3electionpb.Election"}},
    /* It imports that of xla.coordination. */
    [MUSTER_STANDARD_COORDINATION] = {{&proto_coordination_tensorflow_descriptors},
                                      {"xla.coordination.CoordinationService",
                                       "tensorflow.CoordinationService"}},
};

enum muster_rc muster_standard_service_add(struct muster_rpc_server *server,
                                           enum muster_standard_kind kind)
{
    struct muster_rpc_health *health = NULL;
    size_t count = 0;
    enum muster_rc rc = muster_rpc_health_open(server, &health);

    MUSTER_ASSERT((size_t)kind < sizeof(kinds) / sizeof(kinds[0]));
    for (size_t i = 0; rc == MUSTER_OK && kinds[kind].services[i] != NULL; i++)
        rc = muster_rpc_health_set(health, kinds[kind].services[i], MUSTER_HEALTH_SERVING);
    while (kinds[kind].descriptors[count] != NULL)
        count++;
    if (rc == MUSTER_OK)
        rc = muster_rpc_reflection_open(server, kinds[kind].descriptors, count);
    return rc;
}
