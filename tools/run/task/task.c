/* The life of each worker, and the consequences of its end.
 *
 * Every end of a worker comes here: run_task_on_exit lets collect.c gather what is left, asks
 * restart.c for the decision and carries it out. Processes are child.c's; the state of run and task
 * changes by run_move and run_task_move only. */
#include "run/task/task.h"

#include "common/command.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/output/spool.h"
#include "run/report/events.h"
#include "run/report/history.h"
#include "run/resume/table.h"
#include "run/state/outcome.h"
#include "run/task/child.h"
#include "run/task/collect.h"
#include "run/task/places.h"
#include "run/task/ports.h"
#include "run/task/preload.h"
#include "run/task/restart.h"
#include "run/task/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The whole run ends when no worker is running or to be started. */
static void run_check_done(struct run *run)
{
    if (run_task_count(run, RUN_TASK_RUNNING) == 0 && run_task_count(run, RUN_TASK_WAITING) == 0)
        run->control->on_all_ended(run);
}

/* The first failure names the exit code of the run; later ones are often consequences of it. */
static void run_note_failure(struct run_task *task, int code)
{
    struct run *run = task->run;

    if (run->failed != NULL)
        return;
    run->failed = task;
    run->failed_code = code;
}

/* As torchrun takes it. */
static bool is_bare_python(const char *program)
{
    size_t length = strlen(program);

    return length > 3 && strcmp(program + length - 3, ".py") == 0;
}

static const char *why_not_runnable(const char *program, int failure)
{
    struct stat about;

    if ((failure == ENOENT || failure == EACCES) && is_bare_python(program))
        return "; write python3 before a script of Python";
    if (failure == ENOENT)
        return "; give its path, or put it into PATH (a script's interpreter must exist, too)";
    if (failure == EACCES && stat(program, &about) == 0 && S_ISDIR(about.st_mode))
        return "; it is a directory";
    if (failure == EACCES)
        return "; is it executable (chmod +x)?";
    if (failure == ENOEXEC)
        return "; a script needs a first line such as #!/bin/sh";
    if (failure == EMFILE)
        return "; raise the limit: ulimit -n 1024";
    if (failure == EAGAIN)
        return "; this user may have no more processes: raise the limit (ulimit -u, or pids.max of "
               "the cgroup)";
    if (failure == ENOMEM)
        return "; raise the limit of memory (ulimit -v, or memory.max of the cgroup)";
    return "";
}

/* The program cannot be started at all: trying again would not help. */
static void task_fail_start(struct run_task *task, int failure)
{
    struct run *run = task->run;
    int code = failure == ENOENT || failure == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;

    run_task_move(task, RUN_TASK_FAILED);
    task->wait_status = W_EXITCODE(code, 0);
    if (run->failed == NULL) {
        run_log_error("cannot start '%s': %s%s", run->settings.program[0], strerror(failure),
                      why_not_runnable(run->settings.program[0], failure));
    }
    run_note_failure(task, code);
    run_task_end_all(run, SIGTERM);
}

/* A new life: everything that the last life reported is forgotten, while what is counted over all
 * lives stays. */
