/* Answers that wait until all followers have the rows that the answer tells of. */
#include "params/server/followers/held.h"

#include "params/server/followers/follower.h"

static struct muster_params_follower *follower_at(const struct muster_params_server *server,
                                                  uint32_t bit)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (follower->bit == bit)
            return follower;
    }
    return NULL;
}

bool muster_params_held_is_done(const struct muster_params_server *server,
                                const struct muster_params_held *held)
{
    for (uint64_t left = held->mask; left != 0; left &= left - 1) {
        const struct muster_params_follower *follower =
            follower_at(server, (uint32_t)__builtin_ctzll(left));

        if (follower != NULL &&
            !muster_params_follower_has(follower, held->number, held->shards, held->shard_count))
            return false;
    }
    return true;
}

void muster_params_held_start(struct muster_params_held *held, struct muster_params_server *server)
{
    held->map_number = server->map->epoch;
    muster_list_append(&server->held, &held->node);
    muster_task_post(&server->held_check, server->env->loop);
}

void muster_params_held_cancel(struct muster_params_held *held)
{
    muster_list_remove(&held->node);
}

static void held_end(struct muster_params_held *held, enum muster_rc rc)
{
    muster_list_remove(&held->node);
    held->done(held, rc);
}

/* An answer may close its client, and with it others of the list: each round begins at its head. */
void muster_params_held_check(struct muster_params_server *server)
{
    struct muster_list waiting;

    muster_list_take_all(&waiting, &server->held);
    while (!muster_list_is_empty(&waiting)) {
        struct muster_params_held *held =
            MUSTER_CONTAINER_OF(waiting.next, struct muster_params_held, node);

        if (muster_params_held_is_done(server, held)) {
            held_end(held, MUSTER_OK);
        } else {
            muster_list_remove(&held->node);
            muster_list_append(&server->held, &held->node);
        }
    }
}

/* Find the followers of the answer's shards by the new map. False: this server does not lead one of them. */
static bool held_review(struct muster_params_server *server, struct muster_params_held *held)
{
    held->mask = 0;
    for (uint32_t i = 0; i < held->shard_count; i++) {
        if (!muster_params_server_leads(server, held->shards[i], held->map_number))
            return false;
        held->mask |= server->shard_followers[held->shards[i]];
    }
    return true;
}

void muster_params_held_review(struct muster_params_server *server)
{
    struct muster_list waiting;

    muster_list_take_all(&waiting, &server->held);
    while (!muster_list_is_empty(&waiting)) {
        struct muster_params_held *held =
            MUSTER_CONTAINER_OF(waiting.next, struct muster_params_held, node);

        if (!held_review(server, held)) {
            held_end(held, MUSTER_ABORTED);
        } else {
            muster_list_remove(&held->node);
            muster_list_append(&server->held, &held->node);
        }
    }
    muster_params_held_check(server);
}

void muster_params_held_end_all(struct muster_params_server *server)
{
    while (!muster_list_is_empty(&server->held))
        held_end(MUSTER_CONTAINER_OF(server->held.next, struct muster_params_held, node),
                 MUSTER_CANCELLED);
}
