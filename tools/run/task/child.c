/* Processes of workers: started, signalled, reaped.
 *
 * A worker leads a process group of its own, so that what it started can be ended with it. It gets
 * its output pipes, a pipe for reports and an environment of its own; a fourth pipe, which closes
 * on exec, carries the errno of an exec that failed. Resumable workers get files in place of pipes
 * and a keeper between them and the launcher (keeper.c). */
#include "run/task/child.h"

#include "common/output.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/output/spool.h"
#include "run/registry/tls.h"
#include "run/report/report.h"
#include "run/state/worker_fds.h"
#include "run/task/environment.h"
#include "run/task/guard.h"
#include "run/task/keeper.h"
#include "run/task/preload.h"
#include "run/task/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Pipes stay above the descriptors that dup2 fills in the child (0 to RUN_TLS_CA_FD), so that none
 * of them is overwritten before it is passed on. */
#define FD_FLOOR 10

struct pipes {
    int out[2], err[2], report[2], failure[2]; /* read end, write end */
    int null;
    pid_t parent; /* of the worker */
};

/* Closes what is open; what has been handed on is -1 by then. */
static void pipes_close(struct pipes *pipes)
{
    int *const all[] = {&pipes->out[0],     &pipes->out[1],     &pipes->err[0],
                        &pipes->err[1],     &pipes->report[0],  &pipes->report[1],
                        &pipes->failure[0], &pipes->failure[1], &pipes->null};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
}

static bool pipe_open(int ends[2])
{
    int low[2];

    if (pipe2(low, O_CLOEXEC) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FD_FLOOR);
        close(low[i]);
    }
    return ends[0] >= 0 && ends[1] >= 0;
}

/* The keeper of a resumable worker passes files on; each end is as good as that of a pipe. */
static bool files_open(const struct run_task *task, struct pipes *pipes)
{
    int read_ends[3] = {-1, -1, -1};
    int write_ends[3] = {-1, -1, -1};
    bool is_good = run_spool_open_life(task, read_ends, write_ends);
    int *const all[3] = {pipes->out, pipes->err, pipes->report};

    for (int i = 0; i < 3; i++) {
        all[i][0] = read_ends[i];
        all[i][1] = write_ends[i] >= 0 ? fcntl(write_ends[i], F_DUPFD_CLOEXEC, FD_FLOOR) : -1;
        close(write_ends[i]);
        is_good = is_good && all[i][1] >= 0;
    }
    return is_good;
}

static bool outputs_open(const struct run_task *task, struct pipes *pipes)
{
    if (task->run->resume != NULL)
        return files_open(task, pipes);
    if (!pipe_open(pipes->out) || !pipe_open(pipes->err) || !pipe_open(pipes->report))
        return false;
    fcntl(pipes->out[0], F_SETFL, O_NONBLOCK);
    fcntl(pipes->err[0], F_SETFL, O_NONBLOCK);
    fcntl(pipes->report[0], F_SETFL, O_NONBLOCK);
    return true;
}

static bool pipes_open(const struct run_task *task, struct pipes *pipes)
{
    *pipes = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, -1, task->run->pid};
    pipes->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (pipes->null >= 0 && pipe_open(pipes->failure) && outputs_open(task, pipes))
        return true;
    pipes_close(pipes);
    return false;
}

/* In the child. The process dies with its launcher, and gets signals as if it had been started
 * alone. */
static void become_worker(const struct run_task *task, struct pipes *pipes, char **environment)
{
    const struct run *run = task->run;
    unsigned last_fd = RUN_REPORT_FD;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t none;
    int failure;

    if (run->resume == NULL)
        setpgid(0, 0); /* else its keeper's group */
    /* The parent may have died before the prctl: then no signal comes, and its number has changed.
     */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != pipes->parent)
        _exit(EXIT_FAILURE);
    output_file_limit_restore();
    sigaction(SIGPIPE, &usual, NULL);
    sigaction(SIGINT, &usual, NULL); /* ignored by what a script starts with '&'; we pass it on */
    if (run->settings.preemption_grace_ns > 0) /* Slurm sends it to all processes; we take it */
        signal(SIGUSR1, SIG_IGN);
    setrlimit(RLIMIT_NOFILE, &run->descriptors);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!run_terminal_take(task)) {
        dup2(pipes->null, STDIN_FILENO);
        dup2(pipes->out[1], STDOUT_FILENO);
        dup2(pipes->err[1], STDERR_FILENO);
    }
    dup2(pipes->report[1], RUN_REPORT_FD);
    if (run_tls_inherit(task))
        last_fd = RUN_TLS_CA_FD;
    syscall(SYS_close_range, last_fd + 1u, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
    execvpe(run->settings.program[0], run->settings.program, environment);
    failure = errno;
    if (write(pipes->failure[1], &failure, sizeof(failure)) < 0)
        _exit(EXIT_FAILURE);
    _exit(EXIT_FAILURE);
}

struct birth {
    const struct run_task *task;
    struct pipes *pipes;
    char **environment;
};

static void be_born(void *data)
{
    struct birth *birth = data;

    become_worker(birth->task, birth->pipes, birth->environment);
}

static void become_child(const struct run_task *task, struct pipes *pipes, char **environment)
{
    struct birth birth = {task, pipes, environment};

    if (task->run->resume == NULL) {
        be_born(&birth);
    } else {
        setpgid(0, 0);
        pipes->parent = getpid();
        run_keeper(task, pipes->failure[1], be_born, &birth);
    }
}

