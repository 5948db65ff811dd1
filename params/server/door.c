/* Clients at the door: their links, and which message goes where. */
#include "params/server/server_internal.h"

#include <string.h>

#include "net/tls/stream.h"

#define HELLO_TIMEOUT_NS (10 * MUSTER_NS_PER_S)

#define METHOD "/muster.params.v1.Params/"

static const struct message_row {
    muster_params_handle_fn *handle;
    uint32_t payload_max;
    bool needs_open;    /* the link must have named its source */
    const char *method; /* of the gRPC door: who may call it may send the message */
} messages[] = {
    [MUSTER_PARAMS_OPEN] = {muster_params_handle_open, MUSTER_PARAMS_OPEN_BYTES, false,
                            METHOD "Open"},
    [MUSTER_PARAMS_TABLE] = {muster_params_handle_table, MUSTER_PARAMS_SCHEMA_BYTES, true,
                             METHOD "Table"},
    [MUSTER_PARAMS_PUSH] = {muster_params_handle_push, MUSTER_FRAME_PAYLOAD_MAX, true,
                            METHOD "Push"},
    [MUSTER_PARAMS_PULL] = {muster_params_handle_pull, MUSTER_FRAME_PAYLOAD_MAX, true,
                            METHOD "Pull"},
};

static void client_close(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;

    MUSTER_ASSERT(server->client_count > 0);
    muster_list_remove(&client->node);
    server->client_count--;
    muster_peer_link_close(client->link);
    muster_mem_free(&server->pool.mem, client->payload);
    muster_mem_free(&server->pool.mem, client->acks);
    muster_mem_free(server->env->mem, client);
}

/* The client asks again over a new link; what it has pushed is not applied twice. */
static void client_give_up(struct muster_params_client *client, const char *reason)
{
    MUSTER_LOG(client->server->env, WARN, "params_client_dropped", "slot", client->slot, "reason",
               reason);
    client_close(client);
}

static void on_ready(struct muster_peer_link *link)
{
    struct muster_params_client *client = muster_peer_link_data(link);

    if (muster_peer_link_hello(link)->purpose != MUSTER_LINK_PARAMS ||
        muster_peer_link_hello(link)->intent != MUSTER_LINK_NEW)
        client_give_up(client, "its link is for something else than parameters");
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

    return header->channel == MUSTER_FRAME_PARAMS && header->type < count &&
           messages[header->type].handle != NULL &&
           header->payload_bytes <= messages[header->type].payload_max &&
           (client->is_open || !messages[header->type].needs_open);
}

/* A message that cannot be taken ends the link: the stream of a client that sends such is not to be
 * trusted. */
static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_client *client = muster_peer_link_data(link);

    if (!message_is_known(client, header)) {
        client_give_up(client, "it sent a message that no client sends");
        return NULL;
    }
    MUSTER_ASSERT(client->payload == NULL);
    if (header->payload_bytes == 0)
        return NULL;
    client->payload = muster_mem_alloc(&client->server->pool.mem, header->payload_bytes);
    if (client->payload != NULL)
        return client->payload;
    client_give_up(client, "no memory for its message");
    return NULL;
}

static bool message_deny(struct muster_params_client *client,
                         const struct muster_frame_header *header)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_PERMISSION_DENIED, "%.120s may not call %s",
                     client->identity != NULL ? muster_identity_name(client->identity)
                                              : "a client without a certificate",
                     messages[header->type].method);
    return muster_params_refuse(client, header, &error);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params_client *client = muster_peer_link_data(link);
    struct muster_params_server *server = client->server;
    uint8_t *payload = client->payload;

    client->payload = NULL;
    if (!((client->denied & 1u << header->type) != 0
              ? message_deny(client, header)
              : messages[header->type].handle(client, header, buffer)))
        client_give_up(client, "no memory for the answer");
    muster_mem_free(&server->pool.mem, payload);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

/* Rules do not change while a server is open, so they are asked once. */
static void client_authorize(struct muster_params_client *client, struct muster_stream *stream)
{
    const struct muster_authorization *authorization = client->server->authorization;

    if (muster_tls_stream_is_one(stream))
        client->identity = muster_tls_stream_identity(stream);
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        if (authorization != NULL && messages[i].method != NULL &&
            !muster_authorization_is_allowed(authorization, client->identity, messages[i].method))
            client->denied |= 1u << i;
    }
}

void muster_params_door_accept(struct muster_params_server *server, struct muster_stream *stream)
{
    uint64_t deadline_ns = muster_loop_now_ns(server->env->loop) + HELLO_TIMEOUT_NS;
    struct muster_params_client *client =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*client));

    if (client == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    client->server = server;
    client_authorize(client, stream);
    muster_list_append(&server->clients, &client->node);
    server->client_count++;
    if (muster_peer_link_accept(server->env, stream, &server->hello, deadline_ns, &events, client,
                                &client->link) != MUSTER_OK) {
        muster_list_remove(&client->node);
        server->client_count--;
        muster_mem_free(server->env->mem, client);
    }
}

void muster_params_door_close(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node)
        client_close(client);
}
