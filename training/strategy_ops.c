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

static enum muster_rc start_all_gather_in(const struct muster_strategy_call *call, size_t i,
                                          struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

static enum muster_rc start_all_to_all(const struct muster_strategy_call *call, size_t i,
                                       struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_to_all_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
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

static uint32_t size_of(const struct muster_strategy *strategy,
                        const struct muster_strategy_split *split)
{
    return split != NULL ? muster_strategy_split_size(split) : strategy->size;
}

/* The member that the program knows by this rank, since begin. */
static struct muster_root root_of_rank(const struct muster_strategy *strategy,
                                       const struct muster_strategy_split *split, uint32_t rank)
{
    const struct muster_view *view = strategy->view;
    struct muster_root root = {.epoch = view->epoch};

    MUSTER_ASSERT(rank < size_of(strategy, split));
    for (uint32_t i = 0; i < view->member_count; i++)
        if (muster_strategy_takes_part(strategy, split, &view->members[i]) && rank-- == 0) {
            root.incarnation = view->members[i].incarnation;
            break;
        }
    return root;
}

/* The root is checked before the call starts: a rank that nobody has is a mistake of this program
 * alone, and must not start anything on the group. */
static enum muster_rc run_with_root(struct muster_strategy *strategy,
                                    struct muster_strategy_call *call, uint32_t root)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, call->name);

    if (rc != MUSTER_OK)
        return rc;
    if (root >= size_of(strategy, call->split))
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: there is no rank %u, the last is %u", call->name, root,
                                size_of(strategy, call->split) - 1);
    call->root = root_of_rank(strategy, call->split, root);
    return muster_strategy_run(strategy, call);
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

    return run_with_root(strategy, &call, root);
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
                                        .device = MUSTER_DEVICE_REDUCE,
                                        .start = start_reduce};

    return run_with_root(strategy, &call, root);
}

enum muster_rc muster_strategy_reduce(struct muster_strategy *strategy,
                                      const struct muster_tensor *tensor,
                                      enum muster_reduction reduction, uint32_t root)
{
    return run_reduce(strategy, NULL, tensor, reduction, root);
}

/* The parts of a tensor stand in the order of the ranks that the program knows. */
static enum muster_rc run_by_ranks(struct muster_strategy *strategy,
                                   const struct muster_strategy_split *split,
                                   enum muster_device_kind kind, const struct muster_tensor *input,
                                   const struct muster_tensor *output,
                                   enum muster_rc (*start)(const struct muster_strategy_call *call,
                                                           size_t i, struct muster_op *op,
                                                           struct muster_group *group))
{
    const struct muster_tensor tensors[] = {*input, *output};
    struct muster_strategy_call call = {.name = muster_device_kind_name(kind),
                                        .tensors = tensors,
                                        .count = 1,
                                        .split = split,
                                        .device = kind,
                                        .start = start};
    enum muster_rc rc = muster_strategy_check_step(strategy, call.name);

    if (rc != MUSTER_OK)
        return rc;
    call.view = strategy->view;
    return muster_strategy_run(strategy, &call);
}

enum muster_rc muster_strategy_all_gather(struct muster_strategy *strategy,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output)
{
    return run_by_ranks(strategy, NULL, MUSTER_DEVICE_ALL_GATHER, input, output,
                        start_all_gather_in);
}

enum muster_rc muster_strategy_all_to_all(struct muster_strategy *strategy,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output)
{
    return run_by_ranks(strategy, NULL, MUSTER_DEVICE_ALL_TO_ALL, input, output, start_all_to_all);
}

enum muster_rc muster_strategy_barrier(struct muster_strategy *strategy)
{
    return muster_strategy_run(
        strategy,
        &(struct muster_strategy_call){.name = "barrier", .count = 1, .start = start_barrier});
}

/* --- Operations of a split --- */

/* An error where this member has no group in the split, or the step allows no operation. */
static enum muster_rc check_split(const struct muster_strategy_split *split, const char *name)
{
    enum muster_rc rc = muster_strategy_check_step(split->strategy, name);

    if (rc == MUSTER_OK && muster_strategy_split_size(split) == 0)
        return muster_error_set(&split->strategy->error, MUSTER_FAILED_PRECONDITION,
                                "%s of a split: this member has no group in it", name);
    return rc;
}

