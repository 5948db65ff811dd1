/* Operations of a client: how they begin, and their one completion. */
#include "params/client/client_internal.h"

#include <string.h>

#include "runtime/loop/deadline.h"

/* One timer for all of them: most operations end long before their deadlines, so that starting one
 * costs a comparison. */
void muster_params_deadline_watch(struct muster_params *params, uint64_t deadline_ns)
{
    if (!muster_timer_is_started(&params->deadline) || deadline_ns < params->deadline.due_ns)
        muster_timer_start(&params->deadline, params->env->loop, deadline_ns);
}

enum muster_rc muster_params_op_begin(struct muster_params_op *op, struct muster_params *params,
                                      uint64_t deadline_ns, muster_params_op_fn *done)
{
    enum muster_rc rc =
        muster_deadline_check(params->env, "muster_params_*_start", deadline_ns, NULL);

    if (rc != MUSTER_OK)
        return rc;
    if (params->is_closing || params->is_failed)
        return MUSTER_FAILED_PRECONDITION;
    op->error.rc = MUSTER_OK;
    op->params = params;
    op->done = done;
    op->deadline_ns = deadline_ns;
    op->rc = MUSTER_OK;
    op->waits = 1;
    op->table = NULL;
    op->opens = NULL;
    op->is_push = false;
    op->ret_values = NULL;
    op->sequence = 0;
    op->refused = 0;
    muster_list_init(&op->queued);
    if (muster_list_is_empty(&params->ops))
        muster_params_ways_watch(params);
    muster_list_append(&params->ops, &op->node);
    muster_params_deadline_watch(params, deadline_ns);
    return MUSTER_OK;
}

void muster_params_op_end(struct muster_params_op *op)
{
    MUSTER_ASSERT(op->params != NULL);
    muster_list_remove(&op->node);
    muster_list_remove(&op->queued);
    if (op->opens != NULL)
        op->opens->opening = NULL;
    op->params = NULL;
    op->done(op, op->rc);
}

void muster_params_op_note(struct muster_params_op *op, enum muster_rc rc,
                    const struct muster_error *error)
{
    if (rc == MUSTER_OK || op->rc != MUSTER_OK)
        return;
    op->rc = rc;
    if (error != NULL)
        op->error = *error;
    else
        muster_error_set(&op->error, rc, "%s", muster_rc_text(rc));
    op->error.rc = rc;
}

void muster_params_op_release(struct muster_params_op *op, enum muster_rc rc,
                              const struct muster_error *error)
{
    MUSTER_ASSERT(op->waits > 0);
    muster_params_op_note(op, rc, error);
    if (--op->waits == 0)
        muster_params_op_end(op);
}

/* It ends in a turn of its own, as at its deadline. */
void muster_params_op_cancel(struct muster_params_op *op)
{
    struct muster_params *params = op->params;

    if (params == NULL)
        return;
    muster_params_op_note(op, MUSTER_CANCELLED, NULL);
    op->deadline_ns = 0;
    muster_timer_start(&params->deadline, params->env->loop, 0);
}

bool muster_params_ranges_are_numbered(const struct muster_params *params, uint64_t order)
{
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        MUSTER_LIST_EACH (&table->ranges, op, struct muster_params_op, queued) {
            if (op->is_push && op->order <= order)
                return false;
        }
    }
    return true;
}
