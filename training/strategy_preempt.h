/* The end of a preempted job, as begin sees it. */
#ifndef MUSTER_TRAINING_STRATEGY_PREEMPT_H
#define MUSTER_TRAINING_STRATEGY_PREEMPT_H

#include <stdatomic.h>

#include <muster/env.h>
#include <muster/http.h>
#include <muster/strategy_preemption.h>

#include "resolvers/platform/tpu/maintenance.h"
#include "runtime/system/stop_signals_system.h"

/** Google's metadata server: strategy_maintenance.c. */
struct muster_strategy_maintenance {
    bool is_wanted, is_watched, is_off, is_http_closed;
    struct muster_maintenance watch;
    struct muster_http_tracer tracer; /* leads from the HTTP client to here */
};

/** Knowledge of this member about it. */
struct muster_strategy_preemption {
    bool
        is_over; /* all members have stopped after the committed step: nothing is left but close */
    /* Written by the loop, read by any thread: a flag by itself, sequentially consistent. */
    atomic_bool is_known;
    /* strategy_signals.c */
    bool takes_signals;
    struct muster_stop_signals signals;
    struct muster_strategy_maintenance maintenance;
    struct muster_timer
        hold_timer; /* a SIGTERM to this process ends it then, if its job is not preempted */
};

/** No member begins the step that this one would begin next. */
bool muster_strategy_must_stop(const struct muster_strategy *strategy);
/**
 * Save the state and stop, in place of the step that has just been begun. In the seat.
 *
 * Errors:  CANCELLED (it is done), ABORTED (this member was excluded meanwhile: begin again), and those that end the
 *          strategy: the state could not be saved.
 */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_stop(struct muster_strategy *strategy);

/** MUSTER_PREEMPTION: which notices count. Before other parts take signals. INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_look_for_signals(struct muster_strategy *strategy,
                                                                  struct muster_error *ret_error);
/** From here on, as the variable says, until drop_signals. When there is a node. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_take_signals(struct muster_strategy *strategy);
void muster_strategy_drop_signals(struct muster_strategy *strategy);

/** The HTTP client, before anything else opens one. Errors: those of muster_http_curl_open. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_open_maintenance(struct muster_strategy *strategy,
                                                                  struct muster_error *ret_error);
/** Ask the job to stop at a notice, from now on. In the seat, when there is a node. */
void muster_strategy_watch_maintenance(struct muster_strategy *strategy);
void muster_strategy_close_maintenance(struct muster_strategy *strategy);

#endif
