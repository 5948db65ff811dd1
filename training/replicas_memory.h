/* Values of replicas where the host can use them: what is on devices is copied, of all devices at once. */
#ifndef MUSTER_TRAINING_REPLICAS_MEMORY_H
#define MUSTER_TRAINING_REPLICAS_MEMORY_H

#include "training/strategy_memory.h"

/** The value may be of any replica: the work on all streams of its GPU comes first. */
#define MUSTER_REPLICA_UNKNOWN UINT32_MAX

/** A value of the program, or a part of one. */
struct muster_replicas_copy {
    void *data; /* the program's */
    void *host; /* where the host has its bytes; NULL: bring sets it */
    uint64_t bytes;
    uint32_t replica;                    /* among the local ones: by whose streams it is ready */
    struct muster_device_memory *memory; /* set by find; NULL: the host's */
    bool is_read;                        /* bring copies its bytes */
    bool is_written;                     /* give copies to it */
};

/** Find out where values are, and open the devices. Errors: those of muster_strategy_memory_open; INVALID_ARGUMENT
 * where the members have agreed on NCCL and this one has several replicas. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_find(struct muster_strategy *strategy,
                                                      const char *name,
                                                      struct muster_replicas_copy *copies,
                                                      size_t count);
/** Whether some are on devices. */
bool muster_replicas_are_far(const struct muster_replicas_copy *copies, size_t count);
/** Start copying the values that are on devices to their host memory (is_out), or back.
 * muster_replicas_wait_copies must follow, also after an error. Errors: UNAVAILABLE, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_start_copies(
    struct muster_strategy *strategy, const char *name, const struct muster_replicas_copy *copies,
    size_t count, bool is_out);
/** Wait for all copies that were started. rc: the result of muster_replicas_start_copies. Errors: UNAVAILABLE (a device
 * has failed, and the strategy is FAILED), otherwise rc. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_wait_copies(struct muster_strategy *strategy,
                                                             const char *name, enum muster_rc rc);

/** Give each value host memory, and copy the bytes of those that are read there. The memory holds until the next
 * call. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_bring(struct muster_strategy *strategy,
                                                       const char *name,
                                                       struct muster_replicas_copy *copies,
                                                       size_t count);
/** Copy the host's bytes of those that are written to their places. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_give(struct muster_strategy *strategy,
                                                      const char *name,
                                                      const struct muster_replicas_copy *copies,
                                                      size_t count);
/** Copy a tensor to `count` others of its type and count, each of which may be the tensor itself, and all of which may
 * be of any replica. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_spread(struct muster_strategy *strategy,
                                                        const char *name,
                                                        const struct muster_tensor *tensor,
                                                        const struct muster_tensor *others,
                                                        uint32_t count);
/** Bring the values of all local replicas: ret_values has room for them. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_bring_values(
    struct muster_strategy *strategy, const char *name, const struct muster_shaped_tensor *values,
    struct muster_shaped_tensor *ret_values);

/** Pin a room for the devices, if it can be. */
void muster_replicas_pin(struct muster_strategy *strategy, enum muster_replicas_room_of which);

#endif
