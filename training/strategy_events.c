/* The events of the node, and the reports to the launcher that they cause. */
#include <stdio.h>
#include <string.h>

#include "training/strategy_internal.h"

/* Members of `view` that are not in `other` (NULL: none), as "worker:2 worker:3"; cut at the end of
 * names. */
static void list_missing(const struct muster_view *view, const struct muster_view *other,
                         char names[MUSTER_STRATEGY_NAMES_BYTES])
{
    size_t length = 0;

    names[0] = '\0';
    for (uint32_t i = 0; view != NULL && i < view->member_count; i++) {
        const struct muster_member *member = &view->members[i];
        int written;

        if (other != NULL && muster_view_find(other, &member->incarnation, NULL))
            continue;
        written = snprintf(names + length, MUSTER_STRATEGY_NAMES_BYTES - length, "%s%s:%u",
                           length > 0 ? " " : "", member->task_type, member->task_index);
        if (written < 0 || (size_t)written >= MUSTER_STRATEGY_NAMES_BYTES - length) {
            names[length] = '\0';
            return;
        }
        length += (size_t)written;
    }
}

/* The step at which the members changed: the same on all of them, whichever step each was in. */
static uint64_t step_of_change(const struct muster_strategy *strategy,
                               const struct muster_view *view)
{
    return view->begun_step > 0 ? view->begun_step : strategy->step;
}

/* The first operation of this program in `step` that the change interrupted, and the verdict on it.
 */
static const struct muster_op *find_interrupted(const struct muster_strategy *strategy,
                                                const struct muster_view *view, uint64_t step,
                                                const struct muster_verdict **ret_verdict)
{
    for (size_t i = 0; i < strategy->ops_started; i++) {
        const struct muster_verdict *verdict = muster_view_verdict(view, &strategy->ops[i].id);

        if (verdict != NULL && verdict->op.step == step) {
            *ret_verdict = verdict;
            return &strategy->ops[i];
        }
    }
    return NULL;
}

/* A view that interrupted an operation is reported when that operation has ended, because only then
 * the phase in which it was interrupted is known. */
void muster_strategy_tell_view(struct muster_strategy *strategy, const struct muster_op *op)
{
    struct muster_strategy_change *change = &strategy->change;
    char name[80];
    struct muster_report_view report = {
        .epoch = change->epoch,
        .member_count = change->member_count,
        .lost = change->lost,
        .joined = change->joined,
        .reason = change->reason,
        .recovery_ms = change->recovery_ms,
        .detected_ns = change->detected_ns,
        .opened_ns = change->opened_ns,
        .step = change->step,
    };

    if (!change->is_untold)
        return;
    change->is_untold = false;
    if (op != NULL) {
        snprintf(name, sizeof(name), "%s %llu/%u", strategy->op_name,
                 (unsigned long long)op->id.step, op->id.sequence);
        report.op = name;
        report.phase = op->result.phase != NULL ? op->result.phase : "start";
        report.verdict = muster_strategy_verdict_name(change->verdict);
    }
    muster_report_view(strategy->report, &report);
}

void muster_strategy_tell_delivery(struct muster_strategy *strategy)
{
    struct muster_strategy_change *change = &strategy->change;

    if (!change->is_undelivered)
        return;
    change->is_undelivered = false;
    muster_strategy_tell_view(strategy, NULL); /* if it has not been */
    muster_report_delivered(strategy->report, change->epoch,
                            muster_loop_clock_ns(strategy->env->loop));
}

static void on_view(void *data, const struct muster_view_change *opened)
{
    struct muster_strategy *strategy = data;
    struct muster_strategy_change *change = &strategy->change;
    const struct muster_view *view = opened->view;
    const struct muster_verdict *verdict = NULL;

    MUSTER_ASSERT(view->epoch > change->epoch); /* each view once, in order */
    muster_expectation_stop(&strategy->expectation);
    muster_strategy_split_group(strategy, opened->group);
    muster_strategy_trace_view(strategy, view, opened->previous);
    muster_strategy_tell_view(strategy, NULL); /* a change on the heels of another */
    change->is_untold = true;
    change->epoch = view->epoch;
    change->member_count = view->member_count;
    change->step = step_of_change(strategy, view);
    change->recovery_ms = -1;
    change->joined[0] = '\0';
    snprintf(change->reason, sizeof(change->reason), "%s", view->reason);
    list_missing(opened->previous, view, change->lost);
    if (opened->previous != NULL)
        list_missing(view, opened->previous, change->joined);
    change->is_undelivered = change->lost[0] != '\0' && opened->cause_ns != 0;
    if (change->is_undelivered) {
        change->detected_ns = opened->cause_ns;
        change->opened_ns = opened->opened_ns;
        change->recovery_ms =
            (double)(opened->opened_ns - opened->cause_ns) / (double)MUSTER_NS_PER_MS;
    }
    change->op = find_interrupted(strategy, view, change->step, &verdict);
    if (change->op != NULL)
        change->verdict = verdict->kind;
    else
        muster_strategy_tell_view(strategy, NULL);
    if (change->lost[0] != '\0')
        muster_strategy_saving_note_loss(strategy);
    if (view->is_stopping)
        atomic_store(&strategy->preemption.is_known, true);
    else if (change->lost[0] != '\0')
        muster_strategy_note_loss(strategy, change->lost, change->reason);
}

