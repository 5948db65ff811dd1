/* Reading and writing: what can fail depends on what the descriptor is of. */
#include "faults_wrap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHORT TORTURE_CALL_SHORT

enum fault_end {
    END_FILE,
    END_PIPE,
    END_STREAM,
    END_PACKETS,
    END_COUNTER, /* eight bytes of an eventfd or a timerfd: they are whole, and there is room */
    END_OTHER,   /* terminals, devices */
    END_LOG,     /* standard error: it is asked for the reason afterwards */
    END_KINDS
};

struct failure_list {
    int failures[4];
    size_t count;
};

static const struct failure_list of_reads[END_KINDS] = {
    [END_FILE] = {{EIO, SHORT}, 2},        [END_PIPE] = {{EINTR, EAGAIN, SHORT}, 3},
    [END_STREAM] = {{TORTURE_OF_RECV}, 4}, [END_PACKETS] = {{EINTR, EAGAIN}, 2},
    [END_COUNTER] = {{EINTR, EAGAIN}, 2},  [END_OTHER] = {{EINTR, EAGAIN}, 2},
};
static const struct failure_list of_writes[END_KINDS] = {
    [END_FILE] = {{ENOSPC, EIO, SHORT}, 3},
    [END_PIPE] = {{EINTR, EAGAIN, SHORT}, 3},
    [END_STREAM] = {{TORTURE_OF_SENDMSG}, 4},
    [END_PACKETS] = {{EINTR, EAGAIN, ENOBUFS}, 3},
    [END_COUNTER] = {{EINTR}, 1},
    [END_OTHER] = {{EINTR, EAGAIN}, 2},
    [END_LOG] = {{EINTR}, 1},
};

/* One call that reads or writes. */
struct transfer {
    const char *name;
    const void *caller;
    size_t count;
    int fd;
    int flags; /* of recv and send */
    enum fault_end end;
};

#define TRANSFER(call, flags_)                                                                     \
    {                                                                                              \
        .name = #call, .caller = __builtin_return_address(0), .fd = fd, .count = count,            \
        .flags = (flags_)                                                                          \
    }

static enum fault_end end_of_socket(int fd)
{
    int type = 0;
    socklen_t length = sizeof(type);

    if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0)
        return END_OTHER;
    return type == SOCK_STREAM ? END_STREAM : END_PACKETS;
}

static enum fault_end end_of(int fd, size_t count)
{
    struct stat status;

    if (syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) != 0 || S_ISCHR(status.st_mode))
        return END_OTHER;
    if (S_ISREG(status.st_mode))
        return END_FILE;
    if (S_ISFIFO(status.st_mode))
        return END_PIPE;
    if (S_ISSOCK(status.st_mode))
        return end_of_socket(fd);
    return count == sizeof(uint64_t) ? END_COUNTER : END_OTHER;
}

/* A call that may wait does not say that it would have to. */
static int settle_again(const struct transfer *call, int failure)
{
    if (failure != EAGAIN || (call->flags & MSG_DONTWAIT) != 0)
        return failure;
    return (syscall(SYS_fcntl, call->fd, F_GETFL) & O_NONBLOCK) != 0 ? EAGAIN : EINTR;
}

static int draw_of(struct transfer *call, const struct failure_list *lists)
{
    int errno_before = errno, failure;
    const struct failure_list *list = &lists[END_LOG];

    call->end = end_of(call->fd, call->count);
    if (call->fd != STDERR_FILENO)
        list = &lists[call->end];
    failure = faults_draw(FAULT_CALL, call->name, call->caller, list->failures, list->count);
    failure = settle_again(call, failure);
    errno = errno_before;
    return failure;
}

