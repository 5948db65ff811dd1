/* etcdserverpb.KV: Range, Put, DeleteRange, Txn, Compact. Each request is unpacked, applied by
 * cluster/store/mvcc.c at once, and its answer given to answer_proto.c, which holds it until the
 * group commit. */
#include "cluster/registry/kv_proto.h"
#include "cluster/registry/server_internal.h"

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

static void apply_request(struct muster_registry_server *server, struct muster_rpc *rpc,
                          struct muster_mvcc_request *request)
{
    struct muster_mvcc_result result;
    struct muster_error error;
    Etcdserverpb__ResponseHeader header;
    void *answer = NULL;
    bool is_broken = false;
    enum muster_rc rc =
        muster_mvcc_apply(&server->mvcc, request, &server->arena, &result, &error, &is_broken);

    /* The break has answered the calls that waited before this one; this call is not among them yet
     * and is refused by itself. */
    if (is_broken) {
        muster_registry_server_break(server, rc);
        muster_registry_refuse(
            server, rpc, rc == MUSTER_RESOURCE_EXHAUSTED ? rc : MUSTER_UNAVAILABLE, error.text);
        return;
    }
    muster_registry_server_touch(server);
    if (rc != MUSTER_OK) {
        muster_registry_refuse(server, rpc, rc, error.text);
        return;
    }
    muster_registry_fill_header(server, &header);
    answer = muster_kv_proto_answer(&result, &header, &server->arena);
    if (answer != NULL)
        muster_registry_send_answer(server, rpc, answer);
    else
        muster_registry_refuse(server, rpc, MUSTER_RESOURCE_EXHAUSTED,
                               "etcdserver: the answer is too large");
}

static void handle_request(struct muster_rpc *rpc, struct muster_bytes bytes,
                           enum muster_mvcc_kind kind)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    struct muster_mvcc_request request;
    void *message = NULL;

    if (!muster_registry_unpack(server, rpc, muster_kv_proto_descriptor(kind), bytes, &message))
        return;
    if (muster_kv_proto_request(kind, message, &server->arena, &request) == MUSTER_OK)
        apply_request(server, rpc, &request);
    else
        muster_registry_refuse(server, rpc, MUSTER_RESOURCE_EXHAUSTED,
                               "etcdserver: request is too large");
    muster_registry_arena_reset(&server->arena);
    muster_proto_free(message);
}

static void on_range(struct muster_rpc *rpc, struct muster_bytes message)
{
    handle_request(rpc, message, MUSTER_MVCC_RANGE);
}

static void on_put(struct muster_rpc *rpc, struct muster_bytes message)
{
    handle_request(rpc, message, MUSTER_MVCC_PUT);
}

static void on_delete(struct muster_rpc *rpc, struct muster_bytes message)
{
    handle_request(rpc, message, MUSTER_MVCC_DELETE);
}

static void on_txn(struct muster_rpc *rpc, struct muster_bytes message)
{
    handle_request(rpc, message, MUSTER_MVCC_TXN);
}

static void on_compact(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__CompactionRequest *request = NULL;
    Etcdserverpb__CompactionResponse answer;
    Etcdserverpb__ResponseHeader header;
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__compaction_request__descriptor, bytes,
                                &request))
        return;
    rc = muster_mvcc_compact(&server->mvcc, request->revision, &error);
    if (rc != MUSTER_OK) {
        muster_registry_refuse(server, rpc, rc, error.text);
        muster_proto_free(request);
        return;
    }
    muster_registry_server_touch(server);
    /* The revision moves at once and the rows go in the background, so a large compaction holds up
     * no request. */
    muster_registry_server_clean(server);
    muster_registry_fill_header(server, &header);
    etcdserverpb__compaction_response__init(&answer);
    answer.header = &header;
    /* A client that asks for a physical compaction gets its answer when the rows are gone, others
     * as soon as older revisions cannot be read any more. */
    if (request->physical)
        muster_registry_send_answer_compacted(server, rpc, &answer);
    else
        muster_registry_send_answer(server, rpc, &answer);
    muster_registry_arena_reset(&server->arena);
    muster_proto_free(request);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.KV/Range",
     .on_message = on_range,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.KV/Put",
     .on_message = on_put,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.KV/DeleteRange",
     .on_message = on_delete,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.KV/Txn",
     .on_message = on_txn,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.KV/Compact",
     .on_message = on_compact,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
};

enum muster_rc muster_registry_kv_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
