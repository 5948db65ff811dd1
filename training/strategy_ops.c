/* The strategy's blocking operations: start on the current group, wait in the driver's seat. */
#include <string.h>

#include <muster/all_reduce.h>
#include <muster/hash.h>

#include "collective/group.h"
#include "training/strategy_internal.h"

enum muster_rc muster_strategy_wait(struct muster_strategy *strategy, bool (*is_done)(void *data))
{
    enum muster_rc rc = muster_runtime_wait(strategy->runtime, is_done, strategy, UINT64_MAX);

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    return rc;
}

static bool are_ops_done(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->ops_open == 0;
}

/* An interruption of any operation of the call is one of the call. */
static void keep_result(struct muster_strategy *strategy, const struct muster_op_result *result)
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

static void on_op_done(struct muster_op *op, enum muster_rc rc)
{
    struct muster_strategy *strategy = op->data;

    strategy->ops_open--;
    if (op == strategy->change.op)
        muster_strategy_tell_view(strategy, op);
    if (rc == MUSTER_OK) {
        keep_result(strategy, &op->result);
        muster_node_touch_state(strategy->node);
    } else if (strategy->ops_rc == MUSTER_OK) {
        strategy->ops_rc = rc;
        if (strategy->state != MUSTER_STRATEGY_FAILED)
            muster_error_set(&strategy->error, rc, "%s: %s", strategy->op_name,
                             op->error.text[0] != '\0' ? op->error.text : muster_rc_text(rc));
    }
}

/* Operations of a call: `start` puts the i-th on the group. */
struct call {
    const char *name;
    const struct muster_tensor *tensors;
    size_t count;
    enum muster_reduction reduction;
    uint64_t weight;
    uint64_t timeout_ns; /* 0: the strategy's */
    struct muster_root root;
    const struct muster_view *view; /* whose ranks the program knows */
    enum muster_rc (*start)(const struct call *call, size_t i, struct muster_op *op,
                            struct muster_group *group);
};

static uint64_t timeout_of(const struct muster_strategy *strategy, const struct call *call)
{
    return call->timeout_ns != 0 ? call->timeout_ns : strategy->op_timeout_ns;
}

/* One operation of a call, ready to start. */
static struct muster_op *next_op(struct muster_strategy *strategy, const struct call *call)
{
    struct muster_op *op = &strategy->ops[strategy->ops_started];

    memset(op, 0, sizeof(*op));
    op->data = strategy;
    op->deadline_ns = muster_loop_after_ns(strategy->env->loop, timeout_of(strategy, call));
    return op;
}

static enum muster_rc start_all_reduce(const struct call *call, size_t i, struct muster_op *op,
                                       struct muster_group *group)
{
    return muster_all_reduce_start(op, group, &call->tensors[i], call->reduction, on_op_done);
}

static enum muster_rc start_weighted(const struct call *call, size_t i, struct muster_op *op,
                                     struct muster_group *group)
{
    return muster_all_reduce_weighted_start(op, group, &call->tensors[i], call->weight, on_op_done);
}

static enum muster_rc start_broadcast(const struct call *call, size_t i, struct muster_op *op,
                                      struct muster_group *group)
{
    return muster_broadcast_start_from(op, group, &call->tensors[i], &call->root, on_op_done);
}

static enum muster_rc start_all_gather(const struct call *call, size_t i, struct muster_op *op,
                                       struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start(op, group, &call->tensors[0], &call->tensors[1], on_op_done);
}

static enum muster_rc start_reduce(const struct call *call, size_t i, struct muster_op *op,
                                   struct muster_group *group)
{
    return muster_reduce_start_from(op, group, &call->tensors[i], call->reduction, &call->root,
                                    on_op_done);
}

static enum muster_rc start_all_gather_in(const struct call *call, size_t i, struct muster_op *op,
                                          struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      on_op_done);
}

static enum muster_rc start_all_to_all(const struct call *call, size_t i, struct muster_op *op,
                                       struct muster_group *group)
{
    (void)i;
    return muster_all_to_all_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      on_op_done);
}

static enum muster_rc start_barrier(const struct call *call, size_t i, struct muster_op *op,
                                    struct muster_group *group)
{
    (void)call;
    (void)i;
    return muster_barrier_start(op, group, on_op_done);
}

/* The i-th operation of a call could not be started. */
static void explain_refusal(struct muster_strategy *strategy, const struct call *call, size_t i,
                            enum muster_rc rc)
{
    struct muster_error why;

    if ((call->start == start_all_reduce || call->start == start_reduce) &&
        muster_reduction_check(call->tensors[i].dtype, call->reduction, &why) != MUSTER_OK)
        muster_error_set(&strategy->error, rc, "%s of tensor %zu: %s", call->name, i, why.text);
    else if (rc == MUSTER_INVALID_ARGUMENT && call->view != NULL)
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
static enum muster_rc run_in_seat(struct muster_strategy *strategy, const struct call *call)
{
    size_t i = 0;

