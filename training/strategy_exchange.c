/* Blocking operations on parts of a tensor, and messages: each fills in a call. A split may be NULL: all
 * members. */
#include <muster/strategy_exchange.h>

#include "collective/group/group.h"
#include "training/strategy_call.h"

/* --- Starting --- */

static enum muster_rc start_reduce_scatter(const struct muster_strategy_call *call, size_t i,
                                           struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_reduce_scatter_start_in(op, group, call->view, &call->tensors[0],
                                          &call->tensors[1], call->reduction,
                                          muster_strategy_on_op_done);
}

static enum muster_rc start_all_gather(const struct muster_strategy_call *call, size_t i,
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

static enum muster_rc start_gather(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                  &call->root, muster_strategy_on_op_done);
}

static enum muster_rc start_scatter(const struct muster_strategy_call *call, size_t i,
                                    struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_scatter_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                   &call->root, muster_strategy_on_op_done);
}

static struct muster_parts parts_of(const struct muster_strategy_call *call, size_t i,
                                    const uint64_t *counts)
{
    return (struct muster_parts){.data = call->tensors[i].data,
                                 .counts = counts,
                                 .part_count = call->part_count,
                                 .dtype = call->tensors[i].dtype};
}

static enum muster_rc start_all_gather_uneven(const struct muster_strategy_call *call, size_t i,
                                              struct muster_op *op, struct muster_group *group)
{
    const struct muster_parts output = parts_of(call, 1, call->part_counts);

    (void)i;
    return muster_all_gather_uneven_start_in(op, group, call->view, &call->tensors[0], &output,
                                             muster_strategy_on_op_done);
}

static enum muster_rc start_reduce_scatter_uneven(const struct muster_strategy_call *call, size_t i,
                                                  struct muster_op *op, struct muster_group *group)
{
    const struct muster_parts input = parts_of(call, 0, call->part_counts);

    (void)i;
    return muster_reduce_scatter_uneven_start_in(op, group, call->view, &input, &call->tensors[1],
                                                 call->reduction, muster_strategy_on_op_done);
}

static enum muster_rc start_all_to_all_uneven(const struct muster_strategy_call *call, size_t i,
                                              struct muster_op *op, struct muster_group *group)
{
    const struct muster_parts input = parts_of(call, 0, call->part_counts);
    const struct muster_parts output = parts_of(call, 1, call->output_counts);

    (void)i;
    return muster_all_to_all_uneven_start_in(op, group, call->view, &input, &output,
                                             muster_strategy_on_op_done);
}

/* The i-th tensor of the call: first the one to send, where there is one, then the one to receive. */
static enum muster_rc start_message(const struct muster_strategy_call *call, size_t i,
                                    struct muster_op *op, struct muster_group *group)
{
    struct muster_strategy *strategy = op->data;
    bool is_send = i == 0 && call->to != MUSTER_SPLIT_NOBODY;
    uint32_t known = is_send ? call->to : call->from, rank;
    struct muster_root peer = muster_strategy_root_of(strategy, call->split, known);

    if (!muster_view_find(muster_group_view(group), &peer.incarnation, &rank))
        return muster_error_set(&strategy->error, MUSTER_ABORTED, "%s: rank %u%s is gone",
                                call->name, known, call->split != NULL ? " of the split" : "");
    return is_send
               ? muster_send_start(op, group, &call->tensors[i], rank, muster_strategy_on_op_done)
               : muster_receive_start(op, group, &call->tensors[i], rank,
                                      muster_strategy_on_op_done);
}

/* --- Running --- */

/** Among whom a call runs, and whether the program waits for it. */
struct target {
    const struct muster_strategy_split *split; /* NULL: all members */
    struct muster_request *request;            /* NULL: it waits */
};

static uint64_t timeout_of(const struct target *target)
{
    return target->request != NULL ? target->request->timeout_ns : 0;
}

static uint32_t rank_in(const struct muster_strategy *strategy,
                        const struct muster_strategy_split *split)
{
    return split != NULL ? muster_strategy_split_rank(split) : strategy->rank;
}

static enum muster_rc run_pair(struct muster_strategy *strategy, const struct target *target,
                               enum muster_device_kind kind, const struct muster_tensor *input,
                               const struct muster_tensor *output)
{
    const struct muster_tensor tensors[] = {*input, *output};
    struct muster_strategy_call call = {
        .name = muster_device_kind_name(kind),
        .tensors = tensors,
        .count = 1,
        .split = target->split,
        .request = target->request,
        .timeout_ns = timeout_of(target),
        .device = kind,
        .start = kind == MUSTER_DEVICE_ALL_GATHER ? start_all_gather : start_all_to_all};

    return muster_strategy_run_by_ranks(strategy, &call);
}

