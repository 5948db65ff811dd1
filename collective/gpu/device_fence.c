/* Fences are events of the driver. A device that hangs answers no call that waits for it, and says nothing: that is why
 * every wait asks for an event, and counts the time. */
#include "collective/gpu/device_fence.h"

#include <sched.h>

#include <muster/log.h>

#include "collective/gpu/device_memory_internal.h"
#include "runtime/system/process_system.h"

#define TELL_NS (30 * MUSTER_NS_PER_S)

/* Copies of a piece end sooner than a sleep would. */
#define SPIN_NS    (200 * MUSTER_NS_PER_US)
#define NAP_MIN_NS (20 * MUSTER_NS_PER_US)
#define NAP_MAX_NS (1 * MUSTER_NS_PER_MS)

/* --- Time --- */

void muster_device_stall_begin(struct muster_device_stall *stall,
                               const struct muster_device_memory *memory, const char *operation)
{
    uint64_t now_ns = muster_loop_clock_ns(memory->env->loop);

    *stall =
        (struct muster_device_stall){.operation = operation, .begun_ns = now_ns, .told_ns = now_ns};
}

static enum muster_rc stall_fail(const struct muster_device_stall *stall,
                                 struct muster_device_memory *memory, uint64_t waited_ns)
{
    int device = muster_cuda_device(memory->cuda)->ordinal;
    struct muster_error error;

    MUSTER_LOG(memory->env, ERROR, "device_hangs", "device", device, "operation", stall->operation,
               "waited_ms", waited_ns / MUSTER_NS_PER_MS);
    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "device %d hangs: %.40s has waited %.1f s for its work, longer than the bound "
                     "of %g s: see dmesg for its faults, or raise MUSTER_DEVICE_TIMEOUT_S if its "
                     "work takes longer",
                     device, stall->operation, (double)waited_ns / (double)MUSTER_NS_PER_S,
                     (double)memory->timeout_ns / (double)MUSTER_NS_PER_S);
    atomic_store(&memory->hangs, true);
    return muster_device_memory_fail(memory, &error);
}

enum muster_rc muster_device_stall_look(struct muster_device_stall *stall,
                                        struct muster_device_memory *memory)
{
    uint64_t now_ns = muster_loop_clock_ns(memory->env->loop);
    uint64_t waited_ns = now_ns - stall->begun_ns;
    uint64_t tell_ns = memory->timeout_ns / 4 < TELL_NS ? memory->timeout_ns / 4 : TELL_NS;

    if (muster_device_memory_hangs(memory))
        return MUSTER_UNAVAILABLE;
    if (waited_ns >= memory->timeout_ns)
        return stall_fail(stall, memory, waited_ns);
    if (now_ns - stall->told_ns < tell_ns)
        return MUSTER_OK;
    stall->told_ns = now_ns;
    MUSTER_LOG(memory->env, WARN, "waits_for_device", "device",
               muster_cuda_device(memory->cuda)->ordinal, "operation", stall->operation,
               "waited_ms", waited_ns / MUSTER_NS_PER_MS, "timeout_ms",
               memory->timeout_ns / MUSTER_NS_PER_MS);
    return MUSTER_OK;
}

/* --- Fences --- */

void muster_device_fence_set(struct muster_device_fence *fence, struct muster_device_memory *memory,
                             void *stream, const char *operation)
{
    struct muster_error error = {.rc = MUSTER_OK};
    void *before;

    *fence = (struct muster_device_fence){.memory = memory, .stream = stream};
    if (muster_device_memory_hangs(memory))
        return;
    before = muster_cuda_enter(memory->cuda);
    if (muster_cuda_event_new(memory->cuda, &fence->event, &error) != MUSTER_OK ||
        muster_cuda_event_record(memory->cuda, fence->event, stream, &error) != MUSTER_OK) {
        (void)!muster_device_memory_fail(memory, &error);
        muster_cuda_event_free(memory->cuda, fence->event);
        fence->event = NULL;
    }
    muster_cuda_leave(memory->cuda, before);
    muster_device_stall_begin(&fence->stall, memory, operation);
    fence->is_set = true;
}

enum muster_rc muster_device_look(const struct muster_device_memory *memory,
                                  struct muster_cuda_event *event,
                                  struct muster_cuda_stream *stream, bool *ret_is_done,
                                  struct muster_error *ret_error)
{
    void *before = muster_cuda_enter(memory->cuda);
    enum muster_rc rc =
        event != NULL ? muster_cuda_event_query(memory->cuda, event, ret_is_done, ret_error)
                      : muster_cuda_stream_query(memory->cuda, stream, ret_is_done, ret_error);

    muster_cuda_leave(memory->cuda, before);
    return rc;
}

bool muster_device_fence_is_reached(struct muster_device_fence *fence)
{
    struct muster_error error = {.rc = MUSTER_OK};
    bool is_done = false;
    enum muster_rc rc;

    if (!fence->is_set || muster_device_memory_hangs(fence->memory))
        return true;
    rc = muster_device_look(fence->memory, fence->event, fence->stream, &is_done, &error);
    if (rc != MUSTER_OK)
        rc = muster_device_memory_fail(fence->memory, &error);
    else if (!is_done)
        rc = muster_device_stall_look(&fence->stall, fence->memory);
    return rc != MUSTER_OK || is_done;
}

/* It sleeps for a sixteenth of the time that has passed: what is late is late by so much. */
void muster_device_fence_await(struct muster_device_fence *fence)
{
    while (!muster_device_fence_is_reached(fence)) {
        uint64_t waited_ns = muster_loop_clock_ns(fence->memory->env->loop) - fence->stall.begun_ns;
        uint64_t nap_ns = waited_ns / 16 < NAP_MAX_NS ? waited_ns / 16 : NAP_MAX_NS;

        if (waited_ns < SPIN_NS)
            (void)sched_yield();
        else
            muster_process_nap(nap_ns > NAP_MIN_NS ? nap_ns : NAP_MIN_NS);
    }
}

void muster_device_fence_clear(struct muster_device_fence *fence)
{
    void *before;

    fence->is_set = false;
    if (fence->event == NULL)
        return;
    before = muster_cuda_enter(fence->memory->cuda);
    muster_cuda_event_free(fence->memory->cuda, fence->event);
    muster_cuda_leave(fence->memory->cuda, before);
    fence->event = NULL;
}

enum muster_rc muster_device_memory_wait(struct muster_device_memory *memory, void *stream,
                                         const char *operation)
{
    struct muster_device_fence fence;
    struct muster_error error;

    muster_device_fence_set(&fence, memory, stream, operation);
    muster_device_fence_await(&fence);
    muster_device_fence_clear(&fence);
    return muster_device_memory_has_failed(memory, &error) ? MUSTER_UNAVAILABLE : MUSTER_OK;
}
