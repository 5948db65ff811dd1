/* Failures for good; with a fixed size the loss of a member is one, as in TensorFlow. */
#include "training/strategy_internal.h"

/* Another life would meet the same arguments, and the same files of a checkpoint. */
static bool is_for_good(const struct muster_error *error)
{
    return error->rc == MUSTER_INVALID_ARGUMENT || error->rc == MUSTER_DATA_LOSS;
}

/* A member that cannot have the state of the others can do no step: it leaves, and they go on. */
void muster_strategy_fail(struct muster_strategy *strategy)
{
    muster_strategy_move(strategy, MUSTER_STRATEGY_FAILED);
    if (is_for_good(&strategy->error))
        muster_report_refused(strategy->report, strategy->error.text);
    muster_node_give_up(strategy->node, &strategy->error);
    muster_strategy_dump_trace(strategy, strategy->error.text);
}

static void end_by_loss(struct muster_strategy *strategy)
{
    strategy->error = strategy->loss;
    muster_strategy_fail(strategy);
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
    if (strategy->state == MUSTER_STRATEGY_STEP || strategy->begin != MUSTER_STRATEGY_BEGIN_OUTSIDE)
        end_by_loss(strategy);
}

void muster_strategy_apply_loss(struct muster_strategy *strategy)
{
    if (strategy->loss.rc != MUSTER_OK && strategy->state != MUSTER_STRATEGY_FAILED)
        end_by_loss(strategy);
}
