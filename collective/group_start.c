/* Starting operations: what the caller asks for is checked and becomes a run. */
#include "collective/group_internal.h"

#include <assert.h>
#include <string.h>

/* Far above any memory, far below any overflow. */
#define OP_BYTES_MAX ((uint64_t)1 << 46)

static bool is_dtype(enum muster_dtype dtype)
{
    return muster_dtype_bytes(dtype) != 0;
}

static bool is_tensor_valid(const struct muster_tensor *tensor)
{
    size_t bytes = muster_dtype_bytes(tensor->dtype);

    return is_dtype(tensor->dtype) && tensor->count <= OP_BYTES_MAX / bytes &&
           (tensor->count == 0 || tensor->data != NULL) && (uintptr_t)tensor->data % bytes == 0;
}

static bool has_meaning(const struct muster_group *group, const struct muster_op_call *call)
{
    struct muster_error error;

    if (muster_reduction_check(call->dtype, call->reduction, &error) == MUSTER_OK)
        return true;
    MUSTER_LOG(group->env, ERROR, "op_refused", "op", muster_op_kind_name(call->kind), "why",
               error.text);
    return false;
}

static bool are_apart(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t left = (uintptr_t)a, right = (uintptr_t)b;

    return left + a_bytes <= right || right + b_bytes <= left;
}

/* A change of view is under way: it belongs to the next epoch, and runs there from its inputs. */
static void hold(struct muster_group *group, struct muster_run *run)
{
    run->result.is_interrupted = true;
    run->result.interrupted_ns = group->frozen_ns;
    run->result.phase = "start";
    run->result.verdict = MUSTER_VERDICT_RETRY;
    muster_list_append(&group->held, &run->node);
}

static enum muster_rc start(struct muster_op *op, struct muster_group *group,
                            const struct muster_op_call *call, muster_op_fn *done)
{
    struct muster_run *run;
    enum muster_rc rc;

    assert(done != NULL);
    if (op->lane >= MUSTER_LANES_MAX || op->deadline_ns == 0)
        return MUSTER_INVALID_ARGUMENT;
    if (group->is_ended || group->is_closed)
        return MUSTER_FAILED_PRECONDITION;
    rc = muster_run_new(group, call, op, &run);
    if (rc != MUSTER_OK)
        return rc;
    op->done = done;
    op->error = (struct muster_error){.rc = MUSTER_OK};
    memset(&op->result, 0, sizeof(op->result));
    muster_list_init(&op->node);
    run->state = MUSTER_RUN_HELD;
    if (group->is_frozen)
        hold(group, run);
    else
        muster_run_issue(run);
    return MUSTER_OK;
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

    if (!is_tensor_valid(tensor) || !has_meaning(group, &call))
        return MUSTER_INVALID_ARGUMENT;
    return start(op, group, &call, done);
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

    if (!is_tensor_valid(tensor))
        return MUSTER_INVALID_ARGUMENT;
    return start(op, group, &call, done);
}

enum muster_rc muster_broadcast_start(struct muster_op *op, struct muster_group *group,
                                      const struct muster_tensor *tensor, uint32_t root,
                                      muster_op_fn *done)
{
    const struct muster_view *view = group->view;

    if (root >= view->member_count || view->members[root].from_step > group->begun_step)
        return MUSTER_INVALID_ARGUMENT;
    return muster_broadcast_start_from(
        op, group, tensor,
        &(struct muster_root){.incarnation = view->members[root].incarnation, .epoch = view->epoch},
        done);
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
        .input = input->data,
        .output = output->data,
    };
    uint32_t n = muster_group_participants(group, group->begun_step);
    uint32_t index = muster_group_participant_index(group, group->begun_step, group->rank);
    size_t bytes = muster_dtype_bytes(input->dtype);

    if (!is_tensor_valid(input) || !is_tensor_valid(output) || input->dtype != output->dtype ||
        input->count == 0 || output->count != n * input->count || index >= n)
        return MUSTER_INVALID_ARGUMENT;
    if (input->data != (uint8_t *)output->data + index * input->count * bytes &&
        !are_apart(input->data, input->count * bytes, output->data, output->count * bytes))
        return MUSTER_INVALID_ARGUMENT;
    return start(op, group, &call, done);
}

enum muster_rc muster_reduce_scatter_start(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *input,
                                           const struct muster_tensor *output,
                                           enum muster_reduction reduction, muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_REDUCE_SCATTER,
        .reduction = reduction,
        .dtype = input->dtype,
        .count = input->count,
        .part_count = output->count,
        .input = input->data,
        .output = output->data,
    };
    uint32_t n = muster_group_participants(group, group->begun_step);
    size_t bytes = muster_dtype_bytes(input->dtype);

    if (!is_tensor_valid(input) || !is_tensor_valid(output) || input->dtype != output->dtype ||
        !has_meaning(group, &call) || output->count == 0 || input->count != n * output->count ||
        !are_apart(input->data, input->count * bytes, output->data, output->count * bytes))
        return MUSTER_INVALID_ARGUMENT;
    return start(op, group, &call, done);
}

enum muster_rc muster_barrier_start(struct muster_op *op, struct muster_group *group,
                                    muster_op_fn *done)
{
    static const struct muster_op_call call = {.kind = MUSTER_OP_BARRIER, .dtype = MUSTER_U8};

    return start(op, group, &call, done);
}
