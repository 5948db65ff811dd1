/* The strategy's blocking operations: each fills in a call. */
#include <string.h>

#include <muster/collective.h>

#include "collective/board/kept.h"
#include "collective/group/group.h"
#include "training/strategy_call.h"

static enum muster_rc start_all_reduce(const struct muster_strategy_call *call, size_t i,
                                       struct muster_op *op, struct muster_group *group)
{
    return muster_all_reduce_start(op, group, &call->tensors[i], call->reduction,
                                   muster_strategy_on_op_done);
}

static enum muster_rc start_weighted(const struct muster_strategy_call *call, size_t i,
                                     struct muster_op *op, struct muster_group *group)
{
    return muster_all_reduce_weighted_start(op, group, &call->tensors[i], call->weight,
                                            muster_strategy_on_op_done);
}

static enum muster_rc start_broadcast(const struct muster_strategy_call *call, size_t i,
                                      struct muster_op *op, struct muster_group *group)
{
    return muster_broadcast_start_from(op, group, &call->tensors[i], &call->root,
                                       muster_strategy_on_op_done);
}

static enum muster_rc start_all_gather(const struct muster_strategy_call *call, size_t i,
                                       struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start(op, group, &call->tensors[0], &call->tensors[1],
                                   muster_strategy_on_op_done);
}

static enum muster_rc start_reduce(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    return muster_reduce_start_from(op, group, &call->tensors[i], call->reduction, &call->root,
                                    muster_strategy_on_op_done);
}

static enum muster_rc start_barrier(const struct muster_strategy_call *call, size_t i,
                                    struct muster_op *op, struct muster_group *group)
{
    (void)call;
    (void)i;
    return muster_barrier_start(op, group, muster_strategy_on_op_done);
}

enum muster_rc muster_strategy_all_reduce_with(struct muster_strategy *strategy,
                                               const struct muster_tensor *tensors, size_t count,
                                               enum muster_reduction reduction,
                                               const struct muster_communication_options *options)
{
    const struct muster_communication_options merged =
        muster_communication_merge(&strategy->communication, options);

    return muster_strategy_run(
        strategy,
        &(struct muster_strategy_call){.name = "all_reduce",
                                       .tensors = tensors,
                                       .count = count,
                                       .reduction = reduction,
                                       .timeout_ns = merged.timeout_ns,
                                       .bytes_per_pack = count > 1 ? merged.bytes_per_pack : 0,
                                       .is_reduced = true,
                                       .device = MUSTER_DEVICE_ALL_REDUCE,
                                       .by = merged.implementation,
                                       .start = start_all_reduce});
}

enum muster_rc muster_strategy_all_reduce(struct muster_strategy *strategy,
                                          const struct muster_tensor *tensors, size_t count,
                                          enum muster_reduction reduction)
{
    return muster_strategy_all_reduce_with(strategy, tensors, count, reduction, NULL);
}

enum muster_rc muster_strategy_all_reduce_weighted(struct muster_strategy *strategy,
                                                   const struct muster_tensor *tensors,
                                                   size_t count, uint64_t weight)
{
    return muster_strategy_run(
        strategy, &(struct muster_strategy_call){.name = "all_reduce",
                                                 .tensors = tensors,
                                                 .count = count,
                                                 .reduction = MUSTER_MEAN,
                                                 .weight = weight,
                                                 .timeout_ns = strategy->communication.timeout_ns,
                                                 .start = start_weighted});
}

static enum muster_rc run_broadcast(struct muster_strategy *strategy,
                                    const struct muster_strategy_split *split,
                                    const struct muster_tensor *tensor, uint32_t root)
{
    struct muster_strategy_call call = {.name = "broadcast",
                                        .tensors = tensor,
                                        .count = 1,
                                        .split = split,
                                        .device = MUSTER_DEVICE_BROADCAST,
                                        .start = start_broadcast};

    return muster_strategy_run_with_root(strategy, &call, root);
}

enum muster_rc muster_strategy_broadcast(struct muster_strategy *strategy,
                                         const struct muster_tensor *tensor, uint32_t root)
{
    return run_broadcast(strategy, NULL, tensor, root);
}

