/* Shards whose copies may differ in their last changes, and get all of them before this server goes on. */
#ifndef MUSTER_PARAMS_SERVER_UNITE_H
#define MUSTER_PARAMS_SERVER_UNITE_H

#include "params/server/core/server_internal.h"

/** Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_unite_init(struct muster_params_server *server);
void muster_params_unite_fini(struct muster_params_server *server);

#endif
