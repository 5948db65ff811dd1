/* The shards that a server which drains may leave behind. When all servers of a job end, the first ones are gone
 * before the last ones look, and nobody makes another map: so each keeps in mind who has said that it leaves. */
#include "params/server/registry/departure.h"

#include <string.h>

/* NULL: it has not said that it leaves. */
static struct muster_incarnation *departed_find(struct muster_params_departures *departures,
                                                const struct muster_incarnation *id)
{
    for (uint32_t i = 0; i < departures->count && i < MUSTER_PARAMS_SERVERS_MAX; i++) {
        if (muster_incarnation_is_equal(&departures->ids[i], id))
            return &departures->ids[i];
    }
    return NULL;
}

void muster_params_departure_note(struct muster_params_departures *departures,
                                  const struct muster_params_map_server *server)
{
    struct muster_incarnation *departed = departed_find(departures, &server->id);

    if (departed != NULL && !server->is_leaving)
        memset(departed, 0, sizeof(*departed)); /* it has come back */
    else if (departed == NULL && server->is_leaving)
        departures->ids[departures->count++ % MUSTER_PARAMS_SERVERS_MAX] = server->id;
}

bool muster_params_departure_has(struct muster_params_departures *departures,
                                 const struct muster_incarnation *id)
{
    return departed_find(departures, id) != NULL;
}

/* A learner counts: the next map, which may be on its way, may say that it is a copy. */
bool muster_params_map_has_server(const struct muster_params_map *map, uint32_t place)
{
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_map_is_copy(map, shard, place) ||
            muster_params_map_is_learner(map, shard, place))
            return true;
    }
    return false;
}

const struct muster_params_map_server *muster_params_departure_missing(
    struct muster_params_departures *departures, const struct muster_params_map *map,
    bool (*is_registered)(const void *data, const struct muster_incarnation *id), const void *data)
{
    for (uint32_t place = 0; place < map->server_count; place++) {
        const struct muster_params_map_server *server = &map->servers[place];

        if (!server->is_leaving && !is_registered(data, &server->id) &&
            departed_find(departures, &server->id) == NULL &&
            muster_params_map_has_server(map, place))
            return server;
    }
    return NULL;
}
