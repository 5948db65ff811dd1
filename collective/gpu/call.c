/* Whether a call is fit for the device, the group and the other members. Pure but for the addresses, which
 * the driver is asked about. backend.c checks a call before it starts; op.c compares it with those of the others. */
#include "collective/gpu/gpu_internal.h"

#include <stdio.h>

static bool has_input(const struct muster_device_call *call)
{
    return call->kind != MUSTER_DEVICE_SEND_RECV || call->to != MUSTER_DEVICE_NOBODY;
}

static bool has_output(const struct muster_device_call *call)
{
    if (call->kind == MUSTER_DEVICE_SEND_RECV)
        return call->from != MUSTER_DEVICE_NOBODY;
    return call->kind != MUSTER_DEVICE_REDUCE || call->output.data != NULL;
}

/* Memory that the device cannot reach would fail in the kernel, on all members, and take the communicator along. */
static enum muster_rc check_tensor(const struct muster_gpu_backend *backend,
                                   const struct muster_tensor *tensor, const char *which,
                                   struct muster_error *ret_error)
{
    size_t bytes = muster_dtype_bytes(tensor->dtype);

    if (bytes == 0 || tensor->count == 0 || tensor->count > MUSTER_OP_BYTES_MAX / bytes)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "the %s must have a type and 1 to 2^46 bytes, got %llu elements of %s", which,
            (unsigned long long)tensor->count, muster_dtype_name(tensor->dtype));
    if (tensor->data == NULL || (uintptr_t)tensor->data % bytes != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the %s is not aligned to its elements", which);
    if (!muster_cuda_is_reachable(backend->device.cuda, tensor->data))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the %s is not memory of the device", which);
    return MUSTER_OK;
}

/* In place is the same address (or a part's own place), anything else must be apart. */
static enum muster_rc check_apart(const struct muster_device_call *call,
                                  struct muster_error *ret_error)
{
    uintptr_t input = (uintptr_t)call->input.data, output = (uintptr_t)call->output.data;
    size_t input_bytes = call->input.count * muster_dtype_bytes(call->input.dtype);
    size_t output_bytes = call->output.count * muster_dtype_bytes(call->output.dtype);
    bool is_apart = input + input_bytes <= output || output + output_bytes <= input;
    bool is_in_place = false;

    switch (call->kind) {
    case MUSTER_DEVICE_ALL_REDUCE:
    case MUSTER_DEVICE_BROADCAST:
    case MUSTER_DEVICE_REDUCE:
        is_in_place = input == output;
        break;
    case MUSTER_DEVICE_ALL_GATHER: /* whose part it is, is checked with the group */
        is_in_place = input >= output && input + input_bytes <= output + output_bytes;
        break;
    case MUSTER_DEVICE_REDUCE_SCATTER:
        is_in_place = output >= input && output + output_bytes <= input + input_bytes;
        break;
    default:
        break;
    }
    if (is_apart || is_in_place)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "input and output overlap");
}

enum muster_rc muster_gpu_call_check(const struct muster_gpu_backend *backend,
                                     const struct muster_device_call *call,
                                     struct muster_error *ret_error)
{
    const struct muster_tensor *tensor = has_input(call) ? &call->input : &call->output;
    enum muster_rc rc = MUSTER_OK;

    if (call->kind == MUSTER_DEVICE_COMMIT)
        return MUSTER_OK;
    if (call->kind == MUSTER_DEVICE_NONE || call->kind >= MUSTER_DEVICE_SETUP)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "kind %d is not an operation on a device", (int)call->kind);
    if (call->kind == MUSTER_DEVICE_SEND_RECV && !has_input(call) && !has_output(call))
        return MUSTER_OK;
    rc = muster_nccl_check(call->kind, tensor->dtype, call->reduction, ret_error);
    if (rc == MUSTER_OK && has_input(call))
        rc = check_tensor(backend, &call->input, "input", ret_error);
    if (rc == MUSTER_OK && has_output(call))
        rc = check_tensor(backend, &call->output, "output", ret_error);
    if (rc != MUSTER_OK || !has_input(call) || !has_output(call))
        return rc;
    if (call->input.dtype != call->output.dtype)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "input and output differ in type");
    return check_apart(call, ret_error);
}

/* --- In a group --- */

static enum muster_rc take_root(struct muster_gpu_op *op, const struct muster_group *group,
                                uint32_t root, struct muster_error *ret_error)
{
    const struct muster_view *view = group->view;

    if (root >= view->member_count || view->members[root].from_step > group->begun_step)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the root must be a rank that takes part in the step, got %u of %u",
                                root, view->member_count);
    op->root = view->members[root].incarnation;
    return MUSTER_OK;
}

/* This member's part lies in its own place of the whole, or outside of it: the library needs one of the two. */
static bool is_own_place(const struct muster_device_call *call, uint32_t index)
{
    const struct muster_tensor *part = &call->input, *whole = &call->output;
    uintptr_t place;

    if (call->kind == MUSTER_DEVICE_REDUCE_SCATTER) {
        part = &call->output;
        whole = &call->input;
    }
    place = (uintptr_t)whole->data + index * part->count * muster_dtype_bytes(part->dtype);
    return (uintptr_t)part->data == place ||
           (uintptr_t)part->data + part->count * muster_dtype_bytes(part->dtype) <=
               (uintptr_t)whole->data ||
           (uintptr_t)part->data >=
               (uintptr_t)whole->data + whole->count * muster_dtype_bytes(whole->dtype);
}

