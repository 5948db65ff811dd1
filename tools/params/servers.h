/* Several seats by one command: `muster params serve --servers N`. */
#ifndef MUSTER_TOOLS_SERVERS_H
#define MUSTER_TOOLS_SERVERS_H

#include "params/seat.h"

#define SERVERS_MAX           64u
#define SERVERS_ADDRESS_BYTES 256u

/** The address of seat i: text with i added to its port, where that is not 0. False: text has no port, or the
 * sum is not a port. */
bool servers_address(const char *text, uint32_t i, char address[SERVERS_ADDRESS_BYTES]);

/** Serve in settings->server_count seats until SIGTERM or SIGINT, or until all have ended. One ready line tells
 * the addresses of all. Returns the exit code: 0 when all have drained. */
int servers_run(const struct params_seat_settings *settings);

#endif
