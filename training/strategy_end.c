/* The end of a strategy: closed after its work, closed in the middle of it, abandoned, interrupted
 * in a call that waits, or left open by a program that ends. */
#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "collective/group/group.h"
#include "training/replicas/crew_system.h"
#include "training/strategy_device.h"
#include "training/strategy_folder.h"
#include "training/strategy_memory.h"
#include "training/strategy_stage.h"
#include "training/tls_variables.h"
#include "training/variables.h"

/* A member whose work is done stays for those that still need its operations or its state, but not
 * for ever: some of them may have died. */
#define LEAVE_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
/* A program that ends without close waits no longer; what the others then do not know they learn
 * from the end of the process. */
#define EXIT_NS      (300 * MUSTER_NS_PER_MS)
#define EXIT_LOOK_NS (10 * MUSTER_NS_PER_MS)

#define LOOK_NS (50 * MUSTER_NS_PER_MS) /* at signals, by a call that waits */

static const char without_close[] = "the program ended without muster_strategy_close";

static bool strategy_has_left(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->leave == MUSTER_STRATEGY_LEFT;
}

static void on_gone(struct muster_node *node, void *data)
{
    bool *is_gone = data;

    (void)node;
    *is_gone = true;
}

/* --- abandoned --- */

/* In the middle of a step's work: the others count on operations of this member that will not come.
 * A begin without an operation after it may have been the end of the work; the exit code tells. */
static bool is_in_work(const struct muster_strategy *strategy)
{
    return strategy->ops_rc != MUSTER_OK ||
           (strategy->state == MUSTER_STRATEGY_STEP && strategy->has_worked);
}

static void on_left(struct muster_node *node, void *data)
{
    struct muster_strategy *strategy = data;

    (void)node;
    muster_strategy_move_leave(strategy, MUSTER_STRATEGY_LEFT);
}

/* The others count on this process: it is in the last view, whether it has the members' state or not. */
static bool is_in_view(const struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_node_view(strategy->node);

    return view != NULL && muster_view_find(view, muster_node_incarnation(strategy->node), NULL);
}

/* Out of the view as soon as the others agree, and not as one whose work is done. In the seat, or
 * on the loop. */
static void leave_at_once(struct muster_strategy *strategy)
{
    MUSTER_ASSERT(strategy->node != NULL);
    if (strategy->leave != MUSTER_STRATEGY_STAYS)
        return;
    muster_strategy_move_leave(strategy, MUSTER_STRATEGY_LEAVES);
    muster_strategy_saving_abandon(strategy, MUSTER_CANCELLED, "this member leaves");
    if (!is_in_view(strategy) && muster_node_group(strategy->node) == NULL)
        on_left(strategy->node, strategy);
    else
        muster_node_leave(strategy->node, false, muster_loop_now_ns(strategy->env->loop), on_left,
                          strategy);
}

static void strategy_abandon(struct muster_strategy *strategy, const char *text)
{
    muster_report_abandoned(strategy->report, strategy->step, text);
    muster_error_set(&strategy->error, MUSTER_CANCELLED, "abandoned: %s", text);
    MUSTER_LOG(strategy->env, WARN, "abandoned", "step", strategy->step, "reason", text);
    leave_at_once(strategy);
    muster_strategy_move(strategy, MUSTER_STRATEGY_FAILED);
    muster_trace_emit(strategy->env, "abandoned", strategy->step, strategy->epoch, 0);
    muster_strategy_dump_trace(strategy, strategy->error.text);
}

/* Out of the view, and off the network. */
static void close_node(struct muster_strategy *strategy)
{
    bool is_closed = false;

    MUSTER_ASSERT(strategy->leave != MUSTER_STRATEGY_STAYS);
    /* Deferred requests begin, for the group to end them. */
    muster_strategy_await_transfers(strategy);
    muster_strategy_wait_until(strategy, strategy_has_left, strategy);
    muster_node_close(strategy->node, on_gone, &is_closed);
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &is_closed);
    strategy->node = NULL;
    muster_strategy_await_transfers(strategy);                /* of what has been delivered */
    MUSTER_ASSERT(muster_list_is_empty(&strategy->requests)); /* the group has ended them */
}

