/* Followers that stand still: nothing that they were sent gets done. Pushes wait for them no longer than the server's
 * replica_lag_ns: their copies leave the map, and they learn them again when they are back. */
#include "params/server/followers/follower_internal.h"

#include "params/server/followers/held.h"

#define AGAIN_FIRST_NS MUSTER_NS_PER_S
#define AGAIN_MAX_NS   (60 * MUSTER_NS_PER_S)

/* The next map drops its copies. What it learns begins anew. Finished learners may be copies in a map that this
 * server has proposed and whose outcome it does not know: pushes wait for them as for copies. */
static void shards_take(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        bool is_ready = muster_params_bit_is_set(follower->ready, shard);
        bool is_copy = muster_params_server_leads(server, shard, server->map->epoch) &&
                       muster_params_map_is_copy(server->map, shard, follower->place);

        if (!is_copy && !muster_params_bit_is_set(follower->begun, shard))
            continue;
        muster_params_bit_clear(follower->asking, shard);
        muster_params_bit_clear(follower->differs, shard);
        muster_params_bit_clear(follower->begun, shard);
        muster_params_copy_unsettle(follower, shard);
        muster_params_bit_clear(follower->ready, shard);
        if (is_copy || is_ready)
            muster_params_copy_stale(follower, shard);
        else
            server->shard_followers[shard] &= ~muster_params_follower_mask(follower);
    }
}

/* Nobody waits for its records any more. A learner that stands still again is tried later each time. */
static void follower_give_up(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    uint64_t wait_ns = follower->again_ns != 0 ? follower->again_ns : AGAIN_FIRST_NS;

    MUSTER_LOG(server->env, WARN, "params_replica_still", "address",
               muster_params_follower_address(follower), "limit_ms",
               server->replica_lag_ns / MUSTER_NS_PER_MS);
    if (follower->link != NULL)
        muster_params_follower_tell_away(follower, "it has not answered yet");
    server->stats.still_replicas++;
    follower->again_ns = 2 * wait_ns < AGAIN_MAX_NS ? 2 * wait_ns : AGAIN_MAX_NS;
    muster_params_follower_drop_link(follower);
    MUSTER_LIST_EACH_SAFE (&follower->records, record, struct muster_params_record, node)
        muster_params_record_done(record);
    follower->progress_ns = 0;
    shards_take(follower);
    muster_timer_start(&follower->retry, server->env->loop,
                       muster_loop_after_ns(server->env->loop, wait_ns));
    muster_params_unite_look(server);
}

static bool is_still(struct muster_params_follower *follower, bool is_late)
{
    struct muster_params_server *server = follower->server;
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    size_t queued =
        follower->is_met ? muster_peer_link_queued_bytes(follower->link) : follower->still_bytes;

    if (muster_list_is_empty(&follower->records))
        follower->progress_ns = 0;
    if (follower->progress_ns == 0)
        return false;
    if (is_late || queued < follower->still_bytes)
        follower->progress_ns = now_ns;
    follower->still_bytes = queued;
    return now_ns - follower->progress_ns >= server->replica_lag_ns;
}

/* A look that comes late leaves followers their time: it was this server that stood still. */
static void on_still(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    uint64_t late_ns = muster_loop_now_ns(server->env->loop) - timer->due_ns;
    bool is_late = late_ns > server->replica_lag_ns / MUSTER_PARAMS_STILL_LOOKS,
         has_changed = false, is_owed = false;

    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        if (is_still(follower, is_late)) {
            follower_give_up(follower);
            has_changed = true;
        }
        is_owed |= follower->progress_ns != 0;
    }
    if (is_owed)
        muster_params_still_schedule(server);
    if (has_changed)
        muster_params_held_review(server);
}

void muster_params_followers_still_init(struct muster_params_server *server)
{
    muster_timer_init(&server->still, on_still, server);
}
