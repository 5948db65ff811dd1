/* Calls of operations: started on the current group, waited for in the driver's seat. */
#include <string.h>

#include <muster/collective.h>

#include "collective/group/group.h"
#include "training/strategy_call.h"

static bool are_ops_done(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->ops_open == 0;
}

enum muster_rc muster_strategy_wait_ops(struct muster_strategy *strategy)
{
    return muster_strategy_wait(strategy, are_ops_done);
}

/* An interruption stays visible: of several operations in a call the last result would hide it. */
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

/* The first failure is the call's: later ones are mostly its consequences. Bytes and waits are
 * counted for operations that failed too, because they were spent. */
void muster_strategy_on_op_done(struct muster_op *op, enum muster_rc rc)
{
    struct muster_strategy *strategy = op->data;

    MUSTER_ASSERT(strategy != NULL); /* once for each that was started */
    op->data = NULL;
    if (op < strategy->ops || op >= strategy->ops + MUSTER_STRATEGY_OPS_MAX) {
        strategy->request_calls->on_op_done(strategy, op, rc);
        return;
    }
    MUSTER_ASSERT(strategy->ops_open > 0);
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

void muster_strategy_init_op(struct muster_strategy *strategy,
                             const struct muster_strategy_call *call, struct muster_op *op)
{
    memset(op, 0, sizeof(*op));
    op->data = strategy;
    op->lane = call->split != NULL ? call->split->lane : 0;
    op->deadline_ns =
        muster_loop_after_ns(strategy->env->loop, muster_strategy_timeout_of(strategy, call));
}

/* One operation of a call, ready to start. */
static struct muster_op *next_op(struct muster_strategy *strategy,
                                 const struct muster_strategy_call *call)
{
    struct muster_op *op = &strategy->ops[strategy->ops_started];

    MUSTER_ASSERT(strategy->ops_started < MUSTER_STRATEGY_OPS_MAX);
    muster_strategy_init_op(strategy, call, op);
    return op;
}

void muster_strategy_explain_refusal(struct muster_strategy *strategy,
                                     const struct muster_strategy_call *call, size_t i,
                                     const struct muster_op *op, enum muster_rc rc)
{
    if (op->error.rc == rc && op->error.text[0] != '\0')
        muster_error_set(&strategy->error, rc, "%s of tensor %zu: %s", call->name, i,
                         op->error.text);
    else if (rc == MUSTER_INVALID_ARGUMENT && call->view != NULL)
        muster_error_set(
            &strategy->error, rc,
            "%s of %s x %llu into %s x %llu on %u members: counts or types do not fit, "
            "or the tensors overlap, or data is NULL or not aligned to the type",
            call->name, muster_dtype_name(call->tensors[0].dtype),
            (unsigned long long)call->tensors[0].count, muster_dtype_name(call->tensors[1].dtype),
            (unsigned long long)call->tensors[1].count,
            muster_strategy_size_of(strategy, call->split));
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
    enum muster_rc turn_rc;
    size_t i = 0;

    MUSTER_ASSERT(strategy->ops_open == 0); /* one call at a time */
    MUSTER_ASSERT(call->start != NULL);
    turn_rc = muster_strategy_await_turn(strategy);
    if (turn_rc != MUSTER_OK)
        return turn_rc;
    strategy->ops_rc = MUSTER_OK;
    strategy->has_result = strategy->has_started = false;
    strategy->op_name = call->name;
    while (i < call->count && strategy->ops_rc == MUSTER_OK) {
        enum muster_rc rc = MUSTER_OK;

        strategy->ops_started = 0;
        while (i < call->count && strategy->ops_started < MUSTER_STRATEGY_OPS_MAX &&
               rc == MUSTER_OK) {
            struct muster_group *group = muster_node_group(strategy->node);
            size_t open_before = strategy->ops_open;

            if (group == NULL)
                rc = muster_error_set(&strategy->error, MUSTER_ABORTED,
                                      "%s: this member is not in the current view", call->name);
            else
                rc = call->start(call, i, next_op(strategy, call), group);
            MUSTER_ASSERT(strategy->ops_open == open_before); /* no callback inside start */
            if (rc == MUSTER_OK) {
                strategy->has_started = true;
                strategy->ops_started++;
                strategy->ops_open++;
                i++;
            } else if (rc != MUSTER_ABORTED) {
                muster_strategy_explain_refusal(strategy, call, i,
                                                &strategy->ops[strategy->ops_started], rc);
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

/* An excluded member gets ABORTED and not FAILED_PRECONDITION: its program did nothing wrong, and
 * begin brings it back. The keeper moves the state and sets the error, so both are read inside. */
enum muster_rc muster_strategy_check_step(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_strategy_enter(strategy, name);

    if (rc != MUSTER_OK)
        return rc;
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        rc = strategy->error.rc;
    else if (strategy->state != MUSTER_STRATEGY_STEP)
        rc = muster_error_set(&strategy->error,
                              strategy->state == MUSTER_STRATEGY_WAITING
                                  ? MUSTER_ABORTED
                                  : MUSTER_FAILED_PRECONDITION,
                              "%s: call begin first", name);
    muster_strategy_leave(strategy);
    return rc;
}
