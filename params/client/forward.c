/* Clients of sources that others own and number. */
#include "params/client/forward.h"

#include "params/client/client_internal.h"

#include <stdio.h>

enum muster_rc muster_params_forward_open(struct muster_env *env,
                                          const struct muster_params_options *options,
                                          const struct muster_params_origin *origin,
                                          const struct muster_params_home *home,
                                          muster_params_fn *opened,
                                          struct muster_params **ret_params,
                                          struct muster_error *ret_error)
{
    enum muster_rc rc =
        muster_params_open_home(env, options, home, opened, ret_params, ret_error);

    if (rc != MUSTER_OK || origin == NULL)
        return rc;
    /* No server has been met within this call, so none has heard of the source that it chose. */
    (*ret_params)->source.source = origin->source;
    (*ret_params)->source.generation = origin->generation;
    /* Its owner may call again much later: the servers keep what has a name. */
    snprintf((*ret_params)->source.name, sizeof((*ret_params)->source.name), "forwarded");
    return MUSTER_OK;
}

uint64_t muster_params_forward_generation(const struct muster_params *params)
{
    return (uint32_t)params->source.generation; /* the rest counts links */
}

enum muster_rc muster_params_forward_start(struct muster_params_op *op,
                                           struct muster_params_table *table,
                                           const struct muster_params_forward_push *push,
                                           uint64_t deadline_ns, muster_params_op_fn *done)
{
    enum muster_rc rc =
        muster_params_rows_push(op, table, &push->rows, push->ret_values, deadline_ns, done);

    if (rc != MUSTER_OK)
        return rc;
    op->sequence = push->sequence;
    op->clock = push->clock;
    return MUSTER_OK;
}

enum muster_rc muster_params_forward_pull(struct muster_params_op *op,
                                          struct muster_params_table *table,
                                          const struct muster_params_rows *rows, uint64_t min_clock,
                                          uint64_t deadline_ns, muster_params_op_fn *done)
{
    return muster_params_rows_pull(op, table, rows, min_clock, deadline_ns, done);
}

void muster_params_forward_expect(struct muster_params *params, uint32_t clock_sources)
{
    params->options.clock_sources = clock_sources;
}
