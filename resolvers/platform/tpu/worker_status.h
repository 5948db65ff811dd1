/* The devices that TensorFlow workers have, asked of the workers themselves. */
#ifndef MUSTER_RESOLVERS_WORKER_STATUS_H
#define MUSTER_RESOLVERS_WORKER_STATUS_H

#include <muster/env.h>
#include <muster/loop.h>
#include <muster/status.h>

#define MUSTER_WORKER_STATUS_METHOD       "/tensorflow.WorkerService/GetStatus"
#define MUSTER_WORKER_STATUS_WORKERS_MAX  65536u
#define MUSTER_WORKER_STATUS_AT_ONCE      64u /* workers that are asked side by side */
#define MUSTER_WORKER_STATUS_TRIES_MAX    120u
#define MUSTER_WORKER_STATUS_TRY_NS       (5 * MUSTER_NS_PER_S)
#define MUSTER_WORKER_STATUS_RESPONSE_MAX ((size_t)1 << 20) /* bytes of one worker's answer */

struct muster_worker_status;
struct muster_status_ask;
typedef void muster_worker_status_fn(struct muster_worker_status *status, enum muster_rc rc);

/** Caller's memory, zeroed before its first start, borrowed from start to done. */
struct muster_worker_status {
    void *data;
    /* may be set before start */
    uint64_t try_timeout_ns; /* of one try; 0: 5 s */
    uint64_t pause_first_ns; /* before the second try, doubles up to 5 s; 0: 250 ms */
    /* valid in done with OK, until fini */
    char **devices; /* names of all devices of all workers, in the order of the addresses */
    size_t device_count;
    struct muster_error error; /* names the worker and the remedy */
    /* private */
    struct muster_env *env;
    muster_worker_status_fn *done;
    struct muster_status_ask *asks; /* one for each address */
    size_t ask_count;
    size_t next;   /* the first ask that has not begun */
    size_t active; /* asks whose channel is open */
    uint64_t deadline_ns;
    struct muster_task task;
    enum muster_rc rc;
    bool is_over; /* rc is decided, no more asks begin */
};

/**
 * Ask every worker for its devices: tensorflow.WorkerService/GetStatus without TLS, 64 of them at
 * once. One that answers UNAVAILABLE or DEADLINE_EXCEEDED, or is not there, is asked again with
 * backoff, up to 120 times. The first that cannot be asked ends it all.
 *
 * Units:   deadline_ns is loop time, absolute; done comes up to 20 ms before it, so that a caller
 *          who has the same deadline can tell the reason.
 * Owns:    borrows env and status until done; addresses ("host:port") are copied. Devices and their
 *          names are of env->mem, freed by fini.
 * Errors:  returned RESOURCE_EXHAUSTED (no memory, or too many addresses). By done UNAVAILABLE
 *          (no answer in time), UNIMPLEMENTED and others (the worker's own), INVALID_ARGUMENT (an
 *          address or an answer that is none), RESOURCE_EXHAUSTED, CANCELLED.
 * Order:   done is the last of it: all channels are closed.
 * Thread:  loop only; done never runs inside this call.
 * Source:  TPUClusterResolver.num_accelerators, which lists devices on the master.
 */
MUSTER_MUST_CHECK enum muster_rc muster_worker_status_start(
    struct muster_worker_status *status, struct muster_env *env, const char *const *addresses,
    size_t address_count, uint64_t deadline_ns, muster_worker_status_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
void muster_worker_status_cancel(struct muster_worker_status *status);
/** Frees the devices. Idempotent. */
void muster_worker_status_fini(struct muster_worker_status *status);

/**
 * The device names of a tensorflow.GetStatusResponse. Pure.
 *
 * Owns:    gives the array and each name.
 * Errors:  INVALID_ARGUMENT (malformed), RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_worker_status_unpack(struct muster_mem *mem,
                                                             const void *bytes, size_t size,
                                                             char ***ret_devices, size_t *ret_count,
                                                             struct muster_error *ret_error);
/** Free what an unpack gave. NULL is accepted. */
void muster_worker_status_devices_free(struct muster_mem *mem, char **devices, size_t count);

#endif
