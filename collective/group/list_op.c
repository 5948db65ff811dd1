/* A list of tensors as one operation: its parts run as operations of their own. Tensors of one type are packed up to
 * bytes_per_pack (kernel/packing.h), since few large operations cost less than many small ones. All memory is kept
 * by the user's operation, so a training loop allocates in its first step only. */
#include "collective/group/group_internal.h"
#include "collective/kernel/packing.h"

#include <muster/collective.h>

#include <string.h>

/* Parts begin at multiples of a cache line, so that two of them never share one. */
#define ARENA_LINE 64u

/* Tensors of one type of one pack. */
struct part {
    struct muster_op op; /* op.data: the list */
    struct muster_pack pack;
    uint8_t *buffer; /* in the arena; NULL: in place */
};

/* Kept by the user's operation from one use to the next. */
struct list {
    struct muster_list_op *user;
    struct muster_env *env;
    const struct muster_tensor *tensors;
    bool has_result, is_root;
    size_t part_count, open_count, part_capacity;
    struct part *parts;
    struct muster_tensor arena; /* of the parts that are copied: others map it, as any tensor */
    size_t arena_used;
};

/* Arguments that all parts are started with. */
struct list_call {
    enum muster_op_kind kind;
    enum muster_reduction reduction;
    struct muster_root root;
};

/* --- Copies --- */

static size_t bytes_of(const struct muster_tensor *tensor)
{
    return (size_t)tensor->count * muster_dtype_bytes(tensor->dtype);
}

static void copy_in(const struct list *list, const struct part *part)
{
    uint8_t *at = part->buffer;

    for (size_t i = part->pack.first; i < part->pack.end; i++) {
        size_t bytes = bytes_of(&list->tensors[i]);

        if (bytes > 0)
            memcpy(at, list->tensors[i].data, bytes);
        at += bytes;
    }
}

static void copy_out(const struct list *list, const struct part *part)
{
    const uint8_t *at = part->buffer;

    for (size_t i = part->pack.first; i < part->pack.end; i++) {
        size_t bytes = bytes_of(&list->tensors[i]);

        if (bytes > 0)
            memcpy(list->tensors[i].data, at, bytes);
        at += bytes;
    }
}

/* --- The end --- */

static void list_finish(struct list *list)
{
    struct muster_list_op *user = list->user;

    for (size_t i = 0; i < list->part_count && user->error.rc == MUSTER_OK; i++)
        if (list->parts[i].buffer != NULL && !list->is_root)
            copy_out(list, &list->parts[i]);
    user->done(user, user->error.rc);
}

static void keep_result(struct list *list, const struct muster_op_result *result)
{
    struct muster_op_result before = list->user->result;

    list->user->result = *result;
    if (list->has_result) { /* the first one tells who was late */
        list->user->result.sent_bytes += before.sent_bytes;
        list->user->result.met_ns = before.met_ns;
        list->user->result.last_rank = before.last_rank;
    }
    if (list->has_result && before.is_interrupted && !result->is_interrupted) {
        list->user->result.is_interrupted = true;
        list->user->result.interrupted_ns = before.interrupted_ns;
        list->user->result.phase = before.phase;
        list->user->result.verdict = before.verdict;
    }
    list->has_result = true;
}

static void on_part_done(struct muster_op *op, enum muster_rc rc)
{
    struct list *list = op->data;

    keep_result(list, &op->result);
    if (rc != MUSTER_OK && list->user->error.rc == MUSTER_OK)
        list->user->error = op->error;
    if (--list->open_count == 0)
        list_finish(list);
    else if (rc == MUSTER_INVALID_ARGUMENT)
        muster_list_op_cancel(list->user); /* others may have fewer parts, and never come to ours */
}

/* --- The beginning --- */

static size_t count_parts(const struct muster_tensor *tensors, size_t count,
                          uint64_t bytes_per_pack)
{
    size_t end = count, parts = 0;

    while (end > 0) {
        struct muster_pack pack = muster_pack_before(tensors, end, bytes_per_pack);

        for (; end > pack.first; parts++)
            end = muster_pack_part_before(tensors, pack, end).first;
    }
    return parts > 0 ? parts : 1; /* of no tensors: one of no elements */
}

