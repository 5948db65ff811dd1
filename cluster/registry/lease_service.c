/* etcdserverpb.Lease: grant, revoke, keep-alive, time to live, list. The table of leases is in
 * lease.c; this file turns messages into its calls. A grant and a revocation write and so wait for
 * the group commit, a keep-alive does not. */
#include "cluster/registry/server_internal.h"

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

static const char lease_not_found[] = "etcdserver: requested lease not found";

/* Grant. */

static void on_grant(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__LeaseGrantRequest *request = NULL;
    Etcdserverpb__LeaseGrantResponse answer;
    Etcdserverpb__ResponseHeader header;
    struct muster_error error;
    bool is_broken = false;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__lease_grant_request__descriptor, bytes,
                                &request))
        return;
    etcdserverpb__lease_grant_response__init(&answer);
    rc = muster_leases_grant(&server->leases, request->ttl, request->id, &answer.id, &answer.ttl,
                             &error, &is_broken);
    muster_proto_free(request);
    /* A grant that was refused for its arguments has written nothing and so goes on to the plain
     * refusal. */
    if (is_broken)
        muster_registry_server_break(server, rc);
    muster_registry_server_touch(server);
    if (rc != MUSTER_OK) {
        muster_registry_refuse(server, rpc, rc, error.text);
        return;
    }
    muster_registry_fill_header(server, &header);
    answer.header = &header;
    muster_registry_send_answer(server, rpc, &answer);
    muster_registry_arena_reset(&server->arena);
}

/* Revoke. */

static void on_revoke(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__LeaseRevokeRequest *request = NULL;
    Etcdserverpb__LeaseRevokeResponse answer;
    Etcdserverpb__ResponseHeader header;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__lease_revoke_request__descriptor, bytes,
                                &request))
        return;
    rc = muster_registry_server_revoke(server, request->id);
    muster_proto_free(request);
    if (rc == MUSTER_OK) {
        muster_registry_fill_header(server, &header);
        etcdserverpb__lease_revoke_response__init(&answer);
        answer.header = &header;
        muster_registry_send_answer(server, rpc, &answer);
        muster_registry_arena_reset(&server->arena);
    } else if (rc == MUSTER_NOT_FOUND) {
        muster_registry_refuse(server, rpc, rc, lease_not_found);
    } else {
        muster_registry_refuse(server, rpc, MUSTER_UNAVAILABLE,
                               "etcdserver: the registry's store has failed");
    }
}

/* Time to live. */

struct key_list {
    struct muster_registry_arena *arena;
    ProtobufCBinaryData *keys;
    size_t count;
    size_t capacity;
};

static enum muster_rc add_key(void *data, const struct muster_registry_record *record)
{
    struct key_list *list = data;
    ProtobufCBinaryData *keys = NULL;
    struct muster_bytes copy;

    if (muster_registry_arena_copy(list->arena, record->key, &copy))
        keys = muster_registry_arena_reserve(list->arena, list->keys, list->count, &list->capacity,
                                             sizeof(*keys));
    if (keys == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    list->keys = keys;
    list->keys[list->count++] =
        (ProtobufCBinaryData){.len = copy.size, .data = (uint8_t *)(uintptr_t)copy.data};
    return MUSTER_OK;
}

static void answer_time_to_live(struct muster_registry_server *server, struct muster_rpc *rpc,
                                const Etcdserverpb__LeaseTimeToLiveRequest *request)
{
    Etcdserverpb__LeaseTimeToLiveResponse answer;
    Etcdserverpb__ResponseHeader header;
    struct key_list list = {.arena = &server->arena};
    enum muster_rc rc = MUSTER_OK;

    etcdserverpb__lease_time_to_live_response__init(&answer);
    answer.id = request->id;
    if (!muster_leases_time_to_live(&server->leases, request->id, &answer.ttl, &answer.grantedttl))
        /* etcd answers -1 for a lease that does not exist, and no error. */
        answer.ttl = -1;
    else if (request->keys)
        rc = muster_registry_store_scan_lease(server->store, request->id, add_key, &list);
    if (rc != MUSTER_OK) {
        muster_registry_refuse(server, rpc, rc, "etcdserver: the keys of the lease cannot be read");
        return;
    }
    muster_registry_fill_header(server, &header);
    answer.header = &header;
    answer.n_keys = list.count;
    answer.keys = list.keys;
    muster_registry_send_answer(server, rpc, &answer);
}

static void on_time_to_live(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__LeaseTimeToLiveRequest *request = NULL;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__lease_time_to_live_request__descriptor,
                                bytes, &request))
        return;
    answer_time_to_live(server, rpc, request);
    muster_registry_arena_reset(&server->arena);
    muster_proto_free(request);
}

