/* The group of a played node, and its operations (played_node.h). */
#include "played_node.h"

#include <string.h>

#include <muster/collective.h>

#define OPS_MAX (2 * MUSTER_STRATEGY_OPS_MAX)

static struct played_op ops[OPS_MAX];
static unsigned op_count;

/* --- Operations --- */

static void on_op_end(struct muster_task *task)
{
    struct played_op *op = MUSTER_CONTAINER_OF(task, struct played_op, task);

    op->op->impl = NULL;
    if (op->list == NULL) {
        op->done(op->op, op->rc);
        return;
    }
    op->list->error = op->op->error;
    op->list->result = op->op->result;
    op->list_done(op->list, op->rc);
}

/* All have the same. */
static void fill_gathered(const struct played_op *op)
{
    size_t bytes = op->tensor.count * muster_dtype_bytes(op->tensor.dtype);

    for (uint64_t at = 0; at < op->output.count; at += op->tensor.count)
        memcpy((uint8_t *)op->output.data + at * muster_dtype_bytes(op->tensor.dtype),
               op->tensor.data, bytes);
}

/* The hook may have the end come later: it comes in a turn of its own. */
static void on_op_turn(struct muster_task *task)
{
    struct played_op *op = MUSTER_CONTAINER_OF(task, struct played_op, task);

    if (played.are_ops_held && op->rc == MUSTER_OK) {
        played_post(task, on_op_turn);
        return;
    }
    if (strcmp(op->kind, "gather_now") == 0)
        fill_gathered(op);
    if (played.on_op != NULL)
        played.on_op(op);
    played_post(task, on_op_end);
}

static void on_op_cancel(struct muster_op *op)
{
    struct played_op *own = op->impl;

    played_note("cancel\n");
    own->rc = MUSTER_CANCELLED;
}

static struct played_op *op_start(const char *kind, struct muster_op *op, muster_op_fn *done,
                                  const struct muster_tensor *tensor)
{
    struct played_op *own = &ops[op_count++ % OPS_MAX];

    assert_false(played_is_posted(&own->task));
    *own = (struct played_op){.kind = kind, .op = op, .done = done};
    if (op == NULL)
        op = own->op = &own->own; /* of a list */
    if (tensor != NULL)
        own->tensor = *tensor;
    own->timeout_ns = op->deadline_ns - muster_loop_now_ns(played.env->loop);
    op->id =
        (struct muster_op_id){.step = played.step, .lane = op->lane, .sequence = played.sequence++};
    op->impl = own;
    op->cancel = on_op_cancel;
    op->result.contributor_count = played.view->member_count;
    op->result.epoch = played.view->epoch;
    played_note("%s", kind);
    if (tensor != NULL)
        played_note(" %llu x %s", (unsigned long long)tensor->count,
                    muster_dtype_name(tensor->dtype));
    if (op->lane != 0)
        played_note(" lane %u", op->lane);
    played_post(&own->task, on_op_turn);
    return own;
}

static bool is_refused(const char *kind)
{
    if (played.refused_start > 0 && --played.refused_start == 0)
        played.start_rc =
            played.refused_rc != MUSTER_OK ? played.refused_rc : MUSTER_RESOURCE_EXHAUSTED;
    if (played.start_rc != MUSTER_OK)
        played_note("%s refused\n", kind);
    return played.start_rc != MUSTER_OK;
}

enum muster_rc muster_all_reduce_start(struct muster_op *op, struct muster_group *group,
                                       const struct muster_tensor *tensor,
                                       enum muster_reduction reduction, muster_op_fn *done)
{
    (void)group;
    if (is_refused("all_reduce"))
        return played.start_rc;
    op_start("all_reduce", op, done, tensor);
    played_note(" %s\n", muster_reduction_name(reduction));
    return MUSTER_OK;
}

enum muster_rc muster_all_reduce_weighted_start(struct muster_op *op, struct muster_group *group,
                                                const struct muster_tensor *tensor, uint64_t weight,
                                                muster_op_fn *done)
{
    (void)group;
    if (is_refused("weighted"))
        return played.start_rc;
    op_start("weighted", op, done, tensor);
    played_note(" by %llu\n", (unsigned long long)weight);
    return MUSTER_OK;
}

