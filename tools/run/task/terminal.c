/* Job control for one worker, as a shell has it: the worker's process group is in the foreground.
 */
#include "run/task/terminal.h"

#include "run/output/output.h"

#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static struct termios modes; /* of the terminal when we got it */

/* A user who asks for logs of the output gets those, and no terminal for the worker. */
static bool wants_logs(const struct run_settings *settings)
{
    return settings->log_dir != NULL || settings->tee != NULL || settings->redirects != NULL;
}

void run_terminal_open(struct run *run)
{
    run->is_terminal_lent =
        run->settings.world_size == 1 && run->resume == NULL && run->settings.preload == NULL &&
        !wants_logs(&run->settings) && !run->output->is_log_json && isatty(STDIN_FILENO) &&
        isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
        tcgetattr(STDIN_FILENO, &modes) == 0;
    if (run->is_terminal_lent)
        signal(SIGTTOU, SIG_IGN); /* we change the foreground group from the background */
}

/* SIGTTOU is ignored since run_terminal_open, so the change from the background succeeds; the
 * program itself gets the default back. */
bool run_terminal_take(const struct run_task *task)
{
    if (!task->run->is_terminal_lent)
        return false;
    tcsetpgrp(STDIN_FILENO, getpgrp());
    signal(SIGTTOU, SIG_DFL);
    return true;
}

/* The stop of the worker becomes the stop of the launcher, which the shell sees as the stop of its
 * job. */
void run_terminal_on_child(struct run *run)
{
    const struct run_task *task = &run->tasks[0];
    siginfo_t info = {.si_pid = 0};

    if (!run->is_terminal_lent || task->state != RUN_TASK_RUNNING || task->pid <= 0 ||
        waitid(P_PID, (id_t)task->pid, &info, WSTOPPED | WNOHANG) != 0 || info.si_pid != task->pid)
        return;
    tcsetpgrp(STDIN_FILENO, getpgrp());
    raise(SIGSTOP); /* the shell has the terminal until it lets us go on */
    if (tcgetpgrp(STDIN_FILENO) == getpgrp())
        tcsetpgrp(STDIN_FILENO, task->pid);
    kill(-task->pid, SIGCONT);
}

bool run_terminal_return(struct run *run, int wait_status)
{
    if (!run->is_terminal_lent)
        return false;
    tcsetpgrp(STDIN_FILENO, getpgrp());
    tcsetattr(STDIN_FILENO, TCSADRAIN, &modes); /* a debugger may have died in its own modes */
    return WIFSIGNALED(wait_status) &&
           (WTERMSIG(wait_status) == SIGINT || WTERMSIG(wait_status) == SIGQUIT);
}
