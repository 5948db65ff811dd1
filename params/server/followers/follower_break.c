/* A follower's link is given up. The copy of a whole shard begins anew over the next one. */
#include "params/server/followers/follower_internal.h"

#include <stdio.h>
#include <string.h>

#include "params/server/core/alive.h"
#include "runtime/value/backoff.h"

#define TELL_AFTER_NS (2 * MUSTER_NS_PER_S)  /* one that is not reached for so long … */
#define TELL_AGAIN_NS (10 * MUSTER_NS_PER_S) /* … is logged, and each time after that */

static const struct muster_backoff reconnect = {.first_ns = MUSTER_NS_PER_MS,
                                                .max_ns = 500 * MUSTER_NS_PER_MS,
                                                .growth_permille = 1500,
                                                .jitter_permille = 250};

void muster_params_record_done(struct muster_params_record *record)
{
    muster_list_remove(&record->node);
    record->is_done = true;
    if (!record->is_sending)
        muster_mem_free(&record->server->pool.mem, record);
}

/* A new link copies shards from their beginning. Those that are ready stay so: their changes are among
 * the records that come again. */
static void copies_drop(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    MUSTER_LIST_EACH_SAFE (&follower->records, record, struct muster_params_record, node) {
        if (record->is_copy)
            muster_params_record_done(record);
    }
    follower->copying = 0;
    follower->is_copying = false;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!muster_params_bit_is_set(follower->begun, shard) ||
            muster_params_bit_is_set(follower->settling, shard) ||
            muster_params_bit_is_set(follower->ready, shard))
            continue;
        muster_params_bit_clear(follower->begun, shard);
        server->shard_followers[shard] &= ~muster_params_follower_mask(follower);
    }
}

void muster_params_follower_drop_link(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    struct muster_peer_link *link = follower->link;

    if (follower->is_met)
        follower->away_ns = muster_loop_now_ns(server->env->loop);
    follower->link = NULL;
    follower->is_met = follower->is_awaited = false;
    follower->done_count = 0;
    follower->early_map = 0;
    follower->told_tables = 0;
    if (follower->told_bytes > 0)
        memset(follower->told_sources, 0, follower->told_bytes);
    if (link != NULL)
        muster_peer_link_close(link);
    muster_mem_free(&server->pool.mem, follower->payload);
    follower->payload = NULL;
    copies_drop(follower);
}

const char *muster_params_follower_address(const struct muster_params_follower *follower)
{
    return follower->server->map->servers[follower->place].address;
}

/* A server that was never met is registered under an address that only it may be able to use. */
void muster_params_follower_tell_away(struct muster_params_follower *follower, const char *reason)
{
    struct muster_env *env = follower->server->env;
    uint64_t now_ns = muster_loop_now_ns(env->loop);
    char text[sizeof(((struct muster_error *)0)->text) + 80];

    if (follower->is_met || now_ns - follower->away_ns < TELL_AFTER_NS ||
        (follower->told_ns > follower->away_ns && now_ns - follower->told_ns < TELL_AGAIN_NS))
        return;
    follower->told_ns = now_ns;
    snprintf(text, sizeof(text), "%s%s", reason,
             follower->was_met ? ""
                               : "; its --reach (or --listen) must be an address that works here");
    MUSTER_LOG(env, WARN, "params_replica_unreached", "address",
               muster_params_follower_address(follower), "reason", text, "seconds",
               (now_ns - follower->away_ns) / MUSTER_NS_PER_S);
}

void muster_params_follower_break(struct muster_params_follower *follower, const char *reason)
{
    struct muster_params_server *server = follower->server;
    uint64_t wait_ns = muster_backoff_next(&reconnect, &follower->backoff_ns, server->env->rng);

    MUSTER_LOG(server->env, DEBUG, "params_follower_lost", "address",
               muster_params_follower_address(follower), "reason", reason);
    muster_params_follower_tell_away(follower, reason);
    muster_params_follower_drop_link(follower);
    muster_timer_start(&follower->retry, server->env->loop,
                       muster_loop_after_ns(server->env->loop, wait_ns));
}

/* Whoever waits on a silent link counts from here on. */
void muster_params_follower_await(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    if (!follower->is_met || follower->is_awaited)
        return;
    follower->is_awaited = true;
    follower->pulse.queued_bytes = 0;
    muster_params_pulse_hear(&follower->pulse, muster_loop_now_ns(server->env->loop));
    muster_params_alive_watch(server, true);
}
