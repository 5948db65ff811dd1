/* Sockets, events, waiting. */
#include "faults_wrap.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

WRAP(int, socket, int domain, int type, int protocol)
{
    int failure = DRAW(socket, TORTURE_OF_SOCKET);

    return FAIL_OR(failure, NEXT(socket)(domain, type, protocol));
}

WRAP(int, socketpair, int domain, int type, int protocol, int fds[2])
{
    int failure = DRAW(socketpair, EMFILE, ENFILE);

    return FAIL_OR(failure, NEXT(socketpair)(domain, type, protocol, fds));
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int failure = DRAW(accept4, TORTURE_OF_ACCEPT4);

    return FAIL_OR(failure, NEXT(accept4)(fd, address, length, flags));
}

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t length)
{
    int failure = address->sa_family == AF_UNIX ? DRAW(connect, ECONNREFUSED)
                                                : DRAW(connect, TORTURE_OF_CONNECT);

    return FAIL_OR(failure, NEXT(connect)(fd, address, length));
}

WRAP(int, bind, int fd, const struct sockaddr *address, socklen_t length)
{
    int failure = address->sa_family == AF_UNIX ? DRAW(bind, EADDRINUSE, EACCES)
                                                : DRAW(bind, TORTURE_OF_BIND);

    return FAIL_OR(failure, NEXT(bind)(fd, address, length));
}

WRAP(int, listen, int fd, int backlog)
{
    int failure = DRAW(listen, TORTURE_OF_LISTEN);

    return FAIL_OR(failure, NEXT(listen)(fd, backlog));
}

WRAP(int, shutdown, int fd, int how)
{
    int failure = DRAW(shutdown, TORTURE_OF_SHUTDOWN);

    return FAIL_OR(failure, NEXT(shutdown)(fd, how));
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t length)
{
    int failure = DRAW(setsockopt, TORTURE_OF_SETSOCKOPT);

    return FAIL_OR(failure, NEXT(setsockopt)(fd, level, name, value, length));
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *length)
{
    int failure = DRAW(getsockopt, TORTURE_OF_GETSOCKOPT);

    return FAIL_OR(failure, NEXT(getsockopt)(fd, level, name, value, length));
}

WRAP(int, getsockname, int fd, struct sockaddr *address, socklen_t *length)
{
    int failure = DRAW(getsockname, TORTURE_OF_GETSOCKNAME);

    return FAIL_OR(failure, NEXT(getsockname)(fd, address, length));
}

WRAP(int, getpeername, int fd, struct sockaddr *address, socklen_t *length)
{
    int failure = DRAW(getpeername, TORTURE_OF_GETPEERNAME);

    return FAIL_OR(failure, NEXT(getpeername)(fd, address, length));
}

WRAP(int, getaddrinfo, const char *host, const char *service, const struct addrinfo *hints,
     struct addrinfo **ret_list)
{
    int failure = DRAW(getaddrinfo, EAI_MEMORY, EAI_AGAIN);

    return failure != 0 ? failure : NEXT(getaddrinfo)(host, service, hints, ret_list);
}

WRAP(int, getifaddrs, struct ifaddrs **ret_list)
{
    int failure = DRAW(getifaddrs, ENOBUFS, EMFILE);

    return FAIL_OR(failure, NEXT(getifaddrs)(ret_list));
}

WRAP(int, eventfd, unsigned count, int flags)
{
    int failure = DRAW(eventfd, TORTURE_OF_EVENTFD);

    return FAIL_OR(failure, NEXT(eventfd)(count, flags));
}

WRAP(int, timerfd_create, int clock, int flags)
{
    int failure = DRAW(timerfd_create, TORTURE_OF_TIMERFD_CREATE);

    return FAIL_OR(failure, NEXT(timerfd_create)(clock, flags));
}

WRAP(int, signalfd, int fd, const void *mask, int flags)
{
    int failure = DRAW(signalfd, EMFILE, ENOMEM);

    return FAIL_OR(failure, NEXT(signalfd)(fd, mask, flags));
}

WRAP(int, inotify_init1, int flags)
{
    int failure = DRAW(inotify_init1, EMFILE);

    return FAIL_OR(failure, NEXT(inotify_init1)(flags));
}

WRAP(int, inotify_add_watch, int fd, const char *path, uint32_t mask)
{
    int failure = DRAW(inotify_add_watch, ENOSPC, ENOMEM);

    return FAIL_OR(failure, NEXT(inotify_add_watch)(fd, path, mask));
}

WRAP(int, epoll_create1, int flags)
{
    int failure = DRAW(epoll_create1, TORTURE_OF_EPOLL_CREATE1);

    return FAIL_OR(failure, NEXT(epoll_create1)(flags));
}

WRAP(int, epoll_ctl, int epoll, int what, int fd, struct epoll_event *event)
{
    int failure = what == EPOLL_CTL_ADD ? DRAW(epoll_ctl, TORTURE_OF_EPOLL_CTL) : 0;

    return FAIL_OR(failure, NEXT(epoll_ctl)(epoll, what, fd, event));
}

WRAP(int, epoll_wait, int epoll, struct epoll_event *events, int count, int timeout)
{
    int failure = timeout != 0 ? DRAW(epoll_wait, EINTR) : 0;

    return FAIL_OR(failure, NEXT(epoll_wait)(epoll, events, count, timeout));
}

WRAP(int, poll, struct pollfd *fds, nfds_t count, int timeout)
{
    int failure = timeout != 0 ? DRAW(poll, EINTR, ENOMEM) : DRAW(poll, ENOMEM);

    return FAIL_OR(failure, NEXT(poll)(fds, count, timeout));
}

WRAP(int, dup, int fd)
{
    int failure = DRAW(dup, TORTURE_OF_DUP);

    return FAIL_OR(failure, NEXT(dup)(fd));
}

WRAP(int, pipe2, int fds[2], int flags)
{
    int failure = DRAW(pipe2, TORTURE_OF_PIPE2);

    return FAIL_OR(failure, NEXT(pipe2)(fds, flags));
}

WRAP(int, pipe, int fds[2])
{
    int failure = DRAW(pipe, TORTURE_OF_PIPE2);

    return FAIL_OR(failure, NEXT(pipe)(fds));
}

WRAP(ssize_t, getrandom, void *buffer, size_t count, unsigned flags)
{
    int failure = DRAW(getrandom, TORTURE_OF_GETRANDOM);

    return FAIL_OR(failure, NEXT(getrandom)(buffer, count, flags));
}
