/* etcdserverpb.Maintenance/Snapshot: a backup of the living registry, copied between requests into
 * a temporary file, then streamed as fast as the client reads. One snapshot runs at a time, because
 * each takes as much disk as the data; a client that reads too slowly loses its own. The copy
 * itself is in cluster/store/backup_sqlite.c. */
#include "cluster/store/backup.h"
#include "cluster/registry/server_internal.h"

#include "net/tls/crypto.h"
#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

#define PIECE_BYTES  ((size_t)64 << 10)
#define QUEUED_BYTES ((size_t)256 << 10) /* unsent: then it waits for the client */
#define TAKEN_BYTES  ((size_t)1 << 20)   /* by the client, or the rest, in each TAKE_NS */
#define TAKE_NS      (60 * MUSTER_NS_PER_S)

enum snapshot_state {
    SNAPSHOT_COPYING, /* the store is copied, a step in each turn of the loop */
    SNAPSHOT_SENDING, /* the copy is whole, and leaves as fast as the client reads */
    SNAPSHOT_ENDED,   /* the copy is gone; the call may still have bytes to write */
};

struct snapshot {
    struct muster_registry_stream base;
    struct muster_registry_backup *backup;
    struct muster_task task;
    struct muster_timer timer; /* the client has to take more */
    struct muster_sha256 sum;
    uint64_t sent_bytes;
    uint64_t taken_bytes; /* when the timer was started */
    uint8_t *piece;
    enum snapshot_state state;
};

static void snapshot_move(struct snapshot *snapshot, enum snapshot_state to)
{
    static const unsigned moves[] = {
        [SNAPSHOT_COPYING] = 1u << SNAPSHOT_SENDING | 1u << SNAPSHOT_ENDED,
        [SNAPSHOT_SENDING] = 1u << SNAPSHOT_ENDED,
        [SNAPSHOT_ENDED] = 0,
    };

    MUSTER_ASSERT((moves[snapshot->state] >> to & 1u) != 0);
    snapshot->state = to;
}

/* Make room for another snapshot. The call may live on until the client has read what is queued;
 * on_end frees the rest. */
static void snapshot_leave(struct snapshot *snapshot)
{
    struct muster_registry_server *server = snapshot->base.server;

    if (snapshot->state == SNAPSHOT_ENDED)
        return;
    snapshot_move(snapshot, SNAPSHOT_ENDED);
    server->has_snapshot = false;
    muster_task_cancel(&snapshot->task);
    muster_timer_stop(&snapshot->timer);
    muster_registry_backup_close(snapshot->backup);
    muster_sha256_fini(&snapshot->sum, NULL);
    muster_mem_free(server->env->mem, snapshot->piece);
}

static void snapshot_fail(struct snapshot *snapshot, enum muster_rc rc, const char *text)
{
    snapshot_leave(snapshot);
    MUSTER_LOG(snapshot->base.server->env, ERROR, "registry_snapshot_failed", "rc",
               muster_rc_name(rc), "reason", text);
    muster_rpc_finish(snapshot->base.rpc, rc, text);
}

/* The time starts anew and counts from what the client has taken so far. */
static void await_client(struct snapshot *snapshot)
{
    struct muster_loop *loop = snapshot->base.server->env->loop;
    size_t queued = muster_rpc_queued_bytes(snapshot->base.rpc); /* with the heads of messages */

    snapshot->taken_bytes = snapshot->sent_bytes > queued ? snapshot->sent_bytes - queued : 0;
    muster_timer_start(&snapshot->timer, loop, muster_loop_after_ns(loop, TAKE_NS));
}

static void on_timer(struct muster_timer *timer)
{
    struct snapshot *snapshot = timer->data;
    uint64_t before = snapshot->taken_bytes;

    await_client(snapshot);
    if (snapshot->taken_bytes >= before + TAKEN_BYTES) /* heads may make it less than before */
        return;
    snapshot_leave(snapshot);
    MUSTER_LOG(snapshot->base.server->env, WARN, "registry_snapshot_unread", "sent_bytes",
               snapshot->sent_bytes);
    muster_rpc_finish(snapshot->base.rpc, MUSTER_DEADLINE_EXCEEDED,
                      "etcdserver: the snapshot is read too slowly");
}

static void send_piece(struct snapshot *snapshot, size_t size, uint64_t remaining)
{
    struct muster_registry_server *server = snapshot->base.server;
    Etcdserverpb__SnapshotResponse message;
    Etcdserverpb__ResponseHeader header;

    etcdserverpb__snapshot_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    message.remaining_bytes = remaining;
    message.blob = (ProtobufCBinaryData){.len = size, .data = snapshot->piece};
    muster_registry_stream_send(server, snapshot->base.rpc, &message);
    muster_registry_arena_reset(&server->send_arena);
}

