/* A small process that outlives a killed launcher by a moment, to end the process groups that it
 * leaves.
 *
 * It is forked before the first worker and reads messages from a pipe whose only lasting write end
 * is the launcher's (O_CLOEXEC), so that the end of the launcher, however it comes, is the end of
 * the pipe. PR_SET_PDEATHSIG ends direct children only; the guard ends what those have started.
 * Messages are shorter than PIPE_BUF, so a write is whole or not at all. */
#include "run/task/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum guard_word {
    GUARD_ADD,    /* a worker has been started: its group is to be ended with the launcher */
    GUARD_REMOVE, /* it has ended, and been collected */
    GUARD_CLAIM,  /* the launcher has its place in the registry */
    GUARD_BYE,    /* the launcher ends in order, and has told the registry itself */
};

struct guard_message {
    enum guard_word word;
    pid_t group;
    uint64_t launcher;
    struct muster_incarnation incarnation;
};

struct guard {
    struct run *run; /* as it was when the guard was started: settings */
    size_t count;
    pid_t groups[RUN_WORKERS_MAX];
    struct muster_incarnation members[RUN_WORKERS_MAX];
    uint64_t launcher; /* 0: without a place */
    bool is_orderly;
};

/* The order does not matter, so the last group fills the gap. */
static void guard_remove(struct guard *guard, pid_t group)
{
    for (size_t i = 0; i < guard->count; i++) {
        if (guard->groups[i] != group)
            continue;
        guard->count--;
        guard->groups[i] = guard->groups[guard->count];
        guard->members[i] = guard->members[guard->count];
        return;
    }
}

static void guard_follow(struct guard *guard, const struct guard_message *message)
{
    MUSTER_ASSERT(guard->count <= RUN_WORKERS_MAX);
    switch (message->word) {
    case GUARD_ADD:
        if (guard->count == RUN_WORKERS_MAX)
            return;
        guard->groups[guard->count] = message->group;
        guard->members[guard->count++] = message->incarnation;
        return;
    case GUARD_REMOVE:
        guard_remove(guard, message->group);
        return;
    case GUARD_CLAIM:
        guard->launcher = message->launcher;
        return;
    case GUARD_BYE:
        guard->is_orderly = true;
        return;
    }
}

/* A killed process takes a moment to end, and longer inside a driver. */
static void guard_await_end(pid_t pid)
{
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0u), .events = POLLIN};

    if (ended.fd < 0)
        return; /* it has ended, and init has reaped it */
    while (poll(&ended, 1, -1) < 0 && errno == EINTR)
        ;
    close(ended.fd);
}

static void guard_watch(struct guard *guard, int fd)
{
    struct guard_message message;

    for (;;) {
        ssize_t got = read(fd, &message, sizeof(message));

        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof(message))
            break;
        guard_follow(guard, &message);
    }
    for (size_t i = 0; i < guard->count; i++)
        kill(-guard->groups[i], SIGKILL);
    if (guard->is_orderly || guard->launcher == 0)
        return;
    /* A death is confirmed only when the process has ended, and not when it was signalled. */
    for (size_t i = 0; i < guard->count; i++)
        guard_await_end(guard->groups[i]);
    run_guard_confirm(guard->run, guard->launcher, guard->members, guard->count);
}

/* Nothing of ours may stay open here: whoever reads our output must see its end. */
static void become_guard(struct run *run, int fd)
{
    static struct guard guard;
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
    guard.run = run;
    guard_watch(&guard, 3);
    _exit(0);
}

/* command_run forks the guard before it opens the loop, so that there is little to inherit. */
int run_guard_start(struct run *run, pid_t *ret_pid)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        close(fds[1]);
        become_guard(run, fds[0]);
    }
    close(fds[0]);
    if (pid < 0) {
        close(fds[1]);
        return -1;
    }
    *ret_pid = pid;
    return fds[1];
}

static void guard_tell(int fd, const struct guard_message *message)
{
    if (fd >= 0 && write(fd, message, sizeof(*message)) < 0)
        return; /* it was killed: the kernel still ends our direct children with us */
}

void run_guard_add(const struct run *run, const struct run_task *task, pid_t group)
{
    struct guard_message message = {
        .word = GUARD_ADD, .group = group, .incarnation = task->incarnation};

    guard_tell(run->guard_fd, &message);
}

void run_guard_remove(const struct run *run, pid_t group)
{
    struct guard_message message = {.word = GUARD_REMOVE, .group = group};

    guard_tell(run->guard_fd, &message);
}

void run_guard_claim(const struct run *run, uint64_t launcher)
{
    struct guard_message message = {.word = GUARD_CLAIM, .launcher = launcher};

    guard_tell(run->guard_fd, &message);
}

void run_guard_stop(int fd, pid_t pid)
{
    struct guard_message message = {.word = GUARD_BYE};

    if (fd < 0)
        return;
    guard_tell(fd, &message);
    close(fd);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
