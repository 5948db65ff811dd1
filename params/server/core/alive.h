/* Links that are half open. */
#ifndef MUSTER_PARAMS_SERVER_ALIVE_H
#define MUSTER_PARAMS_SERVER_ALIVE_H

#include "params/server/core/server_internal.h"

/** Links on which something is awaited are checked soon. */
void muster_params_alive_watch(struct muster_params_server *server, bool is_awaited);
/** ALIVE or COPY_ALIVE over the link. False: no memory, or the link is down. */
MUSTER_MUST_CHECK bool muster_params_alive_send(struct muster_peer_link *link, uint8_t type,
                                                uint16_t flags);

#endif
