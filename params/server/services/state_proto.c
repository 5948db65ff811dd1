/* The servers of the map, and how far sources are, as a server knows them. */
#include "params/server/services/state_proto.h"

#include "params/server/followers/follower.h"
#include "params/server/core/source_text.h"
#include "params/server/state/clock.h"
#include "params/store/source.h"

static void server_describe(const struct muster_params_map_server *server,
                            Muster__Params__V1__Server *ret_message)
{
    muster__params__v1__server__init(ret_message);
    ret_message->id.data = (uint8_t *)(uintptr_t)server->id.bytes;
    ret_message->id.len = sizeof(server->id.bytes);
    ret_message->address = (char *)(uintptr_t)server->address;
    ret_message->is_leaving = server->is_leaving;
}

static void shard_count(const struct muster_params_map_shard *shard,
                        struct muster_params_servers_proto *servers)
{
    for (uint32_t i = 0; i < shard->copy_count; i++) {
        Muster__Params__V1__Server *server = &servers->messages[shard->copies[i]];

        *(i == 0 ? &server->primaries : &server->replicas) += 1;
    }
    for (uint32_t i = 0; i < shard->learner_count; i++)
        servers->messages[shard->learners[i]].learning++;
}

void muster_params_servers_describe(const struct muster_params_server *server,
                                    struct muster_params_servers_proto *ret_servers)
{
    const struct muster_params_map *map = server->map;

    ret_servers->count = ret_servers->short_shards = 0;
    if (map == NULL)
        return;
    ret_servers->count = map->server_count;
    for (uint32_t i = 0; i < map->server_count; i++) {
        server_describe(&map->servers[i], &ret_servers->messages[i]);
        ret_servers->list[i] = &ret_servers->messages[i];
    }
    for (uint32_t i = 0; i < map->shard_count; i++) {
        shard_count(&map->shards[i], ret_servers);
        ret_servers->short_shards += map->shards[i].copy_count < map->copies_wanted;
    }
}

void muster_params_clocks_describe(const struct muster_params_server *server,
                                   Muster__Params__V1__Clocks *ret_clocks)
{
    const struct muster_params_clocks *clocks = &server->clocks;
    const struct muster_params_region_head *head = server->region->head;

    muster__params__v1__clocks__init(ret_clocks);
    ret_clocks->known = (uint32_t)clocks->known;
    ret_clocks->expected = head->clock_sources;
    for (uint64_t slot = 0; slot < head->source_count; slot++) {
        uint64_t stored = muster_params_source_at(server->region, slot)->clock;

        if (muster_params_stored_counts(stored) && stored - 1 > ret_clocks->high)
            ret_clocks->high = stored - 1;
    }
    ret_clocks->has_low = clocks->low != UINT64_MAX;
    if (!ret_clocks->has_low)
        return;
    ret_clocks->low = clocks->low;
    if (clocks->slowest == UINT64_MAX)
        return;
    ret_clocks->slowest.data = muster_params_source_at(server->region, clocks->slowest)->id.bytes;
    ret_clocks->slowest.len = sizeof(struct muster_incarnation);
    ret_clocks->slowest_name =
        (char *)(uintptr_t)muster_params_source_name(server, clocks->slowest);
}

uint64_t muster_params_followers_lag(const struct muster_params_server *server)
{
    uint64_t most = 0;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        uint64_t count = 0;

        for (const struct muster_list *node = follower->records.next; node != &follower->records; node = node->next)
            count++;
        most = count > most ? count : most;
    }
    return most;
}
