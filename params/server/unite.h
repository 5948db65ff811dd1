/* Shards whose copies may differ in their last changes, and get all of them before this server goes on. */
#ifndef MUSTER_PARAMS_SERVER_UNITE_H
#define MUSTER_PARAMS_SERVER_UNITE_H

#include "params/server/cluster.h"

/** Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_unite_init(struct muster_params_server *server);
void muster_params_unite_fini(struct muster_params_server *server);
/** A message of a copy's tail that is to be adopted, with the shards of which it was asked. */
struct muster_params_told {
    struct muster_list node;
    struct muster_frame_header header;
    void *payload;
    uint32_t follower; /* its bit */
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
};

/** Whether rows may not change, nor be shown. */
static inline bool muster_params_unite_waits(const struct muster_params_server *server)
{
    return server->unite.open_count > 0 || server->unite.stale_count > 0;
}

/** A copy has answered, or need not answer any more: shards may be united in the next turn. */
static inline void muster_params_unite_look(struct muster_params_server *server)
{
    if (server->map->copies_wanted > 2)
        muster_task_post(&server->unite.task, server->env->loop);
}

/** A copy of the shard has been asked. */
static inline void muster_params_unite_begin(struct muster_params_server *server, uint32_t shard)
{
    if (server->unite.is_open[shard])
        return;
    server->unite.is_open[shard] = true;
    server->unite.open_count++;
}

#endif
