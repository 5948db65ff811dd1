/* Executors carry operations out: one table of functions for each family of algorithms. An
 * executor includes nothing of the group: it reports by outcomes, and the lane of the run acts on
 * them. */
#ifndef MUSTER_COLLECTIVE_EXECUTOR_H
#define MUSTER_COLLECTIVE_EXECUTOR_H

#include "collective/group/run/run.h"

/** Whether a run through shared memory can begin. */
enum muster_prepared {
    MUSTER_PREPARED,
    MUSTER_PREPARE_LATER, /* no room for now; the run waits in its lane */
    MUSTER_PREPARE_NEVER, /* no memory: its abort is to be proposed */
};

/** Executors through shared memory have these besides: the others read this member's memory, so
 * the end of an operation is not this member's alone. */
struct muster_shared_ops {
    enum muster_prepared (*prepare)(struct muster_run *run);
    bool (*is_deliverable)(const struct muster_run *run);
    bool (*is_stable)(const struct muster_run *run);
    /* All have announced it, and nobody has taken that back. */
    bool (*is_ready)(const struct muster_run *run);
    /* All have announced it, so that it ends well whatever happens. */
    bool (*is_sure)(const struct muster_run *run);
    bool (*is_left_behind)(const struct muster_run *run);
    bool (*has_input)(const struct muster_run *run); /* the caller's tensor is as it was */
    void (*freeze)(struct muster_run *run);
    enum muster_run_outcome (*adopt)(struct muster_run *run);
    void (*completed)(struct muster_run *run); /* it has its result: tell the others */
    void (*hear)(struct muster_run *run);      /* note in run->heard who has started it */
    /* Note how far the others are, and leave those behind that are where they were the last time. */
    void (*leave_stalled)(struct muster_run *run);
    /* The caller gets its memory back without a result: nobody may rely on it any more. */
    void (*revoke)(struct muster_run *run);
    /* Another member says that others were called. False: all have announced it alike, it stands. */
    bool (*withdraw)(struct muster_run *run);
    /* This process ends it alone. True: others still read its memory, so it lingers. */
    bool (*hold)(struct muster_run *run);
    /* A lingering run ends now, with its result if it is whole; the run is gone then. */
    void (*end_lingering)(struct muster_run *run);
    /* Fill in the wire, input and memory of muster_op_result. */
    void (*show_result)(const struct muster_run *run, enum muster_rc rc,
                        struct muster_op_result *result);
};

/** How one algorithm, or a family of them, carries out a run. All zero: nothing to do there. */
struct muster_executor_ops {
    const char *name;
    uint32_t frames; /* that carry its data: a bit by type */
    /* The run's share of MUSTER_LANE_COST_MAX. */
    uint32_t (*cost)(const struct muster_run *run);
    /* Size of run->executor: zeroed memory after the run's tables. */
    size_t (*state_bytes)(const struct muster_plan *plan);
    /* Bytes that this member sends, and the library memory that it needs besides its tables. */
    struct muster_op_cost (*plan_cost)(const struct muster_plan *plan,
                                       const struct muster_topology *topology);
    enum muster_run_outcome (*start)(struct muster_run *run);
    /* A frame of `frames` begins: where it goes, NULL for a buffer or nothing. */
    enum muster_run_outcome (*receive)(struct muster_run *run, uint32_t participant,
                                       const struct muster_frame_header *header,
                                       struct muster_receiving *receiving, void **ret_place);
    void (*progress)(struct muster_run *run, struct muster_receiving *receiving, size_t bytes_done);
    enum muster_run_outcome (*received)(struct muster_run *run, uint32_t participant,
                                        struct muster_receiving *receiving);
    /* The frame will not be finished: undo what was done with its first part. */
    void (*abandon)(struct muster_run *run, struct muster_receiving *receiving);
    /* A participant has started the operation, and takes data. */
    enum muster_run_outcome (*hear_start)(struct muster_run *run, uint32_t participant,
                                          const struct muster_frame_header *header);
    bool (*is_in_place)(const struct muster_run *run); /* the result grows in the caller's output */
    void (*restore)(struct muster_run *run);           /* the caller's input is as it was */
    void (*deliver)(struct muster_run *run);           /* the result goes to the caller's output */
    void (*finish)(struct muster_run *run);            /* its memory goes */
    const struct muster_shared_ops *shared;            /* NULL: by frames */
};

extern const struct muster_executor_ops muster_direct_executor, muster_ring_executor,
    muster_steps_executor, muster_exchange_executor, muster_shm_executor;
/** Runs nothing: the tables of an operation that waits for its turn, or fetches its result. */
extern const struct muster_executor_ops muster_fetch_executor;

/** By boards: the others read its memory. */
static inline bool muster_run_is_shared(const struct muster_run *run)
{
    return run->ops != NULL && run->ops->shared != NULL;
}

#endif
