/* One call of the program, run: on the device, in packs, or each tensor alone. */
#include <muster/collective.h>

#include "collective/group/group.h"
#include "training/strategy_device.h"
#include "training/strategy_stage.h"

/* Checked before the group sees the call, because the group would log the error that the program is
 * told here. */
static enum muster_rc check_reductions(struct muster_strategy *strategy,
                                       const struct muster_strategy_call *call)
{
    struct muster_error why;

    if (!call->is_reduced)
        return MUSTER_OK;
    for (size_t i = 0; i < call->count; i++)
        if (muster_reduction_check(call->tensors[i].dtype, call->reduction, &why) != MUSTER_OK)
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    "%s of tensor %zu: %s", call->name, i, why.text);
    return MUSTER_OK;
}

/* --- In packs --- */

/* As muster_strategy_on_op_done, for the one operation of a list. */
static void on_list_done(struct muster_list_op *list, enum muster_rc rc)
{
    struct muster_strategy *strategy = list->data;

    MUSTER_ASSERT(strategy->ops_open == 1); /* a list is the only operation of its call */
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

/* One operation of the group for all tensors of the call: it packs small ones together. */
static enum muster_rc run_list_in_seat(struct muster_strategy *strategy,
                                       const struct muster_strategy_call *call)
{
    struct muster_group *group;
    struct muster_list_op *list = &strategy->list;
    enum muster_rc rc = muster_strategy_await_turn(strategy);

    if (rc != MUSTER_OK)
        return rc;
    MUSTER_ASSERT(strategy->ops_open == 0); /* one call at a time */
    group = muster_node_group(strategy->node);
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
    MUSTER_ASSERT(strategy->ops_open == 0); /* no callback inside start */
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc,
                                "%s of %zu tensors: %s (types, NULL, alignment, overlap?)",
                                call->name, call->count, muster_rc_text(rc));
    strategy->ops_open++;
    rc = muster_strategy_wait_ops(strategy);
    return rc != MUSTER_OK && strategy->ops_rc != MUSTER_OK ? rc : strategy->ops_rc;
}

/* --- Any call --- */

static enum muster_rc run_on_host(struct muster_strategy *strategy,
                                  const struct muster_strategy_call *call)
{
    enum muster_rc rc = check_reductions(strategy, call);

    if (rc != MUSTER_OK)
        strategy->ops_rc = rc;
    else if (call->request != NULL)
        rc = strategy->request_calls->start(strategy, call);
    else if (call->bytes_per_pack > 0)
        rc = run_list_in_seat(strategy, call);
    else
        rc = muster_strategy_run_in_seat(strategy, call);
    return rc;
}

/* A request that has started keeps the stage, until it is completed. */
static enum muster_rc run_staged(struct muster_strategy *strategy,
                                 const struct muster_strategy_call *call)
{
    struct muster_strategy_call staged = *call;
    enum muster_rc rc = muster_stage_open(strategy, call, &staged.stage);

    if (rc != MUSTER_OK)
        return rc;
    staged.tensors = muster_stage_tensors(staged.stage);
    rc = run_on_host(strategy, &staged);
    if (rc == MUSTER_OK && call->request != NULL)
        return rc;
    if (rc == MUSTER_OK)
        rc = muster_stage_write_back(staged.stage);
    muster_stage_close(staged.stage);
    return rc;
}

/* A refusal is a failed operation of the step: the others count on one that will not come. */
static enum muster_rc prepare_call(struct muster_strategy *strategy,
                                   const struct muster_strategy_call *call,
                                   enum muster_strategy_path *ret_path)
{
    enum muster_rc rc = muster_strategy_choose(strategy, call, ret_path);

    if (rc == MUSTER_OK && *ret_path == MUSTER_STRATEGY_PATH_STAGED)
        rc = muster_stage_prepare(strategy, call);
    if (rc != MUSTER_OK && muster_strategy_enter(strategy, call->name) == MUSTER_OK) {
        strategy->ops_rc = rc;
        strategy->has_worked = true;
        muster_strategy_leave(strategy);
    }
    return rc;
}

/* All that can be refused without the group is refused first, on this member alone: an operation
 * that others have started and this one has not would make them wait. */
enum muster_rc muster_strategy_run(struct muster_strategy *strategy,
                                   const struct muster_strategy_call *call)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, call->name);
    enum muster_strategy_path path = MUSTER_STRATEGY_PATH_HOST;

    if (rc == MUSTER_OK)
        rc = prepare_call(strategy, call, &path);
    if (rc == MUSTER_OK)
        rc = muster_strategy_enter(strategy, call->name);
    if (rc != MUSTER_OK)
        return rc;
    strategy->has_worked = true;
    muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_COLLECTIVE);
    muster_strategy_trace_call(strategy, call);
    rc = path == MUSTER_STRATEGY_PATH_DEVICE   ? muster_strategy_run_on_device(strategy, call)
         : path == MUSTER_STRATEGY_PATH_STAGED ? run_staged(strategy, call)
                                               : run_on_host(strategy, call);
    muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_COMPUTE);
    if (rc != MUSTER_OK || call->request == NULL)
        muster_strategy_trace_result(strategy, rc);
    muster_strategy_leave(strategy);
    return rc;
}
