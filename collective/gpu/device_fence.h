/* A fence behind what a stream holds: whether the stream has come so far is asked, so that a wait has a bound. */
#ifndef MUSTER_COLLECTIVE_DEVICE_FENCE_H
#define MUSTER_COLLECTIVE_DEVICE_FENCE_H

#include "collective/gpu/device_memory.h"

struct muster_cuda_event;
struct muster_cuda_stream;

/** How long something waits for a device. All zero where nothing waits. */
struct muster_device_stall {
    const char *operation; /* borrowed: what waits, for texts */
    uint64_t begun_ns, told_ns;
};
/** It begins to wait now. */
void muster_device_stall_begin(struct muster_device_stall *stall,
                               const struct muster_device_memory *memory, const char *operation);
/**
 * It waits still: the log says so from time to time (`waits_for_device`), and at the bound the device has failed
 * (`device_hangs`).
 *
 * Errors:  UNAVAILABLE: the device hangs, now or before.
 * Thread:  any, one at a time.
 */
MUSTER_MUST_CHECK enum muster_rc muster_device_stall_look(struct muster_device_stall *stall,
                                                          struct muster_device_memory *memory);

/** Caller's memory. */
struct muster_device_fence {
    struct muster_device_memory *memory;
    void *stream;
    struct muster_cuda_event *event; /* NULL: there could be none, and the stream itself is asked */
    bool is_set;                     /* false: it counts as reached */
    struct muster_device_stall stall;
};

/** Borrows memory, stream and operation until clear. What fails is kept by the memory. A device that has failed is
 * waited for, too, unless it hangs: copies that were issued before go on. */
void muster_device_fence_set(struct muster_device_fence *fence, struct muster_device_memory *memory,
                             void *stream, const char *operation);
/** Also where the device hangs, or refuses the question: nothing comes of it any more. */
bool muster_device_fence_is_reached(struct muster_device_fence *fence);
/** Sleep until it is reached, at most up to the bound. Not on the loop. */
void muster_device_fence_await(struct muster_device_fence *fence);
void muster_device_fence_clear(struct muster_device_fence *fence);

/** Ask for an event, or where it is NULL whether the stream has done all that it holds. Errors: those of the driver. */
MUSTER_MUST_CHECK enum muster_rc muster_device_look(const struct muster_device_memory *memory,
                                                    struct muster_cuda_event *event,
                                                    struct muster_cuda_stream *stream,
                                                    bool *ret_is_done,
                                                    struct muster_error *ret_error);

#endif
