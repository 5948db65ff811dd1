/* One replica, as its own code sees it: muster_replicas_run calls a function for each replica of this member, side by
 * side. That function may make the calls below.
 * Source: tf.distribute.Strategy.run, tf.distribute.ReplicaContext. */
#ifndef MUSTER_REPLICA_H
#define MUSTER_REPLICA_H

#include <muster/base.h>
#include <muster/replicas.h>
#include <muster/slices.h>

MUSTER_BEGIN

struct muster_crew;

struct muster_replica {
    void *data;     /* as given to muster_replicas_run */
    uint32_t id;    /* its number among the replicas of all members */
    uint32_t local; /* its number among those of this member */
    int gpu; /* its first device (muster_replicas_device_gpu), which is current on this thread */
    struct muster_strategy *strategy;
    struct muster_error error; /* set by its last call that failed */
    /* private */
    struct muster_crew *crew;
};

typedef enum muster_rc muster_replica_fn(struct muster_replica *replica);

/**
 * Run `work` for each replica of this member: the first on the caller's thread, each other on a thread of its own. That
 * thread is the same in all runs, and lives until close. Returns when all have returned. A replica that has a GPU finds
 * it current on its thread, as after cudaSetDevice.
 *
 * Owns:    replicas are the call's; data is borrowed.
 * Errors:  RESOURCE_EXHAUSTED (no threads, or a device cannot be opened: nothing has run), UNAVAILABLE (a device cannot
 *          be opened), FAILED_PRECONDITION (another call is under way), or the first failure of a replica in their
 *          order: muster_strategy_error has its text, if it set one.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_run(struct muster_strategy *strategy,
                                                                muster_replica_fn *work,
                                                                void *data);

/* Calls for the replica's own code. Each call waits for the other replicas of this member, which make the same call
 * with the same reduction, axis and options, and then for the other members. Errors are those of the call of replicas.h
 * or slices.h that is named, and INVALID_ARGUMENT (another replica of this member makes another call),
 * FAILED_PRECONDITION (another replica has returned). replica->error has the text. */

/** muster_replicas_all_reduce: tensors are this replica's. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replica_all_reduce(
    struct muster_replica *replica, const struct muster_tensor *tensors, size_t count,
    enum muster_reduction reduction);
/** muster_replicas_gather: every replica is given its own copy. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replica_gather(
    struct muster_replica *replica, const struct muster_shaped_tensor *value, int32_t axis,
    struct muster_shaped_tensor *ret_whole);
/** muster_replicas_sum_slices: every replica is given its own copy. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replica_sum_slices(
    struct muster_replica *replica, const struct muster_slices *slices,
    enum muster_reduction reduction, const struct muster_slices_options *options,
    struct muster_slices_sum *ret_sum);
/** muster_replicas_assign: value is this replica's. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replica_assign(
    struct muster_replica *replica, const struct muster_tensor *variable,
    const struct muster_tensor *value, enum muster_aggregation aggregation, bool is_added);

MUSTER_END

#endif
