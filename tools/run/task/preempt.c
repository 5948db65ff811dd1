/* Preemption: the launcher asks, the members stop, and the workers end by themselves. What is not over within
 * --preemption-grace is ended as without it. */
#include "run/task/preempt.h"

#include "run/output/log.h"
#include "run/registry/preempt.h"
#include "run/report/preemption.h"
#include "run/resume/table.h"
#include "run/task/task.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define WAITED_BYTES 400u
#define TELL_MIN_NS  MUSTER_NS_PER_S
#define TELL_MAX_NS  (5 * MUSTER_NS_PER_S)

/* --- The wait --- */

/* In tenths, which tell a short grace from none. */
static double seconds_of(uint64_t ns)
{
    return (double)((ns + MUSTER_NS_PER_S / 20) / (MUSTER_NS_PER_S / 10)) / 10;
}

static void waits_tell(struct run *run)
{
    const struct muster_timer *grace = &run->preemption_timer;
    bool is_limited = muster_timer_is_started(grace);
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);
    uint64_t left_ns = is_limited && grace->due_ns > now_ns ? grace->due_ns - now_ns : 0;
    char waited[WAITED_BYTES], left[80] = "no time limit";

    if (!run_preemption_waits(run, waited, sizeof(waited)))
        return;
    if (is_limited)
        (void)snprintf(left, sizeof(left), "%g s of %g s left (--preemption-grace)",
                       seconds_of(left_ns), seconds_of(run->settings.preemption_grace_ns));
    run_log(run, MUSTER_LOG_WARN, "preemption_waits",
            (const struct muster_field[]){MUSTER_FIELD("waits_for", (const char *)waited),
                                          MUSTER_FIELD("left_s", seconds_of(left_ns))},
            is_limited ? 2 : 1, "the members stop, and wait for %s; %s", waited, left);
}

static void waits_tell_later(struct run *run);

static void on_tell_due(struct muster_timer *timer)
{
    struct run *run = timer->data;

    if (run->state != RUN_STATE_LEAVING)
        return;
    waits_tell(run);
    waits_tell_later(run);
}

/* Most stops take less than a quarter of their time. */
static uint64_t tell_interval_ns(const struct run *run)
{
    uint64_t quarter_ns = run->settings.preemption_grace_ns / 4;

    if (!muster_timer_is_started(&run->preemption_timer) || quarter_ns > TELL_MAX_NS)
        return TELL_MAX_NS;
    return quarter_ns < TELL_MIN_NS ? TELL_MIN_NS : quarter_ns;
}

static void waits_tell_later(struct run *run)
{
    muster_timer_stop(&run->preemption_tell_timer);
    muster_timer_init(&run->preemption_tell_timer, on_tell_due, run);
    muster_timer_start(&run->preemption_tell_timer, run->env->loop,
                       muster_loop_after_ns(run->env->loop, tell_interval_ns(run)));
}

static void members_leave(struct run *run)
{
    run_task_leave_all(run);
    waits_tell_later(run);
}

/* --- The stop --- */

static void on_grace_over(struct muster_timer *timer)
{
    struct run *run = timer->data;
    char waited[WAITED_BYTES];
    bool is_known = run_preemption_waits(run, waited, sizeof(waited));

    run_log(run, MUSTER_LOG_WARN, "preemption_late",
            RUN_FIELDS(MUSTER_FIELD("signal", SIGTERM),
                       MUSTER_FIELD("waits_for", (const char *)waited)),
            "the workers have not stopped within %g s (--preemption-grace)%s%s: SIGTERM to those "
            "that still run",
            seconds_of(run->settings.preemption_grace_ns), is_known ? "; not stopped: " : "",
            waited);
    run_task_end_all(run, SIGTERM);
}

/* Nobody stops by itself who is no member: a program that does not use muster, or a job that has not begun. */
static bool has_members(const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].state == RUN_TASK_RUNNING && run->tasks[i].member_from > 0)
            return true;
    return false;
}

bool run_preempt_ask(struct run *run, const char *cause)
{
    if (run->state == RUN_STATE_LEAVING)
        return true;
    if (run->settings.preemption_grace_ns == 0 || run->state != RUN_STATE_RUNNING ||
        !has_members(run))
        return false;
    run_preempt_key_open(run, cause);
    members_leave(run);
    run_table_save(run); /* nobody tells a successor again */
    return true;
}

void run_preempt_ask_early(struct run *run, const char *cause)
{
    run_preempt_key_open(run, cause);
    run_table_save(run);
}

bool run_preempt_begin(struct run *run, int signal)
{
    char cause[32];

    (void)snprintf(cause, sizeof(cause), "SIG%s", sigabbrev_np(signal));
    if (!run_preempt_ask(run, cause))
        return false;
    run_log(run, MUSTER_LOG_WARN, "preempted", RUN_FIELDS(MUSTER_FIELD("signal", signal)),
            "%s: the members stop after the same step and save it, within %g s; a second one ends "
            "them at once",
            cause, seconds_of(run->settings.preemption_grace_ns));
    muster_timer_init(&run->preemption_timer, on_grace_over, run);
    muster_timer_start(&run->preemption_timer, run->env->loop,
                       muster_loop_after_ns(run->env->loop, run->settings.preemption_grace_ns));
    waits_tell_later(run); /* sooner than without a limit */
    return true;
}

void run_preempt_go_on(struct run *run, enum run_state state)
{
    if (state != RUN_STATE_LEAVING) {
        if (run->preempt_cause[0] != '\0')
            run_preempt_key_open(run, run->preempt_cause); /* the job had not begun */
        return;
    }
    if (run->stop_signal == 0) {
        run_preempt_key_open(run, "SIGUSR1"); /* the launcher before may not have come to it */
        members_leave(run);
    } else if (!run_preempt_begin(run, run->stop_signal))
        run_task_end_all(run, run->stop_signal);
}

void run_preempt_on_stopped(struct run_task *task)
{
    struct run *run = task->run;

    if (run->state != RUN_STATE_RUNNING)
        return;
    run_log(run, MUSTER_LOG_WARN, "preempted", RUN_FIELDS(MUSTER_FIELD("task", task->name)),
            "the job is preempted, and its members stop: no worker is started again");
    members_leave(run);
}
