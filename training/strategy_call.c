/* Calls of operations: started on the current group, waited for in the driver's seat. */
#include <string.h>

#include <muster/collective.h>

#include "collective/group/group.h"
#include "training/strategy_call.h"
#include "training/strategy_device.h"

enum muster_rc muster_strategy_wait(struct muster_strategy *strategy, bool (*is_done)(void *data))
{
    enum muster_rc rc;

    if (strategy->is_beginning && strategy->activity.state != MUSTER_ACTIVITY_BEGIN &&
        !is_done(strategy)) {
        muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_BEGIN);
        muster_trace_emit_at(strategy->env, strategy->activity.since_ns, "begin_waited", NULL,
                             strategy->committed_step, strategy->epoch, 0);
    }
    rc = muster_runtime_wait(strategy->runtime, is_done, strategy, UINT64_MAX);
    (void)rc; /* no deadline, and in the seat: it is done */
    return strategy->state == MUSTER_STRATEGY_FAILED ? strategy->error.rc : MUSTER_OK;
}

static bool are_ops_done(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->ops_open == 0;
}

enum muster_rc muster_strategy_wait_ops(struct muster_strategy *strategy)
{
    return muster_strategy_wait(strategy, are_ops_done);
}

void muster_strategy_keep_result(struct muster_strategy *strategy,
                                 const struct muster_op_result *result)
{
    struct muster_op_result before = strategy->result;

    strategy->result = *result;
    if (strategy->has_result && before.is_interrupted && !result->is_interrupted) {
        strategy->result.is_interrupted = true;
        strategy->result.interrupted_ns = before.interrupted_ns;
        strategy->result.phase = before.phase;
        strategy->result.verdict = before.verdict;
    }
    strategy->has_result = true;
}

void muster_strategy_on_op_done(struct muster_op *op, enum muster_rc rc)
{
    struct muster_strategy *strategy = op->data;

    strategy->ops_open--;
    muster_strategy_trace_op(strategy, &op->id, &op->result);
    muster_activity_count(&strategy->activity, &op->result, muster_node_view(strategy->node));
    if (op == strategy->change.op)
        muster_strategy_tell_view(strategy, op);
    if (rc == MUSTER_OK) {
        muster_strategy_keep_result(strategy, &op->result);
        muster_node_touch_state(strategy->node);
        if (strategy->change.op == NULL || !strategy->change.is_untold)
            muster_strategy_tell_delivery(strategy);
    } else if (strategy->ops_rc == MUSTER_OK) {
        strategy->ops_rc = rc;
        if (strategy->state != MUSTER_STRATEGY_FAILED)
            muster_error_set(&strategy->error, rc, "%s: %s", strategy->op_name,
                             op->error.text[0] != '\0' ? op->error.text : muster_rc_text(rc));
    }
}

uint64_t muster_strategy_timeout_of(const struct muster_strategy *strategy,
                                    const struct muster_strategy_call *call)
{
    return call->timeout_ns != 0 ? call->timeout_ns : strategy->op_timeout_ns;
}

/* One operation of a call, ready to start. */
static struct muster_op *next_op(struct muster_strategy *strategy,
                                 const struct muster_strategy_call *call)
{
    struct muster_op *op = &strategy->ops[strategy->ops_started];

    memset(op, 0, sizeof(*op));
    op->data = strategy;
    op->lane = call->split != NULL ? call->split->lane : 0;
    op->deadline_ns =
        muster_loop_after_ns(strategy->env->loop, muster_strategy_timeout_of(strategy, call));
    return op;
}

/* Before the group sees them, which would log what the program is told here. */
static enum muster_rc check_reductions(struct muster_strategy *strategy,
                                       const struct muster_strategy_call *call)
{
    struct muster_error why;

    if (call->device != MUSTER_DEVICE_ALL_REDUCE && call->device != MUSTER_DEVICE_REDUCE)
        return MUSTER_OK;
    for (size_t i = 0; i < call->count; i++)
        if (muster_reduction_check(call->tensors[i].dtype, call->reduction, &why) != MUSTER_OK)
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    "%s of tensor %zu: %s", call->name, i, why.text);
    return MUSTER_OK;
}

/* The i-th operation of a call could not be started. */
static void explain_refusal(struct muster_strategy *strategy,
                            const struct muster_strategy_call *call, size_t i, enum muster_rc rc)
{
    if (rc == MUSTER_INVALID_ARGUMENT && call->view != NULL)
        muster_error_set(
            &strategy->error, rc,
            "%s of %s x %llu into %s x %llu on %u members: counts or types do not fit, "
            "or the tensors overlap, or data is NULL or not aligned to the type",
            call->name, muster_dtype_name(call->tensors[0].dtype),
            (unsigned long long)call->tensors[0].count, muster_dtype_name(call->tensors[1].dtype),
            (unsigned long long)call->tensors[1].count, strategy->size);
    else if (rc == MUSTER_INVALID_ARGUMENT)
        muster_error_set(&strategy->error, rc,
                         "%s of tensor %zu: unknown type, or data NULL or not aligned to the type",
                         call->name, i);
    else
        muster_error_set(&strategy->error, rc, "%s of tensor %zu: %s", call->name, i,
                         muster_rc_text(rc));
}

