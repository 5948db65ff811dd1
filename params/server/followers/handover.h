/* Shards that another copy is to lead. */
#ifndef MUSTER_PARAMS_SERVER_HANDOVER_H
#define MUSTER_PARAMS_SERVER_HANDOVER_H

#include "params/server/core/server_internal.h"

/** The server has a registry. */
void muster_params_handover_open(struct muster_params_server *server);
void muster_params_handover_close(struct muster_params_server *server);
/** The map has changed: shards that were being handed over have been, or begin anew. */
void muster_params_handover_map(struct muster_params_server *server);
/** Nothing is pushed to the shards that are handed over, and their next primaries have all. False: there are
 * none, too. */
bool muster_params_handover_is_ready(const struct muster_params_server *server);
/** For muster_params_decide. */
bool muster_params_handover_is_handed(const void *server, uint32_t shard, uint32_t place);

#endif
