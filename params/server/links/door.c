/* Clients at the door: their links, and which message goes where. */
#include "params/server/links/door.h"

#include <string.h>

#include <muster/hash.h>

#include "net/tls/stream.h"
#include "params/server/core/alive.h"
#include "params/server/core/answer.h"
#include "params/server/core/credit.h"
#include "params/server/leaders/leader.h"
#include "params/server/links/handle.h"
#include "params/server/links/range.h"
#include "params/server/links/wait.h"
#include "params/server/state/absent.h"
#include "params/server/state/clock.h"
#include "params/server/state/cut.h"
#include "params/server/state/hold.h"
#include "params/server/state/round.h"
#include "params/server/state/rows.h"

#define HELLO_TIMEOUT_NS (10 * MUSTER_NS_PER_S)

#define METHOD "/muster.params.v1.Params/"

static bool handle_alive(struct muster_params_client *client,
                         const struct muster_frame_header *header, const uint8_t *payload)
{
    (void)payload;
    if (header->flags == MUSTER_PARAMS_ALIVE_LEAVES && client->is_open)
        muster_params_absent_leave(client);
    return header->flags != MUSTER_PARAMS_ALIVE_ASKS ||
           muster_params_alive_send(client->link, MUSTER_PARAMS_ALIVE, 0);
}

static const struct message_row {
    muster_params_handle_fn *handle;
    uint32_t payload_max;
    bool needs_open;    /* the link must have named its source */
    const char *method; /* of the gRPC door: who may call it may send the message */
} messages[] = {
    [MUSTER_PARAMS_ALIVE] = {handle_alive, 0, false, NULL},
    [MUSTER_PARAMS_OPEN] = {muster_params_handle_open, MUSTER_PARAMS_OPEN_BYTES, false,
                            METHOD "Open"},
    [MUSTER_PARAMS_TABLE] = {muster_params_handle_table, MUSTER_PARAMS_SCHEMA_BYTES, true,
                             METHOD "Table"},
    [MUSTER_PARAMS_PUSH] = {muster_params_handle_push, MUSTER_FRAME_PAYLOAD_MAX, true,
                            METHOD "Push"},
    [MUSTER_PARAMS_PULL] = {muster_params_handle_pull, MUSTER_FRAME_PAYLOAD_MAX, true,
                            METHOD "Pull"},
    [MUSTER_PARAMS_PUSH_PULL] = {muster_params_handle_push_pull, MUSTER_FRAME_PAYLOAD_MAX, true,
                                 METHOD "Push"}, /* and Pull */
    [MUSTER_PARAMS_TICK] = {muster_params_handle_tick, MUSTER_PARAMS_TICK_BYTES, true,
                            METHOD "Tick"},
    [MUSTER_PARAMS_CUT] = {muster_params_handle_cut,
                           sizeof(uint64_t) + MUSTER_PARAMS_FOLDER_BYTES_MAX, true, METHOD "Cut"},
    [MUSTER_PARAMS_MARK] = {muster_params_handle_mark, MUSTER_PARAMS_MARK_BYTES, true, NULL},
    [MUSTER_PARAMS_HOLD] = {muster_params_handle_hold, MUSTER_PARAMS_HOLD_BYTES, true,
                            METHOD "Cut"},
    [MUSTER_PARAMS_ROUND] = {muster_params_handle_round, MUSTER_PARAMS_ROUND_BYTES_MAX, true,
                             METHOD "Tick"},
    [MUSTER_PARAMS_PUSH_RANGE] = {muster_params_handle_push_range, MUSTER_FRAME_PAYLOAD_MAX, true,
                                  METHOD "Push"},
    [MUSTER_PARAMS_PULL_RANGE] = {muster_params_handle_pull_range, MUSTER_PARAMS_PULL_RANGE_BYTES,
                                  true, METHOD "Pull"},
    [MUSTER_PARAMS_STAGE] = {muster_params_handle_stage, sizeof(struct muster_params_stage_token),
                             true, METHOD "Push"},
    [MUSTER_PARAMS_PUSH_STAGED] = {muster_params_handle_push_staged, MUSTER_PARAMS_STAGED_BYTES,
                                   true, METHOD "Push"},
};

static void client_close(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;

    MUSTER_ASSERT(server->client_count > 0);
    muster_params_waiting_drop(client);
    muster_params_server_clock_drop(client);
    muster_params_server_cut_leave(client);
    muster_params_server_hold_leave(client);
    if (client->is_open) {
        muster_params_absent_lose(client);
        muster_params_server_clock_link(server, client->slot, false);
    }
    muster_list_remove(&client->node);
    muster_list_remove(&client->due_node);
    server->client_count--;
    if (client->link != NULL)
        muster_peer_link_close(client->link);
    muster_params_stage_unmap(client);
    muster_mem_free(&server->pool.mem, client->payload);
    muster_params_answer_free(client->acks);
    muster_params_credit_drop(client);
    muster_params_credits_share(server);
    muster_mem_free(server->env->mem, client);
}

