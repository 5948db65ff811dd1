/* Servers that copy what this one applies, by the map. A link that is lost is opened again, and all records that
 * were not done follow in their order: changes that are done already do nothing when they come again. */
#include "params/server/followers/follower.h"

#include "params/server/followers/follower_internal.h"

static uint32_t bit_free(const struct muster_params_server *server)
{
    uint64_t used = 0;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        used |= muster_params_follower_mask(follower);
    MUSTER_ASSERT(used != UINT64_MAX); /* the map has at most 64 servers, and this is one */
    return (uint32_t)__builtin_ctzll(~used);
}

static void copies_end(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;

    server->shard_followers[shard] &= ~muster_params_follower_mask(follower);
    server->shard_stale[shard] &= ~muster_params_follower_mask(follower);
}

static void follower_free(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    muster_timer_stop(&follower->retry);
    muster_params_follower_drop_link(follower);
    muster_task_cancel(&follower->copy);
    MUSTER_LIST_EACH_SAFE (&follower->records, record, struct muster_params_record, node)
        muster_params_record_done(record);
    if (server->map != NULL && muster_params_has_tails(server))
        server->unite.stale_count -= follower->stale_count;
    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++)
        copies_end(follower, shard);
    muster_list_remove(&follower->node);
    muster_mem_free(server->env->mem, follower->told_sources);
    muster_mem_free(server->env->mem, follower);
}

static struct muster_params_follower *follower_find(const struct muster_params_server *server,
                                                    const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (muster_incarnation_is_equal(&follower->id, id))
            return follower;
    }
    return NULL;
}

static void on_retry(struct muster_timer *timer)
{
    muster_params_follower_connect(timer->data);
}

static struct muster_params_follower *follower_new(struct muster_params_server *server,
                                                   const struct muster_params_map_server *entry)
{
    struct muster_params_follower *follower =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*follower));
    struct muster_error error;

    if (follower == NULL ||
        muster_address_parse(entry->address, &follower->address, &error) != MUSTER_OK) {
        MUSTER_LOG(server->env, ERROR, "params_follower_not_opened", "address", entry->address);
        muster_mem_free(server->env->mem, follower);
        return NULL;
    }
    follower->server = server;
    follower->id = entry->id;
    follower->bit = bit_free(server);
    follower->away_ns = muster_loop_now_ns(server->env->loop);
    muster_list_init(&follower->records);
    muster_timer_init(&follower->retry, on_retry, follower);
    muster_task_init(&follower->copy, muster_params_follower_on_copy, follower);
    muster_list_append(&server->followers, &follower->node);
    return follower;
}

/* A copy must have everything. A learner that was ready does; others are asked. */
static void follower_update(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    const struct muster_params_map *map = server->map;

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        bool is_ours = muster_params_server_leads(server, shard, map->epoch);
        bool is_copy = is_ours && muster_params_map_is_copy(map, shard, follower->place);
        bool is_learner = is_ours && muster_params_map_is_learner(map, shard, follower->place);

        if (!is_copy) {
            muster_params_copy_unask(follower, shard);
        } else if (muster_params_bit_is_set(follower->ready, shard)) {
            muster_params_bit_set(follower->asked, shard);
            muster_params_bit_set(follower->answered, shard);
        } else {
            muster_params_copy_ask(follower, shard);
        }
        if (is_learner)
            muster_params_bit_set(follower->wanted, shard);
        else
            muster_params_bit_clear(follower->wanted, shard);
        if (!is_learner) {
            muster_params_bit_clear(follower->begun, shard);
            muster_params_copy_unsettle(follower, shard);
            muster_params_bit_clear(follower->ready, shard);
        }
        if (is_copy || muster_params_bit_is_set(follower->begun, shard))
            server->shard_followers[shard] |= muster_params_follower_mask(follower);
        else
            server->shard_followers[shard] &= ~muster_params_follower_mask(follower);
    }
}

static void follower_go_on(struct muster_params_follower *follower)
{
    if (follower->link == NULL && !muster_timer_is_started(&follower->retry))
        muster_params_follower_connect(follower);
    else
        muster_params_follower_learn_next(follower);
}

static bool place_is_followed(const struct muster_params_server *server, uint32_t place)
{
    const struct muster_params_map *map = server->map;

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_server_leads(server, shard, map->epoch) &&
            (muster_params_map_is_copy(map, shard, place) ||
             muster_params_map_is_learner(map, shard, place)))
            return true;
    }
    return false;
}

void muster_params_followers_update(struct muster_params_server *server)
{
    const struct muster_params_map *map = server->map;

    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        uint32_t place;

        if (!muster_params_map_find(map, &follower->id, &place) ||
            !place_is_followed(server, place))
            follower_free(follower);
    }
    for (uint32_t place = 0; place < map->server_count; place++) {
        const struct muster_params_map_server *entry = &map->servers[place];
        struct muster_params_follower *follower = follower_find(server, &entry->id);

        if (place == server->place || !place_is_followed(server, place))
            continue;
        if (follower == NULL)
            follower = follower_new(server, entry);
        if (follower == NULL)
            continue;
        follower->place = place;
        follower_update(follower);
    }
    /* All copies are asked before a learner is taught: this server may lack what one of them has. */
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node)
        follower_go_on(follower);
    muster_params_followers_settle(server);
    muster_params_unite_look(server);
}

void muster_params_followers_close(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node)
        follower_free(follower);
}

bool muster_params_follower_is_ready(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return muster_params_bit_is_set(follower->ready, shard);
    }
    return false;
}

bool muster_params_followers_give(const struct muster_params_server *server, uint32_t shard,
                                  uint32_t place)
{
    const uint16_t shards[] = {(uint16_t)shard};

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return follower->is_met && muster_params_bit_is_set(follower->asked, shard) &&
                   muster_params_follower_has(follower, server->shard_records[shard], shards, 1);
    }
    return false;
}

bool muster_params_followers_have_news(const struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->stale_count > 0)
            return true;
        for (uint32_t i = 0; i < sizeof(follower->ready); i++) {
            if (follower->ready[i] != 0)
                return true;
        }
    }
    return false;
}

bool muster_params_followers_have(const struct muster_params_server *server, uint64_t number)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (!muster_params_follower_has(follower, number, NULL, 0))
            return false;
    }
    return true;
}
