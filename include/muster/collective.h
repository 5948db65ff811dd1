/* Collective operations on a group: the members of one view, immutable. */
#ifndef MUSTER_COLLECTIVE_H
#define MUSTER_COLLECTIVE_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/reduction.h>
#include <muster/status.h>
#include <muster/tensor.h>
#include <muster/view.h>

MUSTER_BEGIN

struct muster_group;
struct muster_op;

/** The numbers travel between processes: new ones come at the end. */
enum muster_op_kind {
    MUSTER_OP_ALL_REDUCE,
    MUSTER_OP_BROADCAST,
    MUSTER_OP_ALL_GATHER,
    MUSTER_OP_REDUCE_SCATTER,
    MUSTER_OP_BARRIER,
    MUSTER_OP_REDUCE,
    MUSTER_OP_GATHER,
    MUSTER_OP_SCATTER,
    MUSTER_OP_ALL_GATHER_UNEVEN,
    MUSTER_OP_REDUCE_SCATTER_UNEVEN,
    MUSTER_OP_ALL_TO_ALL,
    MUSTER_OP_ALL_TO_ALL_UNEVEN,
    MUSTER_OP_PERMUTE,
};

typedef void muster_op_fn(struct muster_op *op, enum muster_rc rc);

/** Who contributed to a delivered operation. */
struct muster_op_result {
    uint64_t epoch;                   /* number of the view in which it was delivered */
    uint32_t contributor_count;       /* the divisor of MEAN */
    uint64_t total_weight;            /* that of a weighted mean; else 0 */
    enum muster_verdict_kind verdict; /* of its last interruption */
    bool is_torn;            /* not OK: the tensor, reduced in place, holds old and new values
                                (docs/boards.md says when; else it is as it was) */
    bool is_interrupted;     /* a change of view fell into it, or was under way when it started */
    uint64_t interrupted_ns; /* loop time of the freeze, 0 = not interrupted */
    const char *phase;       /* where this member stood at the freeze ("start", "reduce", "gather",
                                "complete") */
    const char *wire;        /* what it ran over: "shm" (boards of this host) or "tcp" */
    const char *input;       /* how the others got at this member's input: "mapped" (where it is:
                                muster_tensor_new), "slot" (small: copied to the board), "staged"
                                (copied to mapped memory), "none" (it gave nothing), "sent" (TCP) */
    uint64_t sent_bytes;     /* of tensors and sums, to other members */
    uint64_t met_ns;         /* loop time when this member learned that last_rank had started the
                                operation; 0: it has waited for nobody to start it */
    uint32_t last_rank;      /* the member that it learned of last (rank in the group's view) */
    uint64_t memory_bytes;   /* library memory in use at most meanwhile, by all open operations */
};

/** What an operation costs one member. */
struct muster_op_cost {
    uint64_t sent_bytes;   /* as in muster_op_result */
    uint64_t memory_bytes; /* at most, when no other operation is open */
};

/** One operation. Caller's memory, borrowed from start to done. */
struct muster_op {
    void *data;
    /* set before start */
    uint32_t lane;        /* operations of one lane complete in order; 0 by default */
    uint64_t deadline_ns; /* absolute loop time; required */
    /* valid in done */
    struct muster_op_id id;
    struct muster_error error; /* names the culprit ("rank 3 has not called all_reduce #812") */
    struct muster_op_result result;
    /* private */
    muster_op_fn *done;
    struct muster_list node;
    void *impl;
    void (*cancel)(struct muster_op *op);
};

