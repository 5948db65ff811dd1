/* Starting exchanges and operations on parts: what the caller asks for is checked, and becomes a call of
 * start.c. Counts that only the others know are compared later, by the executors (muster_run_set_dispute). */
#include <muster/collective.h>

#include <string.h>

#include "collective/group/group_internal.h"

/* --- Shapes --- */

static size_t bytes_of(const struct muster_tensor *tensor)
{
    return (size_t)tensor->count * muster_dtype_bytes(tensor->dtype);
}

/* The part is where it belongs in the whole, or nowhere in it. */
static bool is_own_or_apart(const struct muster_tensor *part, const struct muster_tensor *whole,
                            uint64_t first)
{
    const uint8_t *place = (const uint8_t *)whole->data + first * muster_dtype_bytes(whole->dtype);

    return part->count == 0 || part->data == place ||
           muster_group_are_apart(part->data, bytes_of(part), whole->data, bytes_of(whole));
}

static bool are_alike(const struct muster_tensor *a, const struct muster_tensor *b)
{
    return muster_group_is_tensor_valid(a) && muster_group_is_tensor_valid(b) &&
           a->dtype == b->dtype;
}

static bool is_root(const struct muster_group *group, const struct muster_root *root)
{
    return muster_incarnation_is_equal(&root->incarnation, &group->self);
}

/* The common part of all kinds in here, as of the members of a view. False: this one takes no
 * part. */
static bool call_init(struct muster_op_call *call, const struct muster_group *group,
                      const struct muster_view *view, enum muster_op_kind kind, uint32_t lane,
                      uint32_t *ret_index)
{
    const struct muster_op_id id = muster_group_next_id(group, lane);
    uint32_t index = MUSTER_RANK_NONE;

    memset(call, 0, sizeof(*call));
    call->kind = kind;
    for (uint32_t rank = 0; rank < view->member_count; rank++) {
        if (!muster_op_takes_part(group, &id, &view->members[rank]))
            continue;
        if (muster_incarnation_is_equal(&view->members[rank].incarnation, &group->self))
            index = call->n;
        call->n++;
    }
    call->members = muster_op_participants_hash(group, view, &id);
    call->root.epoch = view->epoch;
    call->route = (struct muster_route){MUSTER_RANK_NONE, MUSTER_RANK_NONE};
    *ret_index = index;
    return index < call->n;
}

/* --- Equal parts --- */

/* Only the root has the whole; index is this member's among the participants. */
static enum muster_rc start_with_root(struct muster_op *op, struct muster_group *group,
                                      struct muster_op_call *call, uint32_t index,
                                      const struct muster_tensor *part,
                                      const struct muster_tensor *whole, muster_op_fn *done)
{
    if (!muster_group_is_tensor_valid(part))
        return MUSTER_INVALID_ARGUMENT;
    if (is_root(group, &call->root) &&
        (whole == NULL || !are_alike(part, whole) || whole->count != call->n * part->count ||
         !is_own_or_apart(part, whole, index * part->count)))
        return MUSTER_INVALID_ARGUMENT;
    call->part_count = part->count;
    call->count = call->n * part->count;
    return muster_group_start_call(op, group, call, done);
}

enum muster_rc muster_gather_start_in(struct muster_op *op, struct muster_group *group,
                                      const struct muster_view *view,
                                      const struct muster_tensor *input,
                                      const struct muster_tensor *output,
                                      const struct muster_root *root, muster_op_fn *done)
{
    struct muster_op_call call;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_GATHER, op->lane, &index))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.root = *root;
    call.input = input->data;
    call.output = is_root(group, root) && output != NULL ? output->data : NULL;
    return start_with_root(op, group, &call, index, input, output, done);
}

enum muster_rc muster_gather_start(struct muster_op *op, struct muster_group *group,
                                   const struct muster_tensor *input,
                                   const struct muster_tensor *output, uint32_t root,
                                   muster_op_fn *done)
{
    struct muster_root to;

    if (!muster_group_find_root(group, root, &to))
        return MUSTER_INVALID_ARGUMENT;
    return muster_gather_start_in(op, group, group->view, input, output, &to, done);
}

enum muster_rc muster_scatter_start_in(struct muster_op *op, struct muster_group *group,
                                       const struct muster_view *view,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output,
                                       const struct muster_root *root, muster_op_fn *done)
{
    struct muster_op_call call;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_SCATTER, op->lane, &index))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = output->dtype;
    call.root = *root;
    call.input = is_root(group, root) && input != NULL ? input->data : NULL;
    call.output = output->data;
    return start_with_root(op, group, &call, index, output, input, done);
}

enum muster_rc muster_scatter_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_tensor *input,
                                    const struct muster_tensor *output, uint32_t root,
                                    muster_op_fn *done)
{
    struct muster_root from;

    if (!muster_group_find_root(group, root, &from))
        return MUSTER_INVALID_ARGUMENT;
    return muster_scatter_start_in(op, group, group->view, input, output, &from, done);
}

