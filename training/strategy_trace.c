/* The flight recorder of a strategy: what its calls and its node did last, written to a file when
 * it ends in an error (docs/trace.md). */
#include <errno.h>
#include <stdio.h>

#include "runtime/system/recorder_system.h"
#include "training/strategy_call.h"
#include "training/variables.h"

#define EVENTS_MAX 8192u /* of steps, the newest; muster_trace_open keeps some others besides */

enum muster_rc muster_strategy_open_trace(struct muster_strategy *strategy,
                                          struct muster_error *ret_error)
{
    struct muster_env *env = strategy->env;
    enum muster_training_trace when;
    enum muster_rc rc = muster_training_read_trace(env, &when, ret_error);

    if (rc != MUSTER_OK || when == MUSTER_TRAINING_TRACE_OFF)
        return rc;
    strategy->is_always_traced = when == MUSTER_TRAINING_TRACE_ALWAYS;
    MUSTER_ASSERT(env->trace == NULL);
    rc = muster_trace_open(env->mem, EVENTS_MAX, &env->trace);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "out of memory");
}

enum muster_rc muster_strategy_open_recorder(struct muster_strategy *strategy,
                                             const struct muster_node_options *node,
                                             struct muster_error *ret_error)
{
    struct muster_env *env = strategy->env;
    char task[MUSTER_ACTIVITY_NAME_BYTES], incarnation[MUSTER_INCARNATION_TEXT_BYTES];
    const char *folder = muster_vars_get(env->vars, "MUSTER_TRACE_DIR");
    struct muster_recorder_options options = {
        .mem = env->mem,
        .trace = env->trace,
        .folder = folder != NULL && *folder != '\0' ? folder : NULL,
        .temporary = muster_vars_get(env->vars, "TMPDIR"),
        .job = node->job,
        .task = task,
        .incarnation =
            muster_incarnation_format(muster_node_incarnation(strategy->node), incarnation),
        .is_always = strategy->is_always_traced,
        .report_fd = muster_report_descriptor(strategy->report),
    };
    enum muster_rc rc;

    MUSTER_ASSERT(strategy->recorder == NULL && strategy->node != NULL);
    if (env->trace == NULL)
        return MUSTER_OK;
    snprintf(task, sizeof(task), "%s:%u", node->task_type, node->task_index);
    rc = muster_recorder_open(&options, &strategy->recorder);
    if (rc == MUSTER_OK)
        return rc;
    return muster_error_set(ret_error, rc, "cannot open the flight recorder: %s",
                            rc == MUSTER_INVALID_ARGUMENT
                                ? "the path of MUSTER_TRACE_DIR is too long"
                                : muster_rc_text(rc));
}

static void trace_write(struct muster_strategy *strategy, const char *error)
{
    enum muster_rc rc = muster_recorder_dump(strategy->recorder, error);
    struct muster_error why;

    if (rc != MUSTER_OK) {
        (void)muster_error_set_sys(&why, rc, errno, "cannot write");
        MUSTER_LOG(strategy->env, WARN, "trace_not_written", "file",
                   muster_recorder_path(strategy->recorder), "reason", (const char *)why.text);
    } else if (error != NULL)
        MUSTER_LOG(strategy->env, WARN, "trace_written", "file",
                   muster_recorder_path(strategy->recorder));
}

void muster_strategy_dump_trace(struct muster_strategy *strategy, const char *error)
{
    if (strategy->recorder == NULL)
        return;
    muster_trace_emit_text(strategy->env, "failed", muster_rc_name(strategy->error.rc),
                           strategy->step, strategy->epoch, (uint64_t)strategy->error.rc);
    trace_write(strategy, error);
}

/* Closed late, when nothing emits events any more. */
void muster_strategy_close_trace(struct muster_strategy *strategy)
{
    if (strategy->recorder != NULL && strategy->is_always_traced)
        trace_write(strategy, NULL);
    muster_recorder_close(strategy->recorder);
    muster_trace_close(strategy->env->trace);
    strategy->env->trace = NULL;
}

/* --- events --- */

const char *muster_strategy_verdict_name(enum muster_verdict_kind kind)
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

static uint64_t call_bytes(const struct muster_strategy_call *call)
{
    size_t count = call->view != NULL ? 1 : call->count;
    uint64_t bytes = 0;

    for (size_t i = 0; call->tensors != NULL && i < count; i++)
        bytes += call->tensors[i].count * muster_dtype_bytes(call->tensors[i].dtype);
    return bytes;
}

/* Time stamps are those of the activity, which has just read the clock: a call costs one
 * reading. */
void muster_strategy_trace_call(const struct muster_strategy *strategy,
                                const struct muster_strategy_call *call)
{
    if (strategy->env->trace != NULL)
        muster_trace_emit_at(strategy->env, strategy->activity.since_ns, "op_started", call->name,
                             strategy->step, call_bytes(call), call->count);
}

void muster_strategy_trace_result(const struct muster_strategy *strategy, enum muster_rc rc)
{
    muster_trace_emit_at(strategy->env, strategy->activity.since_ns, "op_completed",
                         muster_rc_name(rc), strategy->step, strategy->traced_sequence,
                         (uint64_t)rc);
}

void muster_strategy_trace_op(struct muster_strategy *strategy, const struct muster_op_id *id,
                              const struct muster_op_result *result)
{
    uint64_t since_ns = strategy->activity.since_ns;

    strategy->traced_sequence = id != NULL ? id->sequence : 0;
    if (strategy->activity.state != MUSTER_ACTIVITY_COLLECTIVE || result->met_ns <= since_ns)
        return; /* nobody was late */
    muster_trace_emit_at(strategy->env, result->met_ns, "op_waited", strategy->op_name,
                         result->last_rank, result->met_ns - since_ns, strategy->traced_sequence);
}

static void trace_missing(const struct muster_strategy *strategy, const char *kind, uint64_t epoch,
                          const struct muster_view *view, const struct muster_view *other)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        if (!muster_view_find(other, &view->members[i].incarnation, NULL))
            muster_trace_emit(strategy->env, kind, epoch, view->members[i].task_index, i);
}

void muster_strategy_trace_view(struct muster_strategy *strategy, const struct muster_view *view,
                                const struct muster_view *previous)
{
    uint32_t rank;

    if (strategy->recorder != NULL &&
        muster_view_find(view, muster_node_incarnation(strategy->node), &rank))
        muster_recorder_set_rank(strategy->recorder, rank);
    if (strategy->env->trace == NULL || previous == NULL)
        return;
    trace_missing(strategy, "member_lost", view->epoch, previous, view);
    trace_missing(strategy, "member_joined", view->epoch, view, previous);
    for (size_t i = 0; i < view->verdict_count; i++)
        muster_trace_emit_text(
            strategy->env, "op_verdict", muster_strategy_verdict_name(view->verdicts[i].kind),
            view->verdicts[i].op.step, view->verdicts[i].op.sequence, view->epoch);
}