    strategy->ops_rc = MUSTER_OK;
    strategy->has_result = false;
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
                strategy->ops_started++;
                strategy->ops_open++;
                i++;
            } else if (rc != MUSTER_ABORTED) {
                explain_refusal(strategy, call, i, rc);
            }
        }
        if (rc != MUSTER_OK)
            strategy->ops_rc = rc;
        rc = muster_strategy_wait(strategy, are_ops_done);
        if (rc != MUSTER_OK)
            return rc;
    }
    return strategy->ops_rc;
}

/* Operations belong into a step. */
static enum muster_rc check_step(struct muster_strategy *strategy, const char *name)
{
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

static enum muster_rc run(struct muster_strategy *strategy, const struct call *call)
{
    enum muster_rc rc = check_step(strategy, call->name);

    if (rc != MUSTER_OK)
        return rc;
    muster_runtime_enter(strategy->runtime);
    rc = run_in_seat(strategy, call);
    muster_runtime_leave(strategy->runtime);
    return rc;
}

/* --- All-reduce, as the options say --- */

enum muster_rc muster_strategy_check_communication(
    const struct muster_communication_options *options, struct muster_error *ret_error)
{
    if (options->implementation != MUSTER_COMMUNICATION_NCCL)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "communication NCCL: a strategy's tensors are in host memory; use AUTO "
                            "or RING, or muster_gpu_open and its operations for device memory");
}

static void on_list_done(struct muster_list_op *list, enum muster_rc rc)
{
    struct muster_strategy *strategy = list->data;

    strategy->ops_open--;
    if (rc == MUSTER_OK) {
        keep_result(strategy, &list->result);
        muster_node_touch_state(strategy->node);
        return;
    }
    strategy->ops_rc = rc;
    if (strategy->state != MUSTER_STRATEGY_FAILED)
        muster_error_set(&strategy->error, rc, "%s: %s", strategy->op_name,
                         list->error.text[0] != '\0' ? list->error.text : muster_rc_text(rc));
}

static enum muster_rc run_list_in_seat(struct muster_strategy *strategy, const struct call *call,
                                       uint64_t bytes_per_pack)
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
    list->deadline_ns = muster_loop_after_ns(strategy->env->loop, timeout_of(strategy, call));
    list->bytes_per_pack = bytes_per_pack;
    rc = muster_all_reduce_list_start(list, group, call->tensors, call->count, call->reduction,
                                      on_list_done);
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc,
                                "%s of %zu tensors: %s (types, NULL, alignment, overlap?)",
                                call->name, call->count, muster_rc_text(rc));
    strategy->ops_open++;
    rc = muster_strategy_wait(strategy, are_ops_done);
    return rc != MUSTER_OK ? rc : strategy->ops_rc;
}

enum muster_rc muster_strategy_all_reduce_with(struct muster_strategy *strategy,
                                               const struct muster_tensor *tensors, size_t count,
                                               enum muster_reduction reduction,
                                               const struct muster_communication_options *options)
{
    const struct muster_communication_options merged =
        muster_communication_merge(&strategy->communication, options);
    const struct call call = {.name = "all_reduce",
                              .tensors = tensors,
                              .count = count,
                              .reduction = reduction,
                              .timeout_ns = merged.timeout_ns,
                              .start = start_all_reduce};
    enum muster_rc rc = check_step(strategy, call.name);

    if (rc == MUSTER_OK)
        rc = muster_strategy_check_communication(&merged, &strategy->error);
    if (rc != MUSTER_OK || merged.bytes_per_pack == 0 || count < 2)
        return rc != MUSTER_OK ? rc : run(strategy, &call);
    muster_runtime_enter(strategy->runtime);
    rc = run_list_in_seat(strategy, &call, merged.bytes_per_pack);
    muster_runtime_leave(strategy->runtime);
    return rc;
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
    return run(strategy, &(struct call){.name = "all_reduce",
                                        .tensors = tensors,
                                        .count = count,
                                        .reduction = MUSTER_MEAN,
                                        .weight = weight,
                                        .timeout_ns = strategy->communication.timeout_ns,
                                        .start = start_weighted});
}

static bool takes_part(const struct muster_strategy *strategy, const struct muster_member *member)
{
    return member->from_step <= strategy->step;
}

/* The member that the program knows by this rank, since begin. */
static struct muster_root root_of_rank(const struct muster_strategy *strategy, uint32_t rank)
{
    const struct muster_view *view = strategy->view;
    struct muster_root root = {.epoch = view->epoch};

    for (uint32_t i = 0; i < view->member_count; i++)
        if (takes_part(strategy, &view->members[i]) && rank-- == 0) {
            root.incarnation = view->members[i].incarnation;
            break;
        }
    return root;
}

static enum muster_rc run_with_root(struct muster_strategy *strategy, struct call *call,
                                    uint32_t root)
{
    enum muster_rc rc = check_step(strategy, call->name);

    if (rc != MUSTER_OK)
        return rc;
    if (root >= strategy->size)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: there is no rank %u, the last is %u", call->name, root,
                                strategy->size - 1);
    call->root = root_of_rank(strategy, root);
    return run(strategy, call);
}