enum muster_rc muster_all_gather_start_in(struct muster_op *op, struct muster_group *group,
                                          const struct muster_view *view,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output, muster_op_fn *done)
{
    struct muster_op_call call;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_ALL_GATHER, op->lane, &index) ||
        !are_alike(input, output) || output->count != call.n * input->count ||
        !is_own_or_apart(input, output, index * input->count))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.count = output->count;
    call.part_count = input->count;
    call.input = input->data;
    call.output = output->data;
    return muster_group_start_call(op, group, &call, done);
}

enum muster_rc muster_reduce_scatter_start(struct muster_op *op, struct muster_group *group,
                                           const struct muster_tensor *input,
                                           const struct muster_tensor *output,
                                           enum muster_reduction reduction, muster_op_fn *done)
{
    return muster_reduce_scatter_start_in(op, group, group->view, input, output, reduction, done);
}

enum muster_rc muster_reduce_scatter_start_in(struct muster_op *op, struct muster_group *group,
                                              const struct muster_view *view,
                                              const struct muster_tensor *input,
                                              const struct muster_tensor *output,
                                              enum muster_reduction reduction, muster_op_fn *done)
{
    struct muster_op_call call;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_REDUCE_SCATTER, op->lane, &index))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.reduction = reduction;
    if (!are_alike(input, output) || !muster_group_has_meaning(group, &call, op) ||
        input->count != call.n * output->count ||
        !muster_group_are_apart(input->data, bytes_of(input), output->data, bytes_of(output)))
        return MUSTER_INVALID_ARGUMENT;
    call.count = input->count;
    call.part_count = output->count;
    call.input = input->data;
    call.output = output->data;
    return muster_group_start_call(op, group, &call, done);
}

enum muster_rc muster_all_to_all_start(struct muster_op *op, struct muster_group *group,
                                       const struct muster_tensor *input,
                                       const struct muster_tensor *output, muster_op_fn *done)
{
    return muster_all_to_all_start_in(op, group, group->view, input, output, done);
}

enum muster_rc muster_all_to_all_start_in(struct muster_op *op, struct muster_group *group,
                                          const struct muster_view *view,
                                          const struct muster_tensor *input,
                                          const struct muster_tensor *output, muster_op_fn *done)
{
    struct muster_op_call call;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_ALL_TO_ALL, op->lane, &index) ||
        !are_alike(input, output) || input->count != output->count || input->count % call.n != 0 ||
        !muster_group_are_apart(input->data, bytes_of(input), output->data, bytes_of(output)))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.count = input->count;
    call.part_count = input->count / call.n;
    call.input = input->data;
    call.output = output->data;
    return muster_group_start_call(op, group, &call, done);
}

/* --- Uneven parts --- */

/* All parts together; its count may be beyond all memory, but does not wrap around. */
static bool whole_of(const struct muster_parts *parts, uint32_t n, struct muster_tensor *ret_whole)
{
    struct muster_tensor whole = {.data = parts->data, .dtype = parts->dtype};

    if (parts->part_count != n || parts->counts == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct muster_tensor part = {
            .data = parts->data, .count = parts->counts[i], .dtype = parts->dtype};

        whole.count += parts->counts[i];
        if (!muster_group_is_tensor_valid(&part) || !muster_group_is_tensor_valid(&whole))
            return false;
    }
    *ret_whole = whole;
    return true;
}

static void write_offsets(uint64_t *offsets, const struct muster_parts *parts)
{
    offsets[0] = 0;
    for (uint32_t i = 0; i < parts->part_count; i++)
        offsets[i + 1] = offsets[i] + parts->counts[i];
}

static enum muster_rc start_uneven(struct muster_op *op, struct muster_group *group,
                                   struct muster_op_call *call, const struct muster_parts *parts,
                                   const struct muster_parts *others, muster_op_fn *done)
{
    size_t room = call->n + (size_t)1;

    call->offsets =
        muster_buffer_get(group->pool, (others != NULL ? 2 : 1) * room * sizeof(*call->offsets));
    if (call->offsets == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    write_offsets(call->offsets, parts);
    if (others != NULL)
        write_offsets(call->offsets + room, others);
    return muster_group_start_call(op, group, call, done);
}

static uint64_t first_of(const struct muster_parts *parts, uint32_t index)
{
    uint64_t first = 0;

    for (uint32_t i = 0; i < index; i++)
        first += parts->counts[i];
    return first;
}

enum muster_rc muster_all_gather_uneven_start(struct muster_op *op, struct muster_group *group,
                                              const struct muster_tensor *input,
                                              const struct muster_parts *output, muster_op_fn *done)
{
    return muster_all_gather_uneven_start_in(op, group, group->view, input, output, done);
}

enum muster_rc muster_all_gather_uneven_start_in(struct muster_op *op, struct muster_group *group,
                                                 const struct muster_view *view,
                                                 const struct muster_tensor *input,
                                                 const struct muster_parts *output,
                                                 muster_op_fn *done)
{
    struct muster_op_call call;
    struct muster_tensor whole;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_ALL_GATHER_UNEVEN, op->lane, &index) ||
        !whole_of(output, call.n, &whole) || !are_alike(input, &whole) ||
        input->count != output->counts[index] ||
        !is_own_or_apart(input, &whole, first_of(output, index)))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.count = whole.count;
    call.input = input->data;
    call.output = output->data;
    return start_uneven(op, group, &call, output, NULL, done);
}