/* Wait for the exec: 0, or the errno of its failure. The write end closes on exec, so the read ends
 * either way. */
static int exec_result(int fd)
{
    int failure = 0;
    ssize_t got;

    do
        got = read(fd, &failure, sizeof(failure));
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(failure) ? failure : 0;
}

static void on_exit_watched(struct muster_process_watch *watch)
{
    struct run_task *task = watch->data;

    task->is_watched = false;
    task->run->control->on_exit(task);
}

static void open_streams(struct run_task *task, int out, int err, int report)
{
    run_stream_open(&task->output->out, task, out, run_output_line);
    run_stream_open(&task->output->err, task, err, run_output_line);
    run_stream_open(&task->output->report, task, report, run_report_line);
}

/* pid: the worker, or its keeper; 0: it has ended already. A child that cannot be watched is found
 * by SIGCHLD (run_child_reap). */
static void child_watch(struct run_task *task, pid_t pid)
{
    MUSTER_ASSERT(!task->is_watched);
    task->pid = pid;
    task->watch =
        (struct muster_process_watch){.data = task, .on_exit = on_exit_watched, .pid = pid};
    task->is_watched =
        pid > 0 && muster_process_watch_open(&task->watch, task->run->env->host) == MUSTER_OK;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

void run_child_adopt(struct run_task *task, pid_t keeper)
{
    int read_ends[3] = {-1, -1, -1};
    int write_ends[3] = {-1, -1, -1};

    if (run_spool_open_life(task, read_ends, write_ends)) {
        open_streams(task, read_ends[0], read_ends[1], read_ends[2]);
    } else {
        run_tell(task->run, "what %s prints is lost from here on: %s", task->name, strerror(errno));
        for (int i = 0; i < 3; i++)
            close_if_open(read_ends[i]);
    }
    for (int i = 0; i < 3; i++)
        close_if_open(write_ends[i]);
    child_watch(task, keeper);
}

static void child_follow(struct run_task *task, struct pipes *pipes, pid_t pid)
{
    run_guard_add(task->run, task, pid);
    child_watch(task, pid);
    open_streams(task, pipes->out[0], pipes->err[0], pipes->report[0]);
    pipes->out[0] = pipes->err[0] = pipes->report[0] = -1;
}

/* The worker has been started by us. */
static int child_welcome(struct run_task *task, struct pipes *pipes, pid_t pid)
{
    int failure;

    setpgid(pid, pid); /* both sides do it: the group must exist before either goes on */
    close(pipes->failure[1]);
    pipes->failure[1] = -1;
    failure = exec_result(pipes->failure[0]);
    if (failure != 0) {
        waitpid(pid, NULL, 0);
        return failure;
    }
    task->worker_pid = (int)pid;
    if (task->run->resume != NULL)
        run_keeper_find(task, &task->worker_pid);
    child_follow(task, pipes, pid);
    return 0;
}

/* A worker that has imported already. False: it must be started directly. */
static bool child_start_preloaded(struct run_task *task, struct pipes *pipes, char **environment)
{
    const int fds[3] = {pipes->out[1], pipes->err[1], pipes->report[1]};
    struct run_preloaded worker;

    if (!run_preload_fork(task, environment, fds, &worker))
        return false;
    task->worker_pid = (int)worker.pid;
    child_follow(task, pipes, worker.pid);
    run_preload_let_go(&worker);
    return true;
}

int run_child_start(struct run_task *task)
{
    char **environment = run_environment_new(task);
    struct pipes pipes;
    int failure = 0;
    pid_t pid;

    if (!pipes_open(task, &pipes)) {
        failure = errno;
        goto out;
    }
    if (child_start_preloaded(task, &pipes, environment))
        goto close_pipes;
    pid = fork();
    if (pid == 0)
        become_child(task, &pipes, environment);
    failure = pid < 0 ? errno : child_welcome(task, &pipes, pid);
close_pipes:
    pipes_close(&pipes);
out:
    run_environment_free(environment);
    return failure;
}

/* The whole group gets the signal: a worker may be a shell script around the program. */
void run_child_signal(const struct run_task *task, int signal)
{
    if (task->state != RUN_TASK_RUNNING || task->pid <= 0)
        return;
    kill(-task->pid, signal);
    if (signal != SIGKILL)
        kill(-task->pid, SIGCONT); /* a stopped process would not see it */
}

static struct run_task *task_of_pid(struct run *run, pid_t pid)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run->tasks[i].state == RUN_TASK_RUNNING && run->tasks[i].pid == pid)
            return &run->tasks[i];
    }
    return NULL;
}

/* This process is the reaper of orphans below it, so these come here as well. WNOWAIT leaves the
 * zombies of tasks to collect.c. */
void run_child_reap(struct run *run)
{
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        struct run_task *task;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        task = task_of_pid(run, info.si_pid);
        if (run_preload_on_child(run, info.si_pid))
            continue;
        if (task == NULL) {
            waitpid(info.si_pid, NULL, WNOHANG);
            continue;
        }
        if (task->is_watched)
            muster_process_watch_close(&task->watch);
        task->is_watched = false;
        task->run->control->on_exit(task);
    }
}