/* The node has the state: begin, which waits for this, goes on; only a begin that failed meanwhile does not. A
 * return is reported with its cost, the time since the exclusion. */
static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    struct muster_strategy *strategy = data;
    uint64_t now_ns = muster_loop_now_ns(strategy->env->loop);

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    muster_strategy_move_begin(strategy, is_restored ? MUSTER_STRATEGY_BEGIN_RESTORED
                                                     : MUSTER_STRATEGY_BEGIN_NEW);
    strategy->next_step = next_step;
    if (is_restored)
        muster_trace_emit(strategy->env, "caught_up", next_step,
                          muster_node_view(strategy->node)->epoch,
                          now_ns - strategy->waiting_since_ns);
    if (is_restored)
        muster_report_rejoined(
            strategy->report, muster_node_view(strategy->node)->epoch,
            (double)(now_ns - strategy->waiting_since_ns) / (double)MUSTER_NS_PER_MS, next_step);
}

/* Only the state changes here: the running call ends by its own error, and begin waits for
 * on_ready. */
static void on_excluded(void *data, const struct muster_error *why)
{
    struct muster_strategy *strategy = data;

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    muster_trace_emit(strategy->env, "excluded", strategy->step, strategy->epoch,
                      (uint64_t)why->rc);
    strategy->error = *why;
    muster_strategy_forget_skipped(strategy);
    muster_strategy_note_loss(strategy, "this member", why->text);
    if (strategy->state == MUSTER_STRATEGY_FAILED) /* of a fixed size */
        return;
    muster_strategy_move(strategy, MUSTER_STRATEGY_WAITING);
    if (strategy->begin != MUSTER_STRATEGY_BEGIN_OUTSIDE)
        muster_strategy_move_begin(strategy, MUSTER_STRATEGY_BEGIN_AWAITED);
    strategy->waiting_since_ns = muster_loop_now_ns(strategy->env->loop);
}

/* The job stops without this process. */
static void stop_outside(struct muster_strategy *strategy)
{
    strategy->preemption.is_over = true;
    atomic_store(&strategy->preemption.is_known, true);
    muster_report_preempted(strategy->report, strategy->committed_step, false);
}

static void on_failed(void *data, const struct muster_error *error)
{
    struct muster_strategy *strategy = data;

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return; /* it has told why itself */
    strategy->error = *error;
    muster_strategy_move(strategy, MUSTER_STRATEGY_FAILED);
    if (error->rc == MUSTER_OUT_OF_RANGE) { /* it comes too late: an end, and not an error */
        strategy->rank = MUSTER_RANK_NOBODY;
        muster_report_over(strategy->report);
    }
    if (error->rc == MUSTER_INVALID_ARGUMENT)
        muster_report_refused(strategy->report, error->text);
    if (error->rc == MUSTER_CANCELLED)
        stop_outside(strategy);
    else if (error->rc != MUSTER_OUT_OF_RANGE)
        muster_strategy_dump_trace(strategy, error->text);
}

/* The others end by it: the launcher must not take what this member has for the result of all. */
static void on_skipped(void *data, uint64_t step)
{
    struct muster_strategy *strategy = data;

    muster_report_skipped(strategy->report, step);
    muster_strategy_note_skipped(strategy, step);
}

/* No other life of this member could do better: the one that has left cannot be asked any more. */
static void on_left_out(void *data, uint64_t step, const char *why)
{
    struct muster_strategy *strategy = data;

    muster_report_left_out(strategy->report, step, why);
}

const struct muster_node_events muster_strategy_node_events = {
    .on_view = on_view,
    .on_ready = on_ready,
    .on_excluded = on_excluded,
    .on_failed = on_failed,
    .on_skipped = on_skipped,
    .on_left_out = on_left_out,
};
