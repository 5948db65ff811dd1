/* v3electionpb.Election: the key in front of a queue leads, and its value is what it proclaims. The
 * queue is in queue.c. A candidate loses its place with its lease, so a dead leader is replaced
 * when its lease expires. */
#include "cluster/registry/kv_proto.h"
#include "cluster/registry/queue.h"

#include <string.h>

#include "proto/etcd.pb-c.h"
#include "proto/etcd_election.pb-c.h"
#include "proto/guard.h"

static const char no_leader_key[] = "\"leader\" field must be provided";

/* Campaign. */

static void on_elected(const struct muster_registry_place *place)
{
    struct muster_registry_server *server = place->base.server;
    V3electionpb__CampaignResponse answer;
    V3electionpb__LeaderKey leader;
    Etcdserverpb__ResponseHeader header;

    v3electionpb__campaign_response__init(&answer);
    v3electionpb__leader_key__init(&leader);
    muster_registry_fill_header(server, &header);
    answer.header = &header;
    answer.leader = &leader;
    leader.key.data = (uint8_t *)(uintptr_t)place->key.data;
    leader.key.len = place->key.size;
    /* The key begins with the name. */
    leader.name.data = leader.key.data;
    leader.name.len = place->name_bytes;
    leader.rev = place->create_revision;
    leader.lease = place->lease;
    /* The place has been read from committed state, so the answer need not wait for a commit. */
    muster_registry_stream_send(server, place->base.rpc, &answer);
    muster_registry_arena_reset(&server->send_arena);
}

static void on_campaign(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    V3electionpb__CampaignRequest *request = NULL;

    if (!muster_registry_unpack(server, rpc, &v3electionpb__campaign_request__descriptor, bytes,
                                &request))
        return;
    muster_registry_place_take(
        server, rpc,
        &(struct muster_registry_wish){.name = {request->name.data, request->name.len},
                                       .value = {request->value.data, request->value.len},
                                       .lease = request->lease},
        on_elected);
    muster_proto_free(request);
}

/* A leader's write, on the condition that its key is still the one it campaigned with: the create
 * revision tells a key that was deleted and put again from the first. `otherwise` is the error if
 * it is not; NULL: none, because one that no longer leads has resigned already. */

static void answer_write(struct muster_rpc *rpc, const V3electionpb__LeaderKey *leader,
                         struct muster_mvcc_request *write, const char *otherwise)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    const struct muster_mvcc_compare compare = {
        .span = {.key = {leader->key.data, leader->key.len}},
        .target = MUSTER_MVCC_COMPARE_CREATE,
        .relation = MUSTER_MVCC_EQUAL,
        .number = leader->rev};
    struct muster_mvcc_request txn = {
        .kind = MUSTER_MVCC_TXN,
        .txn = {.compares = &compare, .compare_count = 1, .success = write, .success_count = 1}};
    V3electionpb__ProclaimResponse answer; /* that of Resign has the same field */
    Etcdserverpb__ResponseHeader header;
    struct muster_mvcc_result result;
    struct muster_error error;
    enum muster_rc rc = muster_registry_queue_apply(server, &server->arena, &txn, &result, &error);

    v3electionpb__proclaim_response__init(&answer);
    muster_registry_fill_header(server, &header);
    answer.header = &header;
    if (rc != MUSTER_OK)
        muster_registry_refuse(server, rpc, rc, error.text);
    else if (!result.is_succeeded && otherwise != NULL)
        muster_registry_refuse(server, rpc, MUSTER_UNKNOWN, otherwise);
    else
        muster_registry_send_answer(server, rpc, &answer);
    muster_registry_arena_reset(&server->arena);
}

static void on_proclaim(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    V3electionpb__ProclaimRequest *request = NULL;
    struct muster_mvcc_request put = {.kind = MUSTER_MVCC_PUT};

    if (!muster_registry_unpack(server, rpc, &v3electionpb__proclaim_request__descriptor, bytes,
                                &request))
        return;
    if (request->leader == NULL) {
        muster_registry_refuse(server, rpc, MUSTER_UNKNOWN, no_leader_key);
    } else {
        put.put.key = (struct muster_bytes){request->leader->key.data, request->leader->key.len};
        put.put.value = (struct muster_bytes){request->value.data, request->value.len};
        put.put.lease = request->leader->lease;
        answer_write(rpc, request->leader, &put, "election: not leader");
    }
    muster_proto_free(request);
}

static void on_resign(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    V3electionpb__ResignRequest *request = NULL;
    struct muster_mvcc_request delete = {.kind = MUSTER_MVCC_DELETE};

    if (!muster_registry_unpack(server, rpc, &v3electionpb__resign_request__descriptor, bytes,
                                &request))
        return;
    if (request->leader == NULL) {
        muster_registry_refuse(server, rpc, MUSTER_UNKNOWN, no_leader_key);
    } else {
        delete.delete.span.key =
            (struct muster_bytes){request->leader->key.data, request->leader->key.len};
        answer_write(rpc, request->leader, &delete, NULL);
    }
    muster_proto_free(request);
}

/* The present leader. */

struct observer {
    struct muster_registry_stream base;
    struct muster_watch_stream watches;
    struct muster_task look;
    int64_t seen_revision; /* the mod revision of the leader's key, when last shown */
    struct muster_bytes name;
};

static void fill_leader(struct muster_registry_server *server,
                        const struct muster_registry_record *front,
                        V3electionpb__LeaderResponse *ret_answer,
                        Etcdserverpb__ResponseHeader *ret_header, Mvccpb__KeyValue *ret_kv)
{
    v3electionpb__leader_response__init(ret_answer);
    muster_registry_fill_header(server, ret_header);
    muster_kv_proto_fill(front, ret_kv);
    ret_answer->header = ret_header;
    ret_answer->kv = ret_kv;
}