static enum muster_rc run_reduce_scatter(struct muster_strategy *strategy,
                                         const struct target *target,
                                         const struct muster_tensor *input,
                                         const struct muster_tensor *output,
                                         enum muster_reduction reduction)
{
    const struct muster_tensor tensors[] = {*input, *output};
    struct muster_strategy_call call = {.name = "reduce_scatter",
                                        .tensors = tensors,
                                        .count = 1,
                                        .reduction = reduction,
                                        .is_reduced = true,
                                        .split = target->split,
                                        .request = target->request,
                                        .timeout_ns = timeout_of(target),
                                        .device = MUSTER_DEVICE_REDUCE_SCATTER,
                                        .start = start_reduce_scatter};

    return muster_strategy_run_by_ranks(strategy, &call);
}

/* Only the root has the whole: what the others give for it is not looked at. */
static struct muster_tensor whole_at_root(const struct muster_strategy *strategy,
                                          const struct muster_strategy_split *split, uint32_t root,
                                          const struct muster_tensor *whole,
                                          const struct muster_tensor *part)
{
    if (whole != NULL && rank_in(strategy, split) == root)
        return *whole;
    return (struct muster_tensor){.dtype = part->dtype};
}

static enum muster_rc run_gather(struct muster_strategy *strategy, const struct target *target,
                                 const struct muster_tensor *input,
                                 const struct muster_tensor *output, uint32_t root)
{
    const struct muster_tensor tensors[] = {
        *input, whole_at_root(strategy, target->split, root, output, input)};
    struct muster_strategy_call call = {.name = "gather",
                                        .tensors = tensors,
                                        .count = 1,
                                        .split = target->split,
                                        .request = target->request,
                                        .timeout_ns = timeout_of(target),
                                        .view = strategy->view,
                                        .start = start_gather};

    return muster_strategy_run_with_root(strategy, &call, root);
}

static enum muster_rc run_scatter(struct muster_strategy *strategy, const struct target *target,
                                  const struct muster_tensor *input,
                                  const struct muster_tensor *output, uint32_t root)
{
    const struct muster_tensor tensors[] = {
        whole_at_root(strategy, target->split, root, input, output), *output};
    struct muster_strategy_call call = {.name = "scatter",
                                        .tensors = tensors,
                                        .count = 1,
                                        .split = target->split,
                                        .request = target->request,
                                        .timeout_ns = timeout_of(target),
                                        .view = strategy->view,
                                        .start = start_scatter};

    return muster_strategy_run_with_root(strategy, &call, root);
}

/* Refused before a count is read: the program may have made them for the members of another step. */
static enum muster_rc check_parts(struct muster_strategy *strategy,
                                  const struct muster_strategy_split *split, const char *name,
                                  const struct muster_parts *parts)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, name);
    uint32_t size;

    if (rc != MUSTER_OK)
        return rc;
    size = muster_strategy_size_of(strategy, split);
    if (parts->counts == NULL || parts->part_count != size)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: there must be a count for each of %u members, got %u", name,
                                size, parts->counts == NULL ? 0 : parts->part_count);
    return MUSTER_OK;
}

static struct muster_tensor whole_of(const struct muster_parts *parts)
{
    struct muster_tensor whole = {.data = parts->data, .dtype = parts->dtype};

    for (uint32_t i = 0; i < parts->part_count; i++)
        whole.count += parts->counts[i];
    return whole;
}

/* Parts of different size are at the input, the output or both. NULL: tensors has that side already. */
static enum muster_rc run_uneven(struct muster_strategy *strategy, const struct target *target,
                                 struct muster_strategy_call *call, struct muster_tensor *tensors,
                                 const struct muster_parts *input,
                                 const struct muster_parts *output)
{
    const struct muster_parts *parts = input != NULL ? input : output;
    enum muster_rc rc = check_parts(strategy, target->split, call->name, parts);

    if (rc == MUSTER_OK && input != NULL && output != NULL)
        rc = check_parts(strategy, target->split, call->name, output);
    if (rc != MUSTER_OK)
        return rc;
    if (input != NULL)
        tensors[0] = whole_of(input);
    if (output != NULL)
        tensors[1] = whole_of(output);
    call->tensors = tensors;
    call->count = 1;
    call->split = target->split;
    call->request = target->request;
    call->timeout_ns = timeout_of(target);
    call->part_counts = parts->counts;
    call->part_count = parts->part_count;
    return muster_strategy_run_by_ranks(strategy, call);
}

