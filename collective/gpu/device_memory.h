/* The memory of a device for code that works in host memory: copies through pinned memory of a bounded size. It needs
 * the driver, and no NCCL. */
#ifndef MUSTER_COLLECTIVE_DEVICE_MEMORY_H
#define MUSTER_COLLECTIVE_DEVICE_MEMORY_H

#include <muster/env.h>
#include <muster/status.h>

#include "runtime/value/far_memory.h"

struct muster_device_memory;

/** The device that `address` was allocated on, among those that the process sees; 0: nobody says. */
int muster_device_ordinal_of(const struct muster_env *env, const void *address);

/** Open the device. Gives. Borrows env until close. Errors: those of muster_cuda_open,
 * RESOURCE_EXHAUSTED (also: no pinned memory). */
MUSTER_MUST_CHECK enum muster_rc muster_device_memory_open(struct muster_env *env, int ordinal,
                                                           struct muster_device_memory **ret_memory,
                                                           struct muster_error *ret_error);
/** When no copy is under way. NULL is accepted. */
void muster_device_memory_close(struct muster_device_memory *memory);

int muster_device_memory_ordinal(const struct muster_device_memory *memory);
/** Its copies. Borrowed until close. NULL gives NULL: the host's. */
struct muster_far_memory *muster_device_memory_far(struct muster_device_memory *memory);
/** Wait until `stream` (a CUstream, NULL: the default stream) has done all that it holds now. Errors: as of a copy. */
MUSTER_MUST_CHECK enum muster_rc muster_device_memory_wait(struct muster_device_memory *memory,
                                                           void *stream);
/** Whether a copy or a wait has failed, after which all do: the first error, with its text. Any thread. */
bool muster_device_memory_has_failed(struct muster_device_memory *memory,
                                     struct muster_error *ret_error);

#endif
