/* The door of links: clients' streams and messages. */
#ifndef MUSTER_PARAMS_SERVER_DOOR_H
#define MUSTER_PARAMS_SERVER_DOOR_H

#include "params/server/core/server_internal.h"

/** A stranger's stream at the port. Takes stream. */
void muster_params_door_accept(struct muster_params_server *server, struct muster_stream *stream);
/** The same of a client in this process, which may do everything: who calls it is judged before. Takes stream. */
void muster_params_door_accept_own(struct muster_params_server *server,
                                   struct muster_stream *stream);
void muster_params_door_close(struct muster_params_server *server);
/** Check the clients' links. True: some wait, and are to be checked again soon. */
bool muster_params_door_check(struct muster_params_server *server);
/** The map has changed: clients are told, and messages that have waited for it go on. */
void muster_params_door_map(struct muster_params_server *server);
void muster_params_door_init(struct muster_params_server *server);
/** Acknowledgements of the turn leave; clients that cannot be answered are closed. */
void muster_params_door_flush(struct muster_params_server *server);

#endif
