/* Rendezvous hashing: a server that comes or goes moves only its own shards. */
#include "params/map/place.h"

#include <string.h>

#include <muster/hash.h>

/* Highest random weight: each server draws a number for the shard, the highest have it. */
static uint64_t place_weight(const struct muster_params_map_server *server, uint32_t shard)
{
    return muster_hash64(server->id.bytes, sizeof(server->id.bytes), shard);
}

static bool is_taken(const uint16_t *places, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        if (places[i] == place)
            return true;
    }
    return false;
}

static bool host_is_taken(const struct muster_params_map *map, const uint16_t *places,
                          uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(map->servers[places[i]].host_key, map->servers[place].host_key) == 0)
            return true;
    }
    return false;
}

/* The best of those that are left; with is_other_host only of hosts that have no copy yet. */
static uint32_t place_best(const struct muster_params_map *map, const bool *is_alive,
                           uint32_t shard, const uint16_t *places, uint32_t count,
                           bool is_other_host)
{
    uint32_t best = MUSTER_PARAMS_SERVERS_MAX;
    uint64_t best_weight = 0;

    for (uint32_t place = 0; place < map->server_count; place++) {
        uint64_t weight = place_weight(&map->servers[place], shard);

        if ((is_alive != NULL && !is_alive[place]) || map->servers[place].is_leaving ||
            is_taken(places, count, place) ||
            (is_other_host && host_is_taken(map, places, count, place)))
            continue;
        if (best == MUSTER_PARAMS_SERVERS_MAX || weight > best_weight) {
            best = place;
            best_weight = weight;
        }
    }
    return best;
}

uint32_t muster_params_place_targets(const struct muster_params_map *map, const bool *is_alive,
                                     uint32_t shard, uint16_t ret_places[MUSTER_PARAMS_COPIES_MAX])
{
    uint32_t count = 0;

    while (count < map->copies_wanted) {
        uint32_t place = place_best(map, is_alive, shard, ret_places, count, true);

        if (place == MUSTER_PARAMS_SERVERS_MAX)
            place = place_best(map, is_alive, shard, ret_places, count, false);
        if (place == MUSTER_PARAMS_SERVERS_MAX)
            break;
        ret_places[count++] = (uint16_t)place;
    }
    return count;
}
