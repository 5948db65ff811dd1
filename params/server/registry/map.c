/* The map as a server follows it. */
#include "params/server/registry/map.h"

#include "params/server/followers/follower.h"
#include "params/server/followers/handover.h"
#include "params/server/followers/held.h"
#include "params/server/leaders/leader.h"
#include "params/server/links/door.h"
#include "params/server/state/cut.h"
#include "params/server/state/restore.h"
#include "params/server/state/round.h"

static void map_log(const struct muster_params_server *server)
{
    const struct muster_params_map *map = server->map;
    uint32_t primaries = 0, copies = 0, short_shards = 0;

    for (uint32_t i = 0; i < map->shard_count; i++) {
        primaries += muster_params_server_leads(server, i, map->epoch);
        copies += muster_params_map_is_copy(map, i, server->place);
        short_shards += map->shards[i].copy_count < map->copies_wanted;
    }
    MUSTER_LOG(server->env, INFO, "params_map", "map", map->epoch, "servers", map->server_count,
               "primaries", primaries, "copies", copies, "short_shards", short_shards);
}

/* The order matters. Followers first: they decide which held answers may leave. Then messages that waited
 * for the map. Clients hear of it last, so that whatever they send by it finds a server that knows it. */
void muster_params_server_set_map(struct muster_params_server *server,
                                  struct muster_params_map *map)
{
    struct muster_params_map *before = server->map;

    if (server->is_closing || (before != NULL && map->epoch <= before->epoch)) {
        muster_mem_free(server->env->mem, map);
        return;
    }
    if (before == NULL && muster_params_restore_delays(server, map))
        return;
    MUSTER_ASSERT(map->shard_count == server->region->head->shard_count);
    server->map = map;
    if (!muster_params_map_find(map, &server->region->head->id, &server->place))
        server->place = MUSTER_PARAMS_NOWHERE;
    muster_mem_free(server->env->mem, before);
    muster_params_followers_update(server);
    muster_params_followers_catch_up(server);
    muster_params_held_review(server);
    if (!muster_params_unite_waits(server))
        muster_params_rounds_map(server);
    muster_params_server_cut_map(server);
    muster_params_leaders_resume(server);
    muster_params_handover_map(server);
    muster_params_door_map(server);
    muster_params_watches_note(server);
    map_log(server);
}
