/* Device memory: operations on the GPU backend, one outcome for each call on all members. */
#include "training/strategy_device.h"

#include <muster/gpu.h>

#include "collective/gpu/device_memory.h"
#include "collective/group/group.h"

/* --- The backend --- */

enum muster_rc muster_strategy_open_device(struct muster_strategy *strategy, const void *address,
                                           struct muster_error *ret_error)
{
    struct muster_gpu_options options = {.ordinal = 0};
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc;

    if (strategy->env->backend != NULL)
        return MUSTER_OK;
    if (address != NULL)
        options.ordinal = muster_device_ordinal_of(strategy->env, address);
    else if (strategy->devices.count > 0)
        options.ordinal = strategy->devices.list[0].gpu;
    rc = muster_gpu_open(strategy->env, &options, &strategy->env->backend, &why);
    strategy->nccl_ordinal = options.ordinal;
    if (rc == MUSTER_OK)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, rc, "communication NCCL (tensors in host memory need none: AUTO or RING): %s",
        why.text);
}

static void on_closed(void *data)
{
    *(bool *)data = true;
}

/* After the node: its groups hold communicators of the backend. */
void muster_strategy_close_device(struct muster_strategy *strategy)
{
    struct muster_backend *backend = strategy->env->backend;
    bool is_closed = false;

    MUSTER_ASSERT(strategy->ops_open == 0);
    if (backend == NULL)
        return;
    muster_gpu_close(backend, on_closed, &is_closed);
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &is_closed);
    strategy->env->backend = NULL;
}

void muster_strategy_set_stream(struct muster_strategy *strategy, void *stream)
{
    strategy->stream = stream;
    strategy->devices.list[0].stream = stream; /* read where there is one */
}

/* --- Which memory --- */

static size_t tensor_count(const struct muster_strategy_call *call)
{
    if (call->tensors == NULL)
        return 0;
    return call->view != NULL ? 2 : call->count;
}

static enum muster_communication implementation_of(const struct muster_strategy *strategy,
                                                   const struct muster_strategy_call *call)
{
    return call->by != MUSTER_COMMUNICATION_AUTO ? call->by
                                                 : strategy->communication.implementation;
}

/* The backend has no form of the others. All members choose alike: by what they call, and by their options. */
static bool has_device_form(const struct muster_strategy *strategy,
                            const struct muster_strategy_call *call)
{
    return implementation_of(strategy, call) != MUSTER_COMMUNICATION_RING &&
           call->device != MUSTER_DEVICE_NONE && call->split == NULL && call->request == NULL;
}

/* Parts that a member does not give have no data. */
static size_t count_given(const struct muster_tensor *tensors, size_t count)
{
    size_t given = 0;

    for (size_t i = 0; i < count; i++)
        given += tensors[i].data != NULL;
    return given;
}

enum muster_rc muster_strategy_choose(struct muster_strategy *strategy,
                                      const struct muster_strategy_call *call,
                                      enum muster_strategy_path *ret_path)
{
    size_t count = tensor_count(call);
    size_t on_device = muster_gpu_count_tensors(strategy->env, call->tensors, count);

    if (on_device > 0 && on_device < count_given(call->tensors, count))
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: %zu of %zu tensors are in device memory, the others in host "
                                "memory: use two calls",
                                call->name, on_device, count);
    *ret_path = on_device == 0                    ? MUSTER_STRATEGY_PATH_HOST
                : has_device_form(strategy, call) ? MUSTER_STRATEGY_PATH_DEVICE
                                                  : MUSTER_STRATEGY_PATH_STAGED;
    if (on_device > 0)
        return MUSTER_OK;
    if (count > 0 && implementation_of(strategy, call) == MUSTER_COMMUNICATION_NCCL)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: communication NCCL, and the tensors are in host memory: use "
                                "AUTO, or RING for this call",
                                call->name);
    return MUSTER_OK;
}

