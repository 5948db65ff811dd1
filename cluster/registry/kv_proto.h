/* KV messages of the wire to and from the registry's own terms. */
#ifndef MUSTER_CLUSTER_REGISTRY_KV_PROTO_H
#define MUSTER_CLUSTER_REGISTRY_KV_PROTO_H

#include "cluster/store/mvcc.h"

struct Etcdserverpb__ResponseHeader;
struct Mvccpb__KeyValue;

/** The message type of a request of that kind (a ProtobufCMessageDescriptor). */
const void *muster_kv_proto_descriptor(enum muster_mvcc_kind kind);

/** The request that `message` (unpacked, of that kind) stands for; borrows message.
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_kv_proto_request(enum muster_mvcc_kind kind,
                                                         const void *message,
                                                         struct muster_registry_arena *arena,
                                                         struct muster_mvcc_request *ret_request);

/** The answer as a generated struct in the arena, borrowing result and header. NULL: no memory. */
void *muster_kv_proto_answer(const struct muster_mvcc_result *result,
                             struct Etcdserverpb__ResponseHeader *header,
                             struct muster_registry_arena *arena);

/** Fill a KeyValue that borrows record's bytes. */
void muster_kv_proto_fill(const struct muster_registry_record *record,
                          struct Mvccpb__KeyValue *ret_kv);

#endif