static void task_start(struct run_task *task)
{
    struct run *run = task->run;
    int failure;

    MUSTER_ASSERT(run->state == RUN_STATE_RUNNING);
    MUSTER_ASSERT(task->state == RUN_TASK_NEW || task->state == RUN_TASK_WAITING);
    MUSTER_ASSERT(task->collected == task->lives);
    task->lives++;
    muster_rng_fill(run->env->rng, task->incarnation.bytes, sizeof(task->incarnation.bytes));
    task->started_ns = muster_loop_now_ns(run->env->loop);
    task->has_result = task->is_close_told = false;
    task->has_reported = false;
    task->has_committed = false;
    task->is_loss_told = task->is_loss_owed = false;
    task->member_from = task->left_step = 0;
    task->is_unclosed = task->is_in_step = task->is_silent = task->is_place_known = false;
    task->born_epoch = run->epoch_last;
    task->is_too_late = task->is_refused = task->has_left_others = false;
    task->is_preempted = task->is_saved = false;
    task->is_abandoned = false;
    task->unsaved[0] = '\0';
    free(task->trace_file);
    task->trace_file = NULL;
    task->dying_ns = 0;
    task->step = 0;
    run_output_begin_life(task);
    run_places_clear(task);
    if (!run_output_open_logs(task, false)) {
        run_task_move(task, RUN_TASK_FAILED);
        task->wait_status = W_EXITCODE(EXIT_OTHER, 0);
        run_note_failure(task, EXIT_OTHER);
        run_task_end_all(run, SIGTERM);
        return;
    }
    run_table_save(run); /* before there is a process: a successor looks for it */
    failure = run_child_start(task);
    if (failure != 0) {
        task->collected = task->lives;
        if (run->resume != NULL)
            run_spool_remove_life(task);
        task_fail_start(task, failure);
    } else {
        run_task_move(task, RUN_TASK_RUNNING);
        run_history_on_start(task);
    }
    run_table_changed(run);
}

static void on_start_due(struct muster_timer *timer)
{
    struct run_task *task = timer->data;

    if (run_preload_is_pending(task->run))
        return; /* run_task_on_preloaded starts it */
    task_start(task);
    run_check_done(task->run);
}

/* A start goes through the timer even without a delay, so that no worker starts within the end of
 * another one. */
static void task_start_later(struct run_task *task, uint64_t delay_ns)
{
    struct muster_loop *loop = task->run->env->loop;

    run_task_move(task, RUN_TASK_WAITING);
    muster_timer_start(&task->start_timer, loop, muster_loop_after_ns(loop, delay_ns));
}

void run_task_start_again(struct run_task *task)
{
    task_start_later(task, 0);
}

void run_task_init(struct run_task *task, struct run *run, uint32_t local_rank)
{
    task->run = run;
    task->local_rank = local_rank;
    task->rank = run->settings.rank_first + local_rank;
    snprintf(task->name, sizeof(task->name), "worker:%u", task->rank);
    muster_timer_init(&task->start_timer, on_start_due, task);
}

void run_task_start_all(struct run *run)
{
    for (uint32_t i = 0; i < run->task_count && run->state == RUN_STATE_RUNNING; i++) {
        if (run_preload_is_pending(run))
            task_start_later(&run->tasks[i], 0);
        else
            task_start(&run->tasks[i]);
    }
    run_check_done(run);
}

void run_task_on_preloaded(struct run *run)
{
    if (run->fatal_code != 0) {
        run_task_end_all(run, SIGTERM);
        run_check_done(run);
    }
    for (uint32_t i = 0; i < run->task_count && run->state == RUN_STATE_RUNNING; i++) {
        struct run_task *task = &run->tasks[i];

        if (task->state == RUN_TASK_WAITING && !muster_timer_is_started(&task->start_timer))
            task_start_later(task, 0);
    }
}

/* --- all end */

void run_task_signal_all(struct run *run, int signal)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        run_child_signal(&run->tasks[i], signal);
}

static void on_grace_over(struct muster_timer *timer)
{
    run_task_signal_all(timer->data, SIGKILL);
}

/* One timer serves the whole run: SIGKILL goes to those that still run when the grace time is over.
 */
static void run_signal_with_grace(struct run *run, int signal)
{
    struct muster_loop *loop = run->env->loop;

    run_task_signal_all(run, signal);
    muster_timer_init(&run->grace_timer, on_grace_over, run);
    muster_timer_start(&run->grace_timer, loop, muster_loop_after_ns(loop, run->settings.grace_ns));
}

/* Tasks that wait for their next start will not get it: they count as failed, and the restart that
 * was counted in advance is taken back. */
static void run_cancel_starts(struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        struct run_task *task = &run->tasks[i];

        if (task->state != RUN_TASK_WAITING)
            continue;
        muster_timer_stop(&task->start_timer);
        run_task_move(task, RUN_TASK_FAILED);
        if (!run->settings.is_gang && task->restarts > 0) { /* a restart that was not made */
            task->restarts--;
            run->restarts--;
        }
    }
}

