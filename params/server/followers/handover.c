/* A copy leads that is not the first target of its shard: a server was away, and the others led meanwhile. When
 * the map has rested, the primary reads no push any more, waits until the first target has all that was
 * applied, and makes it the primary by the next map. A change that comes all the same makes the old primary's
 * copy one that differs, and loses nothing. */
#include "params/server/followers/handover.h"

#include <string.h>

#include "params/map/place.h"
#include "params/server/followers/follower.h"

#define REST_NS    (2 * MUSTER_NS_PER_S)
#define WAIT_NS    MUSTER_NS_PER_S
#define SHARDS_MAX 64u /* that are handed over by one map */

static bool is_handing(const struct muster_params_server *server, uint32_t shard)
{
    return (server->handing[shard / 8] & 1u << shard % 8) != 0;
}

static void handover_schedule(struct muster_params_server *server, uint64_t delay_ns)
{
    muster_timer_start(&server->handover, server->env->loop,
                       muster_loop_after_ns(server->env->loop, delay_ns));
}

static uint32_t heir_of(const struct muster_params_server *server, uint32_t shard)
{
    uint16_t targets[MUSTER_PARAMS_COPIES_MAX];

    return muster_params_place_targets(server->map, NULL, shard, targets) > 0
               ? targets[0]
               : MUSTER_PARAMS_NOWHERE;
}

static bool is_to_go(const struct muster_params_server *server, uint32_t shard)
{
    uint32_t heir;

    if (!muster_params_server_leads(server, shard, server->map->epoch))
        return false;
    heir = heir_of(server, shard);
    return heir != server->place && heir != MUSTER_PARAMS_NOWHERE &&
           muster_params_map_is_copy(server->map, shard, heir);
}

/* Moves come first: each of them changes the map. */
static bool is_at_rest(const struct muster_params_server *server)
{
    const struct muster_params_map *map = server->map;

    if (map == NULL || server->is_closing || server->drained != NULL ||
        server->cut.state != MUSTER_PARAMS_CUT_NONE)
        return false;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (map->shards[shard].learner_count > 0 || server->shard_stale[shard] != 0)
            return false;
    }
    return true;
}

static void handover_begin(struct muster_params_server *server)
{
    for (uint32_t shard = 0;
         shard < server->map->shard_count && server->handing_count < SHARDS_MAX; shard++) {
        if (!is_to_go(server, shard))
            continue;
        server->handing[shard / 8] |= (uint8_t)(1u << shard % 8);
        server->handing_count++;
    }
    if (server->handing_count == 0)
        return;
    MUSTER_LOG(server->env, INFO, "params_handover", "shards", server->handing_count);
    muster_task_post(&server->decide, server->env->loop);
    handover_schedule(server, WAIT_NS);
}

static void handover_end(struct muster_params_server *server)
{
    server->handing_count = 0;
    memset(server->handing, 0, sizeof(server->handing));
    handover_schedule(server, REST_NS);
}

static void on_handover(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;

    if (server->handing_count > 0) {
        MUSTER_LOG(server->env, INFO, "params_handover_ended", "shards", server->handing_count);
        handover_end(server);
        muster_task_post(&server->early_review, server->env->loop);
        handover_schedule(server, 8 * REST_NS);
    } else if (is_at_rest(server)) {
        handover_begin(server);
    } else {
        handover_schedule(server, REST_NS);
    }
}

void muster_params_handover_open(struct muster_params_server *server)
{
    muster_timer_init(&server->handover, on_handover, server);
}

void muster_params_handover_close(struct muster_params_server *server)
{
    muster_timer_stop(&server->handover);
    server->handing_count = 0;
}

void muster_params_handover_map(struct muster_params_server *server)
{
    if (server->registration != NULL && !server->is_closing)
        handover_end(server);
}

bool muster_params_handover_is_ready(const struct muster_params_server *server)
{
    if (server->handing_count == 0)
        return false;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (is_handing(server, shard) &&
            !muster_params_followers_give(server, shard, heir_of(server, shard)))
            return false;
    }
    return true;
}

bool muster_params_handover_is_handed(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    return server->handing_count > 0 && is_handing(server, shard) &&
           heir_of(server, shard) == place && muster_params_handover_is_ready(server);
}
