/* The addresses of this host: what the kernel would send from, and what its interfaces have. */
#include "net/stream/net_internal.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#ifndef IPV6_PREFER_SRC_PUBLIC
#define IPV6_PREFER_SRC_PUBLIC                                                                     \
    0x0002 /* linux/in6.h, which cannot be included beside netinet/in.h */
#endif
#define DISCARD_PORT 9 /* nothing is sent there: connect(2) of a datagram socket picks a route */

static int datagram_socket_new(const struct muster_address *address)
{
    bool is_ipv6 = address->family == MUSTER_ADDRESS_IPV6;
    int wanted = IPV6_PREFER_SRC_PUBLIC; /* RFC 5014: temporary addresses expire under a long job */
    int fd = socket(is_ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && is_ipv6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_ADDR_PREFERENCES, &wanted, sizeof(wanted));
    return fd;
}

enum muster_rc muster_host_socket_find_source(const struct muster_address *peer,
                                              struct muster_address *ret_source,
                                              struct muster_error *ret_error)
{
    struct muster_address target = *peer;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    union muster_sockaddr sockaddr;
    socklen_t length;
    int fd, sys = 0;

    if (peer->family != MUSTER_ADDRESS_IPV4 && peer->family != MUSTER_ADDRESS_IPV6)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be an IP address, to find the own address towards it",
                                muster_address_format(peer, text));
    target.port = DISCARD_PORT;
    length = muster_sockaddr_from(&target, &sockaddr);
    fd = datagram_socket_new(&target);
    if (fd < 0 || connect(fd, &sockaddr.any, length) != 0)
        sys = errno;
    else
        *ret_source = muster_socket_local(fd);
    if (fd >= 0)
        close(fd);
    if (sys != 0)
        return muster_error_set_sys(ret_error, MUSTER_UNAVAILABLE, sys, "find a route to %s",
                                    muster_address_format(peer, text));
    ret_source->port = 0;
    return MUSTER_OK;
}

/* 0 comes first: IPv4, then global IPv6, then link-local ones, which others reach only with a zone.
 * -1: not wanted. */
static int rank_of(const struct muster_address *address)
{
    if (address->family == MUSTER_ADDRESS_IPV4)
        return 0;
    if (address->family != MUSTER_ADDRESS_IPV6)
        return -1;
    return muster_address_is_link_local(address) ? 2 : 1;
}

static struct muster_address address_of(const struct ifaddrs *entry)
{
    struct muster_address none = {.family = MUSTER_ADDRESS_NONE};
    union muster_sockaddr sockaddr;
    size_t bytes = 0;

    if (entry->ifa_addr == NULL)
        return none;
    if (entry->ifa_addr->sa_family == AF_INET)
        bytes = sizeof(struct sockaddr_in);
    else if (entry->ifa_addr->sa_family == AF_INET6)
        bytes = sizeof(struct sockaddr_in6);
    else
        return none;
    memset(&sockaddr, 0, sizeof(sockaddr));
    memcpy(&sockaddr.storage, entry->ifa_addr, bytes);
    return muster_sockaddr_to_address(&sockaddr, (socklen_t)bytes);
}

enum muster_rc muster_host_socket_find_interface(
    const char *name, struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX],
    size_t *ret_count, struct muster_error *ret_error)
{
    struct ifaddrs *all = NULL;
    bool is_there = false;
    size_t count = 0;

    if (getifaddrs(&all) != 0)
        return muster_error_set_sys(ret_error, MUSTER_UNAVAILABLE, errno,
                                    "list the network interfaces");
    /* One round for each rank sorts without a copy; a host has few addresses. */
    for (int rank = 0; rank <= 2; rank++)
        for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
            struct muster_address address = address_of(entry);

            if (strcmp(entry->ifa_name, name) != 0)
                continue;
            is_there = true;
            if (rank_of(&address) == rank && count < MUSTER_INTERFACE_ADDRESSES_MAX)
                ret_addresses[count++] = address;
        }
    freeifaddrs(all);
    *ret_count = count;
    if (count > 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                            is_there ? "the network interface %s has no IP address"
                                     : "there is no network interface %s on this host",
                            name);
}

/* bind(2) knows: it accepts the addresses of all interfaces, and those that appear later are found.
 */
bool muster_host_socket_has_address(const struct muster_address *address)
{
    struct muster_address any_port = *address;
    union muster_sockaddr sockaddr;
    socklen_t length;
    bool is_bound;
    int fd;

    if (address->family != MUSTER_ADDRESS_IPV4 && address->family != MUSTER_ADDRESS_IPV6)
        return false;
    any_port.port = 0;
    length = muster_sockaddr_from(&any_port, &sockaddr);
    fd = datagram_socket_new(address);
    is_bound = fd >= 0 && bind(fd, &sockaddr.any, length) == 0;
    if (fd >= 0)
        close(fd);
    return is_bound;
}
