/* A bound socket that does not listen: with SO_REUSEADDR at both, another may listen at its port. */
#include "held_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

void held_ports_take(struct held_ports *ports, struct muster_address *ret_address)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(name);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && ports->count < HELD_PORTS_MAX);
    ports->fds[ports->count++] = fd;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &length), 0);
    assert_int_equal(muster_address_parse("127.0.0.1:0", ret_address, NULL), MUSTER_OK);
    ret_address->port = ntohs(name.sin_port);
}

void held_ports_release(struct held_ports *ports)
{
    while (ports->count > 0)
        close(ports->fds[--ports->count]);
}