void muster_strategy_abandon(struct muster_strategy *strategy, const char *text)
{
    if (strategy == NULL || muster_strategy_enter(strategy, "abandon") != MUSTER_OK)
        return;
    if (strategy->state != MUSTER_STRATEGY_FAILED) {
        muster_strategy_stop_activity(strategy);
        muster_expectation_close(&strategy->expectation);
        strategy_abandon(strategy, text != NULL && text[0] != '\0' ? text : "the program said so");
        close_node(strategy);
    }
    muster_strategy_leave(strategy);
}

/* --- interrupted --- */

static void on_look(struct muster_timer *timer)
{
    struct muster_strategy *strategy = timer->data;
    struct muster_strategy_interrupt *interrupt = &strategy->interrupt;

    if (!interrupt->is_waiting || strategy->state == MUSTER_STRATEGY_FAILED)
        return; /* the next call that waits starts it again */
    if (interrupt->is_interrupted(interrupt->data))
        strategy_abandon(strategy, "interrupted");
    else
        muster_timer_start(timer, strategy->env->loop,
                           muster_loop_after_ns(strategy->env->loop, LOOK_NS));
}

void muster_strategy_set_interrupt(struct muster_strategy *strategy,
                                   muster_strategy_interrupt_fn *is_interrupted, void *data)
{
    if (muster_strategy_enter(strategy, "set_interrupt") != MUSTER_OK)
        return;
    muster_timer_stop(&strategy->interrupt.timer);
    muster_timer_init(&strategy->interrupt.timer, on_look, strategy);
    strategy->interrupt.is_interrupted = is_interrupted;
    strategy->interrupt.data = data;
    muster_strategy_leave(strategy);
}

/* --- the end of the process --- */

/* A program that has committed may be done: its exit code says whether it is. */
static void end_unclosed(struct muster_strategy *strategy)
{
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    if (is_in_work(strategy)) {
        strategy_abandon(strategy, without_close);
    } else {
        muster_report_unclosed(strategy->report, strategy->step,
                               strategy->state == MUSTER_STRATEGY_STEP, strategy->last_step);
        leave_at_once(strategy);
    }
    if (strategy->state != MUSTER_STRATEGY_FAILED) {
        muster_error_set(&strategy->error, MUSTER_CANCELLED, "%s", without_close);
        muster_strategy_dump_trace(strategy, without_close);
    }
}

static void on_exit_wake(struct muster_wake *wake)
{
    end_unclosed(muster_wake_data(wake));
}

static void on_end_look(struct muster_timer *timer)
{
    struct muster_strategy *strategy = timer->data;

    if (muster_process_is_ending())
        end_unclosed(strategy);
    else
        muster_timer_start(timer, strategy->env->loop,
                           muster_loop_after_ns(strategy->env->loop, EXIT_LOOK_NS));
}

/* Another thread may be in a call: then that one turns the loop, on which the wake runs. */
static void on_exit(void *data)
{
    struct muster_strategy *strategy = data;
    struct muster_error error;
    enum muster_rc rc = muster_runtime_enter_as(strategy->runtime, "exit", &error);

    if (rc != MUSTER_OK) {
        muster_wake_signal(strategy->exit_wake);
        muster_process_await(&strategy->is_over, EXIT_NS);
        return;
    }
    end_unclosed(strategy);
    if (strategy->leave != MUSTER_STRATEGY_STAYS)
        rc = muster_runtime_wait(strategy->runtime, strategy_has_left, strategy,
                                 muster_loop_after_ns(strategy->env->loop, EXIT_NS));
    (void)rc; /* late: the end of the process tells the others */
    muster_report_drain(strategy->report);
    muster_runtime_leave(strategy->runtime);
}

enum muster_rc muster_strategy_watch_exit(struct muster_strategy *strategy)
{
    struct muster_env *env = strategy->env;
    enum muster_rc rc;

    MUSTER_ASSERT(strategy->exit_wake == NULL && strategy->node != NULL);
    (void)muster_runtime_enter(strategy->runtime); /* nobody else knows it yet */
    rc = muster_wake_open(env->mem, env->loop, on_exit_wake, strategy, &strategy->exit_wake);
    muster_timer_init(&strategy->end_timer, on_end_look, strategy);
    if (rc == MUSTER_OK && muster_process_shows_end())
        on_end_look(&strategy->end_timer);
    muster_runtime_leave(strategy->runtime);
    if (rc != MUSTER_OK)
        return rc;
    strategy->exit_hook.data = strategy;
    strategy->exit_hook.on_exit = on_exit;
    muster_exit_hook_add(&strategy->exit_hook);
    return MUSTER_OK;
}

