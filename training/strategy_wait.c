/* Waits in the driver's seat: the loop is turned until something has happened. */
#include "training/strategy_internal.h"

#define FIRST_LOOK_NS (1 * MUSTER_NS_PER_MS)

/* The timer outlives the call that starts it, so that a program with many short waits starts it at
 * most once a millisecond. */
static void begin_wait(struct muster_strategy *strategy)
{
    struct muster_strategy_interrupt *interrupt = &strategy->interrupt;

    if (interrupt->is_interrupted == NULL)
        return;
    interrupt->is_waiting = true;
    if (!muster_timer_is_started(&interrupt->timer))
        muster_timer_start(&interrupt->timer, strategy->env->loop,
                           muster_loop_after_ns(strategy->env->loop, FIRST_LOOK_NS));
}

enum muster_rc muster_strategy_wait(struct muster_strategy *strategy, bool (*is_done)(void *data))
{
    enum muster_rc rc;

    MUSTER_ASSERT(strategy->runtime != NULL);
    if (strategy->begin != MUSTER_STRATEGY_BEGIN_OUTSIDE &&
        strategy->activity.state != MUSTER_ACTIVITY_BEGIN && !is_done(strategy)) {
        muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_BEGIN);
        muster_trace_emit_at(strategy->env, strategy->activity.since_ns, "begin_waited", NULL,
                             strategy->committed_step, strategy->epoch, 0);
    }
    if (!is_done(strategy))
        begin_wait(strategy);
    muster_expectation_start_wait(&strategy->expectation);
    rc = muster_runtime_wait(strategy->runtime, is_done, strategy, UINT64_MAX);
    muster_expectation_stop_wait(&strategy->expectation);
    (void)rc; /* no deadline, and in the seat: it is done */
    strategy->interrupt.is_waiting = false;
    return strategy->state == MUSTER_STRATEGY_FAILED ? strategy->error.rc : MUSTER_OK;
}

bool muster_strategy_is_true(void *data)
{
    return *(const bool *)data;
}

/* Without a keeper thread yet (open failed half-way) the loop is turned right here. */
void muster_strategy_wait_until(struct muster_strategy *strategy, bool (*is_done)(void *data),
                                void *data)
{
    if (strategy->runtime != NULL) {
        enum muster_rc rc;

        if (!is_done(data))
            begin_wait(strategy);
        rc = muster_runtime_wait(strategy->runtime, is_done, data, UINT64_MAX);
        (void)rc; /* no deadline: the node's own one ends the wait */
        strategy->interrupt.is_waiting = false;
        return;
    }
    while (!is_done(data))
        muster_loop_turn(strategy->env->loop, UINT64_MAX);
}

static bool is_view_settled(void *data)
{
    const struct muster_strategy *strategy = data;

    return !muster_strategy_is_member(strategy) || !muster_node_is_changing(strategy->node);
}

enum muster_rc muster_strategy_wait_view(struct muster_strategy *strategy)
{
    return muster_strategy_wait(strategy, is_view_settled);
}

static bool is_none_deferred(void *data)
{
    const struct muster_strategy *strategy = data;

    return muster_list_is_empty(&strategy->deferred);
}

enum muster_rc muster_strategy_await_turn(struct muster_strategy *strategy)
{
    return is_none_deferred(strategy) ? MUSTER_OK
                                      : muster_strategy_wait(strategy, is_none_deferred);
}
