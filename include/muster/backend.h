/* A backend: whoever carries out collective operations on the memory of a device. The one that is
 * there is muster_gpu_open's (gpu.h); users call the functions there. */
#ifndef MUSTER_BACKEND_H
#define MUSTER_BACKEND_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_backend;

/** The numbers travel between processes: new ones come at the end. */
enum muster_device_kind {
    MUSTER_DEVICE_NONE,
    MUSTER_DEVICE_ALL_REDUCE,
    MUSTER_DEVICE_BROADCAST,
    MUSTER_DEVICE_ALL_GATHER,
    MUSTER_DEVICE_REDUCE_SCATTER,
    MUSTER_DEVICE_REDUCE,
    MUSTER_DEVICE_SEND_RECV,
    MUSTER_DEVICE_ALL_TO_ALL,
    MUSTER_DEVICE_COMMIT, /* no data: did every operation of every member end well? */
    MUSTER_DEVICE_SETUP,  /* inside a backend */
};

#define MUSTER_DEVICE_NOBODY UINT32_MAX

/** An operation on device memory. Read during the call only. */
struct muster_device_call {
    enum muster_device_kind kind;
    enum muster_reduction reduction;
    struct muster_tensor input, output; /* device addresses; in place: the same data */
    uint32_t root;                      /* broadcast, reduce: rank in the group's view */
    uint32_t to, from;                  /* send_recv: ranks, or MUSTER_DEVICE_NOBODY */
    void *stream; /* of the user: what it holds at start comes before the operation */
};

struct muster_backend_ops {
    const char *(*name)(const struct muster_backend *backend); /* static text */
    /* OK, or why it cannot run such an operation: UNIMPLEMENTED, INVALID_ARGUMENT. */
    enum muster_rc (*check)(const struct muster_backend *backend,
                            const struct muster_device_call *call, struct muster_error *ret_error);
    enum muster_rc (*start)(struct muster_backend *backend, struct muster_op *op,
                            struct muster_group *group, const struct muster_device_call *call,
                            muster_op_fn *done);
    void (*cancel)(struct muster_backend *backend, struct muster_op *op);
};

/** Embed as the first field of an implementation. */
struct muster_backend {
    const struct muster_backend_ops *ops;
};

/** "all_reduce". Static text, also for no kind. */
MUSTER_API const char *muster_device_kind_name(enum muster_device_kind kind);

/** "nccl 2.30.7 on NVIDIA H100"; "none" for NULL. Borrowed while it is open. */
MUSTER_API const char *muster_backend_name(const struct muster_backend *backend);

/** Can the group's backend run this? FAILED_PRECONDITION: there is none; UNIMPLEMENTED: not this
 * reduction or type (the text says which have it); INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_backend_check(
    const struct muster_backend *backend, const struct muster_device_call *call,
    struct muster_error *ret_error);

/** Run call on the backend of the group's environment; the functions of gpu.h are short for it.
 * Errors as there. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_backend_start(
    struct muster_op *op, struct muster_group *group, const struct muster_device_call *call,
    muster_op_fn *done);

MUSTER_END

#endif
