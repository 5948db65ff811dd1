/* Callers of Watch. */
#ifndef MUSTER_PARAMS_WATCH_H
#define MUSTER_PARAMS_WATCH_H

#include "params/server/core/server_internal.h"

void muster_params_watches_init(struct muster_params_server *server);
/** Watches end UNAVAILABLE. */
void muster_params_watches_close(struct muster_params_server *server);

#endif
