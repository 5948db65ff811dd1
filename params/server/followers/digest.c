/* Digests of positions: those of all shards are asked together when a primary changes. */
#include "params/server/followers/digest.h"

uint64_t muster_params_server_digest(struct muster_params_server *server, uint32_t shard)
{
    uint32_t count = server->region->head->shard_count;

    if (server->digests == NULL)
        server->digests = muster_mem_alloc(server->env->mem, count * sizeof(*server->digests));
    if (server->digests == NULL)
        return muster_params_positions_digest(server->region, shard);
    if (!server->has_digests)
        muster_params_positions_digests(server->region, server->digests);
    server->has_digests = true;
    return server->digests[shard];
}