void run_task_end_all(struct run *run, int signal)
{
    if (run_is_ending(run))
        return;
    run_move(run, RUN_STATE_STOPPING);
    run_cancel_starts(run);
    run_signal_with_grace(run, signal);
}

void run_task_leave_all(struct run *run)
{
    run_move(run, RUN_STATE_LEAVING);
    run_cancel_starts(run);
    run->control->on_changed(run);
}

/* --- a gang restart */

/* All workers have ended: all start again, at a new MASTER_PORT, since sockets of the last gang may
 * still hold the old one. */
static void gang_start(struct run *run)
{
    MUSTER_ASSERT(run_task_count(run, RUN_TASK_RUNNING) == 0);
    muster_timer_stop(&run->grace_timer);
    run_move(run, RUN_STATE_RUNNING);
    if (run->settings.master_port == 0)
        run_ports_find(run->env->rng, &run->master_port, 1);
    for (uint32_t i = 0; i < run->task_count; i++)
        task_start_later(&run->tasks[i], run_restart_delay_ns(run->tasks[i].fruitless_lives));
}

/* One worker has died, and with it the whole gang: its members cannot go on without it, so they end
 * first and start together. */
static void gang_end(struct run *run, const struct run_task *cause)
{
    MUSTER_ASSERT(run->settings.is_gang && run->state == RUN_STATE_RUNNING);
    run->gang_restarts++;
    run->restarts++;
    for (uint32_t i = 0; i < run->task_count; i++)
        run->survivors_restarted += &run->tasks[i] != cause;
    run_move(run, RUN_STATE_REGROUPING);
    run_cancel_starts(run);
    run_signal_with_grace(run, SIGTERM);
}

/* --- the end of one */

/* A failpoint (--kill) ends the first life of its task by SIGKILL. Another SIGKILL in that life
 * counts as well, since the two cannot be told apart. */
static void task_note_kill(struct run_task *task)
{
    struct run_settings *settings = &task->run->settings;

    if (task->lives > 1 || !WIFSIGNALED(task->wait_status) ||
        WTERMSIG(task->wait_status) != SIGKILL)
        return;
    for (size_t i = 0; i < settings->kill_count; i++) {
        if (settings->kills[i].rank == task->rank)
            settings->kills[i].is_reached = true;
    }
}

/* The code is kept as long as each life ends with the same one; any other end shows that the
 * arguments are not at fault. */
static void task_note_misuse(struct run_task *task)
{
    int code = WIFEXITED(task->wait_status) ? WEXITSTATUS(task->wait_status) : 0;

    if (!run_restart_is_misuse(code, task->has_reported, task->ended_ns - task->started_ns) ||
        (task->lives > 1 && task->misuse_code != code))
        code = 0;
    task->misuse_code = code;
}

/* Nobody else runs, and every life so far has ended like this one. */
static bool is_misuse_of_all(const struct run_task *task)
{
    const struct run *run = task->run;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *other = &run->tasks[i];

        if (other->misuse_code != task->misuse_code ||
            (other != task && other->state != RUN_TASK_WAITING && other->state != RUN_TASK_FAILED))
            return false;
    }
    return task->misuse_code != 0;
}

/* The task that ended first of those called wrongly: the summary shows its output, which names the
 * fault. */
static struct run_task *first_misuse(struct run *run)
{
    struct run_task *first = NULL;

    for (uint32_t i = 0; i < run->task_count; i++) {
        struct run_task *task = &run->tasks[i];

        if (task->misuse_code != 0 && (first == NULL || task->ended_ns < first->ended_ns))
            first = task;
    }
    return first;
}

/* It has trained to its end, and could not save that: another life would train the last steps again, for the same
 * disk. run.c decides whether the run has failed. */
static bool has_lost_only_the_end(const struct run_task *task)
{
    return task->has_result && task->unsaved[0] != '\0';
}

