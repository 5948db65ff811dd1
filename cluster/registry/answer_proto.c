/* Answers of the registry: packed when the request is applied, sent after the group commit. The
 * services call it for every unary answer and every message of a stream; commit.c says when the
 * waiting answers leave. */
#include "cluster/registry/server_internal.h"

#include <string.h>

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

/* The refusals of etcd fit; a longer text is cut. */
#define PENDING_TEXT_BYTES 120

/* An answer that waits for the group commit. It is the data of its call, and whichever comes first
 * frees it: the flush after the commit, or the end of the call. */
struct muster_registry_pending {
    struct muster_list node;
    struct muster_rpc *rpc;
    enum muster_rc rc;
    char text[PENDING_TEXT_BYTES];
    size_t size;
    uint8_t bytes[];
};

void muster_registry_fill_header(const struct muster_registry_server *server,
                                 struct Etcdserverpb__ResponseHeader *ret_header)
{
    etcdserverpb__response_header__init(ret_header);
    ret_header->cluster_id = server->mvcc.meta.cluster_id;
    ret_header->member_id = server->mvcc.meta.member_id;
    ret_header->revision = server->mvcc.meta.revision;
    ret_header->raft_term = server->mvcc.meta.term;
}

static void send_now(struct muster_registry_server *server, struct muster_rpc *rpc,
                     const uint8_t *bytes, size_t size)
{
    muster_metric_add(&server->answers_total, 1);
    /* An answer that cannot be queued ends the call by itself. */
    if (muster_rpc_send(rpc, bytes, size) == MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* The answer is packed when the request is applied: later requests of the turn must not change what
 * it shows. */
static struct muster_registry_pending *hold_answer(struct muster_registry_server *server,
                                                   struct muster_rpc *rpc, size_t size,
                                                   struct muster_list *list)
{
    struct muster_registry_pending *pending =
        muster_mem_alloc(server->env->mem, sizeof(*pending) + size);

    MUSTER_ASSERT(muster_rpc_data(rpc) == NULL);
    if (pending == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
        return NULL;
    }
    pending->rpc = rpc;
    pending->rc = MUSTER_OK;
    pending->text[0] = '\0';
    pending->size = size;
    muster_list_append(list, &pending->node);
    muster_rpc_set_data(rpc, pending);
    return pending;
}

/* An answer may show uncommitted writes of the same turn, so it waits for their commit. */
static bool must_wait(const struct muster_registry_server *server)
{
    return muster_registry_store_is_writing(server->store) || server->mvcc.is_meta_stale;
}

static void answer_in(struct muster_registry_server *server, struct muster_rpc *rpc,
                      const void *message, struct muster_list *list)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    struct muster_registry_pending *pending = hold_answer(server, rpc, size, list);

    if (pending != NULL)
        (void)protobuf_c_message_pack(message, pending->bytes);
}

void muster_registry_send_answer(struct muster_registry_server *server, struct muster_rpc *rpc,
                                 const void *message)
{
    size_t size = 0;
    uint8_t *bytes = NULL;

    if (must_wait(server)) {
        answer_in(server, rpc, message, &server->pending);
        return;
    }
    size = protobuf_c_message_get_packed_size(message);
    bytes = muster_registry_arena_alloc(&server->arena, size);
    if (bytes == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "etcdserver: the answer is too large");
        return;
    }
    (void)protobuf_c_message_pack(message, bytes);
    send_now(server, rpc, bytes, size);
}

void muster_registry_send_answer_compacted(struct muster_registry_server *server,
                                           struct muster_rpc *rpc, const void *message)
{
    answer_in(server, rpc, message, &server->compacting);
}

void muster_registry_refuse(struct muster_registry_server *server, struct muster_rpc *rpc,
                            enum muster_rc rc, const char *text)
{
    struct muster_registry_pending *pending = NULL;

    if (!must_wait(server)) {
        muster_rpc_finish(rpc, rc, text);
        return;
    }
    /* A refusal may depend on a write of the same turn (a lease that was granted just before, for
     * example), so it waits for the commit as well. */
    pending = hold_answer(server, rpc, 0, &server->pending);
    if (pending == NULL)
        return;
    pending->rc = rc;
    (void)snprintf(pending->text, sizeof(pending->text), "%s", text);
}

static void settle_answer(struct muster_registry_server *server,
                          struct muster_registry_pending *pending, enum muster_rc rc,
                          const char *text)
{
    struct muster_rpc *rpc = pending->rpc;

    MUSTER_ASSERT(muster_rpc_data(pending->rpc) == pending);
    /* The call may end inside its finish, and on_end must not free the answer a second time. */
    muster_rpc_set_data(rpc, NULL);
    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, rc, text);
    else if (pending->rc != MUSTER_OK)
        muster_rpc_finish(rpc, pending->rc, pending->text);
    else
        send_now(server, rpc, pending->bytes, pending->size);
    muster_mem_free(server->env->mem, pending);
}

void muster_registry_flush(struct muster_registry_server *server, enum muster_rc rc,
                           const char *text)
{
    /* The answers are taken out first: one that is added while these leave waits for the commit
     * that holds it. */
    struct muster_list round;
    struct muster_list *node = NULL;

    muster_list_take_all(&round, &server->pending);
    while ((node = muster_list_pop(&round)) != NULL)
        settle_answer(server, MUSTER_CONTAINER_OF(node, struct muster_registry_pending, node), rc,
                      text);
}

void muster_registry_unary_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    struct muster_registry_pending *pending = muster_rpc_data(rpc);

    (void)rc;
    if (pending == NULL)
        return;
    muster_list_remove(&pending->node);
    muster_mem_free(server->env->mem, pending);
}

void muster_registry_stream_send(struct muster_registry_server *server, struct muster_rpc *rpc,
                                 const void *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = muster_registry_arena_alloc(&server->send_arena, size);
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (bytes != NULL) {
        (void)protobuf_c_message_pack(message, bytes);
        rc = muster_rpc_send(rpc, bytes, size);
    }
    /* A stream that misses a message must not go on: the client opens it again from where it was.
     */
    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, "etcdserver: stream could not take a message");
}

bool muster_registry_unpack(struct muster_registry_server *server, struct muster_rpc *rpc,
                            const void *descriptor, struct muster_bytes bytes, void *ret_message)
{
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    if (server->is_closing) {
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, MUSTER_REGISTRY_STOPPED);
        return false;
    }
    /* The transport lets somewhat larger messages through (RECEIVE_BYTES_MAX), so that a client
     * gets etcd's own error here and not a reset stream. */
    if (bytes.size > MUSTER_MVCC_REQUEST_BYTES_MAX) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "etcdserver: request is too large");
        return false;
    }
    rc = muster_proto_unpack(server->env->mem, descriptor, bytes.data, bytes.size, NULL,
                             ret_message, &error);
    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, rc, error.text);
    return rc == MUSTER_OK;
}