/* --- close --- */

/* Without registered state there is nothing that members could have alike. */
static void report_result(struct muster_strategy *strategy)
{
    char digest[MUSTER_DIGEST_TEXT_BYTES] = "";

    if (strategy->tensor_count > 0)
        muster_strategy_state_digest(strategy, digest);
    muster_report_result(strategy->report,
                         &(struct muster_report_result){.steps = strategy->committed_step,
                                                        .steps_lost = strategy->steps_lost,
                                                        .digest = digest},
                         &strategy->results);
}

static void abandon_in_step(struct muster_strategy *strategy)
{
    char text[MUSTER_ERROR_TEXT_BYTES + 80];

    if (strategy->ops_rc != MUSTER_OK)
        snprintf(text, sizeof(text), "closed in step %llu after a failed operation: %s",
                 (unsigned long long)strategy->step, strategy->error.text);
    else
        snprintf(text, sizeof(text), "closed in step %llu before its commit",
                 (unsigned long long)strategy->step);
    strategy_abandon(strategy, text);
}

/* A member that closes after a commit is done, and stays until nobody needs it. Its work counts for the others
 * even if it is not saved: they need not repeat it. */
static enum muster_rc leave_in_order(struct muster_strategy *strategy,
                                     struct muster_error *ret_error)
{
    bool is_done = strategy->state == MUSTER_STRATEGY_READY && !strategy->preemption.is_over;
    enum muster_rc rc = MUSTER_OK;

    muster_strategy_wait_until(strategy, muster_strategy_saving_is_over, strategy);
    if (!strategy->preemption.is_over) {
        rc = muster_strategy_save_last(strategy, ret_error);
        report_result(strategy);
    }
    if (strategy->leave != MUSTER_STRATEGY_STAYS)
        return rc; /* the process takes itself down, and closes while it does */
    muster_strategy_move_leave(strategy, MUSTER_STRATEGY_LEAVES);
    muster_node_leave(strategy->node, is_done,
                      muster_loop_after_ns(strategy->env->loop, LEAVE_TIMEOUT_NS), on_left,
                      strategy);
    return rc;
}

/* The work that the program's streams hold is part of its result. */
static enum muster_rc await_devices(struct muster_strategy *strategy,
                                    struct muster_error *ret_error)
{
    muster_strategy_await_streams(strategy, "close");
    if (strategy->state == MUSTER_STRATEGY_FAILED ||
        muster_strategy_memory_check(strategy) == MUSTER_OK)
        return MUSTER_OK;
    return muster_error_set(ret_error, strategy->error.rc, "%s", strategy->error.text);
}

/* The others have told of it by now, since none of them needs this member any more. */
static enum muster_rc check_skipped(const struct muster_strategy *strategy,
                                    struct muster_error *ret_error)
{
    if (strategy->loss.rc != MUSTER_INVALID_ARGUMENT)
        return MUSTER_OK;
    return muster_error_set(ret_error, strategy->loss.rc, "%s", strategy->loss.text);
}

static enum muster_rc leave_node(struct muster_strategy *strategy, struct muster_error *ret_error)
{
    bool is_done = muster_strategy_is_member(strategy) && !is_in_work(strategy);
    enum muster_rc rc = MUSTER_OK;

    if (is_done)
        rc = await_devices(strategy, ret_error);
    if (muster_strategy_is_member(strategy) && is_in_work(strategy))
        abandon_in_step(strategy);
    else if (muster_strategy_is_member(strategy))
        rc = leave_in_order(strategy, ret_error);
    else
        leave_at_once(strategy);
    close_node(strategy);
    return is_done && rc == MUSTER_OK ? check_skipped(strategy, ret_error) : rc;
}

/* The node was its only client. */
static void close_local(struct muster_strategy *strategy)
{
    if (strategy->local.server == NULL)
        return;
    muster_local_registry_stop(&strategy->local);
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &strategy->local.is_closed);
}

