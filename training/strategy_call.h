/* One blocking call of a strategy: operations that are started on the current group together and
 * waited for in the driver's seat. */
#ifndef MUSTER_TRAINING_STRATEGY_CALL_H
#define MUSTER_TRAINING_STRATEGY_CALL_H

#include <muster/backend.h>
#include <muster/strategy_request.h>

#include "training/strategy_internal.h"

struct muster_stage;

/** Operations of a call: `start` puts the i-th on the group, done is muster_strategy_on_op_done. */
struct muster_strategy_call {
    const char *name;
    const struct muster_tensor *tensors;
    size_t count;
    enum muster_reduction reduction;
    uint64_t weight;
    uint64_t timeout_ns;     /* 0: the strategy's */
    uint64_t bytes_per_pack; /* 0: each tensor alone; all_reduce only */
    struct muster_root root;
    uint32_t to, from; /* messages: members by rank in the split, or MUSTER_SPLIT_NOBODY */
    const struct muster_strategy_split *split; /* NULL: of all members */
    const struct muster_view
        *view; /* whose ranks the program knows; tensors are input and output */
    /* Uneven parts: elements of each member's, of the input (all_to_all, reduce_scatter) or the output
     * (all_gather); output_counts: of all_to_all's; and how many members. */
    const uint64_t *part_counts, *output_counts;
    uint32_t part_count;
    bool is_message; /* tensors: the one to send, if `to` is somebody, and the one to receive */
    bool is_reduced; /* by `reduction`, which is checked before the group sees it */
    enum muster_device_kind device; /* the operation on device memory; NONE: host memory only */
    struct muster_request *request; /* started for it, and not waited for; NULL: blocking */
    struct muster_stage *stage;     /* whose host tensors these are; NULL: they are the program's */
    enum muster_communication by;   /* AUTO: that of the strategy's options */
    enum muster_rc (*start)(const struct muster_strategy_call *call, size_t i, struct muster_op *op,
                            struct muster_group *group);
};

/** FAILED_PRECONDITION or ABORTED: no step has begun. name is for the error. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_check_step(struct muster_strategy *strategy,
                                                            const char *name);
/** The call of a request's kind: of strategy_ops.c, and of strategy_exchange.c. It runs with call->request. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_call_reduction(struct muster_strategy *strategy,
                                                                struct muster_request *request);
MUSTER_MUST_CHECK enum muster_rc muster_strategy_call_exchange(struct muster_strategy *strategy,
                                                               struct muster_request *request);
/** Fill in op for a start now. */
void muster_strategy_init_op(struct muster_strategy *strategy,
                             const struct muster_strategy_call *call, struct muster_op *op);
/** The i-th operation of a call, op, could not be started: why, for the program. */
void muster_strategy_explain_refusal(struct muster_strategy *strategy,
                                     const struct muster_strategy_call *call, size_t i,
                                     const struct muster_op *op, enum muster_rc rc);
/** Start all, up to MUSTER_STRATEGY_OPS_MAX at a time, and wait for them: in a step. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_run(struct muster_strategy *strategy,
                                                     const struct muster_strategy_call *call);
/** Run the call in any state of the strategy. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_run_in_seat(
    struct muster_strategy *strategy, const struct muster_strategy_call *call);

/** Wait until all operations that were started have ended. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_wait_ops(struct muster_strategy *strategy);

/** The member that the program knows by this rank, since begin; there is such a rank. split NULL: of all. */
struct muster_root muster_strategy_root_of(const struct muster_strategy *strategy,
                                           const struct muster_strategy_split *split,
                                           uint32_t rank);
/** Members of the split, or all. */
uint32_t muster_strategy_size_of(const struct muster_strategy *strategy,
                                 const struct muster_strategy_split *split);
/** muster_strategy_run with call->root as the program counts it. INVALID_ARGUMENT: there is no such rank. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_run_with_root(struct muster_strategy *strategy,
                                                               struct muster_strategy_call *call,
                                                               uint32_t root);
/** As muster_strategy_run; the parts are in the order of ranks since begin. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_run_by_ranks(struct muster_strategy *strategy,
                                                              struct muster_strategy_call *call);
/** FAILED_PRECONDITION: this member has no group in the split; or as check_step. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_check_split(
    const struct muster_strategy_split *split, const char *name);

void muster_strategy_on_op_done(struct muster_op *op, enum muster_rc rc);
/** Keep the result of a delivered operation: an interruption of any operation interrupts the call. */
void muster_strategy_keep_result(struct muster_strategy *strategy,
                                 const struct muster_op_result *result);
uint64_t muster_strategy_timeout_of(const struct muster_strategy *strategy,
                                    const struct muster_strategy_call *call);

#endif