/**
 * Reduce `tensor` over all members, in place.
 *
 * Shape:   count elements of dtype, contiguous; equal on every rank.
 * Units:   op->deadline_ns is loop time, absolute.
 * Owns:    borrows op and the tensor's memory until done.
 * Errors:  returned INVALID_ARGUMENT (also a reduction that the type does not have:
 *          muster_reduction_check), FAILED_PRECONDITION (group closed); by done ABORTED,
 *          INVALID_ARGUMENT (another rank called something else: error names both),
 *          DEADLINE_EXCEEDED, CANCELLED.
 * Order:   all ranks start the same operations of a lane in the same order.
 * Thread:  loop only.
 * Source:  small: direct exchange of the inputs. Large, over TCP: Patarasuk & Yuan 2009 (ring,
 *          2(n-1)/n of the bytes per rank), Rabenseifner 2004 (halving and doubling), Sanders,
 *          Speck & Träff 2009 (double binary tree), blocks, two levels; on one host: boards
 *          (docs/boards.md). Which one: docs/collectives.md.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_reduce_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    enum muster_reduction reduction, muster_op_fn *done);

/** The reduction of all members' `tensor` in that of `root` (rank in the group's view); the others'
 * stay as they are. When the root dies: ABORTED on all, unless its result was whole. Otherwise as
 * muster_all_reduce_start. Large: a chain that ends at the root; each rank sends its bytes once. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_start(struct muster_op *op,
                                                                struct muster_group *group,
                                                                const struct muster_tensor *tensor,
                                                                enum muster_reduction reduction,
                                                                uint32_t root, muster_op_fn *done);

/** tensor of `root` (rank in the group's view) to all. Same rules as muster_all_reduce_start.
 * ABORTED on all also when the root has gone, or members started it by the ranks of different
 * views. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_broadcast_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    uint32_t root, muster_op_fn *done);

/** output->count = n * input->count; part r is rank r's input. Borrows the memory of both until
 * done; otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_all_gather_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, muster_op_fn *done);

/** input->count = n * output->count; rank r receives part r of the reduction. Borrows the memory
 * of both until done; otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_start(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *input,
    const struct muster_tensor *output, enum muster_reduction reduction, muster_op_fn *done);

/** done when all members have started it. Otherwise as muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_barrier_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 muster_op_fn *done);

/** done still comes, with CANCELLED unless the operation was delivered before; proposes ABORTED to
 * all. */
MUSTER_API void muster_op_cancel(struct muster_op *op);

/** How an operation on a whole vector of `count` elements would run now: a name of
 * muster_algorithm_name. Static text. */
MUSTER_API const char *muster_group_algorithm(const struct muster_group *group,
                                              enum muster_op_kind kind, uint64_t count,
                                              enum muster_dtype dtype);

/** What it would cost this member now (with a root: rank 0; uneven parts through boards: at most). */
MUSTER_API struct muster_op_cost muster_group_cost(const struct muster_group *group,
                                                   enum muster_op_kind kind, uint64_t count,
                                                   enum muster_dtype dtype);

/** The wire that operations of this view run over where both can do them: "shm" or "tcp"; "" while members
 * still connect their boards (operations wait for it). Static text. */
MUSTER_API const char *muster_group_wire(const struct muster_group *group);
/** Why, for people: "all members share a host", "members on several hosts", "MUSTER_WIRE=tcp",
 * "worker:2 has no board"; "" while it is not known. Borrowed while the group is open. */
MUSTER_API const char *muster_group_wire_reason(const struct muster_group *group);
/** Whether this process could read ordinary memory of all others (process_vm_readv): "possible", or
 * why it is refused, for people; "" without boards. Operations do without. Borrowed, as above. */
MUSTER_API const char *muster_group_memory_reading(const struct muster_group *group);

/** What this process sends for operations of the lane goes before what waits to be sent for lanes of
 * lower priority, on every link; what has begun to leave goes on. 0 (least) at first; lasts over
 * changes of view. Members may differ. Operations through boards (one host) have no queue.
 * INVALID_ARGUMENT: no such lane. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_group_set_priority(struct muster_group *group,
                                                                      uint32_t lane,
                                                                      uint8_t priority);

/** This member's position in the view. */
MUSTER_API uint32_t muster_group_rank(const struct muster_group *group);
/** Members of the view. */
MUSTER_API uint32_t muster_group_size(const struct muster_group *group);
/** Borrowed while the group is open. */
MUSTER_API const struct muster_view *muster_group_view(const struct muster_group *group);

MUSTER_END

#endif
