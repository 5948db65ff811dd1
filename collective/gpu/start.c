/* The functions of gpu.h that start operations: each fills in a call for the environment's backend, which checks it
 * (call.c) and starts it (op.c). They work with any backend, so nothing of this folder is included here. */
#include <muster/gpu.h>

#include "collective/group/group_internal.h"

enum muster_rc muster_gpu_all_reduce_start(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *tensor,
                                           enum muster_reduction reduction, void *stream,
                                           muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_ALL_REDUCE,
        .reduction = reduction,
        .input = *tensor,
        .output = *tensor,
        .stream = stream,
    };

    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_broadcast_start(struct muster_op *op, struct muster_group *group,
                                          const struct muster_tensor *tensor, uint32_t root,
                                          void *stream, muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_BROADCAST,
        .input = *tensor,
        .output = *tensor,
        .root = root,
        .stream = stream,
    };

    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_reduce_start(struct muster_op *op, struct muster_group *group,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output,
                                       enum muster_reduction reduction, uint32_t root, void *stream,
                                       muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_REDUCE,
        .reduction = reduction,
        .input = *input,
        .output = *output,
        .root = root,
        .stream = stream,
    };

    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_all_gather_start(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *input,
                                           const struct muster_tensor *output, void *stream,
                                           muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_ALL_GATHER,
        .input = *input,
        .output = *output,
        .stream = stream,
    };

    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_reduce_scatter_start(struct muster_op *op, struct muster_group *group,
                                               const struct muster_tensor *input,
                                               const struct muster_tensor *output,
                                               enum muster_reduction reduction, void *stream,
                                               muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_REDUCE_SCATTER,
        .reduction = reduction,
        .input = *input,
        .output = *output,
        .stream = stream,
    };

    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_all_to_all_start(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *input,
                                           const struct muster_tensor *output, void *stream,
                                           muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_ALL_TO_ALL,
        .input = *input,
        .output = *output,
        .stream = stream,
    };

    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_send_recv_start(struct muster_op *op, struct muster_group *group,
                                          const struct muster_tensor *input, uint32_t to,
                                          const struct muster_tensor *output, uint32_t from,
                                          void *stream, muster_op_fn *done)
{
    struct muster_device_call call = {
        .kind = MUSTER_DEVICE_SEND_RECV,
        .to = input != NULL ? to : MUSTER_DEVICE_NOBODY,
        .from = output != NULL ? from : MUSTER_DEVICE_NOBODY,
        .stream = stream,
    };

    if (input != NULL)
        call.input = *input;
    if (output != NULL)
        call.output = *output;
    return muster_backend_start(op, group, &call, done);
}

enum muster_rc muster_gpu_commit_start(struct muster_op *op, struct muster_group *group,
                                       muster_op_fn *done)
{
    struct muster_device_call call = {.kind = MUSTER_DEVICE_COMMIT};

    return muster_backend_start(op, group, &call, done);
}

void muster_gpu_cancel(struct muster_op *op, struct muster_group *group)
{
    struct muster_backend *backend = group->env->backend;

    if (backend != NULL)
        backend->ops->cancel(backend, op);
}
