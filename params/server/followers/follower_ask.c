/* Copies are asked whether they are as this server's. One that is not is stale, until the next map drops it. */
#include "params/server/followers/follower_internal.h"

#include "params/server/followers/digest.h"
#include "params/server/followers/tail.h"

/* A server that stands still loses all of its copies together: the first one tells of that. */
static void copy_differs_tell(const struct muster_params_follower *follower, uint32_t shard)
{
    const struct muster_env *env = follower->server->env;

    if (follower->stale_count == 0)
        MUSTER_LOG(env, WARN, "params_copy_differs", "shard", shard, "address",
                   muster_params_follower_address(follower));
    else
        MUSTER_LOG(env, DEBUG, "params_copy_differs", "shard", shard, "address",
                   muster_params_follower_address(follower));
}

void muster_params_copy_stale(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;

    if (muster_params_bit_is_set(follower->stale, shard))
        return;
    copy_differs_tell(follower, shard);
    muster_params_bit_set(follower->stale, shard);
    server->shard_stale[shard] |= muster_params_follower_mask(follower);
    follower->stale_count++;
    server->unite.stale_count += muster_params_has_tails(server);
    muster_task_post(&server->decide, server->env->loop);
}

static void stale_clear(struct muster_params_follower *follower, uint32_t shard)
{
    if (muster_params_bit_is_set(follower->stale, shard)) {
        follower->stale_count--;
        follower->server->unite.stale_count -= muster_params_has_tails(follower->server);
    }
    muster_params_bit_clear(follower->stale, shard);
    follower->server->shard_stale[shard] &= ~muster_params_follower_mask(follower);
}

/* It must not get pushes to these behind its back: with them its positions would be as ours again. */
bool muster_params_follower_tell_stale(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    for (uint32_t shard = 0; shard < server->map->shard_count && follower->stale_count > 0;
         shard++) {
        struct muster_params_record *record;

        if (!muster_params_bit_is_set(follower->stale, shard))
            continue;
        record = muster_params_record_new(server, MUSTER_PARAMS_COPY_CHECK, 0);
        if (record == NULL)
            return false;
        record->frame.header.phase = shard;
        record->frame.header.flags = MUSTER_PARAMS_COPY_IS_STALE;
        muster_list_prepend(&follower->records, &record->node);
    }
    return true;
}

/* Its answer to COPY_CHECK is complete with the acknowledgement. */
void muster_params_copy_checked(struct muster_params_follower *follower, uint32_t shard)
{
    muster_params_bit_clear(follower->asking, shard);
    muster_params_unite_look(follower->server);
}

/* Its answer is about the shard as it was asked, unless a map has changed that since. */
void muster_params_copy_differs(struct muster_params_follower *follower, uint32_t shard)
{
    if (shard >= follower->server->map->shard_count)
        muster_params_follower_break(follower, "it spoke of a shard that does not exist");
    else if (muster_params_bit_is_set(follower->asking, shard))
        muster_params_bit_set(follower->differs, shard);
    else if (muster_params_bit_is_set(follower->asked, shard))
        muster_params_copy_stale(follower, shard);
}

/* A learner stays one until the map that the follower's own record brings: its shard is not ready. One that was may
 * be a copy in a map that is on its way. */
void muster_params_copy_full(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;
    bool was_ready;

    if (shard >= server->map->shard_count) {
        muster_params_follower_break(follower, "it spoke of a shard that does not exist");
        return;
    }
    was_ready = muster_params_bit_is_set(follower->ready, shard);
    MUSTER_LOG(server->env, WARN, "params_copy_full", "shard", shard, "address",
               muster_params_follower_address(follower));
    muster_params_bit_set(follower->refused, shard);
    muster_params_copy_unsettle(follower, shard);
    muster_params_bit_clear(follower->ready, shard);
    if (was_ready || muster_params_map_is_copy(server->map, shard, follower->place))
        muster_params_copy_stale(follower, shard);
}

/* It is adopted in a turn of its own (unite.c). */
void muster_params_copy_tail(struct muster_params_follower *follower,
                             const struct muster_frame_header *header)
{
    struct muster_params_server *server = follower->server;
    struct muster_params_told *told = muster_mem_alloc(&server->pool.mem, sizeof(*told));

    if (told == NULL) {
        muster_params_follower_break(follower, "no memory for its tail");
        return;
    }
    *told = (struct muster_params_told){
        .header = *header, .payload = follower->payload, .follower = follower->bit};
    follower->payload = NULL;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (server->unite.is_open[shard] && muster_params_bit_is_set(follower->asking, shard))
            muster_params_bit_set(told->shards, shard);
    }
    muster_list_append(&server->unite.told, &told->node);
    muster_task_post(&server->unite.task, server->env->loop);
}

void muster_params_follower_check(struct muster_params_follower *follower, uint32_t shard,
                                  uint16_t flags)
{
    struct muster_params_server *server = follower->server;
    struct muster_params_record *record =
        muster_params_record_new(server, MUSTER_PARAMS_COPY_CHECK, 0);

    muster_params_bit_clear(follower->answered, shard);
    if (record == NULL) {
        muster_params_bit_clear(follower->asking, shard);
        muster_params_copy_stale(follower, shard);
        return;
    }
    record->frame.header.phase = shard;
    record->frame.header.flags = flags;
    record->frame.header.descriptor = muster_params_server_digest(server, shard);
    muster_params_follower_append(follower, record);
}

/* The last pushes of the server that led the shard before, or of a process of this one that has died, may have
 * come to one copy alone, and nobody sends them again where their client is gone, too. So a copy tells
 * whether it is the same, before it gets any change from this process. */
void muster_params_copy_ask(struct muster_params_follower *follower, uint32_t shard)
{
    struct muster_params_server *server = follower->server;
    bool is_last = !muster_params_has_tails(server);

    if (muster_params_bit_is_set(follower->asked, shard))
        return;
    muster_params_bit_set(follower->asked, shard);
    server->shard_records[shard] = ++server->record_count;
    if (!is_last) {
        muster_params_bit_set(follower->asking, shard);
        muster_params_unite_begin(server, shard);
        muster_params_tail_begin(server, shard);
    }
    muster_params_follower_check(follower, shard, is_last ? MUSTER_PARAMS_COPY_IS_LAST : 0);
}

void muster_params_copy_unask(struct muster_params_follower *follower, uint32_t shard)
{
    muster_params_bit_clear(follower->asked, shard);
    muster_params_bit_clear(follower->asking, shard);
    muster_params_bit_clear(follower->differs, shard);
    muster_params_bit_clear(follower->answered, shard);
    stale_clear(follower, shard);
}

bool muster_params_follower_is_stale(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return muster_params_bit_is_set(follower->stale, shard);
    }
    return false;
}

bool muster_params_follower_is_whole(const void *data, uint32_t shard, uint32_t place)
{
    const struct muster_params_server *server = data;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->place == place)
            return muster_params_server_leads(server, shard, server->map->epoch) &&
                   muster_params_bit_is_set(follower->answered, shard) &&
                   !muster_params_bit_is_set(follower->differs, shard) &&
                   !muster_params_bit_is_set(follower->stale, shard) &&
                   !server->unite.is_open[shard];
    }
    return false;
}