static struct list *list_of(struct muster_list_op *op, struct muster_group *group)
{
    struct list *list = op->impl;

    if (list == NULL)
        list = muster_mem_alloc_zero(group->env->mem, 1, sizeof(*list));
    if (list != NULL)
        list->env = group->env;
    op->impl = list;
    return list;
}

/* False: no memory. */
static bool take_parts(struct list *list, size_t count)
{
    if (count > list->part_capacity) {
        muster_mem_free(list->env->mem, list->parts);
        list->part_capacity = 0;
        list->parts = muster_mem_alloc_zero(list->env->mem, count, sizeof(*list->parts));
        if (list->parts == NULL)
            return false;
        list->part_capacity = count;
    }
    memset(list->parts, 0, count * sizeof(*list->parts));
    list->part_count = count;
    return true;
}

static size_t align_bytes(size_t bytes)
{
    return (bytes + ARENA_LINE - 1) / ARENA_LINE * ARENA_LINE;
}

static size_t part_bytes(const struct list *list, const struct part *part)
{
    size_t bytes = 0;

    for (size_t i = part->pack.first; i < part->pack.end; i++)
        bytes += bytes_of(&list->tensors[i]);
    return bytes;
}

/* Room for the parts that are copied. False: no memory. */
static bool take_arena(struct list *list)
{
    size_t bytes = 0;

    for (size_t i = 0; i < list->part_count; i++)
        if (!muster_pack_is_contiguous(list->tensors, list->parts[i].pack))
            bytes += align_bytes(part_bytes(list, &list->parts[i]));
    list->arena_used = 0;
    if (bytes <= list->arena.count)
        return true;
    muster_tensor_free(list->env, &list->arena);
    list->arena = (struct muster_tensor){.data = NULL};
    return muster_tensor_new(list->env, MUSTER_U8, bytes, &list->arena) == MUSTER_OK;
}

static struct list *list_init(struct muster_list_op *op, struct muster_group *group,
                              const struct muster_tensor *tensors, size_t count)
{
    struct list *list = list_of(op, group);
    size_t end = count;

    if (list == NULL || !take_parts(list, count_parts(tensors, count, op->bytes_per_pack)))
        return NULL;
    list->user = op;
    list->tensors = tensors;
    list->has_result = false;
    list->open_count = 0;
    for (size_t i = 0; end > 0;) {
        struct muster_pack pack = muster_pack_before(tensors, end, op->bytes_per_pack);

        for (; end > pack.first; end = list->parts[i++].pack.first)
            list->parts[i].pack = muster_pack_part_before(tensors, pack, end);
    }
    return take_arena(list) ? list : NULL;
}

static struct muster_tensor part_gather(struct list *list, struct part *part)
{
    const struct muster_tensor *first = &list->tensors[part->pack.first];
    struct muster_tensor tensor = {.dtype = MUSTER_U8};

    if (part->pack.end == part->pack.first)
        return tensor;
    tensor.data = first->data;
    tensor.count = muster_pack_elements(list->tensors, part->pack);
    tensor.dtype = first->dtype;
    if (muster_pack_is_contiguous(list->tensors, part->pack))
        return tensor;
    part->buffer = (uint8_t *)list->arena.data + list->arena_used;
    list->arena_used += align_bytes(bytes_of(&tensor));
    tensor.data = part->buffer;
    copy_in(list, part);
    return tensor;
}

static enum muster_rc start_part(struct list *list, struct part *part, struct muster_group *group,
                                 const struct list_call *call)
{
    const struct muster_tensor tensor = part_gather(list, part);

    part->op.data = list;
    part->op.lane = list->user->lane;
    part->op.deadline_ns = list->user->deadline_ns;
    if (call->kind == MUSTER_OP_BROADCAST)
        return muster_broadcast_start_from(&part->op, group, &tensor, &call->root, on_part_done);
    return muster_all_reduce_start(&part->op, group, &tensor, call->reduction, on_part_done);
}

