/* One replica, as its own code sees it: a function that runs once for each local replica, side by side, and what it
 * may call. Source: tf.distribute.Strategy.run, tf.distribute.ReplicaContext. */
#ifndef MUSTER_REPLICA_H
#define MUSTER_REPLICA_H

#include <muster/base.h>
#include <muster/replicas.h>
#include <muster/slices.h>

MUSTER_BEGIN

struct muster_crew;

struct muster_replica {
    void *data;     /* of muster_replicas_run */
    uint32_t id;    /* among the replicas of all members */
    uint32_t local; /* among those of this one: its device, too */
    struct muster_strategy *strategy;
    struct muster_error error; /* of its last call that failed */
    /* private */
    struct muster_crew *crew;
};

typedef enum muster_rc muster_replica_fn(struct muster_replica *replica);

/**
 * Run `work` for each local replica, each on a thread of its own, the first one on the caller's. Returns when all have
 * returned. Threads are started for each run.
 *
 * Owns:    replicas are the call's; data is borrowed.
 * Errors:  RESOURCE_EXHAUSTED (no threads: nothing has run), FAILED_PRECONDITION (another call is under way), or the
 *          first failure of a replica in their order: muster_strategy_error has its text, if it set one.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_run(struct muster_strategy *strategy,
                                                                muster_replica_fn *work,
                                                                void *data);

/* For the replica's own code. Each waits for the other local replicas, which call the same with the same reduction,
 * axis and options, and then for the other members. Errors also: INVALID_ARGUMENT (another replica of this member
 * calls something else), FAILED_PRECONDITION (one has returned). replica->error has the text. */

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
/** muster_replicas_assign. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replica_assign(
    struct muster_replica *replica, const struct muster_tensor *variable,
    const struct muster_tensor *value, enum muster_aggregation aggregation, bool is_added);

MUSTER_END

#endif