enum muster_rc muster_broadcast_start_from(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *tensor,
                                           const struct muster_root *root, muster_op_fn *done)
{
    (void)group;
    if (is_refused("broadcast"))
        return played.start_rc;
    op_start("broadcast", op, done, tensor)->root = *root;
    played_note(" of %u in %llu\n", root->incarnation.bytes[1], (unsigned long long)root->epoch);
    return MUSTER_OK;
}

enum muster_rc muster_reduce_start_from(struct muster_op *op, struct muster_group *group,
                                        const struct muster_tensor *tensor,
                                        enum muster_reduction reduction,
                                        const struct muster_root *root, muster_op_fn *done)
{
    (void)group;
    if (is_refused("reduce"))
        return played.start_rc;
    op_start("reduce", op, done, tensor)->root = *root;
    played_note(" %s at %u in %llu\n", muster_reduction_name(reduction), root->incarnation.bytes[1],
                (unsigned long long)root->epoch);
    return MUSTER_OK;
}

static enum muster_rc pair_start(const char *kind, struct muster_op *op,
                                 const struct muster_tensor *input,
                                 const struct muster_tensor *output, muster_op_fn *done)
{
    if (is_refused(kind))
        return played.start_rc;
    op_start(kind, op, done, input)->output = *output;
    played_note(" into %llu\n", (unsigned long long)output->count);
    return MUSTER_OK;
}

enum muster_rc muster_all_gather_start(struct muster_op *op, struct muster_group *group,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output, muster_op_fn *done)
{
    (void)group;
    return pair_start("gather_now", op, input, output, done);
}

enum muster_rc muster_all_gather_start_in(struct muster_op *op, struct muster_group *group,
                                          const struct muster_view *view,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output, muster_op_fn *done)
{
    (void)group;
    (void)view;
    return pair_start("all_gather", op, input, output, done);
}

static struct muster_tensor whole_of(const struct muster_parts *parts)
{
    struct muster_tensor whole = {.data = parts->data, .dtype = parts->dtype};

    for (uint32_t i = 0; i < parts->part_count; i++)
        whole.count += parts->counts[i];
    return whole;
}

enum muster_rc muster_all_gather_uneven_start_in(struct muster_op *op, struct muster_group *group,
                                                 const struct muster_view *view,
                                                 const struct muster_tensor *input,
                                                 const struct muster_parts *output,
                                                 muster_op_fn *done)
{
    const struct muster_tensor whole = whole_of(output);

    (void)group;
    (void)view;
    return pair_start("all_gather_uneven", op, input, &whole, done);
}

enum muster_rc muster_all_to_all_uneven_start_in(struct muster_op *op, struct muster_group *group,
                                                 const struct muster_view *view,
                                                 const struct muster_parts *input,
                                                 const struct muster_parts *output,
                                                 muster_op_fn *done)
{
    const struct muster_tensor from = whole_of(input), to = whole_of(output);

    (void)group;
    (void)view;
    return pair_start("all_to_all_uneven", op, &from, &to, done);
}

static enum muster_rc reduced_pair_start(const char *kind, struct muster_op *op,
                                         const struct muster_tensor *input,
                                         const struct muster_tensor *output,
                                         enum muster_reduction reduction, muster_op_fn *done)
{
    if (is_refused(kind))
        return played.start_rc;
    op_start(kind, op, done, input)->output = *output;
    played_note(" %s into %llu\n", muster_reduction_name(reduction),
                (unsigned long long)output->count);
    return MUSTER_OK;
}

enum muster_rc muster_reduce_scatter_start_in(struct muster_op *op, struct muster_group *group,
                                              const struct muster_view *view,
                                              const struct muster_tensor *input,
                                              const struct muster_tensor *output,
                                              enum muster_reduction reduction, muster_op_fn *done)
{
    (void)group;
    played.op_epoch = view->epoch;
    return reduced_pair_start("reduce_scatter", op, input, output, reduction, done);
}

enum muster_rc muster_reduce_scatter_uneven_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_parts *input, const struct muster_tensor *output,
    enum muster_reduction reduction, muster_op_fn *done)
{
    const struct muster_tensor whole = whole_of(input);

