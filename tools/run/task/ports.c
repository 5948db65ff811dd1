/* Free TCP ports of 127.0.0.1. */
#include "run/task/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Ports are drawn between PORT_FIRST, which is above most well-known services, and the first
 * ephemeral port. With less room than ROOM_MIN below that the kernel chooses. */
#define PORT_FIRST 10000u
#define ROOM_MIN   5000u
#define TRIES      64u

/* -1: errno says why. Port 0 lets the kernel choose. */
static int bind_port(uint16_t port, uint16_t *ret_port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        int sys = errno;

        close(fd);
        errno = sys;
        return -1;
    }
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* The first port that the kernel gives to whoever asks for any; below it nobody takes ours by
 * chance. */
static unsigned first_ephemeral(void)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    unsigned first = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%u", &first) != 1 || first > UINT16_MAX)
        first = 0;
    fclose(file);
    return first;
}

static int bind_free(struct muster_rng *rng, unsigned end, uint16_t *ret_port)
{
    int fd = -1;

    for (unsigned i = 0; end > PORT_FIRST + ROOM_MIN && fd < 0 && i < TRIES; i++)
        fd = bind_port((uint16_t)(PORT_FIRST + muster_rng_below(rng, end - PORT_FIRST)), ret_port);
    return fd >= 0 ? fd : bind_port(0, ret_port);
}

/* All are held until all are found, so no port comes twice. Another process may take one between
 * here and its use: that cannot be excluded without passing the socket on. */
bool run_ports_find(struct muster_rng *rng, uint16_t *ret_ports, size_t count)
{
    int *fds = calloc(count + 1, sizeof(fds[0]));
    unsigned end = first_ephemeral();
    size_t found = 0;
    int sys;

    if (fds == NULL)
        return false;
    while (found < count && (fds[found] = bind_free(rng, end, &ret_ports[found])) >= 0)
        found++;
    sys = errno;
    for (size_t i = 0; i < found; i++)
        close(fds[i]);
    free(fds);
    errno = sys;
    return found == count;
}