static bool are_apart(const struct muster_tensor *a, const struct muster_tensor *b)
{
    return muster_group_are_apart(a->data, bytes_of(a), b->data, bytes_of(b));
}

/* Tensors mostly lie in the order of the list, which one pass finds out; only otherwise all pairs are compared. */
static bool are_all_apart(const struct muster_tensor *tensors, size_t count)
{
    bool is_rising = true;

    for (size_t i = 1; i < count; i++)
        is_rising = is_rising && (uintptr_t)tensors[i].data >=
                                     (uintptr_t)tensors[i - 1].data + bytes_of(&tensors[i - 1]);
    for (size_t i = 1; !is_rising && i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (!are_apart(&tensors[i], &tensors[k]))
                return false;
    return true;
}

static bool are_valid(const struct muster_group *group, const struct muster_tensor *tensors,
                      size_t count, const struct list_call *call)
{
    for (size_t i = 0; i < count; i++) {
        const struct muster_op_call one = {
            .kind = call->kind, .reduction = call->reduction, .dtype = tensors[i].dtype};

        if (!muster_group_is_tensor_valid(&tensors[i]) ||
            (call->kind == MUSTER_OP_ALL_REDUCE && !muster_group_has_meaning(group, &one, NULL)))
            return false;
    }
    return are_all_apart(tensors, count);
}

static enum muster_rc list_start(struct muster_list_op *op, struct muster_group *group,
                                 const struct muster_tensor *tensors, size_t count,
                                 const struct list_call *call, muster_list_op_fn *done)
{
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    struct list *list;

    if (!are_valid(group, tensors, count, call))
        return MUSTER_INVALID_ARGUMENT;
    list = list_init(op, group, tensors, count);
    if (list == NULL)
        return rc;
    list->is_root = call->kind == MUSTER_OP_BROADCAST &&
                    muster_incarnation_is_equal(&call->root.incarnation, &group->self);
    for (size_t i = 0; i < list->part_count; i++) {
        rc = start_part(list, &list->parts[i], group, call);
        if (rc != MUSTER_OK)
            break;
        list->open_count++;
    }
    if (list->open_count == 0)
        return rc;
    op->done = done;
    op->error = (struct muster_error){.rc = MUSTER_OK};
    memset(&op->result, 0, sizeof(op->result));
    if (rc != MUSTER_OK) { /* the others may be waiting for the parts that are missing here */
        muster_error_set(&op->error, rc, "a part of a list of %zu could not be started",
                         list->part_count);
        muster_list_op_cancel(op);
    }
    return MUSTER_OK;
}

enum muster_rc muster_all_reduce_list_start(struct muster_list_op *op, struct muster_group *group,
                                            const struct muster_tensor *tensors, size_t count,
                                            enum muster_reduction reduction,
                                            muster_list_op_fn *done)
{
    const struct list_call call = {.kind = MUSTER_OP_ALL_REDUCE, .reduction = reduction};

    return list_start(op, group, tensors, count, &call, done);
}

enum muster_rc muster_broadcast_list_start(struct muster_list_op *op, struct muster_group *group,
                                           const struct muster_tensor *tensors, size_t count,
                                           uint32_t root, muster_list_op_fn *done)
{
    struct list_call call = {.kind = MUSTER_OP_BROADCAST};

    if (!muster_group_find_root(group, root, &call.root))
        return MUSTER_INVALID_ARGUMENT;
    return list_start(op, group, tensors, count, &call, done);
}

void muster_list_op_cancel(struct muster_list_op *op)
{
    struct list *list = op->impl;

    for (size_t i = 0; list != NULL && list->open_count > 0 && i < list->part_count; i++)
        muster_op_cancel(&list->parts[i].op);
}

void muster_list_op_fini(struct muster_list_op *op)
{
    struct list *list = op->impl;

    if (list == NULL)
        return;
    muster_tensor_free(list->env, &list->arena);
    muster_mem_free(list->env->mem, list->parts);
    muster_mem_free(list->env->mem, list);
    op->impl = NULL;
}
