/* The CUDA driver, loaded at run time: one device, its streams, events and memory. No name of the
 * driver's is seen outside; its codes become muster_rc with text. */
#ifndef MUSTER_COLLECTIVE_CUDA_DRIVER_H
#define MUSTER_COLLECTIVE_CUDA_DRIVER_H

#include <muster/mem.h>
#include <muster/status.h>

struct muster_cuda;
struct muster_cuda_stream; /* the driver's */
struct muster_cuda_event;  /* the driver's */

typedef void muster_cuda_host_fn(void *data); /* on a thread of the driver's: no CUDA call */

struct muster_cuda_device {
    char name[96];
    int ordinal, driver_version; /* 13020 is 13.2 */
    int capability_major, capability_minor;
    size_t memory_bytes;
};

/** Load the library (NULL: libcuda.so.1), start the driver and keep the primary context of the
 * device. Gives. Errors: UNAVAILABLE (no library, no device), NOT_FOUND (no such ordinal),
 * UNIMPLEMENTED (a function is missing), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_open(struct muster_mem *mem, const char *library,
                                                  int ordinal, struct muster_cuda **ret_cuda,
                                                  struct muster_error *ret_error);
/** How many devices this process sees, for open: starts the driver, and opens none of them. Errors: UNAVAILABLE (no
 * library, no device), UNIMPLEMENTED (a function is missing). */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_count(const char *library, int *ret_count,
                                                   struct muster_error *ret_error);
/** The library stays loaded: its threads may live on. NULL is accepted. */
void muster_cuda_close(struct muster_cuda *cuda);
/** Without a call of the driver, which would wait for a device that hangs: the context stays. */
void muster_cuda_abandon(struct muster_cuda *cuda);
const struct muster_cuda_device *muster_cuda_device(const struct muster_cuda *cuda);

/** Make the device's context current in this thread; returns what was, for leave. */
void *muster_cuda_enter(const struct muster_cuda *cuda);
void muster_cuda_leave(const struct muster_cuda *cuda, void *before);

/* Between enter and leave: */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_stream_new(const struct muster_cuda *cuda,
                                                        struct muster_cuda_stream **ret_stream,
                                                        struct muster_error *ret_error);
/** NULL is accepted. */
void muster_cuda_stream_free(const struct muster_cuda *cuda, struct muster_cuda_stream *stream);
MUSTER_MUST_CHECK enum muster_rc muster_cuda_stream_synchronise(const struct muster_cuda *cuda,
                                                                struct muster_cuda_stream *stream,
                                                                struct muster_error *ret_error);
/** Whether the stream has done all that it holds now. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_stream_query(const struct muster_cuda *cuda,
                                                          struct muster_cuda_stream *stream,
                                                          bool *ret_is_done,
                                                          struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_cuda_event_new(const struct muster_cuda *cuda,
                                                       struct muster_cuda_event **ret_event,
                                                       struct muster_error *ret_error);
/** NULL is accepted. */
void muster_cuda_event_free(const struct muster_cuda *cuda, struct muster_cuda_event *event);
/** Done when all that stream holds now is done. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_event_record(const struct muster_cuda *cuda,
                                                          struct muster_cuda_event *event,
                                                          struct muster_cuda_stream *stream,
                                                          struct muster_error *ret_error);
/** Work that comes into stream from now on waits for event. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_stream_wait(const struct muster_cuda *cuda,
                                                         struct muster_cuda_stream *stream,
                                                         struct muster_cuda_event *event,
                                                         struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_cuda_event_query(const struct muster_cuda *cuda,
                                                         struct muster_cuda_event *event,
                                                         bool *ret_is_done,
                                                         struct muster_error *ret_error);
/** fn(data) when the stream has come so far; perhaps never, when the context fails. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_launch_host(const struct muster_cuda *cuda,
                                                         struct muster_cuda_stream *stream,
                                                         muster_cuda_host_fn *fn, void *data,
                                                         struct muster_error *ret_error);

/** May block. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_alloc(const struct muster_cuda *cuda, size_t bytes,
                                                   void **ret_memory,
                                                   struct muster_error *ret_error);
void muster_cuda_free(const struct muster_cuda *cuda, void *memory);
/** Pinned memory of the host, which the device copies to and from by itself. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_host_alloc(const struct muster_cuda *cuda,
                                                        size_t bytes, void **ret_memory,
                                                        struct muster_error *ret_error);
/** NULL is accepted. */
void muster_cuda_host_free(const struct muster_cuda *cuda, void *memory);
/** The same of memory that is there already, until unpin. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_host_pin(const struct muster_cuda *cuda, void *memory,
                                                      size_t bytes, struct muster_error *ret_error);
void muster_cuda_host_unpin(const struct muster_cuda *cuda, void *memory);
/** The device can reach [memory, …): allocated, registered or managed by the driver. */
bool muster_cuda_is_reachable(const struct muster_cuda *cuda, const void *memory);
/** Asynchronous copies; host memory is borrowed until the stream has come so far. */
MUSTER_MUST_CHECK enum muster_rc muster_cuda_copy_in(const struct muster_cuda *cuda, void *device,
                                                     const void *host, size_t bytes,
                                                     struct muster_cuda_stream *stream,
                                                     struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_cuda_copy_out(const struct muster_cuda *cuda, void *host,
                                                      const void *device, size_t bytes,
                                                      struct muster_cuda_stream *stream,
                                                      struct muster_error *ret_error);

/** Asks a driver that somebody in this process has loaded about memory. */
struct muster_cuda_look {
    int (*pointer_attribute)(void *value, int attribute, unsigned long long memory);
};
/** library as for open, which it does not do: nothing is loaded or started. False: there is none. */
bool muster_cuda_look_init(struct muster_cuda_look *look, const char *library);
/** Allocated on a device, or managed: no memory of the host alone. */
bool muster_cuda_look_is_device(const struct muster_cuda_look *look, const void *memory);
/** The device that it was allocated on, as muster_cuda_open counts; 0: the driver does not say. */
int muster_cuda_look_ordinal(const struct muster_cuda_look *look, const void *memory);

#endif