static void send_some(struct snapshot *snapshot)
{
    uint64_t bytes = muster_registry_backup_bytes(snapshot->backup);

    MUSTER_ASSERT(snapshot->state == SNAPSHOT_SENDING);
    while (snapshot->sent_bytes < bytes) {
        uint64_t left = bytes - snapshot->sent_bytes;
        size_t size = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        enum muster_rc rc = MUSTER_OK;

        if (muster_rpc_queued_bytes(snapshot->base.rpc) > QUEUED_BYTES)
            return; /* goes on when it is writable */
        rc = muster_registry_backup_read(snapshot->backup, snapshot->sent_bytes, snapshot->piece,
                                         size);
        if (rc != MUSTER_OK) {
            snapshot_fail(snapshot, rc, "etcdserver: the snapshot cannot be read");
            return;
        }
        muster_sha256_update(&snapshot->sum, snapshot->piece, size);
        snapshot->sent_bytes += size;
        send_piece(snapshot, size, left - size);
    }
    /* The digest comes last, as in etcd's snapshots, where clients compare it. */
    muster_sha256_fini(&snapshot->sum, snapshot->piece);
    send_piece(snapshot, MUSTER_SHA256_BYTES, 0);
    snapshot_leave(snapshot);
    muster_rpc_finish(snapshot->base.rpc, MUSTER_OK, NULL);
}

static void begin_sending(struct snapshot *snapshot)
{
    snapshot_move(snapshot, SNAPSHOT_SENDING);
    await_client(snapshot);
    send_some(snapshot);
}

/* Only what is committed is copied: a turn's open transaction is committed a little early. */
static void on_task(struct muster_task *task)
{
    struct snapshot *snapshot = task->data;
    struct muster_registry_server *server = snapshot->base.server;
    bool is_copied = false;
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(snapshot->state == SNAPSHOT_COPYING);
    if (muster_registry_store_is_writing(server->store))
        muster_registry_server_commit(server);
    rc = muster_registry_backup_step(snapshot->backup, &is_copied);
    if (rc != MUSTER_OK)
        snapshot_fail(snapshot, rc, "etcdserver: the snapshot cannot be written");
    else if (!is_copied)
        muster_task_post(task, server->env->loop);
    else
        begin_sending(snapshot);
}

static enum muster_rc snapshot_begin(struct snapshot *snapshot, struct muster_error *ret_error)
{
    struct muster_registry_server *server = snapshot->base.server;
    enum muster_rc rc = muster_sha256_init(&snapshot->sum);

    MUSTER_ASSERT(server->has_snapshot);
    snapshot->piece = muster_mem_alloc(server->env->mem, PIECE_BYTES);
    if (rc != MUSTER_OK || snapshot->piece == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a snapshot");
    return muster_registry_backup_open(server->env->mem, server->store, &snapshot->backup,
                                       ret_error);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__SnapshotRequest *request = NULL;
    struct snapshot *snapshot = NULL;
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    /* A second request on the same call is ignored, as the method takes one. */
    if (muster_rpc_data(rpc) != NULL ||
        !muster_registry_unpack(server, rpc, &etcdserverpb__snapshot_request__descriptor, bytes,
                                &request))
        return;
    muster_proto_free(request);
    /* The second one is refused and not queued: a client that asks has a deadline of its own. */
    if (server->has_snapshot) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED,
                          "etcdserver: another snapshot is being taken; try again later");
        return;
    }
    snapshot = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*snapshot));
    if (snapshot == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "etcdserver: no memory for a snapshot");
        return;
    }
    server->has_snapshot = true;
    snapshot->base.server = server;
    snapshot->base.rpc = rpc;
    muster_list_append(&server->streams, &snapshot->base.node);
    muster_task_init(&snapshot->task, on_task, snapshot);
    muster_timer_init(&snapshot->timer, on_timer, snapshot);
    muster_rpc_set_data(rpc, snapshot);
    rc = snapshot_begin(snapshot, &error);
    if (rc == MUSTER_OK)
        muster_task_post(&snapshot->task, server->env->loop);
    else
        snapshot_fail(snapshot, rc, error.text);
}

static void on_writable(struct muster_rpc *rpc)
{
    struct snapshot *snapshot = muster_rpc_data(rpc);

    if (snapshot != NULL && snapshot->state == SNAPSHOT_SENDING)
        send_some(snapshot);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct snapshot *snapshot = muster_rpc_data(rpc);
    struct muster_mem *mem = NULL;

    (void)rc;
    if (snapshot == NULL)
        return;
    mem = snapshot->base.server->env->mem;
    snapshot_leave(snapshot);
    muster_list_remove(&snapshot->base.node);
    muster_mem_free(mem, snapshot);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Maintenance/Snapshot",
     .on_message = on_message,
     .on_writable = on_writable,
     .on_end = on_end},
};

enum muster_rc muster_registry_snapshot_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
