/* Starting operations: what the caller asks for is checked and becomes a run. Every start goes through
 * muster_group_start_call; a call that is refused has started nothing. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

#include "runtime/loop/deadline.h"

static bool is_dtype(enum muster_dtype dtype)
{
    return muster_dtype_bytes(dtype) != 0;
}

bool muster_group_is_tensor_valid(const struct muster_tensor *tensor)
{
    size_t bytes = muster_dtype_bytes(tensor->dtype);

    return is_dtype(tensor->dtype) && tensor->count <= MUSTER_OP_BYTES_MAX / bytes &&
           (tensor->count == 0 || tensor->data != NULL) && (uintptr_t)tensor->data % bytes == 0;
}

bool muster_group_has_meaning(const struct muster_group *group, const struct muster_op_call *call,
                              struct muster_op *op)
{
    struct muster_error error;

    if (muster_reduction_check(call->dtype, call->reduction, &error) == MUSTER_OK)
        return true;
    if (op != NULL)
        op->error = error;
    MUSTER_LOG(group->env, ERROR, "op_refused", "op", muster_op_kind_name(call->kind), "reason",
               error.text);
    return false;
}

/* By numbers: comparing pointers into different objects has no meaning in C. */
bool muster_group_are_apart(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t left = (uintptr_t)a, right = (uintptr_t)b;

    return a_bytes == 0 || b_bytes == 0 || left + a_bytes <= right || right + b_bytes <= left;
}

bool muster_group_find_root(const struct muster_group *group, uint32_t rank,
                            struct muster_root *ret_root)
{
    const struct muster_view *view = group->view;

    if (rank >= view->member_count || view->members[rank].from_step > group->begun_step)
        return false;
    /* A root is a process, not a rank: ranks may change before the operation runs, and the view that the caller meant
     * goes with it, to tell such a change from a mistake. */
    ret_root->incarnation = view->members[rank].incarnation;
    ret_root->epoch = view->epoch;
    return true;
}

/* A change of view is under way: it belongs to the next epoch, and runs there from its inputs. */
static void hold_for_next_epoch(struct muster_group *group, struct muster_run *run)
{
    run->result.is_interrupted = true;
    run->result.interrupted_ns = group->frozen_ns;
    run->result.phase = "start";
    run->result.verdict = MUSTER_VERDICT_RETRY;
    muster_list_append(&group->pending, &run->node);
}

/* A root of another color; one that is gone is found out later, by all. */
static bool has_wrong_root(const struct muster_group *group, const struct muster_op_call *call,
                           uint32_t lane)
{
    const struct muster_op_id id = muster_group_next_id(group, lane);
    uint32_t rank;

    return muster_op_kind_has_root(call->kind) &&
           muster_view_find(group->view, &call->root.incarnation, &rank) &&
           group->view->members[rank].from_step <= id.step &&
           muster_op_participant_index(group, &id, rank) == UINT32_MAX;
}

static enum muster_rc try_start(struct muster_op *op, struct muster_group *group,
                                const struct muster_op_call *call, muster_op_fn *done)
{
    struct muster_run *run;
    enum muster_rc rc;

    MUSTER_ASSERT(done != NULL);
    if (op->lane >= MUSTER_LANES_MAX)
        return MUSTER_INVALID_ARGUMENT;
    rc = muster_deadline_check(group->env, muster_op_kind_name(call->kind), op->deadline_ns,
                               &op->error);
    if (rc != MUSTER_OK)
        return rc;
    if (group->is_ended || group->is_closed)
        return MUSTER_FAILED_PRECONDITION;
    if (muster_group_lane_rank(group, op->lane) == UINT32_MAX ||
        has_wrong_root(group, call, op->lane))
        return MUSTER_INVALID_ARGUMENT;
    /* The last thing that can fail: it takes a number of the lane, which no other start may see unused. */
    rc = muster_run_new(group, call, op, &run);
    if (rc != MUSTER_OK)
        return rc;
    op->done = done;
    op->cancel = muster_run_cancel;
    op->error = (struct muster_error){.rc = MUSTER_OK};
    memset(&op->result, 0, sizeof(op->result));
    muster_list_init(&op->node);
    muster_run_start_deadline(run);
    if (group->is_frozen)
        hold_for_next_epoch(group, run);
    else
        muster_run_issue(run);
    return MUSTER_OK;
}

