/* Collective operations on the memory of a GPU, by NCCL and the CUDA driver, which are loaded at run
 * time: one binary with and without a GPU. docs/gpu.md tells the whole story. */
#ifndef MUSTER_GPU_H
#define MUSTER_GPU_H

#include <muster/backend.h>
#include <muster/base.h>
#include <muster/collective.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_gpu_options {
    int ordinal;               /* of the device, among those that the process sees */
    const char *cuda_library;  /* NULL: MUSTER_CUDA_LIBRARY, else "libcuda.so.1" */
    const char *nccl_library;  /* NULL: MUSTER_NCCL_LIBRARY, else "libnccl.so.2" */
    uint64_t init_timeout_ns;  /* of one try to make a communicator; 0: 60 s */
    uint64_t abort_timeout_ns; /* then a communicator is given up; 0: 10 s */
    uint32_t attempt_max;      /* to make one, per view and cause; 0: 3, at most 4 */
    /* A user's stream also waits, on the device, for its operations that have been issued: for who
     * puts work after them before done. A communicator that does not end holds it up for ever. */
    bool is_stream_joined;
    uint32_t lane; /* of its agreements with the other members, and the next one of its own; the
                      same on all; 0: 14 */
};

struct muster_gpu_counters {
    uint64_t init_count, shrink_count, grow_count; /* communicators that came up */
    uint64_t failed_count;                         /* tries that did not, on any member */
    uint64_t abandoned_count, reclaimed_count;     /* did not end in time; of them, ended since */
    uint64_t lost_callback_count;                  /* completions that the slow timer found */
};

/**
 * Open the device and load both libraries. Set env->backend to it before groups are opened.
 *
 * Owns:    gives; close with muster_gpu_close. Borrows env until then. options NULL: device 0.
 * Errors:  INVALID_ARGUMENT (the lane and the next one must exist),
 *          UNAVAILABLE (no driver library, no device, no NCCL: nothing else changes),
 *          UNIMPLEMENTED (a driver or NCCL older than 2.18), NOT_FOUND (no such ordinal),
 *          RESOURCE_EXHAUSTED.
 * Thread:  loop. Blocks for as long as the driver takes to start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_open(
    struct muster_env *env, const struct muster_gpu_options *options,
    struct muster_backend **ret_backend, struct muster_error *ret_error);

/** How many of the tensors are in device memory, as the driver says that this process has loaded
 * (MUSTER_CUDA_LIBRARY, else libcuda.so.1); without one: none. Opens nothing. */
MUSTER_API size_t muster_gpu_count_tensors(const struct muster_env *env,
                                           const struct muster_tensor *tensors, size_t count);

typedef void muster_gpu_close_fn(void *data);
/** After the groups that used it are closed. on_closed (may be NULL) comes last, in a later turn of
 * the loop: communicators end first, at most abort_timeout_ns each. NULL is accepted (no
 * callback). */
MUSTER_API void muster_gpu_close(struct muster_backend *backend, muster_gpu_close_fn *on_closed,
                                 void *data);

MUSTER_API void muster_gpu_counters(const struct muster_backend *backend,
                                    struct muster_gpu_counters *ret_counters);

/**
 * Reduce `tensor` over all members, in place, on the device.
 *
 * All ranks start the same operations in the same order; before it runs, the members agree on what
 * it is. A result holds only when muster_gpu_commit_start ended OK: a change of view ends what is
 * open with ABORTED, on some members perhaps after others have completed it.
 *
 * Shape:   count elements of dtype, contiguous; equal on every rank. data is a device address.
 * Order:   after everything that `stream` (a CUstream, NULL: the default stream) holds now, which
 *          the host does not wait for; done comes when the device has finished it.
 * Owns:    borrows op, the tensor's memory and stream until done. op->lane is set to the backend's.
 * Errors:  returned FAILED_PRECONDITION (no backend, group closed), INVALID_ARGUMENT,
 *          UNIMPLEMENTED (NCCL has no such reduction), RESOURCE_EXHAUSTED; by done ABORTED (the
 *          members have changed), INVALID_ARGUMENT (another rank called something else: error names
 *          both), UNAVAILABLE (no communicator, or it failed), DEADLINE_EXCEEDED, CANCELLED. After
 *          an error by done an output may be partly written: run the step again from begin.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_all_reduce_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    enum muster_reduction reduction, void *stream, muster_op_fn *done);

/** tensor of `root` (rank in the group's view) to all, in place. The rest as above. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_broadcast_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    uint32_t root, void *stream, muster_op_fn *done);

/** input of all, reduced, to output of `root`; output is not read elsewhere (may be all zero). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_reduce_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction, uint32_t root,
    void *stream, muster_op_fn *done);

/** output->count = n * input->count; part r is rank r's input. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_all_gather_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, void *stream, muster_op_fn *done);

/** input->count = n * output->count; rank r receives part r of the reduction. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_reduce_scatter_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction, void *stream,
    muster_op_fn *done);

/** input and output of n parts: part r of input goes to rank r, part r of output comes from it. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_all_to_all_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, void *stream, muster_op_fn *done);

/** All members call it; each sends input to rank `to`, and receives output from rank `from`
 * (MUSTER_DEVICE_NOBODY: neither; the tensor may be NULL then). Senders and receivers must fit:
 * otherwise INVALID_ARGUMENT on all. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_send_recv_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    uint32_t to, const struct muster_tensor *output, uint32_t from, void *stream,
    muster_op_fn *done);

/**
 * The end of a step: OK on all when every GPU operation of every member since its last commit ended
 * OK, ABORTED on all when not: run the step again from begin. Every member calls it at the end of
 * each step, whatever became of its operations, when their callbacks have come.
 *
 * Errors:  returned FAILED_PRECONDITION (an operation is still open); the rest as above.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_commit_start(struct muster_op *op,
                                                                    struct muster_group *group,
                                                                    muster_op_fn *done);

/** As muster_op_cancel, which does nothing to GPU operations. Once it is on the device, only the
 * communicator as a whole can be stopped: the others' operations end ABORTED. */
MUSTER_API void muster_gpu_cancel(struct muster_op *op, struct muster_group *group);

struct muster_gpu_alloc;
typedef void muster_gpu_alloc_fn(struct muster_gpu_alloc *alloc);
/** A request for device memory. Caller's memory, borrowed from start to done. */
struct muster_gpu_alloc {
    void *data;
    size_t bytes;
    void *memory;              /* valid in done; NULL with an error */
    struct muster_error error; /* valid in done */
    /* private */
    muster_gpu_alloc_fn *done;
    void *impl;
};
/** For programs that have no allocator of their own: cuMemAlloc on the backend's thread, since it
 * may block. Give the memory back with muster_gpu_free. RESOURCE_EXHAUSTED: the queue is full (64).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_alloc_start(struct muster_gpu_alloc *alloc,
                                                                   struct muster_backend *backend,
                                                                   muster_gpu_alloc_fn *done);
/** Blocks while the device works. NULL is accepted. */
MUSTER_API void muster_gpu_free(struct muster_backend *backend, void *memory);

/** Copy to device memory, and from it; for programs without CUDA's own calls. They come after what the default stream
 * holds, and return when the bytes are there. Any thread. Errors: UNAVAILABLE, INVALID_ARGUMENT, as the driver says. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_write(struct muster_backend *backend,
                                                             void *to, const void *from,
                                                             size_t bytes,
                                                             struct muster_error *ret_error);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gpu_read(struct muster_backend *backend,
                                                            void *to, const void *from,
                                                            size_t bytes,
                                                            struct muster_error *ret_error);

MUSTER_END

#endif
