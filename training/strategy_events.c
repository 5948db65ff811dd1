/* What the node tells the strategy, and what the launcher is told of it. */
#include <stdio.h>
#include <string.h>

#include "training/strategy_internal.h"

#define NAMES_BYTES 512

/* Members of `view` that are not in `other` (NULL: none), as "worker:2 worker:3"; cut at the end of
 * names. */
static void list_missing(const struct muster_view *view, const struct muster_view *other,
                         char names[NAMES_BYTES])
{
    size_t length = 0;

    names[0] = '\0';
    for (uint32_t i = 0; view != NULL && i < view->member_count; i++) {
        const struct muster_member *member = &view->members[i];
        int written;

        if (other != NULL && muster_view_find(other, &member->incarnation, NULL))
            continue;
        written = snprintf(names + length, NAMES_BYTES - length, "%s%s:%u", length > 0 ? " " : "",
                           member->task_type, member->task_index);
        if (written < 0 || (size_t)written >= NAMES_BYTES - length) {
            names[length] = '\0';
            return;
        }
        length += (size_t)written;
    }
}

static const char *verdict_name(enum muster_verdict_kind kind)
{
    switch (kind) {
    case MUSTER_VERDICT_ADOPT:
        return "adopt";
    case MUSTER_VERDICT_RETRY:
        return "retry";
    case MUSTER_VERDICT_ABORTED:
        return "aborted";
    }
    return "unknown";
}

/* The first operation of this program that the change interrupted, and the verdict on it. */
static const struct muster_op *find_interrupted(const struct muster_strategy *strategy,
                                                const struct muster_view *view,
                                                const struct muster_verdict **ret_verdict)
{
    for (size_t i = 0; i < strategy->ops_started; i++) {
        const struct muster_verdict *verdict = muster_view_verdict(view, &strategy->ops[i].id);

        if (verdict != NULL) {
            *ret_verdict = verdict;
            return &strategy->ops[i];
        }
    }
    return NULL;
}

static void on_view(void *data, const struct muster_view_change *change)
{
    struct muster_strategy *strategy = data;
    const struct muster_view *view = change->view;
    const struct muster_verdict *verdict = NULL;
    const struct muster_op *op = find_interrupted(strategy, view, &verdict);
    char lost[NAMES_BYTES], joined[NAMES_BYTES], name[80];
    struct muster_report_view report = {
        .epoch = view->epoch,
        .member_count = view->member_count,
        .lost = lost,
        .joined = joined,
        .recovery_ms = -1,
        .step = strategy->step,
    };

    list_missing(change->previous, view, lost);
    if (change->previous != NULL)
        list_missing(view, change->previous, joined);
    else
        joined[0] = '\0';
    if (lost[0] != '\0')
        report.recovery_ms =
            (double)(change->opened_ns - change->cause_ns) / (double)MUSTER_NS_PER_MS;
    if (op != NULL) {
        snprintf(name, sizeof(name), "%s %llu/%u", strategy->op_name,
                 (unsigned long long)op->id.step, op->id.sequence);
        report.op = name;
        report.phase = op->result.phase != NULL ? op->result.phase : "not started";
        report.verdict = verdict_name(verdict->kind);
    }
    muster_report_view(strategy->report, &report);
}

static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    struct muster_strategy *strategy = data;
    uint64_t now_ns = muster_loop_now_ns(strategy->env->loop);

    strategy->is_ready = true;
    strategy->next_step = next_step;
    strategy->is_restored = is_restored;
    if (is_restored)
        muster_report_rejoined(
            strategy->report, muster_node_view(strategy->node)->epoch,
            (double)(now_ns - strategy->waiting_since_ns) / (double)MUSTER_NS_PER_MS, next_step);
}

static void on_excluded(void *data, const struct muster_error *why)
{
    struct muster_strategy *strategy = data;

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    strategy->error = *why;
    strategy->state = MUSTER_STRATEGY_WAITING;
    strategy->is_ready = false;
    strategy->is_state_offered = false;
    strategy->waiting_since_ns = muster_loop_now_ns(strategy->env->loop);
}

static void on_failed(void *data, const struct muster_error *error)
{
    struct muster_strategy *strategy = data;

    strategy->error = *error;
    strategy->state = MUSTER_STRATEGY_FAILED;
}

const struct muster_node_events muster_strategy_node_events = {
    .on_view = on_view,
    .on_ready = on_ready,
    .on_excluded = on_excluded,
    .on_failed = on_failed,
};