enum muster_rc muster_group_start_call(struct muster_op *op, struct muster_group *group,
                                       const struct muster_op_call *call, muster_op_fn *done)
{
    enum muster_rc rc;

    /* A run may end inside its own start; the mark proves that no callback comes before this returns. */
    MUSTER_ASSERT(!group->is_starting);
    group->is_starting = true;
    rc = try_start(op, group, call, done);
    group->is_starting = false;
    if (rc != MUSTER_OK)
        muster_buffer_unref(call->offsets);
    return rc;
}

enum muster_rc muster_all_reduce_start(struct muster_op *op, struct muster_group *group,
                                       const struct muster_tensor *tensor,
                                       enum muster_reduction reduction, muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_ALL_REDUCE,
        .reduction = reduction,
        .dtype = tensor->dtype,
        .count = tensor->count,
        .input = tensor->data,
        .output = tensor->data,
    };

    if (!muster_group_is_tensor_valid(tensor) || !muster_group_has_meaning(group, &call, op))
        return MUSTER_INVALID_ARGUMENT;
    return muster_group_start_call(op, group, &call, done);
}

enum muster_rc muster_reduce_start_from(struct muster_op *op, struct muster_group *group,
                                        const struct muster_tensor *tensor,
                                        enum muster_reduction reduction,
                                        const struct muster_root *root, muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_REDUCE,
        .reduction = reduction,
        .dtype = tensor->dtype,
        .count = tensor->count,
        .input = tensor->data,
        .output = tensor->data,
        .root = *root,
    };

    if (!muster_group_is_tensor_valid(tensor) || !muster_group_has_meaning(group, &call, op))
        return MUSTER_INVALID_ARGUMENT;
    return muster_group_start_call(op, group, &call, done);
}

enum muster_rc muster_reduce_start(struct muster_op *op, struct muster_group *group,
                                   const struct muster_tensor *tensor,
                                   enum muster_reduction reduction, uint32_t root,
                                   muster_op_fn *done)
{
    struct muster_root from;

    if (!muster_group_find_root(group, root, &from))
        return MUSTER_INVALID_ARGUMENT;
    return muster_reduce_start_from(op, group, tensor, reduction, &from, done);
}

enum muster_rc muster_broadcast_start_from(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *tensor,
                                           const struct muster_root *root, muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_BROADCAST,
        .dtype = tensor->dtype,
        .count = tensor->count,
        .input = tensor->data,
        .output = tensor->data,
        .root = *root,
    };

    if (!muster_group_is_tensor_valid(tensor))
        return MUSTER_INVALID_ARGUMENT;
    return muster_group_start_call(op, group, &call, done);
}

enum muster_rc muster_broadcast_start(struct muster_op *op, struct muster_group *group,
                                      const struct muster_tensor *tensor, uint32_t root,
                                      muster_op_fn *done)
{
    struct muster_root from;

    if (!muster_group_find_root(group, root, &from))
        return MUSTER_INVALID_ARGUMENT;
    return muster_broadcast_start_from(op, group, tensor, &from, done);
}

enum muster_rc muster_all_gather_start(struct muster_op *op, struct muster_group *group,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output, muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_ALL_GATHER,
        .dtype = input->dtype,
        .count = output->count,
        .part_count = input->count,
        .n = muster_group_lane_size(group, op->lane),
        .input = input->data,
        .output = output->data,
    };
    uint32_t n = call.n;
    uint32_t index = muster_group_lane_rank(group, op->lane);
    size_t bytes = muster_dtype_bytes(input->dtype);

    if (!muster_group_is_tensor_valid(input) || !muster_group_is_tensor_valid(output) ||
        input->dtype != output->dtype || output->count != n * input->count || index >= n)
        return MUSTER_INVALID_ARGUMENT;
    if (input->data != (uint8_t *)output->data + index * input->count * bytes &&
        !muster_group_are_apart(input->data, input->count * bytes, output->data,
                                output->count * bytes))
        return MUSTER_INVALID_ARGUMENT;
    return muster_group_start_call(op, group, &call, done);
}

enum muster_rc muster_barrier_start(struct muster_op *op, struct muster_group *group,
                                    muster_op_fn *done)
{
    static const struct muster_op_call call = {.kind = MUSTER_OP_BARRIER, .dtype = MUSTER_U8};

    return muster_group_start_call(op, group, &call, done);
}
