/* The copy of a shard, one at a time, in pieces. */
#include "params/server/followers/follower_internal.h"

/* Pieces that the follower has not done yet; the next ones wait here. Pushes to the follower queue behind them, so that
 * there are only as many as keep it busy. */
#define COPYING_MAX 2u

static void piece_send(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    struct muster_list records;
    uint32_t count = 0;

    muster_list_init(&records);
    if (!muster_params_copy_piece(server, &follower->cursor, &records, &count)) {
        muster_params_follower_break(follower, "no memory for the copy of a shard");
        return;
    }
    follower->copying += count;
    follower->is_copying = !follower->cursor.is_over;
    while (!muster_list_is_empty(&records)) {
        struct muster_params_record *record =
            MUSTER_CONTAINER_OF(records.next, struct muster_params_record, node);

        muster_list_remove(&record->node);
        muster_params_follower_append(follower, record);
        if (!follower->is_met) /* the rest of the copy is of no use */
            break;
    }
    muster_params_records_free(server, &records);
    if (follower->is_copying && follower->copying < COPYING_MAX)
        muster_task_post(&follower->copy, server->env->loop);
}

void muster_params_follower_learn_next(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;

    if (follower->copying > 0 || follower->is_copying || !follower->is_met)
        return;
    for (uint32_t shard = 0; shard < server->map->shard_count; shard++) {
        if (!muster_params_bit_is_set(follower->wanted, shard) ||
            muster_params_bit_is_set(follower->begun, shard) ||
            muster_params_bit_is_set(follower->stale, shard) || server->unite.is_open[shard])
            continue;
        muster_params_bit_set(follower->begun, shard);
        muster_params_bit_clear(follower->refused, shard);
        server->shard_followers[shard] |= muster_params_follower_mask(follower);
        follower->is_copying = true;
        follower->cursor = (struct muster_params_copy_cursor){.shard = shard};
        piece_send(follower);
        return;
    }
}

void muster_params_follower_on_copy(struct muster_task *task)
{
    struct muster_params_follower *follower = task->data;

    if (!follower->is_copying || !follower->is_met)
        return;
    if (muster_params_bit_is_set(follower->begun, follower->cursor.shard)) {
        piece_send(follower);
        return;
    }
    follower->is_copying = false; /* it is no learner any more */
    muster_params_follower_learn_next(follower);
}

/* The learner's rows hold pushes that a copy may lack still. As a copy itself it would hand out what came after
 * them (unite.c), and nobody could hand out these: so it stays a learner until all copies have them. Learners that
 * are ready are copies in the next map, maybe both in one. */
static bool shard_is_settled(const struct muster_params_follower *follower, uint16_t shard)
{
    const struct muster_params_server *server = follower->server;

    MUSTER_LIST_EACH (&server->followers, other, struct muster_params_follower, node) {
        bool is_ready = muster_params_bit_is_set(other->ready, shard);

        if (!is_ready && !muster_params_map_is_copy(server->map, shard, other->place))
            continue;
        if (!muster_params_follower_has(other, follower->settle_number, &shard, 1) ||
            (is_ready && !muster_params_follower_has(follower, other->settle_number, &shard, 1)))
            return false;
    }
    return true;
}

void muster_params_followers_settle(struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->copying > 0 || follower->is_copying) /* one map for all that it learns */
            continue;
        for (uint32_t shard = 0; shard < server->map->shard_count && follower->settling_count > 0;
             shard++) {
            if (!muster_params_bit_is_set(follower->settling, shard) ||
                !shard_is_settled(follower, (uint16_t)shard))
                continue;
            muster_params_copy_unsettle(follower, shard);
            muster_params_bit_set(follower->ready, shard);
            muster_task_post(&server->decide, server->env->loop);
        }
    }
}

/* A learner that was given up amid its copy, and is one again, has missed what was pushed meanwhile: its copy begins
 * anew. */
void muster_params_copy_record_done(struct muster_params_follower *follower, uint32_t shard)
{
    MUSTER_ASSERT(follower->copying > 0);
    follower->copying--;
    if (follower->is_copying)
        muster_task_post(&follower->copy, follower->server->env->loop);
    if (follower->copying > 0 || follower->is_copying)
        return;
    if (muster_params_bit_is_set(follower->begun, shard) &&
        !muster_params_bit_is_set(follower->refused, shard)) {
        follower->again_ns = 0;
        MUSTER_ASSERT(!muster_params_bit_is_set(follower->settling, shard));
        muster_params_bit_set(follower->settling, shard);
        follower->settling_count++;
        follower->settle_number = follower->server->record_count;
    }
    muster_params_follower_learn_next(follower);
    muster_params_followers_settle(follower->server);
}

void muster_params_followers_learn(struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        muster_params_follower_learn_next(follower);
}
