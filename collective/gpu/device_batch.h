/* Copies between the host and several devices at once: each device makes its own while the host goes on, and the host
 * waits for all of them at the end. Unlike transfers they need no loop. */
#ifndef MUSTER_COLLECTIVE_DEVICE_BATCH_H
#define MUSTER_COLLECTIVE_DEVICE_BATCH_H

#include "collective/gpu/device_transfer.h"

/** The copies of one device. Caller's memory; used by one thread at a time. */
struct muster_device_batch {
    struct muster_device_memory *memory;
    /* private */
    struct muster_cuda_stream *stream;
    struct muster_cuda_event *event; /* after what the program's stream holds */
};

/** Make a stream and an event for copies of this device. Borrows memory until close. Errors:
 * RESOURCE_EXHAUSTED, UNAVAILABLE (also: the device has failed before); the batch is all zero then. */
MUSTER_MUST_CHECK enum muster_rc muster_device_batch_open(struct muster_device_batch *batch,
                                                          struct muster_device_memory *memory,
                                                          struct muster_error *ret_error);
/** Only after muster_device_batch_wait. It is all zero then, and a batch that is so is accepted. Of a
 * device that hangs the stream stays. */
void muster_device_batch_close(struct muster_device_batch *batch);

/** Let copies that are issued from now on come after what `stream` (the program's) holds now. Errors: as of start. */
MUSTER_MUST_CHECK enum muster_rc muster_device_batch_follow(struct muster_device_batch *batch,
                                                            void *stream);
/**
 * Issue copies out of the device, or into it, after the streams that are followed, and after those that were issued
 * before. The host's memory is the batch's until wait. Memory that is pinned (muster_device_pin) is copied while
 * the host goes on, other memory perhaps not.
 *
 * Errors:  UNAVAILABLE: the device has failed (muster_device_memory_has_failed). Those that were issued go on.
 */
MUSTER_MUST_CHECK enum muster_rc muster_device_batch_start(struct muster_device_batch *batch,
                                                           const struct muster_device_copy *copies,
                                                           size_t count, bool is_out);
/** Wait for all that was issued. Errors: as of start. */
MUSTER_MUST_CHECK enum muster_rc muster_device_batch_wait(struct muster_device_batch *batch);

#endif
