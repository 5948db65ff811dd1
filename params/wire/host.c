/* The unix socket (unix(7)) over which a server's memory is given to clients of its host: one packet
 * with one descriptor. */
#include "params/wire/host.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "params/wire/range.h"

#define BACKLOG     1024
#define MEMORY_NAME "muster-params"
#define STAGE_NAME  "muster-params-stage"
#define RING_NAME   "muster-params-ring"

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* An abstract name: there is no file to leave behind, and it is free as soon as its process is dead. */
static socklen_t address_of(const char *name, const struct muster_incarnation *id,
                            struct sockaddr_un *ret_address)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    int length;

    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    length = snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1,
                      "%s/%s", name, muster_incarnation_format(id, text));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int socket_open(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static enum muster_rc name_listen(const char *name, const struct muster_incarnation *id,
                                  int *ret_socket)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, id, &address);
    int fd = socket_open();
    enum muster_rc rc;

    if (fd < 0)
        return muster_rc_from_errno(errno);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, BACKLOG) != 0) {
        rc = errno == EADDRINUSE ? MUSTER_ALREADY_EXISTS : muster_rc_from_errno(errno);
        close(fd);
        return rc;
    }
    *ret_socket = fd;
    return MUSTER_OK;
}

enum muster_rc muster_params_host_listen(const struct muster_incarnation *id, int *ret_socket)
{
    return name_listen(MEMORY_NAME, id, ret_socket);
}

enum muster_rc muster_params_host_ring_listen(const struct muster_incarnation *id, int *ret_socket)
{
    return name_listen(RING_NAME, id, ret_socket);
}

int muster_params_host_accept(int listening)
{
    return accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static enum muster_rc name_connect(const char *name, const struct muster_incarnation *id,
                                   int *ret_socket)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, id, &address);
    int fd = socket_open();

    if (fd < 0)
        return MUSTER_UNAVAILABLE;
    if (connect(fd, (struct sockaddr *)&address, size) != 0 ||
        !muster_params_host_is_own_user(fd)) {
        close(fd);
        return MUSTER_UNAVAILABLE;
    }
    *ret_socket = fd;
    return MUSTER_OK;
}

enum muster_rc muster_params_host_connect(const struct muster_incarnation *id, int *ret_socket)
{
    return name_connect(MEMORY_NAME, id, ret_socket);
}

enum muster_rc muster_params_host_ring_connect(const struct muster_incarnation *id, int *ret_socket)
{
    return name_connect(RING_NAME, id, ret_socket);
}

/* An abstract socket has no file mode, so the user is compared. */
bool muster_params_host_is_own_user(int socket)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static void descriptor_put(struct msghdr *header, union control *control, int fd)
{
    struct cmsghdr *at;

    memset(control, 0, sizeof(*control));
    at = CMSG_FIRSTHDR(header);
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = SCM_RIGHTS;
    at->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(at), &fd, sizeof(fd));
}

bool muster_params_host_send(int socket, int fd)
{
    char byte = 0;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    union control control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};

    descriptor_put(&header, &control, fd);
    return sendmsg(socket, &header, MSG_NOSIGNAL) == 1;
}

int muster_params_host_receive(int socket)
{
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    union control control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *at;
    int fd = -1;

    if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) < 0)
        return -1;
    at = CMSG_FIRSTHDR(&header);
    if (at != NULL && at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS &&
        at->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(at), sizeof(fd));
    return fd;
}

/* --- Memory of clients --- */

/* The kernel says with each packet who has sent it. */
union stage_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

static int packet_socket_open(void)
{
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

enum muster_rc muster_params_host_stage_open(const struct muster_incarnation *id, int *ret_socket)
{
    struct sockaddr_un address;
    socklen_t size = address_of(STAGE_NAME, id, &address);
    int fd = packet_socket_open(), on = 1;
    enum muster_rc rc;

    if (fd < 0)
        return muster_rc_from_errno(errno);
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)&address, size) != 0) {
        rc = errno == EADDRINUSE ? MUSTER_ALREADY_EXISTS : muster_rc_from_errno(errno);
        close(fd);
        return rc;
    }
    *ret_socket = fd;
    return MUSTER_OK;
}

enum muster_rc muster_params_host_stage_connect(const struct muster_incarnation *id,
                                                int *ret_socket)
{
    struct sockaddr_un address;
    socklen_t size = address_of(STAGE_NAME, id, &address);
    int fd = packet_socket_open();

    if (fd < 0)
        return MUSTER_UNAVAILABLE;
    if (connect(fd, (struct sockaddr *)&address, size) != 0) {
        close(fd);
        return MUSTER_UNAVAILABLE;
    }
    *ret_socket = fd;
    return MUSTER_OK;
}

bool muster_params_host_stage_send(int socket, const struct muster_params_stage_token *token,
                                   int fd)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)token->bytes,
                        .iov_len = sizeof(token->bytes)};
    union control control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};

    descriptor_put(&header, &control, fd);
    return sendmsg(socket, &header, MSG_NOSIGNAL) == (ssize_t)sizeof(token->bytes);
}

/* -1: the packet has none, or another user has sent it. */
static int packet_descriptor(struct msghdr *header)
{
    struct ucred peer = {.uid = (uid_t)-1};
    int fd = -1;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at != NULL; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level != SOL_SOCKET)
            continue;
        if (at->cmsg_type == SCM_RIGHTS && at->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(&fd, CMSG_DATA(at), sizeof(fd));
        else if (at->cmsg_type == SCM_CREDENTIALS && at->cmsg_len == CMSG_LEN(sizeof(peer)))
            memcpy(&peer, CMSG_DATA(at), sizeof(peer));
    }
    if (fd >= 0 && peer.uid != geteuid()) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int muster_params_host_stage_receive(int socket, struct muster_params_stage_token *ret_token)
{
    for (;;) {
        struct muster_params_stage_token token;
        struct iovec iov = {.iov_base = token.bytes, .iov_len = sizeof(token.bytes)};
        union stage_control control;
        struct msghdr header = {.msg_iov = &iov,
                                .msg_iovlen = 1,
                                .msg_control = control.bytes,
                                .msg_controllen = sizeof(control.bytes)};
        ssize_t bytes = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        int fd;

        if (bytes < 0)
            return -1;
        fd = packet_descriptor(&header);
        if (fd >= 0 && bytes == (ssize_t)sizeof(token.bytes)) {
            *ret_token = token;
            return fd;
        }
        if (fd >= 0)
            close(fd);
    }
}
