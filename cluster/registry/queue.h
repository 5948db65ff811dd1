/* Places in a queue of keys, as etcd's locks and elections have them: NAME/<lease in hexadecimal
 * digits>; the one created first is in front. */
#ifndef MUSTER_CLUSTER_REGISTRY_QUEUE_H
#define MUSTER_CLUSTER_REGISTRY_QUEUE_H

#include "cluster/registry/server_internal.h"

#define MUSTER_QUEUE_LEASE_TTL_S 60 /* for a caller that brings no lease, as with etcd */

/** A call that waits until its place is in front. */
struct muster_registry_place;
/** It is: answer with muster_registry_stream_send. */
typedef void muster_registry_front_fn(const struct muster_registry_place *place);

struct muster_registry_place {
    struct muster_registry_stream base;
    struct muster_watch_stream watches; /* one watch, for deletions in the queue */
    struct muster_task check;
    muster_registry_front_fn *on_front;
    int64_t lease;
    int64_t create_revision;
    size_t name_bytes; /* key without the slash and the digits */
    struct muster_bytes key;
};

struct muster_registry_wish {
    struct muster_bytes name;
    struct muster_bytes value;
    int64_t lease; /* 0: one of its own */
};

/** Take a place for rpc, which is answered later; what fails ends rpc. */
void muster_registry_place_take(struct muster_registry_server *server, struct muster_rpc *rpc,
                                const struct muster_registry_wish *wish,
                                muster_registry_front_fn *on_front);
/** on_end of such calls: a caller that goes before its turn leaves the queue. */
void muster_registry_place_end(struct muster_rpc *rpc, enum muster_rc rc);

/** All keys of the queue; bytes in arena. false: no memory. */
bool muster_registry_queue_span(struct muster_registry_arena *arena, struct muster_bytes name,
                                struct muster_registry_span *ret_span);
/** The key in front, bytes in arena. NOT_FOUND: the queue is empty. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_queue_front(
    struct muster_registry_server *server, struct muster_registry_arena *arena,
    struct muster_bytes name, int64_t before_revision, struct muster_registry_record *ret_front);
/** Apply one request; a failure is left in ret_error. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_queue_apply(struct muster_registry_server *server,
                                                             struct muster_registry_arena *arena,
                                                             struct muster_mvcc_request *request,
                                                             struct muster_mvcc_result *ret_result,
                                                             struct muster_error *ret_error);

#endif