static enum run_action task_decide(const struct run_task *task)
{
    const struct run *run = task->run;
    struct run_restart_question question = {
        .is_stopping = run->state != RUN_STATE_RUNNING,
        .is_gang = run->settings.is_gang,
        .is_success = task->wait_status == 0 || task->is_too_late || has_lost_only_the_end(task),
        .is_runnable = true,
        .is_misuse = task->misuse_code != 0,
        .is_misuse_of_all = is_misuse_of_all(task),
        .is_refused = task->is_refused,
        .restarts = run->settings.is_gang ? run->gang_restarts : task->restarts,
        .restarts_max = run->settings.restarts_max,
        /* Workers of other launchers are theirs to count: they are taken for alive. */
        .others_left = run_task_count(run, RUN_TASK_RUNNING) - 1 +
                       run_task_count(run, RUN_TASK_WAITING) + run_task_count(run, RUN_TASK_LEFT) +
                       run->settings.world_size - run->task_count,
        .members_min = run->settings.members_min,
    };

    return run_restart_decide(&question);
}

/* The delay is counted from the death. A misuse waits a little, for the others to say the same. */
static uint64_t restart_delay_ns(const struct run_task *task)
{
    uint64_t delay_ns = run_restart_delay_ns(task->fruitless_lives);

    return task->misuse_code != 0 && delay_ns < RUN_MISUSE_WAIT_NS ? RUN_MISUSE_WAIT_NS : delay_ns;
}

/* The restart waits until the members have agreed on the loss, at most for a while: a process that
 * starts beside that would slow them down. run_task_on_loss_told shortens the wait. */
static void task_restart(struct run_task *task)
{
    bool is_settled = task->is_loss_told || !run_events_are_expected(task);
    uint64_t delay_ns = restart_delay_ns(task);
    uint64_t untold_ns = run_restart_delay_untold_ns(task->fruitless_lives);

    task->restarts++;
    task->run->restarts++;
    task_start_later(task, is_settled || delay_ns > untold_ns ? delay_ns : untold_ns);
}

void run_task_on_loss_told(struct run_task *task, uint64_t epoch)
{
    if (epoch <= task->born_epoch)
        return; /* it is about the life before */
    task->is_loss_told = true;
    if (task->state != RUN_TASK_WAITING || task->run->settings.is_gang)
        return;
    muster_timer_start(&task->start_timer, task->run->env->loop,
                       task->ended_ns + restart_delay_ns(task));
}

/* No restart is left, and the others go on, or end, without this task. */
static void task_give_up(struct run_task *task)
{
    run_note_failure(task, run_task_exit_code(task->wait_status));
    run_task_move(task, RUN_TASK_FAILED);
}

static void gang_start_when_all_ended(struct run *run)
{
    if (run->state == RUN_STATE_REGROUPING && run_task_count(run, RUN_TASK_RUNNING) == 0 &&
        run_task_count(run, RUN_TASK_WAITING) == 0)
        gang_start(run);
}

/* A gang that has ended must start before the run is judged: for a moment nobody runs or waits. */
void run_task_check(struct run *run)
{
    gang_start_when_all_ended(run);
    run_check_done(run);
}

/* The predecessor was ending the workers when it was killed; they may never have got its signal. */
void run_task_go_on_ending(struct run *run, bool is_gang_restart)
{
    if (!is_gang_restart) {
        run_task_end_all(run, run->stop_signal != 0 ? run->stop_signal : SIGTERM);
        return;
    }
    run_move(run, RUN_STATE_REGROUPING);
    run_cancel_starts(run);
    run_signal_with_grace(run, SIGTERM);
}

/* A hint for programs that do not report to muster; given once, and not while all may have been
 * called wrongly. */
static void tell_foreign(struct run_task *task)
{
    struct run *run = task->run;

    if (run->is_foreign_told || task->misuse_code != 0 || !run_outcome_is_foreign(run))
        return;
    run->is_foreign_told = true;
    run_tell(
        run,
        "no worker has opened a strategy before its end, their output may say why; only if these "
        "programs do not use muster, give --restart all, which starts all of them again together");
}

/* An exit code of 0 is a leave, in the middle of a step too; a program that does so by mistake must
 * hear of it. */
