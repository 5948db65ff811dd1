/* The part of a task in its cluster, by the rules of tf.distribute: which jobs train, which task is the
 * chief, and how those that train are numbered. */
#ifndef MUSTER_STRATEGY_ROLE_H
#define MUSTER_STRATEGY_ROLE_H

#include <muster/base.h>
#include <muster/cluster_spec.h>
#include <muster/status.h>

#include <stddef.h>

MUSTER_BEGIN

struct muster_resolver;
struct muster_strategy;

/* Any task. These are pure: nothing is asked, nothing is opened. */

/** A task of a cluster. Everything is borrowed during the calls below.
 *
 * The jobs of a cluster are "chief" (one task at most), "worker", "ps" and "evaluator" (one task at
 * most). Chief and workers train together; an evaluator is alone, also where the cluster does not list
 * it; a ps does not train. */
struct muster_strategy_role {
    const struct muster_cluster_spec *cluster;
    const char *task_type; /* NULL: not known */
    int64_t task_id;       /* its index in its job */
};

/**
 * Chief is the chief; where the cluster has none, worker 0; and every evaluator, in its own cluster of one.
 *
 * Errors:  INVALID_ARGUMENT (another job than these four, a second chief or evaluator, a task that the
 *          cluster does not have); the text names it. So below, except where another error is named.
 * Source:  tensorflow/python/distribute/multi_worker_util.py, is_chief.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_role_is_chief(
    const struct muster_strategy_role *role, bool *ret_is_chief, struct muster_error *ret_error);
/** How many tasks train together: the chief and the workers; 1 for an evaluator. task_id is not looked
 * at. INVALID_ARGUMENT also for a ps, and without a task type. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_role_worker_count(
    const struct muster_strategy_role *role, uint32_t *ret_count, struct muster_error *ret_error);
/** The number of this task among those, from 0: the chief first, then the workers. INVALID_ARGUMENT also
 * for a ps, and without a task type. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_role_id_in_cluster(
    const struct muster_strategy_role *role, uint32_t *ret_id, struct muster_error *ret_error);
/** The task that leads collective operations, as "/job:chief/replica:0/task:0": the chief, else worker
 * 0; "" for an evaluator and an empty cluster. Static text. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_role_collective_leader(
    const struct muster_strategy_role *role, const char **ret_leader,
    struct muster_error *ret_error);
/** The task that serves the coordination service: ps 0, else the chief, else worker 0; "" for an empty
 * cluster. Only the cluster is looked at. INVALID_ARGUMENT: it has none of these jobs. Static text. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_role_coordination_leader(
    const struct muster_strategy_role *role, const char **ret_leader,
    struct muster_error *ret_error);

/** The jobs whose tasks train together, in rank order: "chief", "master" (TensorFlow 1's name of the chief, which
 * some resolvers still report), "worker". `position` counts from 0. Returns static text, or NULL after the last job. */
MUSTER_API const char *muster_strategy_role_training_job(size_t position);

/* The task of an open strategy, from open on. */

/** "worker". Borrowed until close. */
MUSTER_API const char *muster_strategy_task_type(const struct muster_strategy *strategy);
MUSTER_API uint32_t muster_strategy_task_index(const struct muster_strategy *strategy);
/** As the cluster was described: these do not change when members die or join. */
MUSTER_API bool muster_strategy_is_chief(const struct muster_strategy *strategy);
MUSTER_API uint32_t muster_strategy_id_in_cluster(const struct muster_strategy *strategy);
MUSTER_API uint32_t muster_strategy_worker_count(const struct muster_strategy *strategy);
/** It trains without others, and with its own registry: an evaluator, or the only task of a cluster that
 * was given no registry, or a program that was told of no cluster at all. */
MUSTER_API bool muster_strategy_is_alone(const struct muster_strategy *strategy);
/** It is alone because nothing describes a cluster: TensorFlow's local mode, in which a task has no type and no
 * index (task_type and task_index above are "worker" and 0 then). */
MUSTER_API bool muster_strategy_is_local(const struct muster_strategy *strategy);
/** Each process runs the program by itself: always true. Source: tf.distribute's experimental_between_graph. */
static inline bool muster_strategy_is_between_graph(const struct muster_strategy *strategy)
{
    (void)strategy;
    return true;
}

/** The one that open was given (opened_resolver), or NULL. Its task type and others are asked for there. */
MUSTER_API struct muster_resolver *muster_strategy_resolver(const struct muster_strategy *strategy);

/** Whether this member saves what is saved once: the chief, and after its death the member of rank 0. As of
 * begin; before the first one the chief. Source: tf.distribute.StrategyExtended.should_checkpoint. */
MUSTER_API bool muster_strategy_should_checkpoint(const struct muster_strategy *strategy);
/** Equal to should_checkpoint. Source: tf.distribute.StrategyExtended.should_save_summary. */
MUSTER_API bool muster_strategy_should_save_summary(const struct muster_strategy *strategy);

/** Which part of the input is this member's. Source: tf.distribute.InputContext. */
struct muster_input_context {
    uint32_t num_input_pipelines;
    uint32_t input_pipeline_id;
    uint32_t num_replicas_in_sync;
};
/** The members and the rank as of begin; before the first one, those of the cluster as it was described,
 * each with as many replicas as this one. */
MUSTER_API struct muster_input_context muster_strategy_input_context(
    const struct muster_strategy *strategy);
/** A replica's part of a batch. INVALID_ARGUMENT: the batch cannot be divided by the replicas.
 * Source: InputContext.get_per_replica_batch_size. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_input_context_batch(
    const struct muster_input_context *context, uint64_t global_batch, uint64_t *ret_batch,
    struct muster_error *ret_error);

MUSTER_END

#endif