/* The client asks again over a new link; what it has pushed is not applied twice. */
static void client_give_up(struct muster_params_client *client, const char *reason)
{
    MUSTER_LOG(client->server->env, WARN, "params_client_dropped", "slot", client->slot, "reason",
               reason);
    client_close(client);
}

/* Servers that the policy refuses come again and again: each is told of once. */
static void replicate_refuse(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;
    const char *name = muster_identity_name(client->identity);
    uint64_t hash = muster_hash64(name, strlen(name), 0);
    size_t count = sizeof(server->refused_servers) / sizeof(server->refused_servers[0]);
    bool is_told = false;

    for (size_t i = 0; i < count; i++) /* 0: nobody yet */
        is_told |= server->refused_servers[i] == hash;
    if (!is_told) {
        server->refused_servers[server->refused_count++ % count] = hash;
        MUSTER_LOG(server->env, WARN, "call_not_allowed", "caller", name, "method",
                   METHOD "Replicate", "remedy",
                   "let the certificates of the job's servers call this in the policy of each, and "
                   "start them again");
    }
    client_close(client);
}

/* Another server that wants to be followed. */
static void client_becomes_leader(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;
    struct muster_peer_link *link = client->link;

    if (server->registration == NULL) {
        client_give_up(client, "it is not a server of this job");
        return;
    }
    if (client->may_not_lead) {
        replicate_refuse(client);
        return;
    }
    client->link = NULL;
    client_close(client);
    muster_params_leader_accept(server, link);
}

/* Another server that leaves. It closes the link once it has the acknowledgement, and tries again without it. */
static void client_leaves(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;

    if (server->registration == NULL) {
        client_give_up(client, "it is not a server of this job");
        return;
    }
    if (client->may_not_lead) {
        replicate_refuse(client);
        return;
    }
    server->on_leaves(server, &muster_peer_link_hello(client->link)->incarnation);
    if (!muster_params_alive_send(client->link, MUSTER_PARAMS_LEFT, 0))
        client_give_up(client, "no memory to acknowledge its farewell");
}

static void on_ready(struct muster_peer_link *link)
{
    struct muster_params_client *client = muster_peer_link_data(link);
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);

    if (hello->purpose == MUSTER_LINK_PARAMS_COPY && hello->intent == MUSTER_LINK_NEW)
        client_becomes_leader(client);
    else if (hello->purpose == MUSTER_LINK_PARAMS_LEAVE && hello->intent == MUSTER_LINK_NEW)
        client_leaves(client);
    else if (hello->purpose != MUSTER_LINK_PARAMS || hello->intent != MUSTER_LINK_NEW)
        client_give_up(client, "its link is for something else than parameters");
    else if (!muster_params_map_tell(client))
        client_give_up(client, "no memory for the map");
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_params_client *client = muster_peer_link_data(link);

    MUSTER_LOG(client->server->env, DEBUG, "params_client_down", "slot", client->slot, "reason",
               error->text);
    client_close(client);
}

static bool message_is_known(const struct muster_params_client *client,
                             const struct muster_frame_header *header)
{
    size_t count = sizeof(messages) / sizeof(messages[0]);

    return (client->server->map != NULL || header->type == MUSTER_PARAMS_ALIVE) &&
           header->channel == MUSTER_FRAME_PARAMS && header->type < count &&
           messages[header->type].handle != NULL &&
           header->payload_bytes <= messages[header->type].payload_max &&
           (client->is_open || !messages[header->type].needs_open);
}

static uint8_t *message_room(struct muster_params_server *server,
                             const struct muster_frame_header *header)
{
    size_t padding = header->type == MUSTER_PARAMS_PUSH_RANGE
                         ? muster_params_message_padding(server, header)
                         : 0;
    uint8_t *room = muster_mem_alloc(&server->pool.mem, header->payload_bytes + padding);

    if (room != NULL)
        memset(room + header->payload_bytes, 0, padding);
    return room;
}

static void client_hear(struct muster_params_client *client)
{
    muster_params_pulse_hear(&client->pulse, muster_loop_now_ns(client->server->env->loop));
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    (void)header;
    (void)buffer;
    (void)bytes_done;
    client_hear(muster_peer_link_data(link));
}

/* Nothing is read from the client until less is held for it. */
static void client_starve(struct muster_params_client *client, size_t own, size_t more)
{
    muster_params_credit_await(client, own, more);
    muster_peer_link_pause(client->link);
    muster_params_alive_watch(client->server, true);
}

/* A message that cannot be taken ends the link: the stream of a client that sends such is not to be
 * trusted. */
