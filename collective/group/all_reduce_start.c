/* Starting all-reduces by weight and by the program's function: the call is checked here and becomes a run in
 * start.c. Errors that a user can mend are logged with their reason, as the code alone does not tell it. */
#include "collective/group/group_internal.h"
#include "collective/kernel/combine.h"

#include <string.h>

static bool is_float(enum muster_dtype dtype)
{
    return dtype == MUSTER_F16 || dtype == MUSTER_BF16 || dtype == MUSTER_F32 ||
           dtype == MUSTER_F64;
}

static enum muster_rc refuse_call(const struct muster_group *group, struct muster_op *op,
                                  const char *why)
{
    MUSTER_LOG(group->env, ERROR, "op_refused", "op", "all_reduce", "reason", why);
    return muster_error_set(&op->error, MUSTER_INVALID_ARGUMENT, "%s", why);
}

enum muster_rc muster_all_reduce_weighted_start(struct muster_op *op, struct muster_group *group,
                                                const struct muster_tensor *tensor, uint64_t weight,
                                                muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_ALL_REDUCE,
        .reduction = MUSTER_MEAN,
        .dtype = tensor->dtype,
        .count = tensor->count,
        .input = tensor->data,
        .output = tensor->data,
        .is_weighted = true,
        .weight = weight,
    };

    if (!muster_group_is_tensor_valid(tensor))
        return MUSTER_INVALID_ARGUMENT;
    if (!is_float(tensor->dtype))
        return refuse_call(group, op, "a weighted mean is of f16, bf16, f32 or f64");
    return muster_group_start_call(op, group, &call, done);
}

static const char *fault_of(const struct muster_user_reduction *reduction, const void *elements,
                            uint64_t count)
{
    if (reduction->name == NULL || reduction->name[0] == '\0' || reduction->reduce == NULL)
        return "a reduction needs a name and a function";
    if (reduction->element_bytes == 0 || reduction->element_bytes > MUSTER_USER_ELEMENT_BYTES_MAX)
        return "an element of a reduction has 1 to 4096 bytes";
    if (count > 0 && elements == NULL)
        return "the elements are NULL";
    if (count > MUSTER_OP_BYTES_MAX / reduction->element_bytes)
        return "too many elements";
    return NULL;
}

enum muster_rc muster_all_reduce_user_start(struct muster_op *op, struct muster_group *group,
                                            void *elements, uint64_t count,
                                            const struct muster_user_reduction *reduction,
                                            muster_op_fn *done)
{
    struct muster_op_call call = {
        .kind = MUSTER_OP_ALL_REDUCE,
        .dtype = MUSTER_U8,
        .count = count,
        .input = elements,
        .output = elements,
        .user = *reduction,
    };
    const char *fault = fault_of(reduction, elements, count);

    if (fault != NULL)
        return refuse_call(group, op, fault);
    return muster_group_start_call(op, group, &call, done);
}
