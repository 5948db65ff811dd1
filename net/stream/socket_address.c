/* Addresses in the kernel's form, and sockets with their options. */
#include "net/stream/net_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.14 */
#endif
/* Bits of SO_BUF_LOCK: the size was set, which ends the kernel's own sizing. */
#define BUFFER_LOCK_SEND    1
#define BUFFER_LOCK_RECEIVE 2

static socklen_t unix_sockaddr(const struct muster_address *address, struct sockaddr_un *ret_un)
{
    size_t length = strnlen(address->path, sizeof(address->path) - 1);

    ret_un->sun_family = AF_UNIX;
    memcpy(ret_un->sun_path, address->path, length);
    if (address->path[0] == '@') { /* unix(7): abstract names begin with NUL and end by length */
        ret_un->sun_path[0] = '\0';
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    }
    ret_un->sun_path[length] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

socklen_t muster_sockaddr_from(const struct muster_address *address,
                               union muster_sockaddr *ret_sockaddr)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&ret_sockaddr->storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&ret_sockaddr->storage;

    memset(ret_sockaddr, 0, sizeof(*ret_sockaddr));
    switch (address->family) {
    case MUSTER_ADDRESS_IPV4:
        in->sin_family = AF_INET;
        in->sin_port = htons(address->port);
        memcpy(&in->sin_addr, address->ip, 4);
        return sizeof(*in);
    case MUSTER_ADDRESS_IPV6:
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(address->port);
        in6->sin6_scope_id = address->scope_id;
        memcpy(&in6->sin6_addr, address->ip, 16);
        return sizeof(*in6);
    case MUSTER_ADDRESS_UNIX:
        return unix_sockaddr(address, &ret_sockaddr->unix_);
    case MUSTER_ADDRESS_NONE:
    default:
        return 0;
    }
}

static void address_from_unix(const struct sockaddr_un *un, socklen_t length,
                              struct muster_address *ret_address)
{
    size_t offset = offsetof(struct sockaddr_un, sun_path);
    size_t bytes = (size_t)length > offset ? (size_t)length - offset : 0;

    ret_address->family = MUSTER_ADDRESS_UNIX;
    if (bytes == 0) /* unnamed: the client's end of a connection */
        return;
    if (bytes >= sizeof(ret_address->path))
        bytes = sizeof(ret_address->path) - 1;
    memcpy(ret_address->path, un->sun_path, bytes);
    if (un->sun_path[0] == '\0')
        ret_address->path[0] = '@';
}

/* A listener on [::] gives IPv4 peers as ::ffff:1.2.3.4 (RFC 4291 2.5.5.2); users and comparisons
 * want the address that the peer has. */
static void address_from_in6(const struct sockaddr_in6 *in6, struct muster_address *ret_address)
{
    ret_address->port = ntohs(in6->sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        ret_address->family = MUSTER_ADDRESS_IPV4;
        memcpy(ret_address->ip, (const uint8_t *)&in6->sin6_addr + 12, 4);
        return;
    }
    ret_address->family = MUSTER_ADDRESS_IPV6;
    ret_address->scope_id = in6->sin6_scope_id;
    memcpy(ret_address->ip, &in6->sin6_addr, 16);
}

struct muster_address muster_sockaddr_to_address(const union muster_sockaddr *sockaddr,
                                                 socklen_t length)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&sockaddr->storage;
    struct muster_address address;

    memset(&address, 0, sizeof(address));
    switch (sockaddr->any.sa_family) {
    case AF_INET:
        address.family = MUSTER_ADDRESS_IPV4;
        address.port = ntohs(in->sin_port);
        memcpy(address.ip, &in->sin_addr, 4);
        break;
    case AF_INET6:
        address_from_in6((const struct sockaddr_in6 *)(const void *)&sockaddr->storage, &address);
        break;
    case AF_UNIX:
        address_from_unix(&sockaddr->unix_, length, &address);
        break;
    default:
        break;
    }
    return address;
}

struct muster_address muster_socket_local(int fd)
{
    union muster_sockaddr sockaddr = {.any.sa_family = AF_UNSPEC};
    socklen_t length = sizeof(sockaddr);

    (void)getsockname(fd, &sockaddr.any, &length);
    return muster_sockaddr_to_address(&sockaddr, length);
}

struct muster_address muster_socket_peer(int fd)
{
    union muster_sockaddr sockaddr = {.any.sa_family = AF_UNSPEC};
    socklen_t length = sizeof(sockaddr);

    (void)getpeername(fd, &sockaddr.any, &length);
    return muster_sockaddr_to_address(&sockaddr, length);
}

/* A size above the kernel's limit would pin the buffer at that limit, often below what the kernel's
 * own sizing reaches: then the size is unlocked again and left to the kernel. */
static void set_buffer(int fd, int option, int lock, uint32_t bytes)
{
    int wanted = bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)bytes;
    int granted = 0;
    int locks = 0;
    socklen_t length = sizeof(int);

    if (bytes == 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof(wanted));
    (void)getsockopt(fd, SOL_SOCKET, option, &granted, &length);
    if (granted / 2 >= wanted) /* socket(7): the kernel doubles what was asked for */
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locks, &length) != 0)
        return;
    locks &= ~lock;
    (void)setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof(locks));
}

void muster_socket_set_user_timeout(int fd, enum muster_address_family family, uint32_t timeout_ms)
{
    if (family != MUSTER_ADDRESS_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

/* The reset of a peer that dies while the network is cut is lost, and is not sent again (RFC 9293 3.5): a side
 * that only waits would wait for ever. */
void muster_socket_set_options(int fd, enum muster_address_family family,
                               const struct muster_stream_options *options)
{
    int one = 1, idle_s;

    if (family == MUSTER_ADDRESS_UNIX)
        return;
    if (!options->is_bulk)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (options->user_timeout_ms == 0)
        return;
    muster_socket_set_user_timeout(fd, family, options->user_timeout_ms);
    idle_s = options->user_timeout_ms / 2000 > 0 ? (int)(options->user_timeout_ms / 2000) : 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
}

/* Sizes of buffers are set before connect and listen: TCP announces its window scale in the first
 * packet (tcp(7)). */
int muster_socket_new(enum muster_address_family family,
                      const struct muster_stream_options *options)
{
    int domain = family == MUSTER_ADDRESS_UNIX   ? AF_UNIX
                 : family == MUSTER_ADDRESS_IPV6 ? AF_INET6
                                                 : AF_INET;
    int fd = socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    set_buffer(fd, SO_SNDBUF, BUFFER_LOCK_SEND, options->send_buffer_bytes);
    set_buffer(fd, SO_RCVBUF, BUFFER_LOCK_RECEIVE, options->receive_buffer_bytes);
    muster_socket_set_options(fd, family, options);
    return fd;
}
