/* Programs of the real host: spawned in a group of their own, read until they close their output,
 * then reaped. */
#include "runtime/system/host_command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/loop/deadline.h"
#include "runtime/value/backoff.h"

#define READ_STEP_BYTES   4096u
#define EXIT_SIGNAL_FIRST 128 /* a shell's status of a program that signal N ended is 128 + N */

extern char **environ;

/* A program that has closed its output ends within microseconds as a rule: a few looks are
 * enough. */
static const struct muster_backoff reap = {
    .first_ns = MUSTER_NS_PER_MS, .max_ns = 64 * MUSTER_NS_PER_MS, .growth_permille = 2000};

struct run {
    struct muster_command *command;
    struct muster_mem *mem;
    struct muster_loop *loop;
    pid_t pid;
    struct muster_fd_watch output; /* fd -1: read to its end, or given up */
    struct muster_timer deadline;
    struct muster_timer reaper;
    uint64_t reap_wait_ns;
    char *text;
    size_t text_bytes;
    enum muster_rc rc;
};

/* Idempotent: nothing is closed by -1. */
static void stop_reading(struct run *run)
{
    muster_fd_watch_close(&run->output);
    close(run->output.fd);
    run->output.fd = -1;
}

static void run_finish(struct run *run, const siginfo_t *info)
{
    struct muster_command *command = run->command;
    enum muster_rc rc = run->rc;

    MUSTER_ASSERT(command->impl == run); /* done fires once */
    muster_timer_stop(&run->deadline);
    command->impl = NULL;
    command->exit_status =
        info->si_code == CLD_EXITED ? info->si_status : EXIT_SIGNAL_FIRST + info->si_status;
    if (rc == MUSTER_OK) {
        command->output = run->text;
        command->output_bytes = run->text_bytes;
    } else {
        muster_mem_free(run->mem, run->text);
    }
    muster_mem_free(run->mem, run);
    muster_command_finish(command, rc);
}

/* The output is closed, so the program ends soon. In a process that ignores SIGCHLD the kernel
 * reaps it itself and there is no status: ECHILD counts as exit status 0. */
static void on_reap(struct muster_timer *timer)
{
    struct run *run = timer->data;
    siginfo_t info = {.si_pid = 0};

    if (waitid(P_PID, (id_t)run->pid, &info, WEXITED | WNOHANG) != 0 && errno == ECHILD)
        info = (siginfo_t){.si_pid = run->pid, .si_code = CLD_EXITED};
    if (info.si_pid != 0) {
        run_finish(run, &info);
        return;
    }
    muster_timer_start(
        timer, run->loop,
        muster_loop_after_ns(run->loop, muster_backoff_next(&reap, &run->reap_wait_ns, NULL)));
}

static void begin_reaping(struct run *run)
{
    stop_reading(run);
    muster_timer_start(&run->reaper, run->loop, muster_loop_now_ns(run->loop));
}

static void run_kill(struct run *run, enum muster_rc rc)
{
    if (run->rc != MUSTER_OK)
        return;
    MUSTER_ASSERT(run->pid > 0 && rc != MUSTER_OK); /* never kill(-0), which is our own group */
    run->rc = rc;
    kill(-run->pid, SIGKILL);
    begin_reaping(run);
}

/* Killed and then reaped like any other: done comes when the process is gone, not before. */
static void on_deadline(struct muster_timer *timer)
{
    run_kill(timer->data, MUSTER_DEADLINE_EXCEEDED);
}

/* Room for a step and a NUL. */
static bool run_reserve(struct run *run)
{
    char *grown = muster_mem_realloc(run->mem, run->text, run->text_bytes + READ_STEP_BYTES + 1);

    if (grown == NULL || run->text_bytes > MUSTER_COMMAND_OUTPUT_BYTES_MAX)
        run_kill(run, MUSTER_RESOURCE_EXHAUSTED);
    if (grown != NULL)
        run->text = grown;
    return run->rc == MUSTER_OK;
}

static void on_output(struct muster_fd_watch *watch, unsigned ready)
{
    struct run *run = watch->data;
    ssize_t got;

    (void)ready;
    if (!run_reserve(run))
        return;
    got = read(watch->fd, run->text + run->text_bytes, READ_STEP_BYTES);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got < 0) {
        run_kill(run, muster_rc_from_errno(errno));
        return;
    }
    run->text_bytes += (size_t)got;
    run->text[run->text_bytes] = '\0';
    if (got == 0)
        begin_reaping(run);
}

/* The program is the leader of a process group of its own, so that a kill also reaches its
 * children. */
static int spawn_with(pid_t *ret_pid, int output, const char *const *argv)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int sys = posix_spawn_file_actions_init(&actions);

    if (sys != 0)
        return sys;
    sys = posix_spawnattr_init(&attributes);
    if (sys != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return sys;
    }
    sys = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (sys == 0)
        sys = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (sys == 0)
        sys = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    if (sys == 0)
        sys = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (sys == 0)
        sys = posix_spawnp(ret_pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv,
                           environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return sys;
}

/* On success run->output.fd is the end to read from. */
static enum muster_rc run_spawn(struct run *run)
{
    int fds[2];
    int sys;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return muster_rc_from_errno(errno);
    if (fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0)
        sys = spawn_with(&run->pid, fds[1], run->command->argv);
    else
        sys = errno;
    close(fds[1]);
    if (sys == 0) {
        run->output.fd = fds[0];
        return MUSTER_OK;
    }
    close(fds[0]);
    return muster_rc_from_errno(sys);
}

enum muster_rc muster_host_command_start(struct muster_command *command, struct muster_mem *mem,
                                         struct muster_loop *loop)
{
    struct run *run;
    enum muster_rc rc =
        muster_deadline_judge(loop, "muster_command_start", command->deadline_ns, NULL);

    if (rc != MUSTER_OK)
        return rc;
    run = muster_mem_alloc_zero(mem, 1, sizeof(*run));
    if (run == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *run = (struct run){
        .command = command,
        .mem = mem,
        .loop = loop,
        .output = {.data = run, .on_ready = on_output, .fd = -1, .wanted = MUSTER_FD_READ},
    };
    muster_timer_init(&run->deadline, on_deadline, run);
    muster_timer_init(&run->reaper, on_reap, run);
    rc = run_spawn(run);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem, run);
        return rc;
    }
    command->impl = run;
    muster_timer_start(&run->deadline, loop, command->deadline_ns);
    rc = muster_fd_watch_open(&run->output, loop);
    if (rc != MUSTER_OK)
        run_kill(run, rc);
    return MUSTER_OK;
}

void muster_host_command_cancel(struct muster_command *command)
{
    if (command->impl != NULL)
        run_kill(command->impl, MUSTER_CANCELLED);
}
