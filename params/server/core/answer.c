/* Answers lie in memory of the server until they have left; acknowledgements of a turn share a
 * frame. */
#include "params/server/core/answer.h"

#include <string.h>

#include "params/server/core/credit.h"
#include "params/wire/map.h"

#define ACKS_PER_FRAME 128u
/* Answers of at most so many bytes pass larger ones. */
#define SMALL_BYTES (64u << 10)

struct muster_params_answer *muster_params_answer_new(struct muster_params_client *client,
                                                      enum muster_params_message message,
                                                      uint64_t number, size_t payload_max)
{
    struct muster_params_answer *answer;

    MUSTER_ASSERT(payload_max <= MUSTER_FRAME_PAYLOAD_MAX);
    answer = muster_mem_alloc(&client->server->pool.mem, sizeof(*answer) + payload_max);
    if (answer == NULL)
        return NULL;
    memset(answer, 0, sizeof(*answer));
    answer->client = client;
    answer->capacity = (uint32_t)payload_max;
    muster_params_credit_take(client, sizeof(*answer) + payload_max);
    answer->frame.data = answer;
    answer->frame.payload = answer->payload;
    answer->frame.header = (struct muster_frame_header){
        .channel = MUSTER_FRAME_PARAMS, .type = (uint8_t)message, .offset = number};
    return answer;
}

void muster_params_answer_free(struct muster_params_answer *answer)
{
    struct muster_params_client *client;

    if (answer == NULL)
        return;
    client = answer->client;
    muster_params_credit_give_back(client, sizeof(*answer) + answer->capacity);
    muster_mem_free(&client->server->pool.mem, answer);
}

/* With CANCELLED the link is being closed, and its client too: there is nothing to resume. */
static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct muster_params_answer *answer = frame->data;
    struct muster_params_client *client = answer->client;

    muster_params_answer_free(answer);
    if (rc == MUSTER_OK && client->early.type == 0 && !client->is_marked && !client->is_starved)
        muster_peer_link_resume(client->link);
}

/* Small answers and signs of operations pass rows of large ones, and the map. Among themselves they keep their
 * order: a client hears that a push was refused before it gets rows without it. */
static bool answer_passes(const struct muster_params_answer *answer)
{
    const struct muster_frame_header *header = &answer->frame.header;

    return (header->type == MUSTER_PARAMS_ROWS && header->payload_bytes <= SMALL_BYTES) ||
           header->type == MUSTER_PARAMS_ACK || header->type == MUSTER_PARAMS_REFUSED ||
           header->type == MUSTER_PARAMS_WAITS;
}

bool muster_params_answer_send(struct muster_params_answer *answer, size_t payload_bytes)
{
    struct muster_params_client *client;

    if (answer == NULL)
        return false;
    MUSTER_ASSERT(payload_bytes <= answer->capacity);
    client = answer->client;
    answer->frame.header.payload_bytes = (uint32_t)payload_bytes;
    answer->frame.header.op.step = client->server->credits.share;
    answer->frame.priority = answer_passes(answer);
    if (muster_peer_link_send(&answer->frame, client->link, on_sent) == MUSTER_OK)
        return true;
    muster_params_answer_free(answer);
    return false;
}

static bool request_is_push(const struct muster_frame_header *request)
{
    return request->type == MUSTER_PARAMS_PUSH || request->type == MUSTER_PARAMS_PUSH_PULL ||
           request->type == MUSTER_PARAMS_PUSH_RANGE || request->type == MUSTER_PARAMS_PUSH_STAGED;
}

struct muster_params_answer *muster_params_refusal_new(struct muster_params_client *client,
                                                       const struct muster_frame_header *request,
                                                       const struct muster_error *error)
{
    size_t bytes = strlen(error->text);
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_REFUSED, request->offset, bytes);

    if (answer == NULL)
        return NULL;
    if (request_is_push(request))
        answer->frame.header.flags = MUSTER_PARAMS_REFUSED_PUSH;
    answer->frame.header.chunk = request->chunk;
    answer->frame.header.phase = (uint32_t)error->rc;
    answer->frame.header.payload_bytes = (uint32_t)bytes;
    memcpy(answer->payload, error->text, bytes);
    return answer;
}

bool muster_params_refuse(struct muster_params_client *client,
                          const struct muster_frame_header *request,
                          const struct muster_error *error)
{
    struct muster_params_answer *answer = muster_params_refusal_new(client, request, error);

    return answer != NULL &&
           muster_params_answer_send(answer, answer->frame.header.payload_bytes);
}

bool muster_params_map_tell(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;
    struct muster_params_answer *answer;
    void *bytes = NULL;
    size_t size = 0;

    if (server->map == NULL)
        return true;
    if (muster_params_map_pack(server->map, server->env->mem, &bytes, &size) != MUSTER_OK)
        return false;
    answer = muster_params_answer_new(client, MUSTER_PARAMS_MAP, 0, size);
    if (answer != NULL)
        memcpy(answer->payload, bytes, size);
    muster_mem_free(server->env->mem, bytes);
    return muster_params_answer_send(answer, size);
}

bool muster_params_moved(struct muster_params_client *client,
                         const struct muster_frame_header *request)
{
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_MOVED, request->offset, 0);

    if (answer == NULL)
        return false;
    if (request_is_push(request))
        answer->frame.header.flags = MUSTER_PARAMS_REFUSED_PUSH;
    answer->frame.header.chunk = request->chunk;
    answer->frame.header.epoch = client->server->map->epoch;
    return muster_params_answer_send(answer, 0);
}

static void client_due(struct muster_params_client *client)
{
    if (muster_list_is_empty(&client->due_node))
        muster_list_append(&client->server->due, &client->due_node);
    muster_task_post(&client->server->flush, client->server->env->loop);
}

void muster_params_answer_lose(struct muster_params_client *client)
{
    client->is_short = true;
    client_due(client);
}

bool muster_params_acks_flush(struct muster_params_client *client)
{
    struct muster_params_answer *acks = client->acks;

    if (acks == NULL)
        return true;
    client->acks = NULL;
    return muster_params_answer_send(acks, acks->frame.header.payload_bytes);
}

bool muster_params_acknowledge(struct muster_params_client *client,
                               const struct muster_params_ack *ack)
{
    struct muster_frame_header *header;

    if (client->acks == NULL)
        client->acks = muster_params_answer_new(client, MUSTER_PARAMS_ACK, 0,
                                                ACKS_PER_FRAME * MUSTER_PARAMS_ACK_BYTES);
    if (client->acks == NULL)
        return false;
    header = &client->acks->frame.header;
    muster_params_ack_pack(ack, client->acks->payload + header->payload_bytes);
    header->payload_bytes += MUSTER_PARAMS_ACK_BYTES;
    if (header->payload_bytes == client->acks->capacity)
        return muster_params_acks_flush(client);
    client_due(client);
    return true;
}
