/* Free TCP ports of 127.0.0.1. */
#include "run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int bind_free(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        close(fd);
        return -1;
    }
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* All are held until all are found, so no port comes twice. */
bool run_ports_find(uint16_t *ret_ports, size_t count)
{
    int *fds = calloc(count + 1, sizeof(fds[0]));
    size_t found = 0;

    if (fds == NULL)
        return false;
    while (found < count && (fds[found] = bind_free(&ret_ports[found])) >= 0)
        found++;
    for (size_t i = 0; i < found; i++)
        close(fds[i]);
    free(fds);
    return found == count;
}
