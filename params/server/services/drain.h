/* A client asks the server to give its shards away. */
#ifndef MUSTER_PARAMS_SERVER_DRAIN_H
#define MUSTER_PARAMS_SERVER_DRAIN_H

#include "params/server/core/server_internal.h"

void muster_params_drain_init(struct muster_params_server *server);

#endif
