/* The remains of a worker: its wait status, its confirmed death, its process group, its last
 * output.
 *
 * The order is the point. The members wait for the death to be confirmed, so that comes first,
 * before anything that may take a while; but after the reports are drained, since the death names
 * the last step that was reported. The process stays a zombie until its group has been killed, so
 * that the kernel cannot give its number to another process in between. */
#include "run/task/collect.h"

#include "run/output/output.h"
#include "run/registry/registry.h"
#include "run/state/outcome.h"
#include "run/task/dying.h"
#include "run/task/guard.h"
#include "run/task/keeper.h"
#include "run/task/places.h"
#include "run/task/restart.h"

#include <muster/strategy_preemption.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* is_known: the process has been reaped, and `how` is its end. */
static void confirm_death_at(struct run_task *task, const char *how, uint64_t step, bool is_known)
{
    bool is_done = is_known && task->wait_status == 0 && task->has_result;
    char text[128];

    if (step == 0)
        snprintf(text, sizeof(text), "%s", how);
    else /* a worker that comes back can tell from it whether all was done */
        snprintf(text, sizeof(text), "%s at step %llu in view %llu%s", how,
                 (unsigned long long)step, (unsigned long long)task->run->epoch_last,
                 is_done ? ", done" : "");
    run_registry_confirm_death(task->run, task, text, is_known);
}

static void task_confirm_death(struct run_task *task, int wait_status)
{
    char how[32];

    if (WIFSIGNALED(wait_status) && sigabbrev_np(WTERMSIG(wait_status)) != NULL)
        snprintf(how, sizeof(how), "SIG%s", sigabbrev_np(WTERMSIG(wait_status)));
    else if (WIFSIGNALED(wait_status))
        snprintf(how, sizeof(how), "signal %d", WTERMSIG(wait_status));
    else
        snprintf(how, sizeof(how), "exit %d", WEXITSTATUS(wait_status));
    confirm_death_at(task, how, task->step, true);
}

/* The worker's end, as the kernel or its keeper knows it. WNOWAIT leaves the zombie, whose number
 * is needed still. Returns true when a keeper wrote the end down: it then ends the group itself. */
static bool find_wait_status(struct run_task *task)
{
    siginfo_t info = {.si_pid = 0};
    bool is_known = false;

    if (task->run->resume != NULL)
        task->wait_status = run_keeper_wait_status(task, &is_known);
    else if (waitid(P_PID, (id_t)task->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == task->pid)
        task->wait_status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
                                                       : W_EXITCODE(0, info.si_status);
    return is_known;
}

/* Reports are up to 50 ms old; the memory that the worker has written to is exact. */
static void note_place(struct run_task *task)
{
    struct run_last_step place = {.begun_step = 0};

    task->is_place_known = run_places_read(task, &place);
    task->begun_step = place.begun_step > place.committed_step ? place.begun_step : 0;
    if (task->is_place_known && place.committed_step > task->step)
        task->step = place.committed_step;
    if (!run_outcome_is_silent(task))
        return;
    task->is_unclosed = task->is_silent = true;
    task->is_in_step = task->begun_step > 0;
    task->left_step = task->is_in_step ? task->begun_step : task->step;
}

/* They hold the pipe of reports, but for those that close what they inherit, as helpers of libraries
 * do. Files, and the process of --preload, tell nothing. */
static bool has_others(const struct run_task *task)
{
    struct pollfd report = {.fd = task->output->report.watch.fd, .events = POLLIN};

    return task->run->resume == NULL && task->run->preload == NULL &&
           task->output->report.is_open && poll(&report, 1, 0) >= 0 &&
           (report.revents & POLLHUP) == 0;
}

/* One that has done its part may end with 0, which others must hear first. */
void run_task_note_dying(struct run_task *task)
{
    struct run_last_step place = {.begun_step = 0};
    uint64_t died_ns = muster_loop_clock_ns(task->run->env->loop);

    run_stream_drain(&task->output->report);
    if (task->has_result || task->is_preempted || task->is_abandoned)
        return;
    (void)run_places_read(task, &place);
    if (task->dying_ns == 0)
        task->dying_ns = died_ns;
    confirm_death_at(task, "process ended",
                     place.committed_step > task->step ? place.committed_step : task->step, false);
}

void run_task_collect(struct run_task *task)
{
    bool is_swept = find_wait_status(task);
    bool has_left_others = task->wait_status == 0 && has_others(task);

    run_dying_end(task);
    task->died_ns = muster_loop_clock_ns(task->run->env->loop);
    run_stream_drain(&task->output->report);
    task->has_left_others = has_left_others && !task->has_reported;
    if (task->dying_ns != 0 && task->dying_ns < task->died_ns)
        task->died_ns = task->dying_ns; /* the system takes its time to take a process down */
    if (task->is_abandoned && task->wait_status == 0) /* a program that did not do its work */
        task->wait_status = W_EXITCODE(1, 0);
    if (task->is_preempted && task->wait_status == 0) /* and the same */
        task->wait_status = W_EXITCODE(MUSTER_EXIT_PREEMPTED, 0);
    note_place(task);
    task_confirm_death(task, task->wait_status);
    if (task->pid > 0 && !is_swept)
        kill(-task->pid, SIGKILL);
    if (task->pid > 0)
        waitpid(task->pid, NULL, 0);
    run_guard_remove(task->run, task->pid);
    task->ended_ns = muster_loop_now_ns(task->run->env->loop);
    task->ended_wall_ns = muster_host_wall_ns(task->run->env->host);
    run_stream_drain(&task->output->out);
    run_stream_drain(&task->output->err);
    if (run_restart_is_fruitless(task->has_committed, task->ended_ns - task->started_ns))
        task->fruitless_lives++;
    else
        task->fruitless_lives = 0;
}
