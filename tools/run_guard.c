/* A small process that outlives a killed launcher by a moment, to end the process groups that it
 * leaves. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A positive number adds a group, a negative one removes it. */
static void follow(pid_t *groups, size_t *count, pid_t message)
{
    if (message > 0 && *count < RUN_WORKERS_MAX) {
        groups[*count] = message;
        *count += 1;
        return;
    }
    for (size_t i = 0; i < *count; i++) {
        if (groups[i] == -message) {
            *count -= 1;
            groups[i] = groups[*count];
            return;
        }
    }
}

static void guard(int fd)
{
    static pid_t groups[RUN_WORKERS_MAX];
    size_t count = 0;
    pid_t message;

    for (;;) {
        ssize_t got = read(fd, &message, sizeof(message));

        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof(message))
            break;
        follow(groups, &count, message);
    }
    for (size_t i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
}

/* Nothing of ours may stay open here: whoever reads our output must see its end. */
static void become_guard(int fd)
{
    int null = open("/dev/null", O_RDWR);
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "muster-guard");
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(fd, 3);
    syscall(SYS_close_range, 4u, ~0u, 0u);
    guard(3);
    _exit(0);
}

int run_guard_start(pid_t *ret_pid)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        close(fds[1]);
        become_guard(fds[0]);
    }
    close(fds[0]);
    if (pid < 0) {
        close(fds[1]);
        return -1;
    }
    *ret_pid = pid;
    return fds[1];
}

static void tell(const struct run *run, pid_t message)
{
    if (run->guard_fd >= 0 && write(run->guard_fd, &message, sizeof(message)) < 0)
        return; /* it was killed: the kernel still ends our direct children with us */
}

void run_guard_add(const struct run *run, pid_t group)
{
    tell(run, group);
}

void run_guard_remove(const struct run *run, pid_t group)
{
    tell(run, -group);
}

void run_guard_stop(int fd, pid_t pid)
{
    if (fd < 0)
        return;
    close(fd);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