static enum muster_rc run_in_split(struct muster_strategy_split *split,
                                   const struct muster_strategy_call *call)
{
    struct muster_strategy_call own = *call;
    enum muster_rc rc = check_split(split, call->name);

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
                                   .device = MUSTER_DEVICE_ALL_REDUCE,
                                   .start = start_all_reduce});
}

enum muster_rc muster_strategy_split_broadcast(struct muster_strategy_split *split,
                                               const struct muster_tensor *tensor, uint32_t root)
{
    enum muster_rc rc = check_split(split, "broadcast");

    return rc == MUSTER_OK ? run_broadcast(split->strategy, split, tensor, root) : rc;
}

enum muster_rc muster_strategy_split_reduce(struct muster_strategy_split *split,
                                            const struct muster_tensor *tensor,
                                            enum muster_reduction reduction, uint32_t root)
{
    enum muster_rc rc = check_split(split, "reduce");

    return rc == MUSTER_OK ? run_reduce(split->strategy, split, tensor, reduction, root) : rc;
}

enum muster_rc muster_strategy_split_all_gather(struct muster_strategy_split *split,
                                                const struct muster_tensor *input,
                                                const struct muster_tensor *output)
{
    enum muster_rc rc = check_split(split, "all_gather");

    return rc == MUSTER_OK ? run_by_ranks(split->strategy, split, MUSTER_DEVICE_ALL_GATHER, input,
                                          output, start_all_gather_in)
                           : rc;
}

enum muster_rc muster_strategy_split_all_to_all(struct muster_strategy_split *split,
                                                const struct muster_tensor *input,
                                                const struct muster_tensor *output)
{
    enum muster_rc rc = check_split(split, "all_to_all");

    return rc == MUSTER_OK ? run_by_ranks(split->strategy, split, MUSTER_DEVICE_ALL_TO_ALL, input,
                                          output, start_all_to_all)
                           : rc;
}

enum muster_rc muster_strategy_split_barrier(struct muster_strategy_split *split)
{
    return run_in_split(split, &(struct muster_strategy_call){
                                   .name = "barrier", .count = 1, .start = start_barrier});
}

/* The i-th tensor of the call: first the one to send, where there is one, then the one to receive. */
static enum muster_rc start_exchange(const struct muster_strategy_call *call, size_t i,
                                     struct muster_op *op, struct muster_group *group)
{
    struct muster_strategy *strategy = op->data;
    bool is_send = i == 0 && call->to != MUSTER_SPLIT_NOBODY;
    struct muster_root peer = root_of_rank(strategy, call->split, is_send ? call->to : call->from);
    uint32_t rank;

    if (!muster_view_find(muster_group_view(group), &peer.incarnation, &rank))
        return muster_error_set(&strategy->error, MUSTER_ABORTED,
                                "%s: rank %u of the split is gone", call->name,
                                is_send ? call->to : call->from);
    return is_send
               ? muster_send_start(op, group, &call->tensors[i], rank, muster_strategy_on_op_done)
               : muster_receive_start(op, group, &call->tensors[i], rank,
                                      muster_strategy_on_op_done);
}

enum muster_rc muster_strategy_split_exchange(struct muster_strategy_split *split,
                                              const struct muster_tensor *output, uint32_t to,
                                              const struct muster_tensor *input, uint32_t from)
{
    struct muster_tensor tensors[2];
    struct muster_strategy_call call = {
        .name = "exchange", .tensors = tensors, .to = to, .from = from, .start = start_exchange};
    enum muster_rc rc = check_split(split, call.name);
    uint32_t size;

    if (rc != MUSTER_OK)
        return rc;
    size = muster_strategy_split_size(split);
    if ((to != MUSTER_SPLIT_NOBODY && to >= size) || (from != MUSTER_SPLIT_NOBODY && from >= size))
        return muster_error_set(&split->strategy->error, MUSTER_INVALID_ARGUMENT,
                                "exchange of a split: ranks %u and %u among %u members", to, from,
                                size);
    if (to != MUSTER_SPLIT_NOBODY)
        tensors[call.count++] = *output;
    if (from != MUSTER_SPLIT_NOBODY)
        tensors[call.count++] = *input;
    return call.count > 0 ? run_in_split(split, &call) : MUSTER_OK;
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
