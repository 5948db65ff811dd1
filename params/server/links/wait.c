/* Answers of clients that wait for followers: an acknowledgement, or a frame that is made already. */
#include "params/server/links/wait.h"

#include <string.h>

#include "params/server/core/answer.h"
#include "params/server/core/credit.h"
#include "params/server/followers/held.h"
#include "params/server/state/absent.h"
#include "params/server/state/clock.h"
#include "params/server/state/hold.h"

struct muster_params_waiting *muster_params_waiting_new(struct muster_params_client *client,
                                                        const struct muster_frame_header *request,
                                                        uint32_t shards_max)
{
    struct muster_params_waiting *waiting = muster_mem_alloc(
        &client->server->pool.mem, sizeof(*waiting) + shards_max * sizeof(waiting->shards[0]));

    if (waiting == NULL)
        return NULL;
    memset(waiting, 0, sizeof(*waiting));
    waiting->client = client;
    waiting->request = *request;
    waiting->held.shards = waiting->shards;
    return waiting;
}

void muster_params_waiting_add(struct muster_params_waiting *waiting, uint32_t shard)
{
    waiting->shards[waiting->held.shard_count++] = (uint16_t)shard;
    muster_params_held_add(&waiting->held, waiting->client->server, shard);
}

void muster_params_waiting_free(struct muster_params_waiting *waiting)
{
    struct muster_params_server *server = waiting->client->server;

    muster_params_answer_free(waiting->answer);
    muster_params_credit_give_back(waiting->client, waiting->held_bytes);
    muster_mem_free(&server->pool.mem, waiting);
}

/* From now on its process is known to have the generation. Other servers hear of it from the process itself. */
static void opening_confirm(const struct muster_params_client *client)
{
    struct muster_params_region *region = client->server->region;

    if (muster_params_source_at(region, client->slot)->generation == client->generation)
        muster_params_source_confirm(region, client->slot, client->generation);
}

static bool waiting_answer(struct muster_params_waiting *waiting)
{
    struct muster_params_answer *answer = waiting->answer;

    if (waiting->request.type == MUSTER_PARAMS_OPEN)
        opening_confirm(waiting->client);
    waiting->client->is_told |= waiting->request.type == MUSTER_PARAMS_OPEN;
    if (answer == NULL)
        return muster_params_acknowledge(waiting->client, &waiting->ack);
    waiting->answer = NULL;
    return muster_params_answer_send(answer, answer->frame.header.payload_bytes) &&
           (waiting->request.type != MUSTER_PARAMS_OPEN ||
            muster_params_server_hold_join(waiting->client));
}

/* The client names a source that could not be opened here again, perhaps over the same link. */
static bool waiting_move(struct muster_params_waiting *waiting)
{
    struct muster_params_client *client = waiting->client;

    if (waiting->request.type == MUSTER_PARAMS_OPEN) {
        client->is_open = false;
        muster_params_absent_lose(client);
        muster_params_server_clock_link(client->server, client->slot, false);
    }
    return muster_params_moved(client, &waiting->request);
}

/* A client that cannot be answered is closed by the door in a later turn: callers of this function still use
 * the client. */
static void on_held(struct muster_params_held *held, enum muster_rc rc)
{
    struct muster_params_waiting *waiting =
        MUSTER_CONTAINER_OF(held, struct muster_params_waiting, held);
    struct muster_params_client *client = waiting->client;
    bool is_sent = true;

    muster_list_remove(&waiting->node);
    muster_histogram_observe(&client->server->ack_wait_seconds,
                             (double)(muster_loop_now_ns(client->server->env->loop) - waiting->since_ns) /
                                 (double)MUSTER_NS_PER_S);
    if (rc == MUSTER_OK)
        is_sent = waiting_answer(waiting);
    else if (rc == MUSTER_ABORTED)
        is_sent = waiting_move(waiting);
    muster_params_waiting_free(waiting);
    if (is_sent)
        return;
    muster_params_answer_lose(client);
}

bool muster_params_waiting_start(struct muster_params_waiting *waiting)
{
    struct muster_params_client *client = waiting->client;
    bool is_sent;

    if (!muster_params_held_is_done(client->server, &waiting->held)) {
        waiting->held.done = on_held;
        waiting->held_bytes = sizeof(*waiting) + waiting->request.payload_bytes;
        muster_params_credit_take(client, waiting->held_bytes);
        waiting->since_ns = muster_loop_now_ns(client->server->env->loop);
        muster_list_append(&client->waiting, &waiting->node);
        muster_params_held_start(&waiting->held, client->server);
        return true;
    }
    is_sent = waiting_answer(waiting);
    muster_params_waiting_free(waiting);
    return is_sent;
}

void muster_params_waiting_drop(struct muster_params_client *client)
{
    MUSTER_LIST_EACH_SAFE (&client->waiting, waiting, struct muster_params_waiting, node) {
        muster_params_held_cancel(&waiting->held);
        muster_list_remove(&waiting->node);
        muster_params_waiting_free(waiting);
    }
}
