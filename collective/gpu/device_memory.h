/* The memory of a device for code that works in host memory: copies through pinned memory of a bounded size. It needs
 * the driver, and no NCCL. */
#ifndef MUSTER_COLLECTIVE_DEVICE_MEMORY_H
#define MUSTER_COLLECTIVE_DEVICE_MEMORY_H

#include <muster/env.h>
#include <muster/status.h>

#include "collective/gpu/cuda_driver.h"
#include "runtime/value/far_memory.h"

struct muster_device_memory;

/** The device that `address` was allocated on, among those that the process sees; 0: nobody says. */
int muster_device_ordinal_of(const struct muster_env *env, const void *address);

/** Tells where memory is, as long as the libraries that are loaded stay so. Opens nothing. */
struct muster_device_look {
    struct muster_cuda_look cuda;
    bool has_driver;
};
struct muster_device_look muster_device_look_of(const struct muster_env *env);
/** The device that `address` was allocated on; -1: it is the host's memory. */
int muster_device_look_at(const struct muster_device_look *look, const void *address);

/** How many devices the process sees. Starts the driver, and opens no device. Errors: those of muster_cuda_count. */
MUSTER_MUST_CHECK enum muster_rc muster_device_count(const struct muster_env *env, int *ret_count,
                                                     struct muster_error *ret_error);

/** Open the device. Gives. Borrows env until close. Errors: those of muster_cuda_open,
 * RESOURCE_EXHAUSTED (also: no pinned memory). */
MUSTER_MUST_CHECK enum muster_rc muster_device_memory_open(struct muster_env *env, int ordinal,
                                                           struct muster_device_memory **ret_memory,
                                                           struct muster_error *ret_error);
/** How long a wait for the device may take, after which it has failed; 10 min at first. Before the first copy. */
void muster_device_memory_set_timeout(struct muster_device_memory *memory, uint64_t timeout_ns);
/** Whether the device has failed because a wait took too long: calls that free its memory, or unpin the host's, would
 * wait, too. Any thread. */
bool muster_device_memory_hangs(const struct muster_device_memory *memory);
/** When no copy is under way. Of a device that hangs what it may write to stays. NULL is accepted. */
void muster_device_memory_close(struct muster_device_memory *memory);

int muster_device_memory_ordinal(const struct muster_device_memory *memory);
/** Make the device current in this thread, for the program's calls of CUDA; returns what was, for leave. */
void *muster_device_memory_enter(const struct muster_device_memory *memory);
void muster_device_memory_leave(const struct muster_device_memory *memory, void *before);
/** Memory of the device, of zeroes. Gives. May block. Any thread. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE. */
MUSTER_MUST_CHECK enum muster_rc muster_device_memory_new(struct muster_device_memory *memory,
                                                          size_t bytes, void **ret_address,
                                                          struct muster_error *ret_error);
/** NULL is accepted. Of a device that hangs it stays. */
void muster_device_memory_free(struct muster_device_memory *memory, void *address);
/** Its copies. Borrowed until close. NULL gives NULL: the host's. */
struct muster_far_memory *muster_device_memory_far(struct muster_device_memory *memory);
/** Wait until `stream` (a CUstream, NULL: the default stream) has done all that it holds now. `operation` is for texts.
 * Any thread. Errors: as of a copy. */
MUSTER_MUST_CHECK enum muster_rc muster_device_memory_wait(struct muster_device_memory *memory,
                                                           void *stream, const char *operation);
/** Let work that `stream` is given from now on wait for all that `first` holds now; the host does not wait. Errors:
 * those of the driver, which refuses the stream; copies go on. */
MUSTER_MUST_CHECK enum muster_rc muster_device_memory_order(struct muster_device_memory *memory,
                                                            void *first, void *stream,
                                                            struct muster_error *ret_error);
/** Whether a copy or a wait has failed, after which all do: the first error, with its text. Any thread. */
bool muster_device_memory_has_failed(struct muster_device_memory *memory,
                                     struct muster_error *ret_error);

#endif
