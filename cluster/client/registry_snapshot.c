/* Snapshots read by the registry client: one stream, begun again elsewhere as long as nothing came.
 * After the first bytes another endpoint would send another snapshot, so a stream that breaks then
 * ends with its error. 'muster registry backup' writes the bytes to a file and checks the digest at
 * their end. */
#include <muster/registry.h>

#include "cluster/client/registry_client_internal.h"

#include <string.h>

#include "runtime/loop/deadline.h"

static void open_stream(struct muster_registry_snapshot *snapshot);

static void snapshot_complete(struct muster_registry_snapshot *snapshot, enum muster_rc rc)
{
    struct muster_registry *registry = snapshot->registry;

    muster_timer_stop(&snapshot->again);
    muster_list_remove(&snapshot->node);
    /* A snapshot without a registry has ended: a cancel after that does nothing. */
    snapshot->registry = NULL;
    muster_registry_check_closed(registry);
    snapshot->done(snapshot, rc);
}

static void on_ended(struct muster_task *task)
{
    struct muster_registry_snapshot *snapshot = task->data;

    snapshot_complete(snapshot, snapshot->result);
}

static void snapshot_end(struct muster_registry_snapshot *snapshot, enum muster_rc rc,
                         const char *text)
{
    struct muster_error error; /* text may be of the one before */

    MUSTER_ASSERT(!snapshot->is_calling);
    snapshot->result = muster_error_set(&error, rc, "%s", text);
    snapshot->error = error;
    muster_timer_stop(&snapshot->again);
    muster_task_post(&snapshot->ended, snapshot->registry->env->loop);
}

static void again_later(struct muster_registry_snapshot *snapshot)
{
    struct muster_loop *loop = snapshot->registry->env->loop;
    const struct muster_error *refusal = muster_registry_refusal(snapshot->registry);
    uint64_t due_ns = muster_loop_after_ns(
        loop, muster_registry_backoff(snapshot->registry, &snapshot->backoff_ns));

    /* Trying again is of no use where TLS does not fit. */
    if (refusal != NULL)
        snapshot_end(snapshot, refusal->rc, refusal->text);
    else if (due_ns < snapshot->deadline_ns)
        muster_timer_start(&snapshot->again, loop, due_ns);
    else
        snapshot_end(snapshot, MUSTER_DEADLINE_EXCEEDED,
                     snapshot->error.text[0] != '\0' ? snapshot->error.text
                                                     : "the registry does not answer");
}

static void on_again(struct muster_timer *timer)
{
    open_stream(timer->data);
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct muster_registry_snapshot *snapshot = call->data;
    struct muster_registry_piece piece;
    enum muster_rc rc =
        muster_registry_parse_snapshot(snapshot->registry->env->mem, message, &piece);

    if (rc != MUSTER_OK) {
        /* The reason is kept here, because the call itself will only say that it was cancelled. */
        snapshot->result = rc == MUSTER_RESOURCE_EXHAUSTED ? rc : MUSTER_INTERNAL;
        muster_call_cancel(call);
        return;
    }
    /* The count rises before the callback, in which the caller may read it. */
    snapshot->bytes += piece.bytes.size;
    snapshot->on_bytes(snapshot, piece.bytes);
    muster_registry_piece_free(&piece);
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct muster_registry_snapshot *snapshot = call->data;
    struct muster_registry *registry = snapshot->registry;
    bool is_stale = muster_registry_is_stale(registry, &call->status);

    snapshot->is_calling = false;
    if (snapshot->result != MUSTER_OK) { /* the call was cancelled for it */
        snapshot_complete(snapshot,
                          muster_error_set(&snapshot->error, snapshot->result, "%s",
                                           snapshot->result == MUSTER_RESOURCE_EXHAUSTED
                                               ? "no memory for the snapshot"
                                               : "a part of the snapshot cannot be read"));
        return;
    }
    snapshot->error = call->status;
    if (is_stale)
        muster_registry_drop_token(registry, snapshot->generation);
    else if (rc == MUSTER_UNAVAILABLE)
        muster_registry_leave_endpoint(registry, snapshot->endpoint);
    if (rc != MUSTER_OK)
        rc = muster_registry_judge(registry, snapshot->endpoint, &snapshot->error);
    /* Bytes that the caller has cannot be taken back, so only a stream that brought none is begun
     * again. */
    if ((is_stale || rc == MUSTER_UNAVAILABLE) && snapshot->bytes == 0 && !registry->is_closing)
        again_later(snapshot);
    else
        snapshot_complete(snapshot, rc);
}

static void open_stream(struct muster_registry_snapshot *snapshot)
{
    struct muster_registry *registry = snapshot->registry;
    struct muster_metadata_entry entries[2];
    struct muster_call_options options = {
        .method = "/etcdserverpb.Maintenance/Snapshot",
        .deadline_ns = muster_deadline_inherit(registry->env->loop, snapshot->deadline_ns),
        .metadata = muster_registry_metadata(registry, entries),
        .on_message = on_message};

    if (!muster_registry_has_token(registry)) {
        muster_registry_authenticate(registry);
        again_later(snapshot);
        return;
    }
    snapshot->endpoint = registry->current;
    snapshot->generation = registry->auth.generation;
    snapshot->call.data = snapshot;
    if (muster_call_start(&snapshot->call, registry->channels[snapshot->endpoint], &options,
                          on_done) != MUSTER_OK) {
        again_later(snapshot);
        return;
    }
    snapshot->is_calling = true;
    snapshot->result = muster_call_send(&snapshot->call, "", 0); /* the request has no fields */
    if (snapshot->result != MUSTER_OK)
        muster_call_cancel(&snapshot->call);
    muster_call_half_close(&snapshot->call);
}

enum muster_rc muster_registry_snapshot_start(struct muster_registry_snapshot *snapshot,
                                              struct muster_registry *registry,
                                              uint64_t deadline_ns,
                                              muster_registry_snapshot_bytes_fn *on_bytes,
                                              muster_registry_snapshot_done_fn *done)
{
    void *data = snapshot->data;
    enum muster_rc rc;

    if (registry->is_closing)
        return MUSTER_FAILED_PRECONDITION;
    rc = muster_deadline_check(registry->env, "muster_registry_snapshot_start", deadline_ns, NULL);
    if (rc != MUSTER_OK)
        return rc;
    memset(snapshot, 0, sizeof(*snapshot));
    snapshot->data = data;
    snapshot->registry = registry;
    snapshot->deadline_ns = deadline_ns;
    snapshot->on_bytes = on_bytes;
    snapshot->done = done;
    muster_timer_init(&snapshot->again, on_again, snapshot);
    muster_task_init(&snapshot->ended, on_ended, snapshot);
    muster_list_append(&registry->snapshots, &snapshot->node);
    open_stream(snapshot);
    return MUSTER_OK;
}

void muster_registry_snapshot_cancel(struct muster_registry_snapshot *snapshot)
{
    if (snapshot->registry == NULL)
        return;
    if (snapshot->is_calling)
        muster_call_cancel(&snapshot->call);
    else if (!muster_task_is_posted(&snapshot->ended))
        snapshot_end(snapshot, MUSTER_CANCELLED, "cancelled");
}

void muster_registry_stop_snapshots(struct muster_registry *registry)
{
    MUSTER_LIST_EACH (&registry->snapshots, snapshot, struct muster_registry_snapshot, node)
        muster_registry_snapshot_cancel(snapshot);
}
