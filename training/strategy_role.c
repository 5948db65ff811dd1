/* The part of a strategy's task in its cluster, and what follows from it. */
#include <muster/strategy_role.h>

#include "training/strategy_internal.h"

const char *muster_strategy_task_type(const struct muster_strategy *strategy)
{
    return strategy->place.task_type;
}

uint32_t muster_strategy_task_index(const struct muster_strategy *strategy)
{
    return strategy->place.task_index;
}

bool muster_strategy_is_chief(const struct muster_strategy *strategy)
{
    return strategy->place.is_chief;
}

uint32_t muster_strategy_id_in_cluster(const struct muster_strategy *strategy)
{
    return strategy->place.id_in_cluster;
}

uint32_t muster_strategy_worker_count(const struct muster_strategy *strategy)
{
    return strategy->place.expected_count;
}

bool muster_strategy_is_alone(const struct muster_strategy *strategy)
{
    return strategy->place.is_alone;
}

bool muster_strategy_is_local(const struct muster_strategy *strategy)
{
    return strategy->place.is_local;
}

struct muster_resolver *muster_strategy_resolver(const struct muster_strategy *strategy)
{
    return strategy->opened_resolver;
}

/* The members are ordered by task, and the chief is the first one: rank 0 is the chief while it lives. A
 * chief that comes when the job is over has nothing to save. */
bool muster_strategy_should_checkpoint(const struct muster_strategy *strategy)
{
    if (strategy->rank == MUSTER_RANK_NOBODY)
        return false;
    return strategy->view != NULL ? strategy->rank == 0 : strategy->place.is_chief;
}

bool muster_strategy_should_save_summary(const struct muster_strategy *strategy)
{
    return muster_strategy_should_checkpoint(strategy);
}

struct muster_input_context muster_strategy_input_context(const struct muster_strategy *strategy)
{
    struct muster_input_context context = {
        .num_input_pipelines = strategy->place.expected_count,
        .input_pipeline_id = strategy->place.id_in_cluster,
        .num_replicas_in_sync = strategy->place.expected_count * strategy->replica_count,
    };

    if (strategy->place.is_alone)
        context.input_pipeline_id = 0; /* of an evaluator, too, whatever its index */
    if (strategy->view == NULL)
        return context;
    context.num_input_pipelines = strategy->size;
    context.input_pipeline_id = strategy->rank;
    context.num_replicas_in_sync = strategy->replicas_in_sync;
    return context;
}

enum muster_rc muster_input_context_batch(const struct muster_input_context *context,
                                          uint64_t global_batch, uint64_t *ret_batch,
                                          struct muster_error *ret_error)
{
    if (context->num_replicas_in_sync == 0 || global_batch % context->num_replicas_in_sync != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the global batch must be a multiple of the %u replicas, got %llu",
                                context->num_replicas_in_sync, (unsigned long long)global_batch);
    *ret_batch = global_batch / context->num_replicas_in_sync;
    return MUSTER_OK;
}