/* Everything is closed by now, in the reverse order of open. */
static void strategy_free(struct muster_strategy *strategy)
{
    struct muster_env *env = strategy->env;

    MUSTER_ASSERT(strategy->node == NULL && strategy->ops_open == 0);
    muster_strategy_copies_fini(strategy);
    muster_strategy_splits_free(strategy);
    muster_strategy_blobs_free(strategy);
    muster_strategy_folders_leave(strategy);
    muster_crew_close(strategy->crew);
    muster_mem_free(env->mem, strategy->schedule.folder);
    muster_mem_free(env->mem, strategy->restore_folder);
    muster_mem_free(env->mem, strategy->micro_slots);
    muster_mem_free(env->mem, strategy->replica_batches);
    for (size_t i = 0; i < strategy->tensor_count; i++)
        muster_mem_free(env->mem, (char *)(uintptr_t)strategy->tensors[i].name);
    muster_tensor_names_fini(&strategy->names, env->mem);
    muster_mem_free(env->mem, strategy->tensors);
    muster_view_unref(strategy->view);
    muster_view_unref(strategy->view_before);
    muster_local_registry_free(&strategy->local);
    if (strategy->has_incarnation)
        muster_training_give_incarnation();
    muster_strategy_close_trace(strategy);
    muster_report_close(strategy->report);
    muster_runtime_close(strategy->runtime);
    muster_training_close_tls(env);
    muster_net_system_close(env->net);
    muster_log_file_close(env->log);
    muster_mem_free(env->mem, strategy);
    muster_env_system_close(env);
}

/* In the seat; gives it back. */
static enum muster_rc close_in_seat(struct muster_strategy *strategy, struct muster_list *completed,
                                    struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    muster_exit_hook_remove(&strategy->exit_hook);
    muster_timer_stop(&strategy->end_timer);
    muster_timer_stop(&strategy->interrupt.timer);
    strategy->interrupt.is_interrupted = NULL; /* close asks nobody */
    muster_strategy_stop_activity(strategy);
    muster_expectation_close(&strategy->expectation);
    if (strategy->node != NULL)
        rc = leave_node(strategy, ret_error);
    muster_strategy_take_requests(strategy, completed);
    muster_strategy_saving_abandon(strategy, MUSTER_CANCELLED, "this member leaves");
    close_local(strategy);
    muster_strategy_close_device(strategy);
    muster_list_op_fini(&strategy->list);
    muster_strategy_drop_signals(strategy);
    muster_replicas_memory_free(strategy);
    muster_stage_memory_free(strategy);
    muster_strategy_memory_close(strategy);
    if (strategy->exit_wake != NULL)
        muster_wake_close(strategy->exit_wake);
    if (strategy->runtime != NULL)
        muster_strategy_leave(strategy);
    return rc;
}

static enum muster_rc close_refuse(const struct muster_strategy *strategy,
                                   const struct muster_error *why, struct muster_error *ret_error)
{
    MUSTER_LOG(strategy->env, ERROR, "close_refused", "reason", why->text);
    return muster_error_set(ret_error, why->rc, "%s", why->text);
}

enum muster_rc muster_strategy_close_checked(struct muster_strategy *strategy,
                                             struct muster_error *ret_error)
{
    static const struct muster_error amid_run = {
        .rc = MUSTER_FAILED_PRECONDITION,
        .text = "close: a run of the replicas is under way: call it when that has returned"};
    struct muster_list completed;
    enum muster_rc rc;

    if (strategy == NULL || strategy->generation != muster_process_generation())
        return MUSTER_OK; /* in a fork all of it is the parent's */
    if (muster_crew_is_running(strategy->crew))
        return close_refuse(strategy, &amid_run, ret_error);
    if (strategy->runtime != NULL && muster_strategy_enter(strategy, "close") != MUSTER_OK)
        return close_refuse(strategy, muster_strategy_error(strategy), ret_error);
    rc = close_in_seat(strategy, &completed, ret_error);
    strategy_free(strategy);
    muster_strategy_complete_requests(&completed);
    return rc;
}

void muster_strategy_close(struct muster_strategy *strategy)
{
    (void)!muster_strategy_close_checked(strategy, NULL); /* the log says why */
}