/* List. */

/* The answer shows leases of this turn too, which is right: it waits for their commit. */
static void answer_list(struct muster_registry_server *server, struct muster_rpc *rpc)
{
    size_t count = server->leases.count;
    struct muster_registry_arena *arena = &server->arena;
    int64_t *ids = muster_registry_arena_array(arena, count, sizeof(*ids));
    Etcdserverpb__LeaseStatus *leases = muster_registry_arena_array(arena, count, sizeof(*leases));
    Etcdserverpb__LeaseStatus **pointers =
        muster_registry_arena_array(arena, count, sizeof(*pointers));
    Etcdserverpb__LeaseLeasesResponse answer;
    Etcdserverpb__ResponseHeader header;

    if (ids == NULL || leases == NULL || pointers == NULL) {
        muster_registry_refuse(server, rpc, MUSTER_RESOURCE_EXHAUSTED,
                               "etcdserver: the answer is too large");
        return;
    }
    muster_leases_list(&server->leases, ids);
    for (size_t i = 0; i < count; i++) {
        etcdserverpb__lease_status__init(&leases[i]);
        leases[i].id = ids[i];
        pointers[i] = &leases[i];
    }
    muster_registry_fill_header(server, &header);
    etcdserverpb__lease_leases_response__init(&answer);
    answer.header = &header;
    answer.n_leases = count;
    answer.leases = pointers;
    muster_registry_send_answer(server, rpc, &answer);
}

static void on_list(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__LeaseLeasesRequest *request = NULL;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__lease_leases_request__descriptor, bytes,
                                &request))
        return;
    answer_list(server, rpc);
    muster_registry_arena_reset(&server->arena);
    muster_proto_free(request);
}

/* Keep-alive: one stream for any number of leases. */

static void on_keep_alive_start(struct muster_rpc *rpc)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    struct muster_registry_stream *stream =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*stream));

    muster_rpc_set_data(rpc, stream);
    if (stream == NULL || server->is_closing) {
        muster_mem_free(server->env->mem, stream);
        muster_rpc_set_data(rpc, NULL);
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, MUSTER_REGISTRY_STOPPED);
        return;
    }
    stream->server = server;
    stream->rpc = rpc;
    muster_list_append(&server->streams, &stream->node);
}

static void on_keep_alive(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__LeaseKeepAliveRequest *request = NULL;
    Etcdserverpb__LeaseKeepAliveResponse answer;
    Etcdserverpb__ResponseHeader header;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__lease_keep_alive_request__descriptor,
                                bytes, &request))
        return;
    etcdserverpb__lease_keep_alive_response__init(&answer);
    muster_registry_fill_header(server, &header);
    header.revision = server->hub.revision; /* only what is committed is told at once */
    answer.header = &header;
    answer.id = request->id;
    /* A TTL of 0 tells the client that the lease is gone; the stream goes on for its other
     * leases. */
    answer.ttl = muster_leases_renew(&server->leases, request->id);
    muster_proto_free(request);
    muster_registry_stream_send(server, rpc, &answer);
    muster_registry_arena_reset(&server->send_arena);
}

static void on_keep_alive_half_close(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_keep_alive_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct muster_registry_stream *stream = muster_rpc_data(rpc);

    (void)rc;
    if (stream == NULL)
        return;
    muster_list_remove(&stream->node);
    muster_mem_free(stream->server->env->mem, stream);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Lease/LeaseGrant",
     .on_message = on_grant,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseRevoke",
     .on_message = on_revoke,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseTimeToLive",
     .on_message = on_time_to_live,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseLeases",
     .on_message = on_list,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseKeepAlive",
     .on_start = on_keep_alive_start,
     .on_message = on_keep_alive,
     .on_half_close = on_keep_alive_half_close,
     .on_end = on_keep_alive_end},
};

enum muster_rc muster_registry_lease_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