static int draw_read(struct transfer *call)
{
    return (call->flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0 ? 0 : draw_of(call, of_reads);
}

/* A pipe takes up to PIPE_BUF bytes as one. */
static size_t part_of(const struct transfer *call, bool is_write)
{
    size_t part = is_write && call->end == END_PIPE ? PIPE_BUF : 1;

    return call->count < part ? call->count : part;
}

/* How many bytes are asked for, of a call that fails with nothing or with SHORT. */
static size_t room_of(const struct transfer *call, int failure, bool is_write)
{
    return failure == SHORT ? part_of(call, is_write) : call->count;
}

#define DONE_OR(failure, call) ((failure) > 0 ? fail_with(failure) : (call))

WRAP(ssize_t, read, int fd, void *buffer, size_t count)
{
    struct transfer call = TRANSFER(read, 0);
    int failure = draw_read(&call);

    return DONE_OR(failure, NEXT(read)(fd, buffer, room_of(&call, failure, false)));
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t count)
{
    struct transfer call = TRANSFER(write, 0);
    int failure = draw_of(&call, of_writes);

    return DONE_OR(failure, NEXT(write)(fd, bytes, room_of(&call, failure, true)));
}

WRAP(ssize_t, pread, int fd, void *buffer, size_t count, off_t at)
{
    struct transfer call = TRANSFER(pread, 0);
    int failure = draw_read(&call);

    return DONE_OR(failure, NEXT(pread)(fd, buffer, room_of(&call, failure, false), at));
}
WRAP_64(pread);

WRAP(ssize_t, pwrite, int fd, const void *bytes, size_t count, off_t at)
{
    struct transfer call = TRANSFER(pwrite, 0);
    int failure = draw_of(&call, of_writes);

    return DONE_OR(failure, NEXT(pwrite)(fd, bytes, room_of(&call, failure, true), at));
}
WRAP_64(pwrite);

WRAP(ssize_t, recv, int fd, void *buffer, size_t count, int flags)
{
    struct transfer call = TRANSFER(recv, flags);
    int failure = draw_read(&call);

    return DONE_OR(failure, NEXT(recv)(fd, buffer, room_of(&call, failure, false), flags));
}

WRAP(ssize_t, recvfrom, int fd, void *buffer, size_t count, int flags, struct sockaddr *from,
     socklen_t *length)
{
    struct transfer call = TRANSFER(recvfrom, flags);
    int failure = draw_read(&call);

    return DONE_OR(failure,
                   NEXT(recvfrom)(fd, buffer, room_of(&call, failure, false), flags, from, length));
}

WRAP(ssize_t, send, int fd, const void *bytes, size_t count, int flags)
{
    struct transfer call = TRANSFER(send, flags);
    int failure = draw_of(&call, of_writes);

    return DONE_OR(failure, NEXT(send)(fd, bytes, room_of(&call, failure, true), flags));
}

WRAP(ssize_t, sendto, int fd, const void *bytes, size_t count, int flags, const struct sockaddr *to,
     socklen_t length)
{
    struct transfer call = TRANSFER(sendto, flags);
    int failure = draw_of(&call, of_writes);

    return DONE_OR(failure,
                   NEXT(sendto)(fd, bytes, room_of(&call, failure, true), flags, to, length));
}

static size_t bytes_in(const struct iovec *parts, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

static struct iovec first_of(const struct iovec *parts, size_t count)
{
    struct iovec first = {.iov_base = NULL};

    for (size_t i = 0; i < count && first.iov_len == 0; i++)
        first = parts[i];
    return first;
}

WRAP(ssize_t, readv, int fd, const struct iovec *parts, int part_count)
{
    size_t count = bytes_in(parts, (size_t)part_count);
    struct iovec first = first_of(parts, (size_t)part_count);
    struct transfer call = TRANSFER(readv, 0);
    int failure = draw_read(&call);

    if (failure == SHORT)
        return NEXT(readv)(fd, &first, 1);
    return DONE_OR(failure, NEXT(readv)(fd, parts, part_count));
}

WRAP(ssize_t, writev, int fd, const struct iovec *parts, int part_count)
{
    size_t count = bytes_in(parts, (size_t)part_count);
    struct iovec first = first_of(parts, (size_t)part_count);
    struct transfer call = TRANSFER(writev, 0);
    int failure = draw_of(&call, of_writes);

    if (failure == SHORT && call.end != END_PIPE)
        return NEXT(writev)(fd, &first, 1);
    return DONE_OR(failure, NEXT(writev)(fd, parts, part_count));
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
    size_t count = bytes_in(message->msg_iov, message->msg_iovlen);
    struct transfer call = TRANSFER(recvmsg, flags);
    int failure = draw_read(&call);

    return DONE_OR(failure == SHORT ? EINTR : failure, NEXT(recvmsg)(fd, message, flags));
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    size_t count = bytes_in(message->msg_iov, message->msg_iovlen);
    struct iovec first = first_of(message->msg_iov, message->msg_iovlen);
    struct msghdr part = *message;
    struct transfer call = TRANSFER(sendmsg, flags);
    int failure = draw_of(&call, of_writes);

    if (failure == SHORT && message->msg_controllen == 0) {
        first.iov_len = first.iov_len > 1 ? 1 : first.iov_len;
        part.msg_iov = &first;
        part.msg_iovlen = 1;
        return NEXT(sendmsg)(fd, &part, flags);
    }
    return DONE_OR(failure, NEXT(sendmsg)(fd, message, flags));
}
