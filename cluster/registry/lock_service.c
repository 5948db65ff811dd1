/* v3lockpb.Lock: a place in a queue for each caller, held until its key is deleted. The queue
 * itself is in queue.c, which it shares with the elections. */
#include "cluster/registry/queue.h"

#include "proto/etcd.pb-c.h"
#include "proto/etcd_lock.pb-c.h"
#include "proto/guard.h"

static void on_locked(const struct muster_registry_place *place)
{
    struct muster_registry_server *server = place->base.server;
    V3lockpb__LockResponse answer;
    Etcdserverpb__ResponseHeader header;

    v3lockpb__lock_response__init(&answer);
    muster_registry_fill_header(server, &header);
    answer.header = &header;
    answer.key.data = (uint8_t *)(uintptr_t)place->key.data;
    answer.key.len = place->key.size;
    /* The place has been read from committed state, so the answer need not wait for a commit. */
    muster_registry_stream_send(server, place->base.rpc, &answer);
    muster_registry_arena_reset(&server->send_arena);
}

static void on_lock(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    V3lockpb__LockRequest *request = NULL;

    if (!muster_registry_unpack(server, rpc, &v3lockpb__lock_request__descriptor, bytes, &request))
        return;
    muster_registry_place_take(
        server, rpc,
        &(struct muster_registry_wish){.name = {request->name.data, request->name.len},
                                       .lease = request->lease},
        on_locked);
    muster_proto_free(request);
}

/* A key that is not there is unlocked already, which is no error; so an unlock may be repeated. */
static void on_unlock(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    struct muster_mvcc_request delete = {.kind = MUSTER_MVCC_DELETE};
    V3lockpb__UnlockRequest *request = NULL;
    V3lockpb__UnlockResponse answer;
    Etcdserverpb__ResponseHeader header;
    struct muster_mvcc_result result;
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_unpack(server, rpc, &v3lockpb__unlock_request__descriptor, bytes,
                                &request))
        return;
    delete.delete.span.key = (struct muster_bytes){request->key.data, request->key.len};
    rc = muster_registry_queue_apply(server, &server->arena, &delete, &result, &error);
    muster_proto_free(request);
    v3lockpb__unlock_response__init(&answer);
    muster_registry_fill_header(server, &header);
    answer.header = &header;
    if (rc == MUSTER_OK)
        muster_registry_send_answer(server, rpc, &answer);
    else
        muster_registry_refuse(server, rpc, rc, error.text);
    muster_registry_arena_reset(&server->arena);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/v3lockpb.Lock/Lock",
     .on_message = on_lock,
     .on_end = muster_registry_place_end,
     .is_unary = true},
    {.path = "/v3lockpb.Lock/Unlock",
     .on_message = on_unlock,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
};

enum muster_rc muster_registry_lock_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
