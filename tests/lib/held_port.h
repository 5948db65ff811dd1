/* Ports that stay this process's own while no server listens at them, so that a server can come back
 * at its address: between stop and start the kernel gives a port that nobody holds to whoever asks. */
#ifndef MUSTER_HELD_PORT_H
#define MUSTER_HELD_PORT_H

#include <muster/address.h>

#define HELD_PORTS_MAX 16

struct held_ports {
    int fds[HELD_PORTS_MAX];
    size_t count;
};

/** A port of 127.0.0.1 at which servers of this process may listen, one after the other. */
void held_ports_take(struct held_ports *ports, struct muster_address *ret_address);
void held_ports_release(struct held_ports *ports);

#endif