static void tell_unclosed(struct run_task *task)
{
    if (!task->is_unclosed || task->wait_status != 0)
        return;
    if (task->is_silent)
        run_log(
            task->run, MUSTER_LOG_WARN, "left_unclosed",
            RUN_FIELDS(MUSTER_FIELD("task", task->name), MUSTER_FIELD("step", task->left_step)),
            "%s ended with exit code 0 and without close, by _exit, %s step %llu%s: it has left "
            "the job, and is not started again",
            task->name, task->is_in_step ? "in" : "after", (unsigned long long)task->left_step,
            task->is_place_known ? "" : " as last reported");
    if (!task->is_in_step || task->is_silent)
        return;
    run_log(task->run, MUSTER_LOG_WARN, "left_in_step",
            RUN_FIELDS(MUSTER_FIELD("task", task->name), MUSTER_FIELD("step", task->left_step)),
            "%s ended with exit code 0 in step %llu, which it had begun, without commit or close: "
            "it has left the job, and is not started again",
            task->name, (unsigned long long)task->left_step);
}

/* A program that puts itself into the background has not done its work when its first process ends. */
static void tell_others(const struct run_task *task)
{
    if (task->has_left_others)
        run_log(task->run, MUSTER_LOG_WARN, "left_processes",
                RUN_FIELDS(MUSTER_FIELD("task", task->name)),
                "%s ended with exit code 0 before it opened a strategy, while processes that it "
                "had started still ran: they are ended. A worker must stay in the foreground "
                "until its work is done: start the program without '&', and not as a daemon, but "
                "helpers that may be ended with 3>&-",
                task->name);
}

void run_task_on_exit(struct run_task *task)
{
    struct run *run = task->run;
    enum run_action action;

    MUSTER_ASSERT(task->state == RUN_TASK_RUNNING && task->collected < task->lives);
    run_task_collect(task);
    /* The terminal goes back before anything is printed about the end. */
    if (run_terminal_return(run, task->wait_status) && run->state == RUN_STATE_RUNNING) {
        run->stop_signal = WTERMSIG(task->wait_status);
        run_move(run, RUN_STATE_STOPPING); /* there is no other worker to tell */
    }
    run_history_on_death(task);
    task_note_kill(task);
    task_note_misuse(task);
    action = task_decide(task);
    if (WIFSIGNALED(task->wait_status) && action != RUN_ACTION_NONE)
        run->kills++;
    if (action != RUN_ACTION_NONE && action != RUN_ACTION_LEAVE) {
        run_events_on_death(task);
        if (!task->has_result && task->step > 0)
            task->undone_step = task->step;
    }
    switch (action) {
    case RUN_ACTION_NONE:
        run_task_move(task, task->wait_status == 0 || task->is_preempted ? RUN_TASK_LEFT
                                                                         : RUN_TASK_FAILED);
        if (run->state == RUN_STATE_LEAVING && task->wait_status != 0 && !task->is_preempted)
            run_note_failure(task, run_task_exit_code(task->wait_status));
        break;
    case RUN_ACTION_LEAVE:
        run_task_move(task, RUN_TASK_LEFT);
        tell_unclosed(task);
        tell_others(task);
        break;
    case RUN_ACTION_RESTART:
        task_restart(task);
        tell_foreign(task);
        break;
    case RUN_ACTION_RESTART_ALL:
        run_task_move(task, RUN_TASK_FAILED);
        gang_end(run, task);
        break;
    case RUN_ACTION_GO_ON:
        task_give_up(task);
        break;
    case RUN_ACTION_END_ALL:
        run->is_misuse = run->failed == NULL && task->misuse_code != 0;
        if (run->is_misuse)
            run_note_failure(first_misuse(run), task->misuse_code);
        task_give_up(task);
        run_task_end_all(run, SIGTERM);
        break;
    }
    /* The files of the life go only after the table says that they have been read. */
    task->collected = task->lives;
    if (run_table_save(run) && run->resume != NULL)
        run_spool_remove_life(task);
    run_task_check(run);
}
