/* Elastic data-parallel training: begin → all_reduce … → update → commit, while workers die and come back. */
#ifndef MUSTER_STRATEGY_H
#define MUSTER_STRATEGY_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/status.h>
#include <muster/view.h>

MUSTER_BEGIN

struct muster_strategy;

struct muster_strategy_options {
    const char *resolver;      /* "tf_config:", "static:…"; NULL: what the environment shows */
    const char *registry;      /* "host:port"; NULL: MUSTER_REGISTRY */
    const char *job;           /* NULL: MUSTER_JOB, else "default" */
    uint64_t op_timeout_ns;    /* deadline of each operation; 0: 5 min */
    uint64_t start_timeout_ns; /* waiting for the first view; 0: 5 min */
};

/**
 * Find the cluster, register, and become a member of the first view, or an observer of a running job.
 * Blocks. Runs muster on a keeper thread whenever the program is elsewhere. Gives.
 *
 * Errors: FAILED_PRECONDITION (not started by `muster run` and no registry named), UNAVAILABLE (registry),
 *         DEADLINE_EXCEEDED (others did not come; the text names who is missing), INVALID_ARGUMENT (TF_CONFIG …).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc
muster_strategy_open(const struct muster_strategy_options *options,
                     struct muster_strategy **ret_strategy, struct muster_error *ret_error);

/** Name a tensor that is part of the training state, the same on every member, before the first begin.
 *  Borrows tensor->data until close; name is copied. ALREADY_EXISTS, FAILED_PRECONDITION (after begin). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc
muster_strategy_register(struct muster_strategy *strategy, const char *name,
                         const struct muster_tensor *tensor);

/**
 * Begin the next step. Call it again when an operation of the step ended ABORTED: the step is run again, or the
 * members' state has replaced this one's. The first call gives every member rank 0's registered tensors (a new
 * job) or the members' committed state (a joiner, or a member that was excluded while it was alive: *ret_is_restored).
 *
 * Units:  *ret_step counts from 1.
 * Errors: UNAVAILABLE, ABORTED (below min members), INVALID_ARGUMENT (the state differs in shape from the members'; the
 *         error names the tensor), OUT_OF_RANGE (restarted by `muster run` too late: all members have left, the job is
 *         over. The launcher counts such an end as a success whatever the exit code).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_begin(struct muster_strategy *strategy,
                                                                   uint64_t *ret_step,
                                                                   bool *ret_is_restored);

/** Reduce each of `count` tensors over all members, in place; blocks until all are delivered. See
 *  muster_all_reduce_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc
muster_strategy_all_reduce(struct muster_strategy *strategy, const struct muster_tensor *tensors,
                           size_t count, enum muster_reduction reduction);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc
muster_strategy_broadcast(struct muster_strategy *strategy, const struct muster_tensor *tensor,
                          uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_barrier(struct muster_strategy *strategy);

/** The registered tensors are now the state after this step. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_commit(struct muster_strategy *strategy);

/** Detail of the last error of a call on this strategy. */
MUSTER_API const struct muster_error *muster_strategy_error(const struct muster_strategy *strategy);

/* Valid between begin and commit; they change only in begin and when an operation was interrupted. */
MUSTER_API uint32_t muster_strategy_rank(const struct muster_strategy *strategy);
MUSTER_API uint32_t muster_strategy_size(const struct muster_strategy *strategy);
MUSTER_API uint32_t muster_strategy_num_replicas_in_sync(const struct muster_strategy *strategy);
MUSTER_API uint64_t muster_strategy_epoch(const struct muster_strategy *strategy);
/** Members that contributed to the last delivered operation. */
MUSTER_API uint32_t muster_strategy_contributors(const struct muster_strategy *strategy);
/** How the last delivered operation ended: contributors, and the verdict if a change of view fell into it. Borrowed. */
MUSTER_API const struct muster_op_result *
muster_strategy_result(const struct muster_strategy *strategy);

/** 16 hexadecimal digits of XXH3 over all registered tensors in order of registration. */
#define MUSTER_DIGEST_TEXT_BYTES 17
MUSTER_API void muster_strategy_state_digest(const struct muster_strategy *strategy,
                                             char ret_text[MUSTER_DIGEST_TEXT_BYTES]);

/** A named number for the launcher's progress line ("loss", "images_per_s"); shown with the next commit. */
MUSTER_API void muster_strategy_report(struct muster_strategy *strategy, const char *name,
                                       double value);
/** A named number for the summary at the end ("accuracy"). */
MUSTER_API void muster_strategy_report_result(struct muster_strategy *strategy, const char *name,
                                              double value);

/** Leave in order: wait until no other member needs this one, announce the leave, stop. NULL is accepted. */
MUSTER_API void muster_strategy_close(struct muster_strategy *strategy);

MUSTER_END

#endif
