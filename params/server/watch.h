/* Callers of Watch. */
#ifndef MUSTER_PARAMS_WATCH_H
#define MUSTER_PARAMS_WATCH_H

#include "params/server/server_internal.h"

void muster_params_watches_init(struct muster_params_server *server);
/** Watches end UNAVAILABLE. */
void muster_params_watches_close(struct muster_params_server *server);
/** The map, the clocks or the tables may have changed: callers are told in a later turn. */
static inline void muster_params_watches_note(struct muster_params_server *server)
{
    if (!muster_list_is_empty(&server->watches) && !server->is_closing)
        muster_task_post(&server->watch_tell, server->env->loop);
}

#endif