static enum muster_rc run_reduce(struct muster_strategy *strategy,
                                 const struct muster_strategy_split *split,
                                 const struct muster_tensor *tensor,
                                 enum muster_reduction reduction, uint32_t root)
{
    struct muster_strategy_call call = {.name = "reduce",
                                        .tensors = tensor,
                                        .count = 1,
                                        .split = split,
                                        .reduction = reduction,
                                        .is_reduced = true,
                                        .device = MUSTER_DEVICE_REDUCE,
                                        .start = start_reduce};

    return muster_strategy_run_with_root(strategy, &call, root);
}

enum muster_rc muster_strategy_reduce(struct muster_strategy *strategy,
                                      const struct muster_tensor *tensor,
                                      enum muster_reduction reduction, uint32_t root)
{
    return run_reduce(strategy, NULL, tensor, reduction, root);
}

enum muster_rc muster_strategy_barrier(struct muster_strategy *strategy)
{
    return muster_strategy_run(
        strategy,
        &(struct muster_strategy_call){.name = "barrier", .count = 1, .start = start_barrier});
}

/* --- Of a request --- */

static enum muster_rc refuse_request(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, name);

    return rc != MUSTER_OK ? rc
                           : muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                              "%s: output must be a tensor, got NULL", name);
}

enum muster_rc muster_strategy_call_reduction(struct muster_strategy *strategy,
                                              struct muster_request *request)
{
    static const struct {
        const char *name;
        enum muster_device_kind device;
        enum muster_rc (*start)(const struct muster_strategy_call *call, size_t i,
                                struct muster_op *op, struct muster_group *group);
        bool is_reduced, has_root;
    } kinds[] = {
        [MUSTER_REQUEST_ALL_REDUCE] = {"all_reduce", MUSTER_DEVICE_ALL_REDUCE, start_all_reduce,
                                       true, false},
        [MUSTER_REQUEST_ALL_REDUCE_WEIGHTED] = {"all_reduce", MUSTER_DEVICE_NONE, start_weighted,
                                                false, false},
        [MUSTER_REQUEST_BROADCAST] = {"broadcast", MUSTER_DEVICE_BROADCAST, start_broadcast, false,
                                      true},
        [MUSTER_REQUEST_REDUCE] = {"reduce", MUSTER_DEVICE_REDUCE, start_reduce, true, true},
        [MUSTER_REQUEST_BARRIER] = {"barrier", MUSTER_DEVICE_NONE, start_barrier, false, false},
    };
    bool is_barrier = request->kind == MUSTER_REQUEST_BARRIER;
    struct muster_strategy_call call = {.name = kinds[request->kind].name,
                                        .tensors = is_barrier ? NULL : request->output,
                                        .count = request->count > 0 ? request->count : 1,
                                        .reduction = request->reduction,
                                        .weight = request->weight,
                                        .timeout_ns = request->timeout_ns,
                                        .split = request->split,
                                        .is_reduced = kinds[request->kind].is_reduced,
                                        .device = kinds[request->kind].device,
                                        .request = request,
                                        .start = kinds[request->kind].start};

    if (is_barrier)
        call.count = 1;
    else if (request->output == NULL)
        return refuse_request(strategy, call.name);
    if (call.timeout_ns == 0 && request->kind <= MUSTER_REQUEST_ALL_REDUCE_WEIGHTED)
        call.timeout_ns = strategy->communication.timeout_ns; /* as the blocking call */
    if (kinds[request->kind].has_root)
        return muster_strategy_run_with_root(strategy, &call, request->rank);
    return muster_strategy_run(strategy, &call);
}

/* --- Operations of a split --- */

static enum muster_rc run_in_split(struct muster_strategy_split *split,
                                   const struct muster_strategy_call *call)
{
    struct muster_strategy_call own = *call;
    enum muster_rc rc = muster_strategy_check_split(split, call->name);

    own.split = split;
    return rc == MUSTER_OK ? muster_strategy_run(split->strategy, &own) : rc;
}

enum muster_rc muster_strategy_split_all_reduce(struct muster_strategy_split *split,
                                                const struct muster_tensor *tensors, size_t count,
                                                enum muster_reduction reduction)
{
    const struct muster_communication_options *options = &split->strategy->communication;

