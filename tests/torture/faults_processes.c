/* Processes and threads. */
#include "faults_wrap.h"

#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 64 /* of a command line */

WRAP(pid_t, fork, void)
{
    int failure = DRAW(fork, EAGAIN, ENOMEM);
    pid_t pid;

    if (failure != 0)
        return fail_with(failure);
    pid = NEXT(fork)();
    if (pid >= 0)
        faults_on_fork(pid == 0);
    return pid;
}

WRAP(int, posix_spawn, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    int failure = DRAW(posix_spawn, EAGAIN, ENOMEM);

    return failure != 0 ? failure : NEXT(posix_spawn)(pid, path, actions, attributes, argv, envp);
}

WRAP(int, posix_spawnp, pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    int failure = DRAW(posix_spawnp, EAGAIN, ENOMEM);

    return failure != 0 ? failure : NEXT(posix_spawnp)(pid, file, actions, attributes, argv, envp);
}

WRAP(FILE *, popen, const char *command, const char *mode)
{
    int failure = DRAW(popen, EMFILE, EAGAIN);

    return NULL_OR(failure, NEXT(popen)(command, mode));
}

WRAP(int, execve, const char *path, char *const argv[], char *const envp[])
{
    int failure = DRAW(execve, ENOMEM);

    return FAIL_OR(failure, NEXT(execve)(path, argv, envp));
}

WRAP(int, execvpe, const char *file, char *const argv[], char *const envp[])
{
    int failure = DRAW(execvpe, ENOMEM);

    return FAIL_OR(failure, NEXT(execvpe)(file, argv, envp));
}

WRAP(int, execv, const char *path, char *const argv[])
{
    int failure = DRAW(execv, ENOMEM);

    return FAIL_OR(failure, NEXT(execv)(path, argv));
}

int wrap_execl(const char *path, const char *first, ...) __asm__("execl");
int wrap_execl(const char *path, const char *first, ...)
{
    int failure = DRAW(execl, ENOMEM);
    char *words[WORDS_MAX + 1] = {NULL};
    va_list args;

    va_start(args, first);
    *(const char **)&words[0] = first;
    for (size_t i = 1; i < WORDS_MAX && words[i - 1] != NULL; i++)
        words[i] = va_arg(args, char *);
    va_end(args);
    return FAIL_OR(failure, NEXT(execv)(path, words));
}

WRAP(int, waitid, idtype_t type, id_t id, siginfo_t *info, int options)
{
    int failure = (options & WNOHANG) != 0 ? 0 : DRAW(waitid, TORTURE_OF_WAITID);

    return FAIL_OR(failure, NEXT(waitid)(type, id, info, options));
}

WRAP(pid_t, waitpid, pid_t pid, int *status, int options)
{
    int failure = (options & WNOHANG) != 0 ? 0 : DRAW(waitpid, TORTURE_OF_WAITID);

    return FAIL_OR(failure, NEXT(waitpid)(pid, status, options));
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
     void *data)
{
    int failure = DRAW(pthread_create, EAGAIN);

    return failure != 0 ? failure : NEXT(pthread_create)(thread, attributes, run, data);
}

WRAP(ssize_t, process_vm_readv, pid_t pid, const struct iovec *to, unsigned long to_count,
     const struct iovec *from, unsigned long from_count, unsigned long flags)
{
    int failure = DRAW(process_vm_readv, EPERM, ENOMEM);

    return FAIL_OR(failure, NEXT(process_vm_readv)(pid, to, to_count, from, from_count, flags));
}

/* Those that have no function of their own. */
WRAP(long, syscall, long number, ...)
{
    int failure = 0;
    va_list args;
    long values[6];

    va_start(args, number);
    for (size_t i = 0; i < 6; i++)
        values[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_pidfd_open)
        failure = DRAW(syscall, EMFILE, ENOMEM);
    return FAIL_OR(failure, NEXT(syscall)(number, values[0], values[1], values[2], values[3],
                                          values[4], values[5]));
}
