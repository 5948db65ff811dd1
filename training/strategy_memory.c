/* The training state in device memory. */
#include "training/strategy_memory.h"

#include <stdio.h>

#include <muster/gpu.h>

#include "collective/board/kept.h"

/* --- Registered tensors --- */

static struct muster_strategy_device_memory *memory_find(struct muster_strategy *strategy, int gpu)
{
    for (size_t i = 0; i < strategy->memory_count; i++)
        if (muster_device_memory_ordinal(strategy->memories[i].memory) == gpu)
            return &strategy->memories[i];
    return NULL;
}

/* In the texts a process with one device has "the device". */
static enum muster_rc refuse_device(struct muster_strategy *strategy, const char *name, int gpu,
                                    const struct muster_error *why)
{
    return strategy->devices.count > 1
               ? muster_error_set(&strategy->error, why->rc, "%s: device %d: %s", name, gpu,
                                  why->text)
               : muster_error_set(&strategy->error, why->rc, "%s: %s", name, why->text);
}

enum muster_rc muster_strategy_memory_open(struct muster_strategy *strategy, const char *name,
                                           int gpu, struct muster_device_memory **ret_memory)
{
    struct muster_strategy_device_memory *found = memory_find(strategy, gpu);
    struct muster_error why = {.rc = MUSTER_OK};

    if (found == NULL) {
        if (strategy->memory_count == MUSTER_STRATEGY_MEMORIES_MAX)
            return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                    "%s: at most %u devices in a process", name,
                                    MUSTER_STRATEGY_MEMORIES_MAX);
        found = &strategy->memories[strategy->memory_count];
        if (muster_device_memory_open(strategy->env, gpu, &found->memory, &why) != MUSTER_OK)
            return refuse_device(strategy, name, gpu, &why);
        if (strategy->device_timeout_ns > 0)
            muster_device_memory_set_timeout(found->memory, strategy->device_timeout_ns);
        strategy->memory_count++;
    }
    if (ret_memory != NULL)
        *ret_memory = found->memory;
    return MUSTER_OK;
}

enum muster_rc muster_strategy_memory_open_of(struct muster_strategy *strategy, const char *name,
                                              const void *address,
                                              struct muster_device_memory **ret_memory)
{
    return muster_strategy_memory_open(
        strategy, name, muster_device_ordinal_of(strategy->env, address), ret_memory);
}

enum muster_rc muster_strategy_memory_batch(struct muster_strategy *strategy, const char *name,
                                            const struct muster_device_memory *memory,
                                            struct muster_device_batch **ret_batch)
{
    int gpu = muster_device_memory_ordinal(memory);
    struct muster_strategy_device_memory *found = memory_find(strategy, gpu);
    struct muster_error why = {.rc = MUSTER_OK};

    MUSTER_ASSERT(found != NULL);
    if (found->batch.memory == NULL &&
        muster_device_batch_open(&found->batch, found->memory, &why) != MUSTER_OK)
        return refuse_device(strategy, name, gpu, &why);
    *ret_batch = &found->batch;
    return MUSTER_OK;
}

enum muster_rc muster_strategy_memory_find(struct muster_strategy *strategy, const char *name,
                                           const struct muster_tensor *tensor,
                                           struct muster_far_memory **ret_memory)
{
    struct muster_device_memory *memory = NULL;
    char call[96];
    enum muster_rc rc;

    *ret_memory = NULL;
    if (muster_gpu_count_tensors(strategy->env, tensor, 1) == 0)
        return MUSTER_OK;
    (void)snprintf(call, sizeof(call), "register %.80s", name);
    rc = muster_strategy_memory_open_of(strategy, call, tensor->data, &memory);
    if (rc == MUSTER_OK)
        *ret_memory = muster_device_memory_far(memory);
    return rc;
}

void muster_strategy_memory_close(struct muster_strategy *strategy)
{
    MUSTER_ASSERT(strategy->piece_room.capacity == 0);
    for (size_t i = 0; i < strategy->memory_count; i++) {
        muster_device_batch_close(&strategy->memories[i].batch);
        muster_device_memory_close(strategy->memories[i].memory);
    }
    strategy->memory_count = 0;
}

struct muster_far_memory *muster_strategy_memory_at(const struct muster_strategy *strategy,
                                                    const void *data)
{
    for (size_t i = 0; i < strategy->tensor_count && strategy->memory_count > 0; i++) {
        const struct muster_node_tensor *tensor = &strategy->tensors[i];
        uintptr_t begin = (uintptr_t)tensor->tensor.data;

        if (tensor->memory != NULL && (uintptr_t)data >= begin &&
            (uintptr_t)data - begin < muster_strategy_bytes_of(&tensor->tensor))
            return tensor->memory;
    }
    return NULL;
}