static enum muster_rc run_all_gather_uneven(struct muster_strategy *strategy,
                                            const struct target *target,
                                            const struct muster_tensor *input,
                                            const struct muster_parts *output)
{
    struct muster_tensor tensors[2] = {*input};
    struct muster_strategy_call call = {.name = "all_gather_uneven",
                                        .start = start_all_gather_uneven};

    return run_uneven(strategy, target, &call, tensors, NULL, output);
}

static enum muster_rc run_reduce_scatter_uneven(struct muster_strategy *strategy,
                                                const struct target *target,
                                                const struct muster_parts *input,
                                                const struct muster_tensor *output,
                                                enum muster_reduction reduction)
{
    struct muster_tensor tensors[2] = {[1] = *output};
    struct muster_strategy_call call = {.name = "reduce_scatter_uneven",
                                        .reduction = reduction,
                                        .is_reduced = true,
                                        .start = start_reduce_scatter_uneven};

    return run_uneven(strategy, target, &call, tensors, input, NULL);
}

static enum muster_rc run_all_to_all_uneven(struct muster_strategy *strategy,
                                            const struct target *target,
                                            const struct muster_parts *input,
                                            const struct muster_parts *output)
{
    struct muster_tensor tensors[2];
    struct muster_strategy_call call = {.name = "all_to_all_uneven",
                                        .output_counts = output->counts,
                                        .start = start_all_to_all_uneven};

    return run_uneven(strategy, target, &call, tensors, input, output);
}

static enum muster_rc check_partner(struct muster_strategy *strategy,
                                    const struct muster_strategy_split *split, const char *name,
                                    uint32_t rank)
{
    uint32_t size = muster_strategy_size_of(strategy, split);

    if (rank != MUSTER_SPLIT_NOBODY && rank >= size)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: there is no rank %u, the last is %u", name, rank, size - 1);
    if (rank == rank_in(strategy, split))
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: rank %u is this member itself", name, rank);
    return MUSTER_OK;
}

static enum muster_rc run_messages(struct muster_strategy *strategy, const struct target *target,
                                   const char *name, const struct muster_tensor *output,
                                   uint32_t to, const struct muster_tensor *input, uint32_t from)
{
    struct muster_tensor tensors[2];
    struct muster_strategy_call call = {.name = name,
                                        .tensors = tensors,
                                        .to = to,
                                        .from = from,
                                        .split = target->split,
                                        .request = target->request,
                                        .timeout_ns = timeout_of(target),
                                        .is_message = true,
                                        .start = start_message};
    enum muster_rc rc = muster_strategy_check_step(strategy, name);

    if (rc == MUSTER_OK)
        rc = check_partner(strategy, target->split, name, to);
    if (rc == MUSTER_OK)
        rc = check_partner(strategy, target->split, name, from);
    if (rc != MUSTER_OK)
        return rc;
    if (to != MUSTER_SPLIT_NOBODY)
        tensors[call.count++] = *output;
    if (from != MUSTER_SPLIT_NOBODY)
        tensors[call.count++] = *input;
    if (call.count == 0 && (output == NULL) != (input == NULL)) /* one message, to nobody */
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: there is no rank %u", name, MUSTER_SPLIT_NOBODY);
    return call.count > 0 ? muster_strategy_run(strategy, &call) : MUSTER_OK;
}

/* --- Of all members --- */

static const struct target waits;

enum muster_rc muster_strategy_all_gather(struct muster_strategy *strategy,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output)
{
    return run_pair(strategy, &waits, MUSTER_DEVICE_ALL_GATHER, input, output);
}

enum muster_rc muster_strategy_all_to_all(struct muster_strategy *strategy,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output)
{
    return run_pair(strategy, &waits, MUSTER_DEVICE_ALL_TO_ALL, input, output);
}

enum muster_rc muster_strategy_reduce_scatter(struct muster_strategy *strategy,
                                              const struct muster_tensor *input,
                                              const struct muster_tensor *output,
                                              enum muster_reduction reduction)
{
    return run_reduce_scatter(strategy, &waits, input, output, reduction);
}

enum muster_rc muster_strategy_gather(struct muster_strategy *strategy,
                                      const struct muster_tensor *input,
                                      const struct muster_tensor *output, uint32_t root)
{
    return run_gather(strategy, &waits, input, output, root);
}

enum muster_rc muster_strategy_scatter(struct muster_strategy *strategy,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output, uint32_t root)
{
    return run_scatter(strategy, &waits, input, output, root);
}

