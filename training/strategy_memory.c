/* The training state in device memory. */
#include "training/strategy_memory.h"

#include <stdio.h>

#include <muster/gpu.h>

static uint64_t bytes_of(const struct muster_tensor *tensor)
{
    return tensor->count * muster_dtype_bytes(tensor->dtype);
}

/* --- Registered tensors --- */

enum muster_rc muster_strategy_memory_open(struct muster_strategy *strategy, const char *name,
                                           const void *address)
{
    int ordinal = muster_device_ordinal_of(strategy->env, address);
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc = MUSTER_OK;

    if (strategy->memory == NULL)
        rc = muster_device_memory_open(strategy->env, ordinal, &strategy->memory, &why);
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc, "%s: %s", name, why.text);
    if (muster_device_memory_ordinal(strategy->memory) != ordinal)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: the tensor is on device %d, and others are on device %d: a "
                                "process uses one device",
                                name, ordinal, muster_device_memory_ordinal(strategy->memory));
    return MUSTER_OK;
}

enum muster_rc muster_strategy_memory_find(struct muster_strategy *strategy, const char *name,
                                           const struct muster_tensor *tensor,
                                           struct muster_far_memory **ret_memory)
{
    char call[96];
    enum muster_rc rc;

    *ret_memory = NULL;
    if (muster_gpu_count_tensors(strategy->env, tensor, 1) == 0)
        return MUSTER_OK;
    (void)snprintf(call, sizeof(call), "register %.80s", name);
    rc = muster_strategy_memory_open(strategy, call, tensor->data);
    if (rc == MUSTER_OK)
        *ret_memory = muster_device_memory_far(strategy->memory);
    return rc;
}

void muster_strategy_memory_close(struct muster_strategy *strategy)
{
    MUSTER_ASSERT(strategy->piece_room.capacity == 0);
    muster_device_memory_close(strategy->memory);
    strategy->memory = NULL;
}

struct muster_far_memory *muster_strategy_memory_at(const struct muster_strategy *strategy,
                                                    const void *data)
{
    for (size_t i = 0; i < strategy->tensor_count && strategy->memory != NULL; i++) {
        const struct muster_node_tensor *tensor = &strategy->tensors[i];
        uintptr_t begin = (uintptr_t)tensor->tensor.data;

        if (tensor->memory != NULL && (uintptr_t)data >= begin &&
            (uintptr_t)data - begin < bytes_of(&tensor->tensor))
            return tensor->memory;
    }
    return NULL;
}

/* --- Failures --- */

void muster_strategy_memory_settle(struct muster_strategy *strategy, const char *name)
{
    if (strategy->memory == NULL || muster_strategy_check(strategy, name) != MUSTER_OK)
        return;
    (void)!muster_device_memory_wait(strategy->memory, strategy->stream);
}

bool muster_strategy_memory_has_failed(const struct muster_strategy *strategy)
{
    struct muster_error error;

    return muster_device_memory_has_failed(strategy->memory, &error);
}

enum muster_rc muster_strategy_memory_check(struct muster_strategy *strategy)
{
    struct muster_error why;

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (!muster_device_memory_has_failed(strategy->memory, &why))
        return MUSTER_OK;
    (void)muster_error_set(&strategy->error, MUSTER_UNAVAILABLE,
                           "the device of this process has failed: %s", why.text);
    if (strategy->node != NULL) /* in close it may be gone */
        muster_strategy_fail(strategy);
    return strategy->error.rc;
}
