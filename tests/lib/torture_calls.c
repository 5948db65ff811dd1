/* Wrappers of system calls, each with the failures that the kernel has for it. */
#include "torture_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT TORTURE_CALL_SHORT

/* A wrapper is called instead of the function, which is REAL(name) then. */
#ifndef MUSTER_TORTURE_INTERPOSE
#define DECLARE(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)
#define WRAPPER(name)      __wrap_##name
#define REAL(name)         __real_##name
#define IS_OURS(return_at) true
#else
/* Shared libraries find the wrappers in place of libc's functions, those of others, too. Weak: a test
 * may have its own. */
#define DECLARE(type, name, ...)                                                                   \
    static type (*real_##name)(__VA_ARGS__);                                                       \
    type wrapped_##name(__VA_ARGS__) __asm__(#name) __attribute__((visibility("default"), weak))
#define WRAPPER(name)      wrapped_##name
#define REAL(name)         (real_find(&real_##name, #name), real_##name)
#define IS_OURS(return_at) is_ours(return_at)

static void real_find(void *real, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    memcpy(real, &found, sizeof(found));
}

/* Called from a library of the product, or from the test. */
static bool is_ours(const void *return_at)
{
    static const char mark = 0;
    Dl_info caller, test;

    return dladdr(return_at, &caller) != 0 && dladdr(&mark, &test) != 0 &&
           (caller.dli_fbase == test.dli_fbase || strstr(caller.dli_fname, "/libmuster") != NULL);
}
#endif

#define WRAP(type, name, ...)                                                                      \
    DECLARE(type, name, __VA_ARGS__);                                                              \
    type WRAPPER(name)(__VA_ARGS__)

static struct torture *armed;
static bool is_harmless; /* the last failure */

void torture_arm_calls(struct torture *torture)
{
    armed = torture;
    is_harmless = false;
    torture->is_of_calls = true;
    torture_arm(torture);
}

size_t torture_count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

int torture_call_failure(const int *failures, size_t count)
{
    if (armed == NULL || !armed->is_of_calls || !torture_refuses(armed))
        return 0;
    is_harmless = false;
    return failures[armed->variant % count];
}

bool torture_call_was_harmless(void)
{
    return is_harmless;
}

#define FAILURE(...)                                                                               \
    (IS_OURS(__builtin_return_address(0))                                                          \
         ? torture_call_failure((const int[]){__VA_ARGS__},                                        \
                                sizeof((const int[]){__VA_ARGS__}) / sizeof(int))                  \
         : 0)

/* Returned by a call that fails so; sets errno. */
static int fail_with(int failure)
{
    errno = failure;
    return -1;
}

static void note_harm(int failure)
{
    if (failure != 0)
        is_harmless = failure == EINTR || failure == SHORT;
}

#define FAIL_OR(failure, call) ((failure) != 0 ? fail_with(failure) : (call))

/* Makers of descriptors. */

WRAP(int, socket, int domain, int type, int protocol)
{
    int failure = FAILURE(TORTURE_OF_SOCKET);

    return FAIL_OR(failure, REAL(socket)(domain, type, protocol));
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int failure = FAILURE(TORTURE_OF_ACCEPT4);

    return FAIL_OR(failure, REAL(accept4)(fd, address, length, flags));
}

WRAP(int, eventfd, unsigned count, int flags)
{
    int failure = FAILURE(TORTURE_OF_EVENTFD);

    return FAIL_OR(failure, REAL(eventfd)(count, flags));
}

WRAP(int, timerfd_create, int clock, int flags)
{
    int failure = FAILURE(TORTURE_OF_TIMERFD_CREATE);

    return FAIL_OR(failure, REAL(timerfd_create)(clock, flags));
}

WRAP(int, epoll_create1, int flags)
{
    int failure = FAILURE(TORTURE_OF_EPOLL_CREATE1);

    return FAIL_OR(failure, REAL(epoll_create1)(flags));
}

WRAP(int, memfd_create, const char *name, unsigned flags)
{
    int failure = FAILURE(EMFILE, ENOMEM, ENOSYS);

    return FAIL_OR(failure, REAL(memfd_create)(name, flags));
}

WRAP(int, pipe2, int fds[2], int flags)
{
    int failure = FAILURE(TORTURE_OF_PIPE2);

    return FAIL_OR(failure, REAL(pipe2)(fds, flags));
}

static int open_mode(int flags, va_list args)
{
    return (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
}

WRAP(int, open, const char *path, int flags, ...)
{
    int failure = FAILURE(EMFILE, EACCES, EINTR, ENOSPC), mode;
    va_list args;

    va_start(args, flags);
    mode = open_mode(flags, args);
    va_end(args);
    return FAIL_OR(failure, REAL(open)(path, flags, mode));
}

/* It is closed all the same. */
WRAP(int, close, int fd)
{
    int failure = FAILURE(TORTURE_OF_CLOSE);
    int result = REAL(close)(fd);

    return FAIL_OR(failure, result);
}

/* Bytes. Eight are those of an eventfd, a timerfd: they are whole, and there is room. */

WRAP(ssize_t, read, int fd, void *buffer, size_t count)
{
    int failure = count == 8 ? FAILURE(EINTR, EAGAIN) : FAILURE(EIO, EINTR, SHORT, ECONNRESET);

    note_harm(failure);
    if (failure == SHORT && count > 1)
        return REAL(read)(fd, buffer, 1);
    return FAIL_OR(failure, REAL(read)(fd, buffer, count));
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t count)
{
    int failure = count == 8 ? FAILURE(EINTR) : FAILURE(ENOSPC, EINTR, SHORT, EIO);

    note_harm(failure);
    if (failure == SHORT && count > 1)
        return REAL(write)(fd, bytes, 1);
    return FAIL_OR(failure, REAL(write)(fd, bytes, count));
}

WRAP(ssize_t, pread, int fd, void *buffer, size_t count, off_t at)
{
    int failure = FAILURE(EIO, EINTR, SHORT);

    note_harm(failure);
    if (failure == SHORT && count > 1)
        return REAL(pread)(fd, buffer, 1, at);
    return FAIL_OR(failure, REAL(pread)(fd, buffer, count, at));
}

WRAP(ssize_t, recv, int fd, void *buffer, size_t count, int flags)
{
    int failure = FAILURE(TORTURE_OF_RECV);

    note_harm(failure);
    if (failure == SHORT && count > 1)
        return REAL(recv)(fd, buffer, 1, flags);
    return FAIL_OR(failure, REAL(recv)(fd, buffer, count, flags));
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
    int failure = FAILURE(TORTURE_OF_RECVMSG);

    note_harm(failure);
    return FAIL_OR(failure, REAL(recvmsg)(fd, message, flags));
}

/* The first byte of what is to be sent. */
static ssize_t send_byte(int fd, const struct msghdr *message, int flags)
{
    for (size_t i = 0; i < message->msg_iovlen; i++)
        if (message->msg_iov[i].iov_len > 0)
            return send(fd, message->msg_iov[i].iov_base, 1, flags);
    return 0;
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    int failure = FAILURE(TORTURE_OF_SENDMSG);

    note_harm(failure);
    if (failure == SHORT && message->msg_controllen == 0)
        return send_byte(fd, message, flags);
    return FAIL_OR(failure == SHORT ? 0 : failure, REAL(sendmsg)(fd, message, flags));
}

/* The rest. */

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t length)
{
    int failure = FAILURE(TORTURE_OF_CONNECT);

    return FAIL_OR(failure, REAL(connect)(fd, address, length));
}

WRAP(int, bind, int fd, const struct sockaddr *address, socklen_t length)
{
    int failure = FAILURE(TORTURE_OF_BIND);

    return FAIL_OR(failure, REAL(bind)(fd, address, length));
}

WRAP(int, listen, int fd, int backlog)
{
    int failure = FAILURE(TORTURE_OF_LISTEN);

    return FAIL_OR(failure, REAL(listen)(fd, backlog));
}

WRAP(int, shutdown, int fd, int how)
{
    int failure = FAILURE(TORTURE_OF_SHUTDOWN);

    return FAIL_OR(failure, REAL(shutdown)(fd, how));
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t length)
{
    int failure = FAILURE(TORTURE_OF_SETSOCKOPT);

    return FAIL_OR(failure, REAL(setsockopt)(fd, level, name, value, length));
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *length)
{
    int failure = FAILURE(TORTURE_OF_GETSOCKOPT);

    return FAIL_OR(failure, REAL(getsockopt)(fd, level, name, value, length));
}

WRAP(int, getsockname, int fd, struct sockaddr *address, socklen_t *length)
{
    int failure = FAILURE(TORTURE_OF_GETSOCKNAME);

    return FAIL_OR(failure, REAL(getsockname)(fd, address, length));
}

WRAP(int, getpeername, int fd, struct sockaddr *address, socklen_t *length)
{
    int failure = FAILURE(TORTURE_OF_GETPEERNAME);

    return FAIL_OR(failure, REAL(getpeername)(fd, address, length));
}

WRAP(int, epoll_ctl, int epoll, int what, int fd, struct epoll_event *event)
{
    int failure = what == EPOLL_CTL_DEL ? 0 : FAILURE(TORTURE_OF_EPOLL_CTL);

    return FAIL_OR(failure, REAL(epoll_ctl)(epoll, what, fd, event));
}

WRAP(int, ftruncate, int fd, off_t bytes)
{
    int failure = FAILURE(TORTURE_OF_FTRUNCATE);

    return FAIL_OR(failure, REAL(ftruncate)(fd, bytes));
}

WRAP(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    int failure = FAILURE(TORTURE_OF_MMAP);

    if (failure != 0) {
        errno = failure;
        return MAP_FAILED;
    }
    return REAL(mmap)(at, bytes, protection, flags, fd, offset);
}

WRAP(int, fsync, int fd)
{
    int failure = FAILURE(TORTURE_OF_FSYNC);

    return FAIL_OR(failure, REAL(fsync)(fd));
}

WRAP(int, rename, const char *from, const char *to)
{
    int failure = FAILURE(ENOSPC, EACCES, EXDEV);

    return FAIL_OR(failure, REAL(rename)(from, to));
}

WRAP(int, waitid, idtype_t type, id_t id, siginfo_t *info, int options)
{
    int failure = FAILURE(TORTURE_OF_WAITID);

    return FAIL_OR(failure, REAL(waitid)(type, id, info, options));
}

WRAP(int, posix_spawnp, pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    int failure = FAILURE(EAGAIN, ENOMEM, ENOENT);

    return failure != 0 ? failure : REAL(posix_spawnp)(pid, file, actions, attributes, argv, envp);
}

WRAP(ssize_t, getrandom, void *buffer, size_t count, unsigned flags)
{
    int failure = FAILURE(TORTURE_OF_GETRANDOM);

    return FAIL_OR(failure, REAL(getrandom)(buffer, count, flags));
}

WRAP(int, poll, struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int failure = FAILURE(EINTR, ENOMEM);

    return FAIL_OR(failure, REAL(poll)(fds, count, timeout_ms));
}

/* Not for good: nobody could clean up. */
WRAP(int, unlink, const char *path)
{
    int failure = armed != NULL && armed->is_lasting ? 0 : FAILURE(EACCES, EIO);

    return FAIL_OR(failure, REAL(unlink)(path));
}

WRAP(int, mkdir, const char *path, mode_t mode)
{
    int failure = FAILURE(EACCES, ENOSPC, EROFS);

    return FAIL_OR(failure, REAL(mkdir)(path, mode));
}

/* With one argument of the size of a pointer, or none. */
DECLARE(int, fcntl, int fd, int what, ...);
int WRAPPER(fcntl)(int fd, int what, ...)
{
    int failure = FAILURE(EMFILE, EPERM);
    va_list args;
    void *argument;

    va_start(args, what);
    argument = va_arg(args, void *);
    va_end(args);
    return FAIL_OR(failure, REAL(fcntl)(fd, what, argument));
}

/* pidfd_open, and calls of the scheduler. Arguments that were not given are read, too, and mean nothing. */
DECLARE(long, syscall, long number, ...);
__attribute__((no_sanitize("address"))) long WRAPPER(syscall)(long number, ...)
{
    int failure = FAILURE(EMFILE, ENOSYS, EPERM, ENOMEM);
    va_list args;
    long at[6];

    va_start(args, number);
    for (size_t i = 0; i < 6; i++)
        at[i] = va_arg(args, long);
    va_end(args);
    return FAIL_OR(failure, REAL(syscall)(number, at[0], at[1], at[2], at[3], at[4], at[5]));
}

WRAP(int, pthread_create, pthread_t *ret_thread, const pthread_attr_t *attributes,
     void *(*start)(void *data), void *data)
{
    int failure = FAILURE(EAGAIN, EPERM);

    return failure != 0 ? failure : REAL(pthread_create)(ret_thread, attributes, start, data);
}

WRAP(ssize_t, process_vm_readv, pid_t pid, const struct iovec *local, unsigned long local_count,
     const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    int failure = FAILURE(EPERM, ESRCH, ENOSYS, SHORT);
    struct iovec first;

    if (failure == SHORT && local[0].iov_len > 1) {
        first = (struct iovec){local[0].iov_base, 1};
        return REAL(process_vm_readv)(pid, &first, 1, remote, remote_count, flags);
    }
    return FAIL_OR(failure,
                   REAL(process_vm_readv)(pid, local, local_count, remote, remote_count, flags));
}