/* Start and wait for up to MUSTER_STRATEGY_OPS_MAX operations at a time. */
enum muster_rc muster_strategy_run_in_seat(struct muster_strategy *strategy,
                                           const struct muster_strategy_call *call)
{
    size_t i = 0;

    strategy->ops_rc = MUSTER_OK;
    strategy->has_result = strategy->has_started = false;
    strategy->op_name = call->name;
    while (i < call->count && strategy->ops_rc == MUSTER_OK) {
        enum muster_rc rc = MUSTER_OK;

        strategy->ops_started = 0;
        while (i < call->count && strategy->ops_started < MUSTER_STRATEGY_OPS_MAX &&
               rc == MUSTER_OK) {
            struct muster_group *group = muster_node_group(strategy->node);

            if (group == NULL)
                rc = muster_error_set(&strategy->error, MUSTER_ABORTED,
                                      "%s: this member is not in the current view", call->name);
            else
                rc = call->start(call, i, next_op(strategy, call), group);
            if (rc == MUSTER_OK) {
                strategy->has_started = true;
                strategy->ops_started++;
                strategy->ops_open++;
                i++;
            } else if (rc != MUSTER_ABORTED) {
                explain_refusal(strategy, call, i, rc);
            }
        }
        if (rc != MUSTER_OK)
            strategy->ops_rc = rc;
        rc = muster_strategy_wait_ops(strategy);
        if (rc != MUSTER_OK && (strategy->ops_rc != MUSTER_OK || i < call->count))
            return rc; /* what was delivered before the node failed is delivered */
    }
    return strategy->ops_rc;
}

enum muster_rc muster_strategy_check_step(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_strategy_check(strategy, name);

    if (rc != MUSTER_OK)
        return rc;
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (strategy->state != MUSTER_STRATEGY_STEP)
        return muster_error_set(&strategy->error,
                                strategy->state == MUSTER_STRATEGY_WAITING
                                    ? MUSTER_ABORTED
                                    : MUSTER_FAILED_PRECONDITION,
                                "%s: call begin first", name);
    return MUSTER_OK;
}

/* --- In packs --- */

static void on_list_done(struct muster_list_op *list, enum muster_rc rc)
{
    struct muster_strategy *strategy = list->data;

    strategy->ops_open--;
    muster_strategy_trace_op(strategy, NULL, &list->result);
    muster_activity_count(&strategy->activity, &list->result, muster_node_view(strategy->node));
    if (rc == MUSTER_OK) {
        muster_strategy_keep_result(strategy, &list->result);
        muster_node_touch_state(strategy->node);
        muster_strategy_tell_delivery(strategy);
        return;
    }
    strategy->ops_rc = rc;
    if (strategy->state != MUSTER_STRATEGY_FAILED)
        muster_error_set(&strategy->error, rc, "%s: %s", strategy->op_name,
                         list->error.text[0] != '\0' ? list->error.text : muster_rc_text(rc));
}

static enum muster_rc run_list_in_seat(struct muster_strategy *strategy,
                                       const struct muster_strategy_call *call)
{
    struct muster_group *group = muster_node_group(strategy->node);
    struct muster_list_op *list = &strategy->list;
    enum muster_rc rc;

    strategy->ops_rc = MUSTER_OK;
    strategy->has_result = false;
    strategy->op_name = call->name;
    strategy->ops_started = 0;
    if (group == NULL)
        return muster_error_set(&strategy->error, MUSTER_ABORTED,
                                "%s: this member is not in the current view", call->name);
    list->data = strategy;
    list->deadline_ns =
        muster_loop_after_ns(strategy->env->loop, muster_strategy_timeout_of(strategy, call));
    list->lane = call->split != NULL ? call->split->lane : 0;
    list->bytes_per_pack = call->bytes_per_pack;
    rc = muster_all_reduce_list_start(list, group, call->tensors, call->count, call->reduction,
                                      on_list_done);
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc,
                                "%s of %zu tensors: %s (types, NULL, alignment, overlap?)",
                                call->name, call->count, muster_rc_text(rc));
    strategy->ops_open++;
    rc = muster_strategy_wait_ops(strategy);
    return rc != MUSTER_OK && strategy->ops_rc != MUSTER_OK ? rc : strategy->ops_rc;
}

enum muster_rc muster_strategy_run(struct muster_strategy *strategy,
                                   const struct muster_strategy_call *call)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, call->name);
    bool is_on_device = false;

    if (rc == MUSTER_OK)
        rc = muster_strategy_enter(strategy, call->name);
    if (rc != MUSTER_OK)
        return rc;
    strategy->has_worked = true;
    muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_COLLECTIVE);
    muster_strategy_trace_call(strategy, call);
    rc = muster_strategy_choose(strategy, call, &is_on_device);
    if (rc == MUSTER_OK && is_on_device)
        rc = muster_strategy_run_on_device(strategy, call);
    else if (rc == MUSTER_OK && (rc = check_reductions(strategy, call)) != MUSTER_OK)
        strategy->ops_rc = rc;
    else if (rc == MUSTER_OK && call->bytes_per_pack > 0)
        rc = run_list_in_seat(strategy, call);
    else if (rc == MUSTER_OK)
        rc = muster_strategy_run_in_seat(strategy, call);
    muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_COMPUTE);
    muster_strategy_trace_result(strategy, rc);
    muster_strategy_leave(strategy);
    return rc;
}