enum muster_rc muster_strategy_all_gather_uneven(struct muster_strategy *strategy,
                                                 const struct muster_tensor *input,
                                                 const struct muster_parts *output)
{
    return run_all_gather_uneven(strategy, &waits, input, output);
}

enum muster_rc muster_strategy_reduce_scatter_uneven(struct muster_strategy *strategy,
                                                     const struct muster_parts *input,
                                                     const struct muster_tensor *output,
                                                     enum muster_reduction reduction)
{
    return run_reduce_scatter_uneven(strategy, &waits, input, output, reduction);
}

enum muster_rc muster_strategy_all_to_all_uneven(struct muster_strategy *strategy,
                                                 const struct muster_parts *input,
                                                 const struct muster_parts *output)
{
    return run_all_to_all_uneven(strategy, &waits, input, output);
}

enum muster_rc muster_strategy_send(struct muster_strategy *strategy,
                                    const struct muster_tensor *tensor, uint32_t to)
{
    return run_messages(strategy, &waits, "send", tensor, to, NULL, MUSTER_SPLIT_NOBODY);
}

enum muster_rc muster_strategy_receive(struct muster_strategy *strategy,
                                       const struct muster_tensor *tensor, uint32_t from)
{
    return run_messages(strategy, &waits, "receive", NULL, MUSTER_SPLIT_NOBODY, tensor, from);
}

enum muster_rc muster_strategy_exchange(struct muster_strategy *strategy,
                                        const struct muster_tensor *output, uint32_t to,
                                        const struct muster_tensor *input, uint32_t from)
{
    return run_messages(strategy, &waits, "exchange", output, to, input, from);
}

/* --- Of a split --- */

enum muster_rc muster_strategy_split_all_gather(struct muster_strategy_split *split,
                                                const struct muster_tensor *input,
                                                const struct muster_tensor *output)
{
    enum muster_rc rc = muster_strategy_check_split(split, "all_gather");

    return rc == MUSTER_OK ? run_pair(split->strategy, &(struct target){.split = split},
                                      MUSTER_DEVICE_ALL_GATHER, input, output)
                           : rc;
}

enum muster_rc muster_strategy_split_all_to_all(struct muster_strategy_split *split,
                                                const struct muster_tensor *input,
                                                const struct muster_tensor *output)
{
    enum muster_rc rc = muster_strategy_check_split(split, "all_to_all");

    return rc == MUSTER_OK ? run_pair(split->strategy, &(struct target){.split = split},
                                      MUSTER_DEVICE_ALL_TO_ALL, input, output)
                           : rc;
}

enum muster_rc muster_strategy_split_reduce_scatter(struct muster_strategy_split *split,
                                                    const struct muster_tensor *input,
                                                    const struct muster_tensor *output,
                                                    enum muster_reduction reduction)
{
    enum muster_rc rc = muster_strategy_check_split(split, "reduce_scatter");

    return rc == MUSTER_OK ? run_reduce_scatter(split->strategy, &(struct target){.split = split},
                                                input, output, reduction)
                           : rc;
}

enum muster_rc muster_strategy_split_gather(struct muster_strategy_split *split,
                                            const struct muster_tensor *input,
                                            const struct muster_tensor *output, uint32_t root)
{
    enum muster_rc rc = muster_strategy_check_split(split, "gather");

    return rc == MUSTER_OK
               ? run_gather(split->strategy, &(struct target){.split = split}, input, output, root)
               : rc;
}

enum muster_rc muster_strategy_split_scatter(struct muster_strategy_split *split,
                                             const struct muster_tensor *input,
                                             const struct muster_tensor *output, uint32_t root)
{
    enum muster_rc rc = muster_strategy_check_split(split, "scatter");

    return rc == MUSTER_OK
               ? run_scatter(split->strategy, &(struct target){.split = split}, input, output, root)
               : rc;
}

enum muster_rc muster_strategy_split_all_gather_uneven(struct muster_strategy_split *split,
                                                       const struct muster_tensor *input,
                                                       const struct muster_parts *output)
{
    enum muster_rc rc = muster_strategy_check_split(split, "all_gather_uneven");

    return rc == MUSTER_OK ? run_all_gather_uneven(split->strategy,
                                                   &(struct target){.split = split}, input, output)
                           : rc;
}

enum muster_rc muster_strategy_split_reduce_scatter_uneven(struct muster_strategy_split *split,
                                                           const struct muster_parts *input,
                                                           const struct muster_tensor *output,
                                                           enum muster_reduction reduction)
{
    enum muster_rc rc = muster_strategy_check_split(split, "reduce_scatter_uneven");

