/* Preemption: the members stop after one step, and their state is saved before any of them leaves. */
#include <stdio.h>
#include <string.h>

#include "training/strategy_internal.h"

#define NO_COPY_BYTES 1u /* nobody changes the tensors */

bool muster_strategy_must_stop(const struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_node_view(strategy->node);

    return view != NULL && view->is_stopping && strategy->step > view->stop_step;
}

static bool is_settled(void *data)
{
    const struct muster_strategy *strategy = data;

    return !muster_strategy_is_member(strategy) || !muster_node_is_changing(strategy->node);
}

/* Rank 0's opinion counts. What was restored, or saved already, is in the folder. */
static bool has_news(const struct muster_strategy *strategy)
{
    const struct muster_strategy_checkpoint_result *last = &strategy->saving.last;
    uint64_t step = strategy->committed_step;

    return step > 0 && step != strategy->restored_step &&
           (last->step != step || last->rc != MUSTER_OK);
}

/* One attempt, of the members that are there. ABORTED: one of them has gone in the midst of it. */
static enum muster_rc save_once(struct muster_strategy *strategy)
{
    const struct muster_strategy_schedule *schedule = &strategy->schedule;
    const struct muster_strategy_checkpoint_options options = {.folder = schedule->folder,
                                                               .keep_count = schedule->keep_count,
                                                               .copy_bytes_max = NO_COPY_BYTES};
    const struct muster_strategy_checkpoint_result *last = &strategy->saving.last;
    bool is_begun = false;
    enum muster_rc rc;

    muster_strategy_wait_until(strategy, muster_strategy_saving_is_over, strategy);
    rc = muster_strategy_wait(strategy, is_settled);
    if (rc != MUSTER_OK || !muster_strategy_is_member(strategy))
        return rc;
    muster_strategy_snapshot(strategy);
    rc = muster_strategy_save(strategy, has_news(strategy), &options, &is_begun);
    if (rc != MUSTER_OK || !is_begun)
        return rc;
    muster_strategy_wait_until(strategy, muster_strategy_saving_is_over, strategy);
    if (last->rc != MUSTER_OK)
        muster_error_set(&strategy->error, last->rc, "checkpoint of step %llu: %s",
                         (unsigned long long)last->step, last->text);
    return last->rc;
}

static void tell_stop(struct muster_strategy *strategy)
{
    const char *folder = strategy->schedule.folder;
    unsigned long long step = strategy->committed_step;

    if (folder != NULL && step > 0)
        muster_error_set(&strategy->error, MUSTER_CANCELLED,
                         "preempted: stopped after step %llu, which is saved in %.120s", step,
                         folder);
    else
        muster_error_set(&strategy->error, MUSTER_CANCELLED,
                         "preempted: stopped after step %llu; %s", step,
                         step > 0 ? "nothing is saved: no checkpoint directory is set"
                                  : "there is nothing to save");
    MUSTER_LOG(strategy->env, INFO, "stopped", "step", strategy->committed_step, "saved",
               (uint64_t)(folder != NULL && step > 0));
    muster_report_preempted(strategy->report, strategy->committed_step, folder != NULL && step > 0);
}

/* A member that dies before its shard is written costs another attempt; one that cannot write ends with its error, and
 * the others save without it. */
enum muster_rc muster_strategy_stop(struct muster_strategy *strategy)
{
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(strategy->state == MUSTER_STRATEGY_STEP);
    if (strategy->schedule.folder != NULL && strategy->committed_step > 0) {
        do
            rc = save_once(strategy);
        while (rc == MUSTER_ABORTED && muster_strategy_is_member(strategy));
    }
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (!muster_strategy_is_member(strategy))
        return MUSTER_ABORTED;
    if (rc != MUSTER_OK) {
        muster_strategy_fail(strategy);
        return rc;
    }
    muster_strategy_move(strategy, MUSTER_STRATEGY_READY);
    strategy->preemption.is_over = true;
    tell_stop(strategy);
    return MUSTER_CANCELLED;
}

bool muster_strategy_is_preempted(const struct muster_strategy *strategy)
{
    return atomic_load(&strategy->preemption.is_known);
}

enum muster_rc muster_strategy_preempt(struct muster_strategy *strategy, const char *cause)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "preempt");

    if (rc != MUSTER_OK)
        return rc;
    rc = strategy->error.rc;
    if (strategy->state != MUSTER_STRATEGY_FAILED) {
        muster_node_preempt(strategy->node, cause);
        rc = MUSTER_OK;
    }
    muster_strategy_leave(strategy);
    return rc;
}
