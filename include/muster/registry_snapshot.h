/* A backup of a registry that lives on, read through its API. */
#ifndef MUSTER_REGISTRY_SNAPSHOT_H
#define MUSTER_REGISTRY_SNAPSHOT_H

#include <muster/base.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/registry.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_registry_snapshot;

typedef void muster_registry_snapshot_bytes_fn(struct muster_registry_snapshot *snapshot,
                                               struct muster_bytes bytes);
typedef void muster_registry_snapshot_done_fn(struct muster_registry_snapshot *snapshot,
                                              enum muster_rc rc);

/** Caller's memory until done. */
struct muster_registry_snapshot {
    void *data;
    uint64_t bytes; /* shown so far */
    struct muster_error error;
    /* private */
    muster_registry_snapshot_bytes_fn *on_bytes;
    muster_registry_snapshot_done_fn *done;
    struct muster_registry *registry;
    struct muster_call call;
    struct muster_timer again;
    struct muster_task ended;
    struct muster_list node;
    size_t endpoint;
    uint64_t generation, deadline_ns, backoff_ns;
    enum muster_rc result;
    bool is_calling;
};

/**
 * Read a consistent copy while others write: on_bytes shows all of it in order, the last 32 bytes
 * being the SHA-256 of those before. Of `muster registry` it is what muster_registry_backup_restore
 * takes, of an etcd what `etcdctl snapshot restore` takes.
 *
 * Errors:  returned FAILED_PRECONDITION (closing); by done UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED,
 *          RESOURCE_EXHAUSTED (another is being taken), UNAUTHENTICATED, PERMISSION_DENIED,
 *          INTERNAL (no answer of this method).
 * Thread:  loop only.
 * Source:  etcdserverpb.Maintenance.Snapshot.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_snapshot_start(
    struct muster_registry_snapshot *snapshot, struct muster_registry *registry,
    uint64_t deadline_ns, muster_registry_snapshot_bytes_fn *on_bytes,
    muster_registry_snapshot_done_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_registry_snapshot_cancel(struct muster_registry_snapshot *snapshot);

MUSTER_END

#endif
