/* Checkpoints of a training job: its members write the registered tensors together, and a job that begins anew
 * restores them, on any number of members. What `muster run --checkpoint-dir` does by itself. See checkpoint.h for the
 * files, docs/checkpoints.md for a guide. */
#ifndef MUSTER_STRATEGY_CHECKPOINT_H
#define MUSTER_STRATEGY_CHECKPOINT_H

#include <muster/base.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

struct muster_strategy_checkpoint_options {
    const char *folder;  /* all members see it by this path; made if its parent is there; copied */
    uint32_t keep_count; /* whole ones that are kept, this one among them; 0: all */
    uint64_t timeout_ns; /* waiting for the others' shards; 0: 10 min */
    uint64_t
        copy_bytes_max; /* memory for what is not written yet when the tensors change; 0: the member's part */
};

/**
 * Save the state of the last commit, while the program goes on. Call it on all members in the same step, between begin
 * and the first change of a registered tensor (muster_strategy_update_begin). It blocks until all have called it.
 *
 * In each member one thread writes its part to the disk, from copies that a second thread makes ahead of it, so that
 * little is left to copy in update_begin. The memory of the copies, as large as the member's part or copy_bytes_max, is
 * kept for the next checkpoint until close. If it is smaller than the part, update_begin waits for the disk. A program
 * that has never called update_begin has all of its part copied here. When a member dies before its part is written,
 * the checkpoint is abandoned, and the earlier ones stay; when it has written it, the others finish.
 *
 * The first one in a folder marks it as this job's, while a member lives; of more than eight folders the last ones.
 *
 * Errors:  INVALID_ARGUMENT (the folder is in use by another job that lives, whose members may be about to end, so that
 *          10 s pass before, or half of op_timeout_ns; a member sees another folder by this path, which the text names:
 *          all return it, and may go on), FAILED_PRECONDITION (begin first; the tensors have changed; an earlier one is
 *          not finished on all members: the text says on which), ABORTED (the members change: not on any member),
 *          RESOURCE_EXHAUSTED and others of this member alone (the others return OK, and their checkpoint has ended
 *          with ABORTED), and those of all_gather. What comes of it: checkpoint_wait, checkpoint_result.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_checkpoint_start(
    struct muster_strategy *strategy, const struct muster_strategy_checkpoint_options *options);

/**
 * Allocate the memory for copies ahead of the first checkpoint: from the next begin on, and again after a change of
 * view, a thread of low priority takes it from the system. Not needed with MUSTER_CHECKPOINT_EVERY.
 * copy_bytes_max: as in the options of muster_strategy_checkpoint_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_checkpoint_prepare(
    struct muster_strategy *strategy, uint64_t copy_bytes_max);

/**
 * Registered tensors change from here to commit. A program that calls it once must call it in each step, before
 * any change; a program that never does loses nothing but time in the steps that begin a checkpoint. Does nothing
 * without a checkpoint that is being written.
 *
 * Errors:  FAILED_PRECONDITION (begin first).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_update_begin(
    struct muster_strategy *strategy);

/**
 * The same as muster_strategy_update_begin, and a promise: until commit the program changes only `parts` of registered
 * tensors, and the parts of further calls in the same step. Results of operations are changes, too. Joiners fetch the
 * rest of the state before they are admitted, and it is not hashed again. So a joiner does not stop the members where
 * the state is large and mostly frozen, or is updated sparsely. A step without this call, or with update_begin beside
 * it, may have changed anything. count 0: nothing changes.
 *
 * Owns:    borrows parts during the call; each lies inside one registered tensor.
 * Errors:  FAILED_PRECONDITION (begin first), INVALID_ARGUMENT (a part is not inside a registered tensor; anything may
 *          change then).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_update_begin_parts(
    struct muster_strategy *strategy, const struct muster_tensor *parts, size_t count);

/** A checkpoint's end, and what it cost this member. */
struct muster_strategy_checkpoint_result {
    bool is_running; /* one is being written: the other fields are about the one before */
    uint64_t step;   /* step of the last one that has ended; 0 with rc OK: none has */
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES]; /* why it is not whole */
    uint64_t bytes;                     /* this member's part */
    uint64_t copied_bytes; /* those copied in update_begin: neither written nor copied before */
    uint64_t new_bytes;    /* memory for copies that had not been allocated when it began */
    uint64_t stall_ns;     /* the program stood still for it */
    uint64_t duration_ns;  /* until it was whole */
};
MUSTER_API void muster_strategy_checkpoint_result(
    struct muster_strategy *strategy, struct muster_strategy_checkpoint_result *ret_result);
/** Wait until none is being written. Returns the last one's rc; muster_strategy_error tells why. close waits, too. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_checkpoint_wait(
    struct muster_strategy *strategy);

/**
 * A new job begins with the newest whole checkpoint of the folder, before the first begin; without a manifest in the
 * folder, or without the folder, it begins with its tensors as they are. begin then returns the step after the
 * checkpoint's, and *ret_is_restored. Call it on all members. Half-written and damaged ones are named in the log. What
 * ends begin: DATA_LOSS (there are manifests, and nothing is whole), INVALID_ARGUMENT (the newest has other tensors:
 * the text names the first that differs). Copies folder. INVALID_ARGUMENT (no path), FAILED_PRECONDITION (after begin),
 * RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_restore(
    struct muster_strategy *strategy, const char *folder);

/** "100" (steps) or a time ("30s", "500ms", "10m", "1h"): MUSTER_CHECKPOINT_EVERY. One of both is set to 0. Errors:
 * INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_every_parse(
    const char *text, uint64_t *ret_steps, uint64_t *ret_ns, struct muster_error *ret_error);

MUSTER_END

#endif
