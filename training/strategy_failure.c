/* Failures for good: a state that lacks an operation of the others; a program without the micro-batches that the job
 * was asked for; with a fixed size the loss of a member, as in TensorFlow. */
#include "training/strategy_internal.h"

#include <string.h>

/* Another life would meet the same arguments, and the same files of a checkpoint. */
static bool is_for_good(const struct muster_error *error)
{
    return error->rc == MUSTER_INVALID_ARGUMENT || error->rc == MUSTER_DATA_LOSS;
}

static void leave_failed(struct muster_strategy *strategy)
{
    muster_strategy_move(strategy, MUSTER_STRATEGY_FAILED);
    muster_node_give_up(strategy->node, &strategy->error);
    muster_strategy_dump_trace(strategy, strategy->error.text);
}

/* A member that cannot have the state of the others can do no step: it leaves, and they go on. */
void muster_strategy_fail(struct muster_strategy *strategy)
{
    if (is_for_good(&strategy->error))
        muster_report_refused(strategy->report, strategy->error.text);
    leave_failed(strategy);
}

/* Without micro-batches the batch follows the members, and nobody would notice. An evaluator has none. Another life
 * would be of the same program. */
enum muster_rc muster_strategy_check_batch(struct muster_strategy *strategy)
{
    if (strategy->constant_batch == 0 || strategy->micro_slots != NULL ||
        strcmp(strategy->place.task_type, "evaluator") == 0)
        return MUSTER_OK;
    muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                     "MUSTER_CONSTANT_BATCH is %u, and this program has not opened micro-batches; "
                     "call muster_micro_batches_open (in Python strategy.micro_batches, or "
                     "Elastic(slots=None)) before the first begin, or run without "
                     "--constant-batch",
                     strategy->constant_batch);
    muster_report_refused(strategy->report, strategy->error.text);
    leave_failed(strategy);
    return strategy->error.rc;
}

/* Another life of this member may go well, so that the launcher is not told of a refusal. */
static void end_by_loss(struct muster_strategy *strategy)
{
    strategy->error = strategy->loss;
    leave_failed(strategy);
}

static bool is_in_step_or_begin(const struct muster_strategy *strategy)
{
    return strategy->state == MUSTER_STRATEGY_STEP ||
           strategy->begin != MUSTER_STRATEGY_BEGIN_OUTSIDE;
}

/* A member whose work is done leaves when the others have committed its last step: they may be done as
 * well, so between steps nothing has failed yet. */
void muster_strategy_note_loss(struct muster_strategy *strategy, const char *names,
                               const char *reason)
{
    if (!strategy->is_fixed_size || strategy->loss.rc != MUSTER_OK ||
        strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    muster_error_set(&strategy->loss, MUSTER_UNAVAILABLE,
                     "%.120s is gone (%.100s), and the size of this strategy is fixed", names,
                     reason);
    if (is_in_step_or_begin(strategy))
        end_by_loss(strategy);
}

/* Others wait for an operation of a step that was committed here without it. Behind the last step close tells the
 * program. */
void muster_strategy_note_skipped(struct muster_strategy *strategy, uint64_t step)
{
    if (strategy->loss.rc != MUSTER_OK || !muster_strategy_is_member(strategy))
        return;
    muster_error_set(&strategy->loss, MUSTER_INVALID_ARGUMENT,
                     "step %llu was committed here without an operation that other members wait "
                     "for, so that this member's state is not theirs: call the same operations in "
                     "a step on all members",
                     (unsigned long long)step);
    if (is_in_step_or_begin(strategy))
        end_by_loss(strategy);
}

/* The state that lacks the operation is replaced by that of the others. */
void muster_strategy_forget_skipped(struct muster_strategy *strategy)
{
    if (strategy->loss.rc == MUSTER_INVALID_ARGUMENT)
        strategy->loss = (struct muster_error){.rc = MUSTER_OK};
}

void muster_strategy_apply_loss(struct muster_strategy *strategy)
{
    if (strategy->loss.rc != MUSTER_OK && strategy->state != MUSTER_STRATEGY_FAILED)
        end_by_loss(strategy);
}
