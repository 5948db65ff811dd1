/* Sources without a name that have gone. The primary of a shard forgets first what they have pushed to it,
 * and tells its followers. Where nothing of a source is left, and nobody speaks of its slot, another one
 * gets the slot. */
#include "params/server/state/lease.h"

#include "params/server/followers/change.h"
#include "params/server/followers/follower.h"
#include "params/server/state/absent.h"
#include "params/server/state/clock.h"

#define SLOTS_PER_TURN  4096u
#define CHANGES_PER_TURN 256u

static bool is_led(const struct muster_params_server *server, uint32_t shard)
{
    return muster_params_server_leads(server, shard, server->map->epoch);
}

static bool is_held(const struct muster_params_server *server, uint32_t shard)
{
    const struct muster_params_map *map = server->map;

    return server->place != MUSTER_PARAMS_NOWHERE &&
           (muster_params_map_is_copy(map, shard, server->place) ||
            muster_params_map_is_learner(map, shard, server->place));
}

typedef bool shard_is_fn(const struct muster_params_server *server, uint32_t shard);

static bool has_position(const struct muster_params_server *server,
                         const struct muster_params_source *source, shard_is_fn *is_one)
{
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (source->positions[shard] != 0 && is_one(server, shard))
            return true;
    }
    return false;
}

/* Its process may have stood still: it is not let in again before the slot is free, another lease later. A follower
 * that was told of the source alone keeps a slot for it until it hears this, too. */
static bool source_forget(struct muster_params_server *server, uint64_t slot)
{
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};

    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (is_led(server, shard))
            shards[shard / 8] |= (uint8_t)(1u << shard % 8);
    }
    if (muster_params_forget_forward(server, slot) != MUSTER_OK)
        return false;
    muster_params_source_forget(server->region, slot, shards);
    server->has_digests = false;
    muster_params_server_clock_renew(server, slot);
    return true;
}

/* True: something has changed. */
static bool source_review(struct muster_params_server *server, uint64_t slot)
{
    const struct muster_params_source *source = muster_params_source_at(server->region, slot);
    bool has_pushed;

    if (source->generation == 0 || (source->flags & MUSTER_PARAMS_SOURCE_NAMED) != 0 ||
        muster_params_server_clock_absence(server, slot) < server->source_lease_ns)
        return false;
    has_pushed = has_position(server, source, is_led);
    if (has_pushed ||
        (!muster_params_server_clock_counts(source) && muster_params_followers_know(server, slot))) {
        if (!source_forget(server, slot))
            return false;
        server->stats.forgotten_sources += has_pushed;
        return true;
    }
    if (server->region->freeze != NULL || has_position(server, source, is_held) ||
        !muster_params_server_clock_is_free(server, slot) ||
        !muster_params_followers_have(server, server->lease_record))
        return false;
    muster_params_absent_drop(server, slot);
    muster_params_source_free(server->region, slot);
    muster_params_server_clock_renew(server, slot);
    return true;
}

static void lease_schedule(struct muster_params_server *server, uint64_t delay_ns)
{
    muster_timer_start(&server->lease, server->env->loop,
                       muster_loop_after_ns(server->env->loop, delay_ns));
}

/* Records that name a source are older than its last link, so those of a round before are older still. */
static void on_lease(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    uint64_t count = server->region->head->source_count;
    uint32_t changes = 0;

    for (uint32_t i = 0; i < SLOTS_PER_TURN && changes < CHANGES_PER_TURN; i++) {
        if (server->map == NULL || server->lease_slot >= count) {
            server->lease_slot = 0;
            server->lease_record = server->record_count;
            lease_schedule(server, server->source_lease_ns / 8 + 1);
            return;
        }
        changes += source_review(server, server->lease_slot++);
    }
    lease_schedule(server, MUSTER_NS_PER_MS);
}

void muster_params_leases_open(struct muster_params_server *server)
{
    muster_timer_init(&server->lease, on_lease, server);
    if (server->source_lease_ns > 0)
        lease_schedule(server, server->source_lease_ns / 8 + 1);
}

void muster_params_leases_close(struct muster_params_server *server)
{
    muster_timer_stop(&server->lease);
}
