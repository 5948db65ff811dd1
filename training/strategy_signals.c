/* Preemption by signals to this very process (MUSTER_PREEMPTION): of a member that no launcher has started, and of one
 * whose launcher is told by the same signal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "training/strategy_internal.h"

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
    static const char launcher[] = "launcher:";
    const char *text = muster_vars_get(strategy->env->vars, "MUSTER_PREEMPTION");
    struct muster_stop_signals *signals = &strategy->preemption.signals;
    char *end = NULL;

    if (text == NULL || *text == '\0')
        return MUSTER_OK;
    if (strncmp(text, launcher, sizeof(launcher) - 1) == 0) {
        signals->ender = (pid_t)strtol(text + sizeof(launcher) - 1, &end, 10);
        signals->is_term_only = true;
    }
    if (strcmp(text, "signals") != 0 && (signals->ender <= 0 || *end != '\0'))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_PREEMPTION must be signals, got %.80s; or unset it", text);
    strategy->preemption.takes_signals = true;
    muster_stop_signals_look(signals);
    return MUSTER_OK;
}

enum muster_rc muster_strategy_take_signals(struct muster_strategy *strategy)
{
    struct muster_strategy_preemption *preemption = &strategy->preemption;
    enum muster_rc rc;

    if (!preemption->takes_signals)
        return MUSTER_OK;
    muster_timer_init(&preemption->hold_timer, on_held, strategy);
    preemption->signals.data = strategy;
    preemption->signals.on_stop = on_stop;
    (void)muster_runtime_enter(strategy->runtime); /* nobody else knows it yet */
    rc = muster_stop_signals_open(&preemption->signals, strategy->env);
    muster_runtime_leave(strategy->runtime);
    return rc;
}

void muster_strategy_drop_signals(struct muster_strategy *strategy)
{
    muster_timer_stop(&strategy->preemption.hold_timer);
    muster_stop_signals_close(&strategy->preemption.signals);
}
