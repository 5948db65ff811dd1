/* The group commit of the registry: what one turn of the loop has written is committed once, and
 * only then answered and shown to watches. So many small puts share one sync of the journal, and no
 * client sees a write that a crash could undo. A store that fails undoes all that the commit held,
 * together with the answers that would have told of it. */
#include "cluster/registry/server_internal.h"

#include <stdio.h>

/* The journal is moved into the data file when it is this long, however busy the registry is,
 * because readers of a long journal become slow. */
#define CHECKPOINT_BYTES ((uint64_t)16 << 20)
/* A shorter journal waits for a quiet moment, because moving it takes milliseconds in which no
 * request is answered. */
#define CHECKPOINT_IDLE_NS (500 * MUSTER_NS_PER_MS)
/* The bound of one step of a compaction; requests are answered between two steps. */
#define COMPACT_ROWS_PER_TURN 1000
#define QUIET_NS              (5 * MUSTER_NS_PER_S) /* without a failure: then writes are mended */

/* A commit that is posted several times in a turn runs once, after all that the turn has
 * applied. */
void muster_registry_server_touch(struct muster_registry_server *server)
{
    if (muster_registry_store_is_writing(server->store) || server->mvcc.is_meta_stale)
        muster_task_post(&server->commit, server->env->loop);
}

/* The store is rolled back to the last commit, and the leases with it; calls get the error in place
 * of their answers. */
void muster_registry_server_break(struct muster_registry_server *server, enum muster_rc rc)
{
    /* Clients of etcd take UNAVAILABLE for a failure that passes. A full disk is told apart,
     * because a retry does not help against it. */
    enum muster_rc told = rc == MUSTER_RESOURCE_EXHAUSTED ? rc : MUSTER_UNAVAILABLE;
    char text[sizeof(server->status.text) + 32];
    struct muster_list *node = NULL;

    MUSTER_ASSERT(rc != MUSTER_OK);
    muster_registry_status_failed(server, rc);
    (void)snprintf(text, sizeof(text), "etcdserver: registry store: %s", server->status.text);
    /* The calls that wait for the compaction are told too: its transaction is gone with the
     * others. */
    muster_task_cancel(&server->commit);
    while ((node = muster_list_pop(&server->compacting)) != NULL)
        muster_list_append(&server->pending, node);
    rc = muster_mvcc_rollback(&server->mvcc);
    muster_leases_rollback(&server->leases);
    if (rc != MUSTER_OK)
        MUSTER_LOG(server->env, ERROR, "registry_rollback_failed", "error", muster_rc_name(rc));
    muster_registry_flush(server, told, text);
}

void muster_registry_server_measure(struct muster_registry_server *server)
{
    struct muster_registry_store_size size;

    muster_registry_store_measure(server->store, &size);
    muster_registry_status_measured(server, &size);
    if (size.journal_bytes >= CHECKPOINT_BYTES)
        muster_registry_store_checkpoint(server->store);
    else
        muster_timer_start(&server->idle, server->env->loop,
                           muster_loop_after_ns(server->env->loop, CHECKPOINT_IDLE_NS));
}

/* Answers leave after the commit, and watches see it after the answers. */
void muster_registry_server_commit(struct muster_registry_server *server)
{
    enum muster_rc rc = muster_mvcc_commit(&server->mvcc);

    if (rc != MUSTER_OK) {
        muster_registry_server_break(server, rc);
        return;
    }
    muster_leases_committed(&server->leases);
    muster_metric_add(&server->commits_total, 1);
    /* The answers come before the events. A client that has put a key must not learn of its own put
     * from a watch before it has the revision. */
    muster_registry_flush(server, MUSTER_OK, NULL);
    muster_watch_hub_committed(&server->hub);
    muster_registry_server_measure(server);
}

void muster_registry_server_settle(struct muster_registry_server *server)
{
    if (muster_registry_store_is_writing(server->store) || server->mvcc.is_meta_stale)
        muster_registry_server_commit(server);
}

static void on_commit(struct muster_task *task)
{
    muster_registry_server_commit(task->data);
}

static void on_idle(struct muster_timer *timer)
{
    const struct muster_registry_server *server = timer->data;

    /* In a transaction this does nothing, and its commit starts the timer again. */
    muster_registry_store_checkpoint(server->store);
}

enum muster_rc muster_registry_server_revoke(struct muster_registry_server *server, int64_t lease)
{
    int64_t deleted = 0;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_leases_has(&server->leases, lease))
        return MUSTER_NOT_FOUND;
    /* The keys go before the row of the lease. Both are in one transaction, so a crash leaves
     * either all or nothing. */
    rc = muster_mvcc_delete_leased(&server->mvcc, lease, &server->arena, &deleted);
    muster_registry_arena_reset(&server->arena);
    if (rc == MUSTER_OK)
        rc = muster_leases_remove(&server->leases, lease);
    if (rc != MUSTER_OK) {
        muster_registry_server_break(server, rc);
        return rc;
    }
    muster_registry_server_touch(server);
    return MUSTER_OK;
}

static void on_compact(struct muster_task *task)
{
    struct muster_registry_server *server = task->data;
    struct muster_list *node = NULL;
    bool is_done = false;
    enum muster_rc rc = muster_mvcc_compact_step(&server->mvcc, COMPACT_ROWS_PER_TURN, &is_done);

    if (rc != MUSTER_OK) {
        muster_registry_server_break(server, rc);
        return;
    }
    while (is_done && (node = muster_list_pop(&server->compacting)) != NULL)
        muster_list_append(&server->pending, node);
    if (!is_done)
        muster_task_post(task, server->env->loop);
    /* Answers that have become ready need the commit even when the step had nothing to write. */
    if (muster_list_is_empty(&server->pending))
        muster_registry_server_touch(server);
    else
        muster_task_post(&server->commit, server->env->loop);
}

void muster_registry_server_clean(struct muster_registry_server *server)
{
    muster_task_post(&server->compact, server->env->loop);
}

/* Write something of our own, so that the end of a failure is noticed also when clients write
 * seldom. A full disk may have room for this write and for no larger one, hence the quiet time
 * before. */
static void on_probe(struct muster_timer *timer)
{
    struct muster_registry_server *server = timer->data;
    struct muster_registry_server_health *status = &server->status;
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);

    muster_timer_start(timer, server->env->loop,
                       muster_loop_after_ns(server->env->loop, MUSTER_REGISTRY_PROBE_INTERVAL_NS));
    if (now_ns - status->failed_ns < QUIET_NS)
        return;
    muster_registry_server_settle(server); /* no transaction may be open */
    /* The journal is cut first: on a full disk it may be what takes the room. */
    muster_registry_store_give_back(server->store);
    if (!muster_registry_store_has_room(server->store))
        return;
    /* The counters are written again with the values that they have: a write that changes
     * nothing. */
    server->mvcc.is_meta_stale = true;
    muster_registry_server_commit(server);
    if (status->failed_ns >= now_ns)
        return;
    muster_registry_status_mended(server);
    muster_registry_server_clean(server); /* a compaction that the failure ended */
}

void muster_registry_commit_init(struct muster_registry_server *server)
{
    muster_task_init(&server->commit, on_commit, server);
    muster_task_init(&server->compact, on_compact, server);
    muster_timer_init(&server->idle, on_idle, server);
    muster_timer_init(&server->status.probe, on_probe, server);
}