/* --- Streams --- */

/* A process that was not told of devices has one stream, and usually one device. */
void *muster_strategy_stream_of(const struct muster_strategy *strategy,
                                const struct muster_device_memory *memory)
{
    int gpu = muster_device_memory_ordinal(memory);

    for (uint32_t i = 0; i < strategy->devices.count; i++)
        if (strategy->devices.list[i].gpu == gpu)
            return strategy->devices.list[i].stream;
    return strategy->devices.count == 0 && memory == strategy->memories[0].memory ? strategy->stream
                                                                                  : NULL;
}

static void memory_each_stream(const struct muster_strategy *strategy,
                               struct muster_device_memory *memory, muster_strategy_stream_fn *wait,
                               void *data)
{
    int gpu = muster_device_memory_ordinal(memory);
    void *first = muster_strategy_stream_of(strategy, memory);

    wait(data, memory, first);
    for (uint32_t i = 0; i < strategy->devices.count; i++)
        if (strategy->devices.list[i].gpu == gpu && strategy->devices.list[i].stream != first)
            wait(data, memory, strategy->devices.list[i].stream);
}

void muster_strategy_each_stream(const struct muster_strategy *strategy,
                                 muster_strategy_stream_fn *wait, void *data)
{
    for (size_t i = 0; i < strategy->memory_count; i++)
        memory_each_stream(strategy, strategy->memories[i].memory, wait, data);
}

static void stream_wait(void *data, struct muster_device_memory *memory, void *stream)
{
    (void)!muster_device_memory_wait(memory, stream, data);
}

void muster_strategy_streams_wait(const struct muster_strategy *strategy, const char *name)
{
    muster_strategy_each_stream(strategy, stream_wait, (char *)(uintptr_t)name);
}

/* --- Failures --- */

void muster_strategy_memory_settle(struct muster_strategy *strategy, const char *name)
{
    if (strategy->memory_count == 0 || muster_strategy_check(strategy, name) != MUSTER_OK)
        return;
    muster_strategy_streams_wait(strategy, name);
}

bool muster_strategy_memory_hangs(const struct muster_strategy *strategy)
{
    for (size_t i = 0; i < strategy->memory_count; i++)
        if (muster_device_memory_hangs(strategy->memories[i].memory))
            return true;
    return false;
}

void muster_strategy_memory_abandon(const struct muster_strategy *strategy,
                                    struct muster_tensor *tensor)
{
    void *start;
    size_t bytes;

    muster_tensor_keep(strategy->env, tensor, &start, &bytes);
    *tensor = (struct muster_tensor){.data = NULL};
}

enum muster_rc muster_strategy_memory_explain(const struct muster_strategy *strategy,
                                              struct muster_error *ret_error)
{
    struct muster_error why = {.rc = MUSTER_OK};

    for (size_t i = 0; i < strategy->memory_count; i++) {
        if (!muster_device_memory_has_failed(strategy->memories[i].memory, &why))
            continue;
        if (strategy->memory_count == 1)
            return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                    "the device of this process has failed: %s", why.text);
        return muster_error_set(
            ret_error, MUSTER_UNAVAILABLE, "device %d of this process has failed: %s",
            muster_device_memory_ordinal(strategy->memories[i].memory), why.text);
    }
    return MUSTER_OK;
}

enum muster_rc muster_strategy_wait_stream(struct muster_strategy *strategy,
                                           const struct muster_tensor *tensor, void *stream)
{
    struct muster_device_memory *memory = NULL;
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_strategy_check(strategy, "wait_stream");
    void *own;

    if (rc != MUSTER_OK || tensor->count == 0) /* its address may be NULL, which is on no device */
        return rc;
    rc = muster_strategy_memory_open_of(strategy, "wait_stream", tensor->data, &memory);
    if (rc != MUSTER_OK)
        return rc;
    own = muster_strategy_stream_of(strategy, memory);
    if (stream == own || muster_device_memory_order(memory, stream, own, &why) == MUSTER_OK)
        return MUSTER_OK;
    return muster_error_set(&strategy->error, MUSTER_UNAVAILABLE, "the stream %p of a tensor: %s",
                            stream, why.text);
}

bool muster_strategy_memory_has_failed(const struct muster_strategy *strategy)
{
    struct muster_error error;

    return muster_strategy_memory_explain(strategy, &error) != MUSTER_OK;
}

enum muster_rc muster_strategy_memory_check(struct muster_strategy *strategy)
{
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (muster_strategy_memory_explain(strategy, &strategy->error) == MUSTER_OK)
        return MUSTER_OK;
    if (strategy->node != NULL) /* in close it may be gone */
        muster_strategy_fail(strategy);
    return strategy->error.rc;
}
