/* The messages of the coordination service, in the three forms in which clients write them. */
#ifndef MUSTER_CLUSTER_COORDINATION_PROTO_H
#define MUSTER_CLUSTER_COORDINATION_PROTO_H

#include "cluster/coordination/coordination.h"

enum muster_coordination_dialect {
    MUSTER_COORDINATION_XLA, /* both numberings: the bytes tell them apart */
    MUSTER_COORDINATION_TENSORFLOW,
};

/** A request with what it points to. */
struct muster_coordination_message {
    struct muster_coordination_request request;
    struct muster_mem *mem;
    void *unpacked;
    uint32_t *tasks;
};

/** The message must be released whatever is returned. INVALID_ARGUMENT: the bytes are not such a message;
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_unpack(
    struct muster_mem *mem, enum muster_coordination_dialect dialect,
    enum muster_coordination_method method, struct muster_bytes bytes,
    struct muster_coordination_message *ret_message, struct muster_error *ret_error);
void muster_coordination_release(struct muster_coordination_message *message);

/** The message of an answer that is OK. Gives. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_pack(
    struct muster_mem *mem, enum muster_coordination_dialect dialect,
    enum muster_coordination_method method, const struct muster_coordination_answer *answer,
    void **ret_bytes, size_t *ret_size);
/** Pack grpc-status-details-bin of an error; size 0 and NULL when it has no details. Gives. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_pack_details(
    struct muster_mem *mem, enum muster_coordination_dialect dialect,
    const struct muster_coordination_answer *answer, void **ret_bytes, size_t *ret_size);

#endif