static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_client *client = muster_peer_link_data(link);

    client_hear(client);
    if (!message_is_known(client, header)) {
        client_give_up(client, client->server->map == NULL
                                   ? "this server has no map of the job yet"
                                   : "it sent a message that no client sends");
        return NULL;
    }
    MUSTER_ASSERT(client->payload == NULL);
    if (!muster_params_credit_allows(client, 0, header->payload_bytes)) {
        client_starve(client, 0, header->payload_bytes);
        return NULL;
    }
    if (header->payload_bytes == 0)
        return NULL;
    client->payload = message_room(client->server, header);
    if (client->payload != NULL) {
        muster_params_credit_take(client, header->payload_bytes);
        return client->payload;
    }
    client_give_up(client, "no memory for its message");
    return NULL;
}

static bool message_deny(struct muster_params_client *client,
                         const struct muster_frame_header *header, const uint8_t *payload)
{
    bool may_push = (client->denied & UINT64_C(1) << MUSTER_PARAMS_PUSH) == 0;
    struct muster_error error;

    muster_error_set(&error, MUSTER_PERMISSION_DENIED, "%.120s may not call %s",
                     client->identity != NULL ? muster_identity_name(client->identity)
                                              : "a client without a certificate",
                     header->type == MUSTER_PARAMS_PUSH_PULL && may_push
                         ? messages[MUSTER_PARAMS_PULL].method
                         : messages[header->type].method);
    if (header->type == MUSTER_PARAMS_PUSH_PULL && may_push)
        return muster_params_push_deny(client, header, payload, &error);
    return muster_params_refuse(client, header, &error);
}

/* False: the client is closed. */
static bool message_handle(struct muster_params_client *client,
                           const struct muster_frame_header *header)
{
    struct muster_params_server *server = client->server;
    uint8_t *payload = client->payload;
    bool is_answered;

    client->payload = NULL;
    if (payload != NULL)
        muster_params_credit_give_back(client, header->payload_bytes);
    is_answered = (client->denied & UINT64_C(1) << header->type) != 0
                      ? message_deny(client, header, payload)
                      : messages[header->type].handle(client, header, payload);
    if (!is_answered)
        client_give_up(client, "no memory for the answer");
    muster_mem_free(&server->pool.mem, payload);
    return is_answered;
}

static bool is_push(const struct muster_frame_header *header)
{
    return header->type == MUSTER_PARAMS_PUSH || header->type == MUSTER_PARAMS_PUSH_PULL ||
           header->type == MUSTER_PARAMS_PUSH_RANGE || header->type == MUSTER_PARAMS_PUSH_STAGED;
}

/* Room for the rows with which it is answered. */
static bool message_waits_for_credit(struct muster_params_client *client,
                                     const struct muster_frame_header *header)
{
    size_t own = client->payload != NULL ? header->payload_bytes : 0;
    size_t more = muster_params_answer_bytes(client->server, header, client->payload);

    if (more == 0 || muster_params_credit_allows(client, own, more))
        return false;
    client_starve(client, own, more);
    return true;
}

/* The first table of a job is not answered before the registry knows of it: servers that come when all have gone
 * begin anew only where there was none. */
static bool table_waits(struct muster_params_server *server,
                        const struct muster_frame_header *header)
{
    if (header->type != MUSTER_PARAMS_TABLE || !server->map->is_unused)
        return false;
    server->wants_tables = true;
    muster_task_post(&server->decide, server->env->loop);
    return true;
}

/* For credit, for a map that the client has heard of before this server has, for copies that are united, for the
 * end of a round, or of a handover. */
static bool message_waits(struct muster_params_client *client,
                          const struct muster_frame_header *header)
{
    return message_waits_for_credit(client, header) || header->epoch > client->server->map->epoch ||
           muster_params_unite_waits(client->server) ||
           (client->server->handing_count > 0 && is_push(header)) ||
           table_waits(client->server, header) ||
           muster_params_rounds_delay(client->server, header, client->payload);
}

static void message_resume(struct muster_params_client *client)
{
    const struct muster_frame_header header = client->early;

    if (header.type == 0 || message_waits(client, &header))
        return;
    client->early.type = 0;
    muster_params_credit_await_end(client);
    if (message_handle(client, &header) && !client->is_marked && !client->is_starved)
        muster_peer_link_resume(client->link);
}

static void on_early_review(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node)
        message_resume(client);
}

void muster_params_door_init(struct muster_params_server *server)
{
    muster_task_init(&server->early_review, on_early_review, server);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params_client *client = muster_peer_link_data(link);

    (void)buffer;
    if (header->type == MUSTER_PARAMS_ALIVE || !message_waits(client, header)) {
        (void)message_handle(client, header);
        return;
    }
    if (header->epoch > client->server->map->epoch && client->server->registration == NULL) {
        client_give_up(client, "it follows a map, and this server has none");
        return;
    }
    client->early = *header;
    muster_peer_link_pause(link);
    muster_params_alive_watch(client->server, true);
}

