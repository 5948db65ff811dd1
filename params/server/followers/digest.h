/* Digests of the positions of shards, by which copies are compared. */
#ifndef MUSTER_PARAMS_SERVER_DIGEST_H
#define MUSTER_PARAMS_SERVER_DIGEST_H

#include "params/server/core/server_internal.h"

/** muster_params_positions_digest. The digests of all shards are kept until a position changes, or
 * a row is removed: whatever does so ends server->has_digests. */
uint64_t muster_params_server_digest(struct muster_params_server *server, uint32_t shard);

#endif
