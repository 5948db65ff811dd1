/* Pacing of connections within a host. BBR paces what it sends by timers, lest a burst fill queues of the network.
 * On the loopback there are none, and the timers cost more than the sending: 1.4 GB/s with BBR where Reno carries
 * 4.1 (measured, Linux 6.18). So Reno, which does not pace and is part of every kernel, takes its place there. */
#include "net/stream/net_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#define PACED   "bbr"
#define UNPACED "reno"

/* Linux's TCP_CA_NAME_MAX, which no header of libc has. */
#define NAME_BYTES 16

/* Once BBR has begun, the kernel paces for as long as the connection is there: so it is replaced before. */
bool muster_socket_pacing_stop(int fd)
{
    char name[NAME_BYTES] = "";
    socklen_t length = sizeof(name);

    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 ||
        strncmp(name, PACED, sizeof(name)) != 0)
        return false;
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, UNPACED, strlen(UNPACED)) == 0;
}

/* A host sends to an address of its own from that address. */
static bool is_within_host(int fd)
{
    struct muster_address local = muster_socket_local(fd), peer = muster_socket_peer(fd);

    local.port = peer.port = 0;
    return muster_address_is_loopback(&peer) || muster_address_is_equal(&local, &peer);
}

void muster_socket_pacing_decide(int fd)
{
    if (!is_within_host(fd))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, PACED, strlen(PACED));
}
