/* etcdserverpb.Maintenance: Hash and HashKV. A hash reads the whole log, so it is made a step per turn
 * of the loop, and requests are answered between two steps. Several hashes wait for each other. The
 * hash itself is in cluster/store/mvcc.c. */
#include "cluster/registry/server_internal.h"
#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

/* About a millisecond of work. */
#define HASH_BYTES_PER_TURN ((size_t)1 << 20)

/* A call until it is answered. It is found by its rpc, whose data belongs to answers that wait for a
 * commit. */
struct hash_call {
    struct muster_registry_stream base;
    struct muster_list node; /* of the server's hashes; the first one is made */
    int64_t revision;        /* as requested */
    bool is_kv;              /* HashKV, which tells more than Hash */
    bool has_begun;
    struct muster_mvcc_hash hash;
};

static void hash_call_free(struct hash_call *call)
{
    muster_list_remove(&call->base.node);
    muster_list_remove(&call->node);
    muster_mem_free(call->base.server->env->mem, call);
}

static struct hash_call *find_call(struct muster_registry_server *server,
                                   const struct muster_rpc *rpc)
{
    MUSTER_LIST_EACH (&server->hashes, call, struct hash_call, node) {
        if (call->base.rpc == rpc)
            return call;
    }
    return NULL;
}

static void answer_hash(struct muster_registry_server *server, struct muster_rpc *rpc,
                        const struct muster_mvcc_hash *hash, bool is_kv)
{
    Etcdserverpb__HashKVResponse kv;
    Etcdserverpb__HashResponse plain;
    Etcdserverpb__ResponseHeader header;

    MUSTER_ASSERT(hash->is_done);
    muster_registry_fill_header(server, &header);
    etcdserverpb__hash_kvresponse__init(&kv);
    etcdserverpb__hash_response__init(&plain);
    kv.header = plain.header = &header;
    kv.hash = plain.hash = hash->value;
    kv.hash_revision = hash->revision;
    kv.compact_revision = hash->compact_revision;
    muster_registry_send_answer(server, rpc, is_kv ? (const void *)&kv : (const void *)&plain);
    muster_registry_arena_reset(&server->arena);
}

/* The call is freed before it is answered, because its end looks for it. */
static void end_call(struct hash_call *call, enum muster_rc rc, const char *text)
{
    struct muster_registry_server *server = call->base.server;
    struct muster_rpc *rpc = call->base.rpc;
    struct muster_mvcc_hash hash = call->hash;
    bool is_kv = call->is_kv;

    hash_call_free(call);
    if (rc == MUSTER_OK)
        answer_hash(server, rpc, &hash, is_kv);
    else
        muster_registry_refuse(server, rpc, rc, text);
}

static enum muster_rc advance_call(struct hash_call *call, bool *ret_is_done,
                                   struct muster_error *ret_error)
{
    struct muster_mvcc *mvcc = &call->base.server->mvcc;
    enum muster_rc rc = MUSTER_OK;

    if (!call->has_begun)
        rc = muster_mvcc_hash_init(mvcc, call->revision, &call->hash, ret_error);
    call->has_begun = true;
    return rc == MUSTER_OK ? muster_mvcc_hash_step(mvcc, &call->hash, HASH_BYTES_PER_TURN,
                                                   ret_is_done, ret_error)
                           : rc;
}

static struct hash_call *first_call(struct muster_registry_server *server)
{
    return muster_list_is_empty(&server->hashes)
               ? NULL
               : MUSTER_CONTAINER_OF(server->hashes.next, struct hash_call, node);
}

static void on_task(struct muster_task *task)
{
    struct muster_registry_server *server = task->data;
    struct hash_call *call = first_call(server);
    struct muster_error error = {.rc = MUSTER_OK};
    bool is_done = false;
    enum muster_rc rc = MUSTER_OK;

    /* A hash that takes several turns must cover only what can no longer be undone. The commit may
     * end calls, so the first one is looked up again. */
    if (call != NULL && !call->has_begun) {
        muster_registry_server_settle(server);
        call = first_call(server);
    }
    if (call == NULL)
        return;
    rc = advance_call(call, &is_done, &error);
    if (rc != MUSTER_OK || is_done)
        end_call(call, rc, error.text);
    if (!muster_list_is_empty(&server->hashes))
        muster_task_post(task, server->env->loop);
}

static void begin_call(struct muster_rpc *rpc, int64_t revision, bool is_kv)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    struct hash_call *call = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*call));

    if (call == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "etcdserver: no memory for a hash");
        return;
    }
    call->base.server = server;
    call->base.rpc = rpc;
    call->revision = revision;
    call->is_kv = is_kv;
    muster_list_append(&server->streams, &call->base.node); /* a server that stops ends it */
    muster_list_append(&server->hashes, &call->node);
    muster_task_post(&server->hash, server->env->loop);
}

static void on_hash(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    Etcdserverpb__HashRequest *request = NULL;

    if (!muster_registry_unpack(muster_rpc_service(rpc), rpc,
                                &etcdserverpb__hash_request__descriptor, bytes, &request))
        return;
    muster_proto_free(request);
    begin_call(rpc, 0, false);
}

static void on_hash_kv(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    Etcdserverpb__HashKVRequest *request = NULL;
    int64_t revision = 0;

    if (!muster_registry_unpack(muster_rpc_service(rpc), rpc,
                                &etcdserverpb__hash_kvrequest__descriptor, bytes, &request))
        return;
    revision = request->revision;
    muster_proto_free(request);
    begin_call(rpc, revision, true);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct hash_call *call = find_call(muster_rpc_service(rpc), rpc);

    if (call != NULL)
        hash_call_free(call);
    else
        muster_registry_unary_end(rpc, rc);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Maintenance/Hash",
     .on_message = on_hash,
     .on_end = on_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Maintenance/HashKV",
     .on_message = on_hash_kv,
     .on_end = on_end,
     .is_unary = true},
};

void muster_registry_hash_init(struct muster_registry_server *server)
{
    muster_list_init(&server->hashes);
    muster_task_init(&server->hash, on_task, server);
}

enum muster_rc muster_registry_hash_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
