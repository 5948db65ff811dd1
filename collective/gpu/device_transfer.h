/* Copies between pinned memory of the host and a device that go on while the program computes. */
#ifndef MUSTER_COLLECTIVE_DEVICE_TRANSFER_H
#define MUSTER_COLLECTIVE_DEVICE_TRANSFER_H

#include "collective/gpu/device_fence.h"

struct muster_device_transfer;
/** On the loop. UNAVAILABLE: the device has failed (muster_device_memory_has_failed). */
typedef void muster_device_transfer_fn(struct muster_device_transfer *transfer, enum muster_rc rc);

/** Caller's memory; borrowed from start to done. */
struct muster_device_transfer {
    void *data;
    /* private */
    struct muster_list node;
    muster_device_transfer_fn *done;
    struct muster_cuda_event *event; /* after its copies; NULL: there could be none */
    struct muster_gpu_slot *slot;
    struct muster_device_stall stall;
    enum muster_rc rc; /* at the end of the copies that were issued */
    bool is_out, is_issued;
};

struct muster_device_copy {
    void *host, *device;
    size_t bytes;
};

/** Pin memory of the host, which the device copies to and from by itself. False: it cannot be pinned. */
bool muster_device_pin(struct muster_device_memory *memory, void *host, size_t bytes);
void muster_device_unpin(struct muster_device_memory *memory, void *host);

/**
 * Copy all of `copies`, whose host memory is pinned: out of the device, after what `stream` (the program's) holds now,
 * or into it. Those out are done in the order of their starts, and so are those in.
 *
 * Errors:  returned UNAVAILABLE, RESOURCE_EXHAUSTED, when no copy was issued; by done UNAVAILABLE.
 * Thread:  loop only.
 */
MUSTER_MUST_CHECK enum muster_rc muster_device_transfer_start(
    struct muster_device_transfer *transfer, struct muster_device_memory *memory,
    const struct muster_device_copy *copies, size_t count, bool is_out, void *stream,
    muster_device_transfer_fn *done);
/** None is under way: done of each has been called. */
bool muster_device_transfers_are_over(const struct muster_device_memory *memory);

#endif
