/* Wrappers of system calls, each with the failures that the kernel has for it. */
#include "torture_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT TORTURE_CALL_SHORT

/* A wrapper is called instead of the function, which has another name then. */
#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

static struct torture *armed;

void torture_arm_calls(struct torture *torture)
{
    armed = torture;
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
    return failures[armed->variant % count];
}

#define FAILURE(...)                                                                               \
    torture_call_failure((const int[]){__VA_ARGS__},                                               \
                         sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* Returned by a call that fails so; sets errno. */
static int fail_with(int failure)
{
    errno = failure;
    return -1;
}

#define FAIL_OR(failure, call) ((failure) != 0 ? fail_with(failure) : (call))

/* Makers of descriptors. */

WRAP(int, socket, int domain, int type, int protocol)
{
    int failure = FAILURE(EMFILE, ENOBUFS, EACCES);

    return FAIL_OR(failure, __real_socket(domain, type, protocol));
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int failure = FAILURE(EMFILE, ECONNABORTED, EINTR, EAGAIN);

    return FAIL_OR(failure, __real_accept4(fd, address, length, flags));
}

WRAP(int, eventfd, unsigned count, int flags)
{
    int failure = FAILURE(EMFILE, ENOMEM);

    return FAIL_OR(failure, __real_eventfd(count, flags));
}

WRAP(int, timerfd_create, int clock, int flags)
{
    int failure = FAILURE(EMFILE, ENOMEM);

    return FAIL_OR(failure, __real_timerfd_create(clock, flags));
}

WRAP(int, epoll_create1, int flags)
{
    int failure = FAILURE(EMFILE, ENOMEM);

    return FAIL_OR(failure, __real_epoll_create1(flags));
}

WRAP(int, memfd_create, const char *name, unsigned flags)
{
    int failure = FAILURE(EMFILE, ENOMEM, ENOSYS);

    return FAIL_OR(failure, __real_memfd_create(name, flags));
}

WRAP(int, dup, int fd)
{
    int failure = FAILURE(EMFILE);

    return FAIL_OR(failure, __real_dup(fd));
}

WRAP(int, pipe2, int fds[2], int flags)
{
    int failure = FAILURE(EMFILE, ENFILE);

    return FAIL_OR(failure, __real_pipe2(fds, flags));
}

static int open_mode(int flags, va_list args)
{
    return (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    int failure = FAILURE(EMFILE, EACCES, EINTR, ENOSPC), mode;
    va_list args;

    va_start(args, flags);
    mode = open_mode(flags, args);
    va_end(args);
    return FAIL_OR(failure, __real_open(path, flags, mode));
}

/* It is closed all the same. */
WRAP(int, close, int fd)
{
    int failure = FAILURE(EIO, EINTR);
    int result = __real_close(fd);

    return FAIL_OR(failure, result);
}

/* Bytes. Eight are those of an eventfd, a timerfd: they are whole, and there is room. */

WRAP(ssize_t, read, int fd, void *buffer, size_t count)
{
    int failure = count == 8 ? FAILURE(EINTR, EAGAIN) : FAILURE(EIO, EINTR, SHORT, ECONNRESET);

    if (failure == SHORT && count > 1)
        return __real_read(fd, buffer, 1);
    return FAIL_OR(failure, __real_read(fd, buffer, count));
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t count)
{
    int failure = count == 8 ? FAILURE(EINTR) : FAILURE(ENOSPC, EINTR, SHORT, EIO);

    if (failure == SHORT && count > 1)
        return __real_write(fd, bytes, 1);
    return FAIL_OR(failure, __real_write(fd, bytes, count));
}

WRAP(ssize_t, pread, int fd, void *buffer, size_t count, off_t at)
{
    int failure = FAILURE(EIO, EINTR, SHORT);

    if (failure == SHORT && count > 1)
        return __real_pread(fd, buffer, 1, at);
    return FAIL_OR(failure, __real_pread(fd, buffer, count, at));
}

WRAP(ssize_t, recv, int fd, void *buffer, size_t count, int flags)
{
    int failure = FAILURE(ECONNRESET, EINTR, EAGAIN, SHORT);

    if (failure == SHORT && count > 1)
        return __real_recv(fd, buffer, 1, flags);
    return FAIL_OR(failure, __real_recv(fd, buffer, count, flags));
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
    int failure = FAILURE(ECONNRESET, EINTR, EAGAIN);

    return FAIL_OR(failure, __real_recvmsg(fd, message, flags));
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
    int failure = FAILURE(EPIPE, EINTR, EAGAIN, SHORT);

    if (failure == SHORT && message->msg_controllen == 0)
        return send_byte(fd, message, flags);
    return FAIL_OR(failure == SHORT ? 0 : failure, __real_sendmsg(fd, message, flags));
}

/* The rest. */

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t length)
{
    int failure = FAILURE(ECONNREFUSED, ENETUNREACH, EADDRNOTAVAIL, ETIMEDOUT);

    return FAIL_OR(failure, __real_connect(fd, address, length));
}

WRAP(int, bind, int fd, const struct sockaddr *address, socklen_t length)
{
    int failure = FAILURE(EADDRINUSE, EACCES, EADDRNOTAVAIL);

    return FAIL_OR(failure, __real_bind(fd, address, length));
}

WRAP(int, listen, int fd, int backlog)
{
    int failure = FAILURE(EADDRINUSE);

    return FAIL_OR(failure, __real_listen(fd, backlog));
}

WRAP(int, shutdown, int fd, int how)
{
    int failure = FAILURE(ENOTCONN);

    return FAIL_OR(failure, __real_shutdown(fd, how));
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t length)
{
    int failure = FAILURE(ENOPROTOOPT, EPERM, ENOBUFS);

    return FAIL_OR(failure, __real_setsockopt(fd, level, name, value, length));
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *length)
{
    int failure = FAILURE(ENOPROTOOPT);

    return FAIL_OR(failure, __real_getsockopt(fd, level, name, value, length));
}

WRAP(int, getsockname, int fd, struct sockaddr *address, socklen_t *length)
{
    int failure = FAILURE(ENOBUFS);

    return FAIL_OR(failure, __real_getsockname(fd, address, length));
}

WRAP(int, getpeername, int fd, struct sockaddr *address, socklen_t *length)
{
    int failure = FAILURE(ENOTCONN, ENOBUFS);

    return FAIL_OR(failure, __real_getpeername(fd, address, length));
}

WRAP(int, epoll_ctl, int epoll, int what, int fd, struct epoll_event *event)
{
    int failure = what == EPOLL_CTL_DEL ? 0 : FAILURE(ENOMEM, ENOSPC);

    return FAIL_OR(failure, __real_epoll_ctl(epoll, what, fd, event));
}

WRAP(int, ftruncate, int fd, off_t bytes)
{
    int failure = FAILURE(ENOSPC, EIO, EINTR);

    return FAIL_OR(failure, __real_ftruncate(fd, bytes));
}

WRAP(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    int failure = FAILURE(ENOMEM, EPERM);

    if (failure != 0) {
        errno = failure;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, protection, flags, fd, offset);
}

WRAP(int, fsync, int fd)
{
    int failure = FAILURE(EIO, ENOSPC);

    return FAIL_OR(failure, __real_fsync(fd));
}

WRAP(int, rename, const char *from, const char *to)
{
    int failure = FAILURE(ENOSPC, EACCES, EXDEV);

    return FAIL_OR(failure, __real_rename(from, to));
}

WRAP(int, waitid, idtype_t type, id_t id, siginfo_t *info, int options)
{
    int failure = FAILURE(EINTR);

    return FAIL_OR(failure, __real_waitid(type, id, info, options));
}

WRAP(int, posix_spawnp, pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
    int failure = FAILURE(EAGAIN, ENOMEM, ENOENT);

    return failure != 0 ? failure : __real_posix_spawnp(pid, file, actions, attributes, argv, envp);
}

WRAP(ssize_t, getrandom, void *buffer, size_t count, unsigned flags)
{
    int failure = FAILURE(EINTR);

    return FAIL_OR(failure, __real_getrandom(buffer, count, flags));
}