static void on_leader(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    V3electionpb__LeaderRequest *request = NULL;
    V3electionpb__LeaderResponse answer;
    Etcdserverpb__ResponseHeader header;
    Mvccpb__KeyValue kv;
    struct muster_registry_record front;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_unpack(server, rpc, &v3electionpb__leader_request__descriptor, bytes,
                                &request))
        return;
    rc = muster_registry_queue_front(server, &server->arena,
                                     (struct muster_bytes){request->name.data, request->name.len},
                                     0, &front);
    muster_proto_free(request);
    if (rc == MUSTER_OK) {
        fill_leader(server, &front, &answer, &header, &kv);
        muster_registry_send_answer(server, rpc, &answer);
    } else if (rc == MUSTER_NOT_FOUND) {
        muster_registry_refuse(server, rpc, MUSTER_UNKNOWN, "election: no leader");
    } else {
        muster_registry_refuse(server, rpc, MUSTER_UNAVAILABLE,
                               "etcdserver: the queue cannot be read");
    }
    muster_registry_arena_reset(&server->arena);
}

/* Every change in the queue wakes a look, and one behind the leader in it does not concern the client. */
static void on_look(struct muster_task *task)
{
    struct observer *observer = task->data;
    struct muster_registry_server *server = observer->base.server;
    V3electionpb__LeaderResponse answer;
    Etcdserverpb__ResponseHeader header;
    Mvccpb__KeyValue kv;
    struct muster_registry_record front;

    /* The leader is shown to the client at once, so it must be committed. */
    muster_registry_server_settle(server);
    if (muster_registry_queue_front(server, &server->arena, observer->name, 0, &front) ==
            MUSTER_OK &&
        front.mod_revision != observer->seen_revision) {
        observer->seen_revision = front.mod_revision;
        fill_leader(server, &front, &answer, &header, &kv);
        muster_registry_stream_send(server, observer->base.rpc, &answer);
        muster_registry_arena_reset(&server->send_arena);
    }
    muster_registry_arena_reset(&server->arena);
}

static void on_change(struct muster_watch_stream *watches, const struct muster_watch_answer *answer)
{
    struct observer *observer = watches->data;

    (void)answer;
    /* A look may commit, so it must not run while the hub delivers the changes of a commit. */
    muster_task_post(&observer->look, observer->base.server->env->loop);
}

/* The watch is held back while the client does not read. Nothing is lost by that, because a look
 * tells only the newest leader. */
static size_t on_queued_bytes(const struct muster_watch_stream *watches)
{
    const struct observer *observer = watches->data;

    return muster_rpc_queued_bytes(observer->base.rpc);
}

static const struct muster_watch_stream_ops watch_ops = {.send = on_change,
                                                         .queued_bytes = on_queued_bytes};

static void start_observing(struct muster_registry_server *server, struct muster_rpc *rpc,
                            struct muster_bytes name)
{
    struct observer *observer =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*observer) + name.size);
    struct muster_watch_wish wish = {.start_revision = 0};

    if (observer == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "etcdserver: no memory for an observer");
        return;
    }
    observer->base.server = server;
    observer->base.rpc = rpc;
    if (name.size > 0)
        memcpy(observer + 1, name.data, name.size);
    observer->name = (struct muster_bytes){observer + 1, name.size};
    muster_task_init(&observer->look, on_look, observer);
    muster_list_append(&server->streams, &observer->base.node);
    muster_watch_stream_open(&observer->watches, &server->hub, &watch_ops, observer);
    muster_rpc_set_data(rpc, observer);
    if (muster_registry_queue_span(&server->arena, name, &wish.span))
        muster_watch_stream_create(&observer->watches, &wish); /* and so looks for the first time */
    else
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "etcdserver: no memory for a watch");
    muster_registry_arena_reset(&server->arena);
}

static void on_observe(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    V3electionpb__LeaderRequest *request = NULL;

    if (muster_rpc_data(rpc) != NULL ||
        !muster_registry_unpack(server, rpc, &v3electionpb__leader_request__descriptor, bytes,
                                &request))
        return;
    start_observing(server, rpc, (struct muster_bytes){request->name.data, request->name.len});
    muster_proto_free(request);
}

static void on_observe_writable(struct muster_rpc *rpc)
{
    struct observer *observer = muster_rpc_data(rpc);

    if (observer != NULL)
        muster_watch_stream_resume(&observer->watches);
}

static void on_observe_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct observer *observer = muster_rpc_data(rpc);

    (void)rc;
    if (observer == NULL)
        return;
    muster_watch_stream_close(&observer->watches);
    muster_task_cancel(&observer->look);
    muster_list_remove(&observer->base.node);
    muster_mem_free(observer->base.server->env->mem, observer);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/v3electionpb.Election/Campaign",
     .on_message = on_campaign,
     .on_end = muster_registry_place_end,
     .is_unary = true},
    {.path = "/v3electionpb.Election/Proclaim",
     .on_message = on_proclaim,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/v3electionpb.Election/Leader",
     .on_message = on_leader,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/v3electionpb.Election/Observe",
     .on_message = on_observe,
     .on_writable = on_observe_writable,
     .on_end = on_observe_end},
    {.path = "/v3electionpb.Election/Resign",
     .on_message = on_resign,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
};

enum muster_rc muster_registry_election_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
