/* Between groups and whoever runs operations on a device: names, and what a group tells it. */
#include <muster/backend.h>
#include <muster/hash.h>

#include "collective/group/group_internal.h"

#include <stdio.h>

const char *muster_device_kind_name(enum muster_device_kind kind)
{
    static const char *const names[] = {
        [MUSTER_DEVICE_NONE] = "none",
        [MUSTER_DEVICE_ALL_REDUCE] = "all_reduce",
        [MUSTER_DEVICE_BROADCAST] = "broadcast",
        [MUSTER_DEVICE_ALL_GATHER] = "all_gather",
        [MUSTER_DEVICE_REDUCE_SCATTER] = "reduce_scatter",
        [MUSTER_DEVICE_REDUCE] = "reduce",
        [MUSTER_DEVICE_SEND_RECV] = "send_recv",
        [MUSTER_DEVICE_ALL_TO_ALL] = "all_to_all",
        [MUSTER_DEVICE_COMMIT] = "commit",
        [MUSTER_DEVICE_SETUP] = "setup",
    };

    return (unsigned)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "none";
}

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
    MUSTER_LOG(group->env, ERROR, "op_refused", "op", muster_device_kind_name(call->kind), "why",
               error.text);
    return rc;
}

/* --- How an agreement calls itself --- */

static bool has_reduction(enum muster_device_kind kind)
{
    return kind == MUSTER_DEVICE_ALL_REDUCE || kind == MUSTER_DEVICE_REDUCE ||
           kind == MUSTER_DEVICE_REDUCE_SCATTER;
}

const char *muster_device_mark_describe(const struct muster_device_mark *mark, char *ret_text,
                                        size_t size)
{
    bool is_reduced = has_reduction(mark->kind);

    if (mark->kind >= MUSTER_DEVICE_COMMIT)
        snprintf(ret_text, size, "gpu %s()", muster_device_kind_name(mark->kind));
    else
        snprintf(ret_text, size, "gpu %s(%s%s%s x %llu)", muster_device_kind_name(mark->kind),
                 is_reduced ? muster_reduction_name(mark->reduction) : "", is_reduced ? ", " : "",
                 muster_dtype_name(mark->dtype), (unsigned long long)mark->count);
    return ret_text;
}

uint64_t muster_device_mark_hash(const struct muster_device_mark *mark)
{
    const uint64_t words[] = {(uint64_t)mark->kind, (uint64_t)mark->reduction,
                              (uint64_t)mark->dtype, mark->count};

    return mark->kind == MUSTER_DEVICE_NONE ? 0 : muster_hash64(words, sizeof(words), 0);
}

/* --- What a group tells --- */

void muster_group_device_freeze(struct muster_group *group)
{
    if (group->device != NULL)
        group->device->ops->freeze(group->device);
}

void muster_group_device_hand_over(struct muster_group *group, struct muster_group *next)
{
    struct muster_group_device *device = group->device;

    if (device == NULL)
        return;
    group->device = NULL;
    next->device = device;
    device->ops->hand_over(device, next);
}

void muster_group_device_end(struct muster_group *group, const struct muster_error *why)
{
    if (group->device != NULL)
        group->device->ops->end(group->device, why);
}

void muster_group_device_close(struct muster_group *group)
{
    struct muster_group_device *device = group->device;

    group->device = NULL;
    if (device != NULL)
        device->ops->close(device);
}

void muster_group_device_alarm(struct muster_group *group, const struct muster_op_id *id)
{
    if (group->device != NULL)
        group->device->ops->alarm(group->device, id);
}
