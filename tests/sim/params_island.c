/* A server and a client of parameters that reach each other and nobody else. */
#include "tests/sim/params_island.h"

#include "tests/sim/sim_internal.h"

#define RARITY_PERMILLE 50u
/* Leases of servers last 3 s. */
#define APART_MIN_NS  (4 * MUSTER_NS_PER_S)
#define APART_MORE_NS (3 * MUSTER_NS_PER_S)
/* Slow plays, in which leases run out. */
#define SLOWNESS_MIN 20u

void params_island_draw(struct params_island *island, struct params_stage *stage,
                        struct params_cast *cast)
{
    island->stage = stage;
    island->cast = cast;
    island->is_played = stage->replicas > 1 && stage->slowness >= SLOWNESS_MIN &&
                        !stage->is_wiping && params_cast_draw(cast, 2) == 0;
}

static void cut_both_ways(struct sim_world *world, struct sim_host *a, struct sim_host *b)
{
    sim_cut(world, a, b, SIM_BOTH_WAYS);
}

typedef void hosts_fn(struct sim_world *world, struct sim_host *a, struct sim_host *b);

static void host_part(struct params_island *island, struct sim_host *host, hosts_fn *change)
{
    if (host == island->server || host == island->client)
        return;
    change(island->stage->world, host, island->server);
    change(island->stage->world, host, island->client);
}

static void others_part(struct params_island *island, hosts_fn *change)
{
    host_part(island, island->stage->registry_host, change);
    for (uint32_t i = 0; i < island->stage->server_count; i++)
        host_part(island, island->stage->servers[i].host, change);
    for (uint32_t i = 0; i < island->cast->source_count; i++)
        host_part(island, island->cast->hosts[i], change);
}

void params_island_heal(struct params_island *island)
{
    if (!island->is_apart)
        return;
    island->is_apart = false;
    island->cast->marooned = NULL;
    others_part(island, sim_heal);
}

static void on_time(void *data)
{
    params_island_heal(data);
}

/* The host of a client that has opened its table; NULL: the one that is drawn has not. */
static struct sim_host *client_host(struct params_cast *cast)
{
    const struct params_source *source = &cast->sources[params_cast_draw(cast, cast->source_count)];
    const struct params_client *client = sim_node_program(source->life->node);

    return client != NULL && client->is_ready ? sim_node_host(source->life->node) : NULL;
}

void params_island_strike(struct params_island *island)
{
    struct params_stage *stage = island->stage;
    const struct params_server *server;

    if (!island->is_played || island->is_apart || stage->blows >= stage->blows_max ||
        params_stage_map(stage) == NULL || params_cast_draw(island->cast, 1000) >= RARITY_PERMILLE)
        return;
    server = params_stage_primary(
        stage, (uint32_t)params_cast_draw(island->cast, params_stage_map(stage)->shard_count));
    island->client = client_host(island->cast);
    if (server == NULL || island->client == NULL)
        return;
    stage->blows++;
    island->is_apart = true;
    island->server = server->host;
    island->cast->marooned = island->client;
    others_part(island, cut_both_ways);
    sim_at(stage->world,
           sim_world_now_ns(stage->world) + APART_MIN_NS +
               params_cast_draw(island->cast, APART_MORE_NS),
           on_time, island);
}