static enum muster_rc take_parts(struct muster_gpu_op *op, const struct muster_group *group,
                                 const struct muster_device_call *call,
                                 struct muster_error *ret_error)
{
    uint32_t n = muster_group_participants(group, group->begun_step);
    uint32_t index = muster_group_participant_index(group, group->begun_step, group->rank);
    uint64_t whole = call->output.count, part = call->input.count;

    if (call->kind == MUSTER_DEVICE_REDUCE_SCATTER) {
        whole = call->input.count;
        part = call->output.count;
    } else if (call->kind == MUSTER_DEVICE_ALL_TO_ALL) {
        part = whole / n;
        if (call->input.count != whole)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "input and output differ in size");
    }
    if (index >= n || part == 0 || whole != n * part)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%llu elements are not %u parts of %llu", (unsigned long long)whole,
                                n, (unsigned long long)part);
    if (call->kind != MUSTER_DEVICE_ALL_TO_ALL && !is_own_place(call, index))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "input and output overlap");
    op->work.count = part;
    op->whole_count = whole;
    return MUSTER_OK;
}

/* A rank as the index of a participant; false: takes no part. */
static bool find_peer(const struct muster_group *group, uint32_t rank, uint32_t *ret_index)
{
    *ret_index = MUSTER_DEVICE_NOBODY;
    if (rank == MUSTER_DEVICE_NOBODY)
        return true;
    if (rank >= group->view->member_count)
        return false;
    *ret_index = muster_group_participant_index(group, group->begun_step, rank);
    return *ret_index != UINT32_MAX;
}

/* Types may differ on the two sides, and a member that neither sends nor receives has none: bytes are compared. */
static enum muster_rc take_peers(struct muster_gpu_op *op, const struct muster_group *group,
                                 const struct muster_device_call *call,
                                 struct muster_error *ret_error)
{
    size_t bytes = muster_dtype_bytes(op->work.dtype);

    if (!find_peer(group, call->to, &op->work.to) || !find_peer(group, call->from, &op->work.from))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "send_recv: ranks must be below %u and take part in the step, got to "
            "%u, from %u",
            group->view->member_count, call->to, call->from);
    op->work.count = has_input(call) ? call->input.count : 0;
    op->work.from_count = has_output(call) ? call->output.count : 0;
    op->word.to = has_input(call) ? (uint64_t)op->work.to + 1 : 0;
    op->word.from = has_output(call) ? (uint64_t)op->work.from + 1 : 0;
    op->word.to_bytes = op->work.count * bytes;
    op->word.from_bytes = op->work.from_count * bytes;
    return MUSTER_OK;
}

enum muster_rc muster_gpu_call_take(struct muster_gpu_op *op, const struct muster_group *group,
                                    const struct muster_device_call *call,
                                    struct muster_error *ret_error)
{
    const struct muster_tensor *tensor = has_input(call) ? &call->input : &call->output;

    op->kind = call->kind;
    op->work = (struct muster_nccl_work){
        .kind = call->kind,
        .dtype = tensor->dtype,
        .reduction = call->reduction,
        .input = call->input.data,
        .output = call->output.data,
        .count = call->input.count,
    };
    switch (call->kind) {
    case MUSTER_DEVICE_BROADCAST:
        return take_root(op, group, call->root, ret_error);
    case MUSTER_DEVICE_REDUCE:
        if (has_output(call) && call->output.count != call->input.count)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "input and output differ in size");
        if (call->root == group->rank && !has_output(call))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "reduce: the root must give an output");
        return take_root(op, group, call->root, ret_error);
    case MUSTER_DEVICE_ALL_GATHER:
    case MUSTER_DEVICE_REDUCE_SCATTER:
    case MUSTER_DEVICE_ALL_TO_ALL:
        return take_parts(op, group, call, ret_error);
    case MUSTER_DEVICE_SEND_RECV:
        return take_peers(op, group, call, ret_error);
    default:
        return MUSTER_OK;
    }
}

/* --- With the other members --- */

/* A send without its receive would hang on the device, so both sides must name each other. All members check all
 * pairs, and come to the same answer. */
static enum muster_rc check_pair(const struct muster_gpu_word *words, uint32_t count, uint32_t rank,
                                 struct muster_error *ret_error)
{
    const struct muster_gpu_word *word = &words[rank];
    uint64_t to = word->to, from = word->from;

    if (to > count || from > count)
        return muster_error_set(ret_error, MUSTER_ABORTED, "send_recv: the ranks have changed");
    if (to > 0 && (words[to - 1].from != rank + 1u || words[to - 1].from_bytes != word->to_bytes))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "send_recv: rank %u sends %llu bytes to rank %llu, which "
            "receives %llu from rank %lld",
            rank, (unsigned long long)word->to_bytes, (unsigned long long)to - 1,
            (unsigned long long)words[to - 1].from_bytes, (long long)words[to - 1].from - 1);
    if (from > 0 && words[from - 1].to != rank + 1u)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "send_recv: rank %u receives from rank %llu, which sends to rank "
                                "%lld",
                                rank, (unsigned long long)from - 1,
                                (long long)words[from - 1].to - 1);
    return MUSTER_OK;
}

enum muster_rc muster_gpu_words_check(const struct muster_gpu_word *words, uint32_t count,
                                      enum muster_device_kind kind, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t rank = 0; rank < count; rank++)
        if (words[rank].is_fit == 0)
            return muster_error_set(ret_error, MUSTER_ABORTED, "the number of members has changed");
    for (uint32_t rank = 0; rank < count && rc == MUSTER_OK && kind == MUSTER_DEVICE_SEND_RECV;
         rank++)
        rc = check_pair(words, count, rank, ret_error);
    return rc;
}