    (void)group;
    played.op_epoch = view->epoch;
    return reduced_pair_start("reduce_scatter_uneven", op, &whole, output, reduction, done);
}

static enum muster_rc rooted_pair_start(const char *kind, struct muster_op *op,
                                        const struct muster_view *view,
                                        const struct muster_tensor *input,
                                        const struct muster_tensor *output,
                                        const struct muster_root *root, muster_op_fn *done)
{
    struct played_op *own;

    played.op_epoch = view->epoch;
    if (is_refused(kind))
        return played.start_rc;
    own = op_start(kind, op, done, input);
    own->output = *output;
    own->root = *root;
    played_note(" into %llu root %u in %llu\n", (unsigned long long)output->count,
                root->incarnation.bytes[1], (unsigned long long)root->epoch);
    return MUSTER_OK;
}

enum muster_rc muster_gather_start_in(struct muster_op *op, struct muster_group *group,
                                      const struct muster_view *view,
                                      const struct muster_tensor *input,
                                      const struct muster_tensor *output,
                                      const struct muster_root *root, muster_op_fn *done)
{
    (void)group;
    return rooted_pair_start("gather", op, view, input, output, root, done);
}

enum muster_rc muster_scatter_start_in(struct muster_op *op, struct muster_group *group,
                                       const struct muster_view *view,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output,
                                       const struct muster_root *root, muster_op_fn *done)
{
    (void)group;
    return rooted_pair_start("scatter", op, view, input, output, root, done);
}

enum muster_rc muster_all_to_all_start_in(struct muster_op *op, struct muster_group *group,
                                          const struct muster_view *view,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output, muster_op_fn *done)
{
    (void)group;
    (void)view;
    return pair_start("all_to_all", op, input, output, done);
}

enum muster_rc muster_barrier_start(struct muster_op *op, struct muster_group *group,
                                    muster_op_fn *done)
{
    (void)group;
    if (is_refused("barrier"))
        return played.start_rc;
    op_start("barrier", op, done, NULL);
    played_note("\n");
    return MUSTER_OK;
}

enum muster_rc muster_send_start(struct muster_op *op, struct muster_group *group,
                                 const struct muster_tensor *tensor, uint32_t to,
                                 muster_op_fn *done)
{
    (void)group;
    if (is_refused("send"))
        return played.start_rc;
    op_start("send", op, done, tensor);
    played_note(" to %u\n", to);
    return MUSTER_OK;
}

enum muster_rc muster_receive_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_tensor *tensor, uint32_t from,
                                    muster_op_fn *done)
{
    (void)group;
    if (is_refused("receive"))
        return played.start_rc;
    op_start("receive", op, done, tensor);
    played_note(" from %u\n", from);
    return MUSTER_OK;
}

enum muster_rc muster_all_reduce_list_start(struct muster_list_op *list, struct muster_group *group,
                                            const struct muster_tensor *tensors, size_t count,
                                            enum muster_reduction reduction,
                                            muster_list_op_fn *done)
{
    struct played_op *op;

    (void)group;
    if (is_refused("list"))
        return played.start_rc;
    op = op_start("list", NULL, NULL, tensors);
    op->timeout_ns = list->deadline_ns - muster_loop_now_ns(played.env->loop);
    op->list = list;
    op->list_done = done;
    played_note(" %s of %zu in packs of %llu lane %u\n", muster_reduction_name(reduction), count,
                (unsigned long long)list->bytes_per_pack, list->lane);
    return MUSTER_OK;
}

/* --- The group --- */

const struct muster_view *muster_group_view(const struct muster_group *group)
{
    (void)group;
    return played.view;
}

enum muster_rc muster_group_split(struct muster_group *group, const struct muster_split *split)
{
    struct muster_member member = {.task_index = PLAYED_SELF};

    (void)group;
    played_note("split lanes %u + %u color %u\n", split->lane, split->lane_count,
                split->color(split->data, &member));
    return MUSTER_OK;
}

bool muster_group_waits_for(const struct muster_group *group, struct muster_group_wait *ret_wait)
{
    (void)group;
    if (played.group_waits != NULL)
        *ret_wait = *played.group_waits;
    return played.group_waits != NULL;
}
