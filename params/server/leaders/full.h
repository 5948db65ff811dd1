/* A server without memory for what it is to copy. */
#ifndef MUSTER_PARAMS_SERVER_FULL_H
#define MUSTER_PARAMS_SERVER_FULL_H

#include "params/server/core/server_internal.h"

void muster_params_full_init(struct muster_params_server *server);
/** There is no memory for rows that this server was to copy: it learns nothing for a while. */
void muster_params_full_begin(struct muster_params_server *server);

#endif
