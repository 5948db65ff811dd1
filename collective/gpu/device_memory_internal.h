/* The parts of a device's memory: shared by device_*.c only. */
#ifndef MUSTER_COLLECTIVE_DEVICE_MEMORY_INTERNAL_H
#define MUSTER_COLLECTIVE_DEVICE_MEMORY_INTERNAL_H

#include <stdatomic.h>

#include <muster/loop.h>

#include "collective/gpu/cuda_driver.h"
#include "collective/gpu/device_memory.h"
#include "collective/gpu/device_transfer.h"

#define MUSTER_DEVICE_LANES 4u

struct muster_device_lane {
    /* Taken with acquire, which pairs with the release of the clear: a holder sees what the one before did. */
    atomic_flag is_taken;
    void *pinned;
    struct muster_cuda_stream *stream;
};

/** As long as a collective of PyTorch may take by default. */
#define MUSTER_DEVICE_TIMEOUT_NS (600 * MUSTER_NS_PER_S)

struct muster_device_memory {
    struct muster_far_memory far;
    struct muster_env *env;
    struct muster_cuda *cuda;
    struct muster_device_lane lanes[MUSTER_DEVICE_LANES];
    /* A device that has failed keeps failing (CUDA's contexts are lost for good), and the first error says most.
     * Writer: the thread that sets FAILING, once; error is complete with FAILED (release), and read after a load of
     * it (acquire). */
    atomic_int failure;
    struct muster_error error;
    /* Set before the failure, by the thread that has waited too long; it stays true. */
    atomic_bool hangs;
    uint64_t timeout_ns; /* of every wait */
    /* transfers: device_transfer.c; on the loop */
    struct muster_list transfers;        /* under way */
    struct muster_cuda_stream *out, *in; /* theirs; NULL: there was none yet */
    struct muster_wake *wake;            /* one has ended */
    struct muster_timer slow;            /* finds lost callbacks, and errors */
};

/** Keep the first error. Returns UNAVAILABLE. Any thread. */
enum muster_rc muster_device_memory_fail(struct muster_device_memory *memory,
                                         const struct muster_error *error);
/** Give back what transfers have opened; none is under way. */
void muster_device_transfers_close(struct muster_device_memory *memory);

#endif
