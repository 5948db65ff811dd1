/* Operations on a device, by the environment's backend. Nothing here knows which one that is: collective/gpu is one,
 * and a program may bring another. */
#include <muster/backend.h>

#include "collective/group/group_internal.h"

const char *muster_backend_name(const struct muster_backend *backend)
{
    return backend != NULL ? backend->ops->name(backend) : "none";
}

enum muster_rc muster_backend_check(const struct muster_backend *backend,
                                    const struct muster_device_call *call,
                                    struct muster_error *ret_error)
{
    if (backend == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the environment has no device backend");
    return backend->ops->check(backend, call, ret_error);
}

enum muster_rc muster_backend_start(struct muster_op *op, struct muster_group *group,
                                    const struct muster_device_call *call, muster_op_fn *done)
{
    struct muster_backend *backend = group->env->backend;
    struct muster_error error;
    enum muster_rc rc = muster_backend_check(backend, call, &error);

    if (rc == MUSTER_OK)
        return backend->ops->start(backend, op, group, call, done);
    MUSTER_LOG(group->env, ERROR, "op_refused", "op", muster_device_kind_name(call->kind), "reason",
               error.text);
    return rc;
}
