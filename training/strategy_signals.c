/* Preemption by signals to this very process (MUSTER_PREEMPTION): of a member that no launcher has started, and of one
 * whose launcher is told by the same signal. */
#include <stdio.h>

#include "training/strategy_internal.h"
#include "training/variables.h"

/* A platform that signals all processes of a job at once signals the launcher, too, which then asks all members to
 * stop. A SIGTERM to a worker alone ends that one. */
#define HOLD_NS (2 * MUSTER_NS_PER_S)

static void on_held(struct muster_timer *timer)
{
    struct muster_strategy *strategy = timer->data;

    if (!muster_strategy_is_preempted(strategy))
        muster_stop_signals_end(&strategy->preemption.signals);
}

static void on_stop(struct muster_stop_signals *signals, const char *name)
{
    struct muster_strategy *strategy = signals->data;
    char cause[MUSTER_JOB_NAME_BYTES + 32];

    if (signals->ender != 0) {
        muster_timer_start(&strategy->preemption.hold_timer, strategy->env->loop,
                           muster_loop_after_ns(strategy->env->loop, HOLD_NS));
        return;
    }
    if (strategy->node == NULL) /* abandoned */
        return;
    (void)snprintf(cause, sizeof(cause), "%s to %s:%u", name, strategy->place.task_type,
                   strategy->place.task_index);
    muster_node_preempt(strategy->node, cause);
}

enum muster_rc muster_strategy_look_for_signals(struct muster_strategy *strategy,
                                                struct muster_error *ret_error)
{
    struct muster_strategy_preemption *preemption = &strategy->preemption;
    struct muster_training_notices notices;
    enum muster_rc rc = muster_training_read_notices(strategy->env, &notices, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    preemption->takes_signals = notices.has_signals;
    preemption->maintenance.is_wanted = notices.has_metadata;
    preemption->signals.ender = notices.launcher;
    preemption->signals.is_term_only = notices.launcher != 0;
    if (notices.has_signals)
        muster_stop_signals_look(&preemption->signals);
    return MUSTER_OK;
}

enum muster_rc muster_strategy_take_signals(struct muster_strategy *strategy)
{
    struct muster_strategy_preemption *preemption = &strategy->preemption;
    enum muster_rc rc = MUSTER_OK;

    (void)muster_runtime_enter(strategy->runtime); /* nobody else knows it yet */
    muster_timer_init(&preemption->hold_timer, on_held, strategy);
    preemption->signals.data = strategy;
    preemption->signals.on_stop = on_stop;
    if (preemption->takes_signals)
        rc = muster_stop_signals_open(&preemption->signals, strategy->env);
    muster_strategy_watch_maintenance(strategy);
    muster_runtime_leave(strategy->runtime);
    return rc;
}

void muster_strategy_drop_signals(struct muster_strategy *strategy)
{
    muster_timer_stop(&strategy->preemption.hold_timer);
    muster_stop_signals_close(&strategy->preemption.signals);
    muster_strategy_close_maintenance(strategy);
}