    return rc == MUSTER_OK
               ? run_reduce_scatter_uneven(split->strategy, &(struct target){.split = split}, input,
                                           output, reduction)
               : rc;
}

enum muster_rc muster_strategy_split_all_to_all_uneven(struct muster_strategy_split *split,
                                                       const struct muster_parts *input,
                                                       const struct muster_parts *output)
{
    enum muster_rc rc = muster_strategy_check_split(split, "all_to_all_uneven");

    return rc == MUSTER_OK ? run_all_to_all_uneven(split->strategy,
                                                   &(struct target){.split = split}, input, output)
                           : rc;
}

enum muster_rc muster_strategy_split_send(struct muster_strategy_split *split,
                                          const struct muster_tensor *tensor, uint32_t to)
{
    enum muster_rc rc = muster_strategy_check_split(split, "send");

    return rc == MUSTER_OK ? run_messages(split->strategy, &(struct target){.split = split}, "send",
                                          tensor, to, NULL, MUSTER_SPLIT_NOBODY)
                           : rc;
}

enum muster_rc muster_strategy_split_receive(struct muster_strategy_split *split,
                                             const struct muster_tensor *tensor, uint32_t from)
{
    enum muster_rc rc = muster_strategy_check_split(split, "receive");

    return rc == MUSTER_OK ? run_messages(split->strategy, &(struct target){.split = split},
                                          "receive", NULL, MUSTER_SPLIT_NOBODY, tensor, from)
                           : rc;
}

enum muster_rc muster_strategy_split_exchange(struct muster_strategy_split *split,
                                              const struct muster_tensor *output, uint32_t to,
                                              const struct muster_tensor *input, uint32_t from)
{
    enum muster_rc rc = muster_strategy_check_split(split, "exchange");

    return rc == MUSTER_OK ? run_messages(split->strategy, &(struct target){.split = split},
                                          "exchange", output, to, input, from)
                           : rc;
}

/* --- Of a request --- */

static const struct muster_parts no_parts;

/* Parts that a request leaves out have no counts: the call refuses them. */
static enum muster_rc call_uneven(struct muster_strategy *strategy, struct muster_request *request,
                                  const struct muster_tensor *input,
                                  const struct muster_tensor *output)
{
    const struct target target = {request->split, request};
    const struct muster_parts *from =
        request->input_parts != NULL ? request->input_parts : &no_parts;
    const struct muster_parts *to =
        request->output_parts != NULL ? request->output_parts : &no_parts;

    if (request->kind == MUSTER_REQUEST_ALL_GATHER_UNEVEN)
        return run_all_gather_uneven(strategy, &target, input, to);
    if (request->kind == MUSTER_REQUEST_REDUCE_SCATTER_UNEVEN)
        return run_reduce_scatter_uneven(strategy, &target, from, output, request->reduction);
    return run_all_to_all_uneven(strategy, &target, from, to);
}

enum muster_rc muster_strategy_call_exchange(struct muster_strategy *strategy,
                                             struct muster_request *request)
{
    static const struct muster_tensor nothing = {.dtype = (enum muster_dtype)UINT8_MAX};
    const struct target target = {request->split, request};
    const struct muster_tensor *input = request->input != NULL ? request->input : &nothing;
    const struct muster_tensor *output = request->output != NULL ? request->output : &nothing;

    switch (request->kind) {
    case MUSTER_REQUEST_ALL_GATHER:
        return run_pair(strategy, &target, MUSTER_DEVICE_ALL_GATHER, input, output);
    case MUSTER_REQUEST_ALL_TO_ALL:
        return run_pair(strategy, &target, MUSTER_DEVICE_ALL_TO_ALL, input, output);
    case MUSTER_REQUEST_REDUCE_SCATTER:
        return run_reduce_scatter(strategy, &target, input, output, request->reduction);
    case MUSTER_REQUEST_GATHER:
        return run_gather(strategy, &target, input, request->output, request->rank);
    case MUSTER_REQUEST_SCATTER:
        return run_scatter(strategy, &target, request->input, output, request->rank);
    case MUSTER_REQUEST_SEND:
        return run_messages(strategy, &target, "send", input, request->rank, NULL,
                            MUSTER_SPLIT_NOBODY);
    case MUSTER_REQUEST_RECEIVE:
        return run_messages(strategy, &target, "receive", NULL, MUSTER_SPLIT_NOBODY, output,
                            request->rank);
    default:
        return call_uneven(strategy, request, input, output);
    }
}