enum muster_rc muster_reduce_scatter_uneven_start(struct muster_op *op, struct muster_group *group,
                                                  const struct muster_parts *input,
                                                  const struct muster_tensor *output,
                                                  enum muster_reduction reduction,
                                                  muster_op_fn *done)
{
    return muster_reduce_scatter_uneven_start_in(op, group, group->view, input, output, reduction,
                                                 done);
}

enum muster_rc muster_reduce_scatter_uneven_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_parts *input, const struct muster_tensor *output,
    enum muster_reduction reduction, muster_op_fn *done)
{
    struct muster_op_call call;
    struct muster_tensor whole;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_REDUCE_SCATTER_UNEVEN, op->lane, &index))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.reduction = reduction;
    if (!whole_of(input, call.n, &whole) || !are_alike(&whole, output) ||
        !muster_group_has_meaning(group, &call, op) || output->count != input->counts[index] ||
        !muster_group_are_apart(whole.data, bytes_of(&whole), output->data, bytes_of(output)))
        return MUSTER_INVALID_ARGUMENT;
    call.count = whole.count;
    call.input = input->data;
    call.output = output->data;
    return start_uneven(op, group, &call, input, NULL, done);
}

enum muster_rc muster_all_to_all_uneven_start(struct muster_op *op, struct muster_group *group,
                                              const struct muster_parts *input,
                                              const struct muster_parts *output, muster_op_fn *done)
{
    return muster_all_to_all_uneven_start_in(op, group, group->view, input, output, done);
}

enum muster_rc muster_all_to_all_uneven_start_in(struct muster_op *op, struct muster_group *group,
                                                 const struct muster_view *view,
                                                 const struct muster_parts *input,
                                                 const struct muster_parts *output,
                                                 muster_op_fn *done)
{
    struct muster_op_call call;
    struct muster_tensor from, to;
    uint32_t index;

    if (!call_init(&call, group, view, MUSTER_OP_ALL_TO_ALL_UNEVEN, op->lane, &index) ||
        !whole_of(input, call.n, &from) || !whole_of(output, call.n, &to) ||
        !are_alike(&from, &to) || input->counts[index] != output->counts[index] ||
        !muster_group_are_apart(from.data, bytes_of(&from), to.data, bytes_of(&to)))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.count = from.count > to.count ? from.count : to.count;
    call.input = input->data;
    call.output = output->data;
    return start_uneven(op, group, &call, input, output, done);
}

/* --- Permutation --- */

/* Ranks are those among the members that take part, as everywhere in here. */
static bool is_route(const struct muster_route *route, uint32_t index, uint32_t n)
{
    return (route->to < n || route->to == MUSTER_RANK_NONE) &&
           (route->from < n || route->from == MUSTER_RANK_NONE) &&
           (route->to == index) == (route->from == index);
}

enum muster_rc muster_permute_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_tensor *input,
                                    const struct muster_tensor *output,
                                    const struct muster_route *route, muster_op_fn *done)
{
    /* A tensor that the route does not use need not be valid: it counts as empty. */
    struct muster_tensor from = *input, to = *output;
    struct muster_op_call call;
    uint32_t index;

    if (route->to == MUSTER_RANK_NONE)
        from = (struct muster_tensor){.dtype = input->dtype};
    if (route->from == MUSTER_RANK_NONE)
        to = (struct muster_tensor){.dtype = output->dtype};
    if (!call_init(&call, group, group->view, MUSTER_OP_PERMUTE, op->lane, &index) ||
        !is_route(route, index, call.n) || !are_alike(&from, &to) ||
        input->count != output->count ||
        input->count > MUSTER_OP_BYTES_MAX / muster_dtype_bytes(input->dtype) ||
        !muster_group_are_apart(from.data, bytes_of(&from), to.data, bytes_of(&to)))
        return MUSTER_INVALID_ARGUMENT;
    call.dtype = input->dtype;
    call.count = input->count;
    call.input = from.data;
    call.output = to.data;
    call.route = *route;
    return muster_group_start_call(op, group, &call, done);
}