    return run_in_split(split, &(struct muster_strategy_call){
                                   .name = "all_reduce",
                                   .tensors = tensors,
                                   .count = count,
                                   .reduction = reduction,
                                   .timeout_ns = options->timeout_ns,
                                   .bytes_per_pack = count > 1 ? options->bytes_per_pack : 0,
                                   .is_reduced = true,
                                   .device = MUSTER_DEVICE_ALL_REDUCE,
                                   .start = start_all_reduce});
}

enum muster_rc muster_strategy_split_broadcast(struct muster_strategy_split *split,
                                               const struct muster_tensor *tensor, uint32_t root)
{
    enum muster_rc rc = muster_strategy_check_split(split, "broadcast");

    return rc == MUSTER_OK ? run_broadcast(split->strategy, split, tensor, root) : rc;
}

enum muster_rc muster_strategy_split_reduce(struct muster_strategy_split *split,
                                            const struct muster_tensor *tensor,
                                            enum muster_reduction reduction, uint32_t root)
{
    enum muster_rc rc = muster_strategy_check_split(split, "reduce");

    return rc == MUSTER_OK ? run_reduce(split->strategy, split, tensor, reduction, root) : rc;
}

enum muster_rc muster_strategy_split_barrier(struct muster_strategy_split *split)
{
    return run_in_split(split, &(struct muster_strategy_call){
                                   .name = "barrier", .count = 1, .start = start_barrier});
}

/* --- Tensors that the other processes of the host map --- */

enum muster_rc muster_strategy_tensor_new(struct muster_strategy *strategy, enum muster_dtype dtype,
                                          uint64_t count, struct muster_tensor *ret_tensor)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "tensor_new");

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_tensor_new(strategy->env, dtype, count, ret_tensor);
    if (rc != MUSTER_OK)
        muster_error_set(&strategy->error, rc, "a tensor of %llu x %s: %s",
                         (unsigned long long)count, muster_dtype_name(dtype), muster_rc_text(rc));
    muster_strategy_leave(strategy);
    return rc;
}

void muster_strategy_tensor_free(struct muster_strategy *strategy, struct muster_tensor *tensor)
{
    if (strategy == NULL) /* it could not be opened: there is no tensor of it */
        return;
    if (muster_strategy_enter(strategy, "tensor_free") != MUSTER_OK)
        return; /* another thread's call may use it; a fork's mapping ends with it */
    muster_tensor_free(strategy->env, tensor);
    muster_strategy_leave(strategy);
}

enum muster_rc muster_strategy_tensor_keep(struct muster_strategy *strategy,
                                           const struct muster_tensor *tensor,
                                           struct muster_kept_memory *ret_kept)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "tensor_keep");

    if (rc != MUSTER_OK)
        return rc;
    muster_tensor_keep(strategy->env, tensor, &ret_kept->start, &ret_kept->bytes);
    muster_strategy_leave(strategy);
    return MUSTER_OK;
}

void muster_kept_memory_free(struct muster_kept_memory *kept)
{
    muster_tensor_drop(kept->start, kept->bytes);
    *kept = (struct muster_kept_memory){0};
}

enum muster_rc muster_strategy_broadcast_in_seat(struct muster_strategy *strategy, const char *name,
                                                 const struct muster_tensor *tensors, size_t count,
                                                 const struct muster_root *root)
{
    return muster_strategy_run_in_seat(strategy,
                                       &(struct muster_strategy_call){.name = name,
                                                                      .tensors = tensors,
                                                                      .count = count,
                                                                      .root = *root,
                                                                      .start = start_broadcast});
}

enum muster_rc muster_strategy_all_reduce_in_seat(struct muster_strategy *strategy,
                                                  const char *name,
                                                  const struct muster_tensor *tensor,
                                                  enum muster_reduction reduction)
{
    return muster_strategy_run_in_seat(strategy,
                                       &(struct muster_strategy_call){.name = name,
                                                                      .tensors = tensor,
                                                                      .count = 1,
                                                                      .reduction = reduction,
                                                                      .start = start_all_reduce});
}

enum muster_rc muster_strategy_all_gather_in_seat(struct muster_strategy *strategy,
                                                  const char *name,
                                                  const struct muster_tensor *input,
                                                  const struct muster_tensor *output)
{
    const struct muster_tensor tensors[] = {*input, *output};

    return muster_strategy_run_in_seat(
        strategy, &(struct muster_strategy_call){
                      .name = name, .tensors = tensors, .count = 1, .start = start_all_gather});
}
