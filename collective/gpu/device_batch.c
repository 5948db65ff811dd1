/* Copies of one device on a stream of their own, for which the host waits. */
#include "collective/gpu/device_batch.h"

#include "collective/gpu/device_memory_internal.h"

enum muster_rc muster_device_batch_open(struct muster_device_batch *batch,
                                        struct muster_device_memory *memory,
                                        struct muster_error *ret_error)
{
    enum muster_rc rc;
    void *before;

    *batch = (struct muster_device_batch){.memory = NULL};
    if (muster_device_memory_has_failed(memory, ret_error))
        return MUSTER_UNAVAILABLE;
    batch->memory = memory;
    before = muster_cuda_enter(memory->cuda);
    rc = muster_cuda_stream_new(memory->cuda, &batch->stream, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_cuda_event_new(memory->cuda, &batch->event, ret_error);
    muster_cuda_leave(memory->cuda, before);
    if (rc != MUSTER_OK)
        muster_device_batch_close(batch);
    return rc;
}

void muster_device_batch_close(struct muster_device_batch *batch)
{
    if (batch->memory != NULL && !muster_device_memory_hangs(batch->memory)) {
        void *before = muster_cuda_enter(batch->memory->cuda);

        muster_cuda_event_free(batch->memory->cuda, batch->event);
        muster_cuda_stream_free(batch->memory->cuda, batch->stream);
        muster_cuda_leave(batch->memory->cuda, before);
    }
    *batch = (struct muster_device_batch){.memory = NULL};
}

/* Also copies into the device: work of the program may still read what they overwrite. */
enum muster_rc muster_device_batch_follow(struct muster_device_batch *batch, void *stream)
{
    const struct muster_cuda *cuda = batch->memory->cuda;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;
    void *before;

    if (muster_device_memory_has_failed(batch->memory, &error))
        return MUSTER_UNAVAILABLE;
    before = muster_cuda_enter(cuda);
    rc = muster_cuda_event_record(cuda, batch->event, stream, &error);
    if (rc == MUSTER_OK)
        rc = muster_cuda_stream_wait(cuda, batch->stream, batch->event, &error);
    muster_cuda_leave(cuda, before);
    return rc == MUSTER_OK ? rc : muster_device_memory_fail(batch->memory, &error);
}

enum muster_rc muster_device_batch_start(struct muster_device_batch *batch,
                                         const struct muster_device_copy *copies, size_t count,
                                         bool is_out)
{
    const struct muster_cuda *cuda = batch->memory->cuda;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = MUSTER_OK;
    void *before;

    if (muster_device_memory_has_failed(batch->memory, &error))
        return MUSTER_UNAVAILABLE;
    before = muster_cuda_enter(cuda);
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        rc = is_out ? muster_cuda_copy_out(cuda, copies[i].host, copies[i].device, copies[i].bytes,
                                           batch->stream, &error)
                    : muster_cuda_copy_in(cuda, copies[i].device, copies[i].host, copies[i].bytes,
                                          batch->stream, &error);
    muster_cuda_leave(cuda, before);
    return rc == MUSTER_OK ? rc : muster_device_memory_fail(batch->memory, &error);
}

enum muster_rc muster_device_batch_wait(struct muster_device_batch *batch)
{
    return muster_device_memory_wait(batch->memory, batch->stream, "a call of the replicas");
}
