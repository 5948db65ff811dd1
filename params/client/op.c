/* Operations of a client: their deadlines, and their one completion. */
#include "params/client/client_internal.h"

#include <string.h>

#include "runtime/loop/deadline.h"

/* One timer for all of them: most operations end long before their deadlines, so that starting one
 * costs a comparison. */
static void deadline_watch(struct muster_params *params, uint64_t deadline_ns)
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
    if (params->is_closing || params->way == MUSTER_PARAMS_WAY_FAILED)
        return MUSTER_FAILED_PRECONDITION;
    op->error.rc = MUSTER_OK;
    op->params = params;
    op->done = done;
    op->deadline_ns = deadline_ns;
    op->rc = MUSTER_OK;
    op->waits = 1;
    op->table = NULL;
    op->is_push = false;
    muster_list_init(&op->queued);
    muster_list_append(&params->ops, &op->node);
    deadline_watch(params, deadline_ns);
    return MUSTER_OK;
}

static void op_end(struct muster_params_op *op)
{
    MUSTER_ASSERT(op->params != NULL);
    muster_list_remove(&op->node);
    muster_list_remove(&op->queued);
    op->params = NULL;
    op->done(op, op->rc);
}

static void op_note(struct muster_params_op *op, enum muster_rc rc,
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
    op_note(op, rc, error);
    if (--op->waits == 0)
        op_end(op);
}

/* Ends it whatever it waits for. */
static void op_abandon(struct muster_params_op *op, enum muster_rc rc,
                       const struct muster_error *error)
{
    muster_params_requests_forget(op->params, op);
    op_note(op, rc, error);
    op_end(op);
}

static void deadline_describe(const struct muster_params_op *op, struct muster_error *ret_error)
{
    const struct muster_params *params = op->params;

    if (params->way == MUSTER_PARAMS_WAY_OPEN)
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "the server at %s has not answered in time", params->options.server);
    else
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "no connection to the server at %s: %s", params->options.server,
                         params->error.text);
}

/* Due operations are moved to a list of their own first: callbacks may start and cancel others. */
void muster_params_on_op_deadline(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;
    uint64_t now_ns = muster_loop_now_ns(params->env->loop), next_ns = UINT64_MAX;
    struct muster_list due;

    muster_list_init(&due);
    MUSTER_LIST_EACH_SAFE (&params->ops, op, struct muster_params_op, node) {
        if (op->deadline_ns <= now_ns) {
            muster_list_remove(&op->node);
            muster_list_append(&due, &op->node);
        } else if (op->deadline_ns < next_ns) {
            next_ns = op->deadline_ns;
        }
    }
    if (next_ns != UINT64_MAX)
        deadline_watch(params, next_ns);
    while (!muster_list_is_empty(&due)) {
        struct muster_params_op *op = MUSTER_CONTAINER_OF(due.next, struct muster_params_op, node);
        struct muster_error error;

        deadline_describe(op, &error);
        op_abandon(op, MUSTER_DEADLINE_EXCEEDED, &error);
    }
}

void muster_params_op_cancel(struct muster_params_op *op)
{
    struct muster_params *params = op->params;

    if (params == NULL)
        return;
    op_note(op, MUSTER_CANCELLED, NULL);
    op->deadline_ns = 0;
    muster_timer_start(&params->deadline, params->env->loop, 0);
}

void muster_params_ops_fail(struct muster_params *params, enum muster_rc rc,
                            const struct muster_error *error)
{
    while (!muster_list_is_empty(&params->ops))
        op_abandon(MUSTER_CONTAINER_OF(params->ops.next, struct muster_params_op, node), rc, error);
}