enum muster_rc muster_strategy_broadcast(struct muster_strategy *strategy,
                                         const struct muster_tensor *tensor, uint32_t root)
{
    struct call call = {
        .name = "broadcast", .tensors = tensor, .count = 1, .start = start_broadcast};

    return run_with_root(strategy, &call, root);
}

enum muster_rc muster_strategy_reduce(struct muster_strategy *strategy,
                                      const struct muster_tensor *tensor,
                                      enum muster_reduction reduction, uint32_t root)
{
    struct call call = {.name = "reduce",
                        .tensors = tensor,
                        .count = 1,
                        .reduction = reduction,
                        .start = start_reduce};

    return run_with_root(strategy, &call, root);
}

/* Parts are by the ranks that the program knows. */
static enum muster_rc run_by_ranks(struct muster_strategy *strategy, const char *name,
                                   const struct muster_tensor *input,
                                   const struct muster_tensor *output,
                                   enum muster_rc (*start)(const struct call *call, size_t i,
                                                           struct muster_op *op,
                                                           struct muster_group *group))
{
    const struct muster_tensor tensors[] = {*input, *output};
    struct call call = {.name = name, .tensors = tensors, .count = 1, .start = start};
    enum muster_rc rc = check_step(strategy, name);

    if (rc != MUSTER_OK)
        return rc;
    call.view = strategy->view;
    return run(strategy, &call);
}

enum muster_rc muster_strategy_all_gather(struct muster_strategy *strategy,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output)
{
    return run_by_ranks(strategy, "all_gather", input, output, start_all_gather_in);
}

enum muster_rc muster_strategy_all_to_all(struct muster_strategy *strategy,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output)
{
    return run_by_ranks(strategy, "all_to_all", input, output, start_all_to_all);
}

enum muster_rc muster_strategy_barrier(struct muster_strategy *strategy)
{
    return run(strategy, &(struct call){.name = "barrier", .count = 1, .start = start_barrier});
}

/* --- tensors that the other processes of the host map --- */

enum muster_rc muster_strategy_tensor_new(struct muster_strategy *strategy, enum muster_dtype dtype,
                                          uint64_t count, struct muster_tensor *ret_tensor)
{
    enum muster_rc rc;

    muster_runtime_enter(strategy->runtime);
    rc = muster_tensor_new(strategy->env, dtype, count, ret_tensor);
    muster_runtime_leave(strategy->runtime);
    if (rc != MUSTER_OK)
        muster_error_set(&strategy->error, rc, "a tensor of %llu x %s: %s",
                         (unsigned long long)count, muster_dtype_name(dtype), muster_rc_text(rc));
    return rc;
}

void muster_strategy_tensor_free(struct muster_strategy *strategy, struct muster_tensor *tensor)
{
    muster_runtime_enter(strategy->runtime);
    muster_tensor_free(strategy->env, tensor);
    muster_runtime_leave(strategy->runtime);
}

enum muster_rc muster_strategy_broadcast_in_seat(struct muster_strategy *strategy, const char *name,
                                                 const struct muster_tensor *tensor,
                                                 const struct muster_root *root)
{
    return run_in_seat(
        strategy,
        &(struct call){
            .name = name, .tensors = tensor, .count = 1, .root = *root, .start = start_broadcast});
}

enum muster_rc muster_strategy_all_gather_in_seat(struct muster_strategy *strategy,
                                                  const char *name,
                                                  const struct muster_tensor *input,
                                                  const struct muster_tensor *output)
{
    const struct muster_tensor tensors[] = {*input, *output};

    return run_in_seat(
        strategy,
        &(struct call){.name = name, .tensors = tensors, .count = 1, .start = start_all_gather});
}

void muster_strategy_snapshot(struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_node_view(strategy->node);
    const struct muster_incarnation *self = muster_node_incarnation(strategy->node);

    if (view == NULL)
        return;
    muster_view_unref(strategy->view);
    strategy->view = muster_view_ref((struct muster_view *)(uintptr_t)view); /* counted only */
    strategy->communication = view->communication;
    strategy->epoch = view->epoch;
    strategy->size = 0;
    for (uint32_t i = 0; i < view->member_count; i++) {
        if (!takes_part(strategy, &view->members[i]))
            continue;
        if (muster_incarnation_is_equal(&view->members[i].incarnation, self))
            strategy->rank = strategy->size;
        strategy->size++;
    }
}

void muster_strategy_state_digest(const struct muster_strategy *strategy,
                                  char ret_text[MUSTER_DIGEST_TEXT_BYTES])
{
    struct muster_hash_stream hash;
    uint64_t digest;

    muster_hash_stream_init(&hash);
    for (size_t i = 0; i < strategy->tensor_count; i++) {
        const struct muster_tensor *tensor = &strategy->tensors[i].tensor;

        muster_hash_stream_add(&hash, tensor->data,
                               (size_t)tensor->count * muster_dtype_bytes(tensor->dtype));
    }
    digest = muster_hash_stream_hash64(&hash);
    for (int i = 15; i >= 0; i--, digest >>= 4)
        ret_text[i] = "0123456789abcdef"[digest & 15];
    ret_text[16] = '\0';
}