static const struct muster_peer_link_events events = {.on_ready = on_ready,
                                                      .on_frame = on_frame,
                                                      .on_progress = on_progress,
                                                      .on_payload = on_payload,
                                                      .on_down = on_down};

/* Rules do not change while a server is open, so they are asked once. */
static void client_authorize(struct muster_params_client *client, struct muster_stream *stream)
{
    const struct muster_authorization *authorization = client->server->authorization;

    if (muster_tls_stream_is_one(stream))
        client->identity = muster_tls_stream_identity(stream);
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        if (authorization != NULL && messages[i].method != NULL &&
            !muster_authorization_is_allowed(authorization, client->identity, messages[i].method))
            client->denied |= UINT64_C(1) << i;
    }
    if ((client->denied & UINT64_C(1) << MUSTER_PARAMS_PULL) != 0)
        client->denied |= UINT64_C(1) << MUSTER_PARAMS_PUSH_PULL;
    client->may_not_lead =
        authorization != NULL &&
        !muster_authorization_is_allowed(authorization, client->identity, METHOD "Replicate");
}

static void client_accept(struct muster_params_server *server, struct muster_stream *stream,
                          bool is_own)
{
    uint64_t deadline_ns = muster_loop_now_ns(server->env->loop) + HELLO_TIMEOUT_NS;
    struct muster_params_client *client =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*client));

    if (client == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    client->server = server;
    muster_list_init(&client->waiting);
    muster_list_init(&client->due_node);
    if (!is_own)
        client_authorize(client, stream);
    muster_list_append(&server->clients, &client->node);
    server->client_count++;
    muster_params_credits_share(server);
    client_hear(client);
    muster_params_alive_watch(server, false);
    if (muster_peer_link_accept(server->env, stream, &server->hello, deadline_ns, &events, client,
                                &client->link) != MUSTER_OK) {
        muster_list_remove(&client->node);
        server->client_count--;
        muster_params_credits_share(server);
        muster_mem_free(server->env->mem, client);
    }
}

void muster_params_door_accept(struct muster_params_server *server, struct muster_stream *stream)
{
    client_accept(server, stream, false);
}

void muster_params_door_accept_own(struct muster_params_server *server,
                                   struct muster_stream *stream)
{
    client_accept(server, stream, true);
}

static void client_check(struct muster_params_client *client, uint64_t now_ns)
{
    bool is_paused = client->early.type != 0 ||
                     (client->is_starved && muster_peer_link_queued_bytes(client->link) == 0);

    if (is_paused) /* nothing is read from it: what it says is not heard */
        muster_params_pulse_hear(&client->pulse, now_ns);
    switch (muster_params_pulse_check(&client->pulse, now_ns,
                                      muster_peer_link_queued_bytes(client->link), false)) {
    case MUSTER_PARAMS_PULSE_BEATS:
        if (!is_paused || muster_params_alive_send(client->link, MUSTER_PARAMS_ALIVE, 0))
            return;
        break;
    case MUSTER_PARAMS_PULSE_ASK:
        if (muster_params_alive_send(client->link, MUSTER_PARAMS_ALIVE, MUSTER_PARAMS_ALIVE_ASKS))
            return;
        break;
    case MUSTER_PARAMS_PULSE_LOST:
        client_give_up(client, "it is silent");
        return;
    }
    client_give_up(client, "no memory for a sign of life");
}

bool muster_params_door_check(struct muster_params_server *server)
{
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    bool is_awaited = false;

    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node) {
        is_awaited |= client->early.type != 0 || client->is_starved;
        if (muster_peer_link_is_ready(client->link))
            client_check(client, now_ns);
    }
    return is_awaited;
}

void muster_params_door_close(struct muster_params_server *server)
{
    muster_task_cancel(&server->early_review);
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node)
        client_close(client);
}

void muster_params_door_map(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node) {
        if (!muster_peer_link_is_ready(client->link))
            continue;
        if (!muster_params_map_tell(client)) {
            client_give_up(client, "no memory for the map");
            continue;
        }
        message_resume(client);
    }
}

void muster_params_door_flush(struct muster_params_server *server)
{
    struct muster_list due, *node;

    muster_list_take_all(&due, &server->due);
    while ((node = muster_list_pop(&due)) != NULL) {
        struct muster_params_client *client =
            MUSTER_CONTAINER_OF(node, struct muster_params_client, due_node);

        if (client->is_short)
            client_give_up(client, "no memory for an answer that was due");
        else if (!muster_params_acks_flush(
                     client)) /* a link that is down is closed by its own event */
            MUSTER_LOG(server->env, DEBUG, "params_acks_not_sent", "slot", client->slot);
    }
}