/* --- Running --- */

static struct muster_device_call device_call_of(const struct muster_strategy *strategy,
                                                const struct muster_strategy_call *call, size_t i)
{
    bool is_pair = call->view != NULL;

    return (struct muster_device_call){
        .kind = call->device,
        .reduction = call->reduction,
        .input = call->tensors[is_pair ? 0 : i],
        .output = call->tensors[is_pair ? 1 : i],
        .stream = strategy->stream,
    };
}

/* All tensors are checked before any operation starts: the others would wait for those after a refused one. */
static enum muster_rc check_all(struct muster_strategy *strategy,
                                const struct muster_strategy_call *call)
{
    struct muster_error why = {.rc = MUSTER_OK};

    for (size_t i = 0; i < call->count; i++) {
        const struct muster_device_call device = device_call_of(strategy, call, i);
        int ordinal = muster_device_ordinal_of(strategy->env, device.input.data);

        if (ordinal != strategy->nccl_ordinal)
            return muster_error_set(
                &strategy->error, MUSTER_INVALID_ARGUMENT,
                "%s of tensor %zu: it is on device %d, and NCCL was opened on device %d",
                call->name, i, ordinal, strategy->nccl_ordinal);
        if (muster_backend_check(strategy->env->backend, &device, &why) != MUSTER_OK)
            return muster_error_set(&strategy->error, why.rc, "%s of tensor %zu: %s", call->name, i,
                                    why.text);
    }
    return MUSTER_OK;
}

static enum muster_rc start_on_device(const struct muster_strategy_call *call, size_t i,
                                      struct muster_op *op, struct muster_group *group)
{
    struct muster_strategy *strategy = op->data;
    struct muster_device_call device = device_call_of(strategy, call, i);

    if ((device.kind == MUSTER_DEVICE_BROADCAST || device.kind == MUSTER_DEVICE_REDUCE) &&
        !muster_view_find(muster_group_view(group), &call->root.incarnation, &device.root))
        return muster_error_set(&strategy->error, MUSTER_ABORTED, "%s: the root is gone",
                                call->name);
    return muster_backend_start(op, group, &device, muster_strategy_on_op_done);
}

static enum muster_rc start_commit(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    (void)call;
    (void)i;
    return muster_gpu_commit_start(op, group, muster_strategy_on_op_done);
}

static void count_bytes(struct muster_strategy *strategy, const struct muster_strategy_call *call)
{
    for (size_t i = 0; i < call->count; i++)
        muster_activity_count_bytes(&strategy->activity, MUSTER_ACTIVITY_NCCL,
                                    call->tensors[i].count *
                                        muster_dtype_bytes(call->tensors[i].dtype));
}

/* A failure on one member's device is not seen by the others, who may have OK from theirs. The
 * commit operation after the work tells all of them, so that a call ends alike on all members. */
enum muster_rc muster_strategy_run_on_device(struct muster_strategy *strategy,
                                             const struct muster_strategy_call *call)
{
    struct muster_strategy_call work = *call;
    struct muster_strategy_call end = *call;
    enum muster_rc rc, outcome;
    struct muster_error error;

    rc = muster_strategy_open_device(strategy, call->tensors[0].data, &strategy->error);
    if (rc == MUSTER_OK)
        rc = check_all(strategy, call);
    if (rc != MUSTER_OK)
        return rc;
    work.start = start_on_device;
    end.start = start_commit;
    end.count = 1;
    rc = muster_strategy_run_in_seat(strategy, &work);
    if (strategy->state == MUSTER_STRATEGY_FAILED || !strategy->has_started)
        return rc;
    count_bytes(strategy, call);
    error = strategy->error;
    outcome = muster_strategy_run_in_seat(strategy, &end);
    if (rc == MUSTER_OK)
        return outcome;
    strategy->ops_rc = rc;
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    strategy->error = error;
    return rc;
}
