/* The two fake libraries, and the symbols that a test finds in them by dlsym: knobs by name, set to
 * how often (or whether) a fault happens, and counters. */
#ifndef MUSTER_TEST_FAKE_GPU_H
#define MUSTER_TEST_FAKE_GPU_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_API __attribute__((visibility("default")))

typedef void fake_knob_set_fn(const char *name, long value);
typedef long fake_knob_get_fn(const char *name);

/* libcuda.so.1: no_device, devices, driver_version, hold (streams stand still), lost_callbacks,
 * alloc_fails, alloc_blocks, event_fails, launch_fails, copy_fails, write_fails (copies to the
 * device), pinned_fails, guarded (device memory from now on is not the host's, too), ordinal (of the
 * device that all memory is said to be on; -1: that under whose context it was made), broken (the
 * device that gives no context; -1: none), failed (the device whose copies fail; -1: none), lazy
 * (the default stream stands still unless somebody waits for it, or for an event there); counts
 * misuse (calls outside of the context, or under that of another device), contexts (retained), streams, events, pinned
 * (blocks), copied (bytes, in and out). */
FAKE_API void fake_cuda_set(const char *name, long value);
FAKE_API long fake_cuda_get(const char *name);

/* libnccl.so.2: rank (whom faults concern; -1: all), polls (how often each call is in progress),
 * init_fails, init_hangs, init_blocks, id_fails, id_blocks, issue_fails, error_after (operations),
 * abort_blocks, destroy_blocks, finalize_hangs, finalize_fails, revoke_hangs, revoke_fails,
 * shrink_fails, shrink_blocks, shrink_late (fails without a look at the parent), grow_fails; counts
 * misuse, live, inits, shrinks, grows, aborts, revokes, destroys, issued, blocked (calls that
 * wait), named, aborting, aborting_max. */
FAKE_API void fake_nccl_set(const char *name, long value);
FAKE_API long fake_nccl_get(const char *name);

/* For the fake NCCL: work on a stream, in order. Once aborted it must return. */
struct fake_stream;
FAKE_API bool fake_cuda_enqueue(struct fake_stream *stream, void (*work)(void *data), void *data);
/* Where the bytes of device memory are; other memory is its own. */
FAKE_API void *fake_cuda_host(const void *memory);
/* The context is current in this thread; else it counts as misuse. */
FAKE_API bool fake_cuda_has_context(void);

#endif
