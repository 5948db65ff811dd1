/* Readers at the door: their links, and answers to what they ask for. */
#include "params/publication/door.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "net/tls/stream.h"

#define HELLO_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
#define READ_METHOD      "/muster.params.v1.Publication/Read"
/* A reader may hear of a version before its parent has: the registry tells them one after the other. */
#define UNKNOWN_WAIT_NS (2 * MUSTER_NS_PER_S)
/* A reader asks again as soon as an answer is there, which may be before this side hears that it has left. */
#define SENDING_MAX (2 * MUSTER_PUBLICATION_REQUESTS_MAX)

struct muster_publication_door {
    struct muster_env *env;
    const char *name, *host_key;
    struct muster_peer_hello hello;
    const struct muster_authorization *authorization;
    const struct muster_list *versions;
    const struct muster_publication_door_events *events;
    void *owner;
    struct muster_port *port;
    struct muster_list clients;
    struct muster_list awaiting; /* those whose requests wait */
    struct muster_task serve;
    struct muster_timer alive;
    struct muster_publication_door_stats stats;
    muster_publication_door_fn *closed;
};

/* An answer on its way. It borrows the chunk, so it holds the version. */
struct answer {
    struct muster_frame frame;
    struct muster_publication_client *client;
    struct muster_held_version *held;
    void *encoded; /* NULL: the payload lies in the version */
};

static void client_close(struct muster_publication_client *client)
{
    struct muster_publication_door *door = client->door;

    muster_list_remove(&client->node);
    muster_list_remove(&client->awaiting);
    if (client->is_joined && door->events->on_gone != NULL)
        door->events->on_gone(door->owner, client);
    if (client->link != NULL)
        muster_peer_link_close(client->link);
    MUSTER_ASSERT(client->sending == 0);
    muster_mem_free(door->env->mem, client);
}

static void client_drop(struct muster_publication_client *client, const char *reason)
{
    MUSTER_LOG(client->door->env, WARN, "publication_reader_dropped", "name", client->door->name,
               "reason", reason);
    client_close(client);
}

bool muster_publication_client_send(struct muster_publication_client *client,
                                    struct muster_frame_header header, const void *payload,
                                    size_t bytes)
{
    if (muster_publication_send(client->link, header, payload, bytes))
        return true;
    client_drop(client, "no memory for an answer");
    return false;
}

static bool request_refuse(struct muster_publication_client *client,
                           const struct muster_publication_request *request,
                           const struct muster_error *error)
{
    const struct muster_frame_header header = {
        .type = MUSTER_PUBLICATION_REFUSED,
        .op.step = request->version,
        .phase = (uint32_t)error->rc,
        .chunk = request->is_manifest ? MUSTER_PUBLICATION_NO_CHUNK : request->chunk};

    return muster_publication_client_send(client, header, error->text, strlen(error->text));
}

/* --- Answers --- */

static void on_answer_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct answer *answer = frame->data;
    struct muster_publication_client *client = answer->client;

    (void)rc; /* a link that has failed tells on_down */
    client->sending--;
    muster_held_unref(answer->held);
    muster_mem_free(client->door->env->mem, answer->encoded);
    muster_mem_free(client->door->env->mem, answer);
}

static bool answer_send(struct muster_publication_client *client, struct muster_held_version *held,
                        struct muster_frame_header header, const void *payload, size_t bytes,
                        void *encoded)
{
    struct muster_mem *mem = client->door->env->mem;
    struct answer *answer = muster_mem_alloc_zero(mem, 1, sizeof(*answer));

    if (answer == NULL) {
        muster_mem_free(mem, encoded);
        client_drop(client, "no memory for an answer");
        return false;
    }
    header.channel = MUSTER_FRAME_PUBLICATION;
    header.op.step = held->shown.number;
    header.payload_bytes = (uint32_t)bytes;
    answer->frame.data = answer;
    answer->frame.header = header;
    answer->frame.payload = payload;
    answer->client = client;
    answer->held = held;
    answer->encoded = encoded;
    if (muster_peer_link_send(&answer->frame, client->link, on_answer_sent) != MUSTER_OK) {
        muster_mem_free(mem, encoded);
        muster_mem_free(mem, answer);
        client_drop(client, "its link is down");
        return false;
    }
    muster_held_ref(held);
    client->sending++;
    return true;
}

/* The changes of a chunk since a version that the reader has, where these are fewer bytes. NULL: they are
 * not. */
static void *delta_make(struct muster_publication_door *door, struct muster_held_version *held,
                        const struct muster_publication_request *request, size_t *ret_bytes)
{
    struct muster_held_version *base =
        request->base != 0 ? muster_held_find(door->versions, request->base) : NULL;

    if (base == NULL || !muster_held_is_whole(base))
        return NULL;
    return muster_held_delta_new(held, base, request->chunk, ret_bytes);
}

static bool chunk_send(struct muster_publication_client *client, struct muster_held_version *held,
                       const struct muster_publication_request *request)
{
    struct muster_publication_door *door = client->door;
    struct muster_frame_header header = {.type = MUSTER_PUBLICATION_CHUNK, .chunk = request->chunk};
    size_t bytes = muster_version_chunk_bytes(&held->manifest, request->chunk), delta_bytes = 0;
    void *delta;

    if (request->mapped != 0 && held->shared.bytes != NULL &&
        request->mapped == held->shared.file) {
        header.type = MUSTER_PUBLICATION_IN_PLACE;
        return answer_send(client, held, header, NULL, 0, NULL);
    }
    delta = delta_make(door, held, request, &delta_bytes);
    if (delta != NULL) {
        header.type = MUSTER_PUBLICATION_DELTA;
        header.offset = request->base;
        door->stats.deltas++;
        door->stats.bytes += delta_bytes;
        return answer_send(client, held, header, delta, delta_bytes, delta);
    }
    door->stats.chunks++;
    door->stats.bytes += bytes;
    return answer_send(client, held, header, muster_held_chunk(held, request->chunk), bytes, NULL);
}

static bool manifest_send(struct muster_publication_client *client,
                          struct muster_held_version *held)
{
    struct muster_frame_header header = {.type = MUSTER_PUBLICATION_MANIFEST};
    const struct muster_host_memory *shared = &held->shared;

    if (shared->bytes != NULL && shared->pid <= UINT32_MAX && client->join.host_key[0] != '\0' &&
        strcmp(client->join.host_key, client->door->host_key) == 0) {
        held->is_offered = true;
        header.phase = (uint32_t)shared->pid;
        header.chunk = shared->number;
        header.offset = shared->size;
        header.descriptor = shared->file;
    }
    return answer_send(client, held, header, held->packed, held->packed_bytes, NULL);
}

enum attempt {
    ATTEMPT_ANSWERED,
    ATTEMPT_WAITS,
    ATTEMPT_CLOSED, /* the client is gone */
};

static enum attempt version_refuse(struct muster_publication_client *client,
                                   const struct muster_publication_request *request)
{
    struct muster_publication_door *door = client->door;
    uint64_t waited_ns = muster_loop_now_ns(door->env->loop) - request->since_ns;
    enum muster_publication_prospect prospect =
        door->events->on_missing(door->owner, request->version);
    struct muster_error error;

    if (prospect == MUSTER_PUBLICATION_IS_COMING ||
        (prospect == MUSTER_PUBLICATION_IS_UNKNOWN && waited_ns < UNKNOWN_WAIT_NS))
        return ATTEMPT_WAITS;
    muster_error_set(&error, MUSTER_OUT_OF_RANGE, "version %" PRIu64 " is not here",
                     request->version);
    return request_refuse(client, request, &error) ? ATTEMPT_ANSWERED : ATTEMPT_CLOSED;
}

static enum attempt request_try(struct muster_publication_client *client,
                                const struct muster_publication_request *request)
{
    struct muster_held_version *held = muster_held_find(client->door->versions, request->version);
    struct muster_error error;
    bool is_open;

    if (held == NULL)
        return version_refuse(client, request);
    if (request->is_manifest) {
        is_open = manifest_send(client, held);
    } else if (request->chunk >= held->manifest.chunk_count) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "the chunk must be below %u, the number of chunks, got %u",
                         held->manifest.chunk_count, request->chunk);
        is_open = request_refuse(client, request, &error);
    } else if (!muster_held_has(held, request->chunk)) {
        return ATTEMPT_WAITS;
    } else {
        is_open = chunk_send(client, held, request);
    }
    return is_open ? ATTEMPT_ANSWERED : ATTEMPT_CLOSED;
}

/* False: the client is gone. */
static bool client_serve(struct muster_publication_client *client)
{
    struct muster_publication_door *door = client->door;

    for (uint32_t i = 0; i < client->request_count;) {
        const struct muster_publication_request request = client->requests[i];
        enum attempt attempt = request_try(client, &request);

        if (attempt == ATTEMPT_CLOSED)
            return false;
        if (attempt == ATTEMPT_WAITS) {
            i++;
            continue;
        }
        client->request_count--;
        memmove(&client->requests[i], &client->requests[i + 1],
                (client->request_count - i) * sizeof(client->requests[0]));
    }
    muster_list_remove(&client->awaiting);
    if (client->request_count == 0)
        return true;
    muster_list_append(&door->awaiting, &client->awaiting);
    if (!muster_timer_is_started(&door->alive))
        muster_timer_start(&door->alive, door->env->loop,
                           muster_loop_after_ns(door->env->loop, MUSTER_PUBLICATION_ALIVE_NS));
    return true;
}

static void awaiting_serve(struct muster_publication_door *door)
{
    struct muster_list list;

    muster_list_take_all(&list, &door->awaiting);
    muster_list_init(&door->awaiting);
    while (!muster_list_is_empty(&list)) {
        struct muster_publication_client *client =
            MUSTER_CONTAINER_OF(list.next, struct muster_publication_client, awaiting);

        muster_list_remove(&client->awaiting);
        (void)client_serve(client);
    }
}

static void on_serve(struct muster_task *task)
{
    awaiting_serve(task->data);
}

/* Readers that wait for a chunk are told that this side makes progress, so that they do not leave it. Without
 * progress they are told nothing: otherwise two readers that wait for each other would do so for ever. */
static void on_alive(struct muster_timer *timer)
{
    struct muster_publication_door *door = timer->data;
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_ALIVE};
    bool is_progressing;

    awaiting_serve(door);
    is_progressing =
        door->events->is_progressing == NULL || door->events->is_progressing(door->owner);
    MUSTER_LIST_EACH_SAFE (&door->awaiting, client, struct muster_publication_client, awaiting)
        if (is_progressing)
            (void)!muster_publication_client_send(client, header, NULL, 0);
    if (!muster_list_is_empty(&door->awaiting))
        muster_timer_start(&door->alive, door->env->loop,
                           muster_loop_after_ns(door->env->loop, MUSTER_PUBLICATION_ALIVE_NS));
}

void muster_publication_door_progress(struct muster_publication_door *door)
{
    if (!muster_list_is_empty(&door->awaiting))
        muster_task_post(&door->serve, door->env->loop);
}

/* --- Messages of readers --- */

static void join_refuse(struct muster_publication_client *client, const struct muster_error *error)
{
    const struct muster_publication_request request = {.is_manifest = true};

    (void)!request_refuse(client, &request, error);
}

/* A reader that follows again has lost its link before this side has: it counts once, and is not told itself as
 * a source. */
static void earlier_close(struct muster_publication_door *door,
                          const struct muster_publication_join *join)
{
    MUSTER_LIST_EACH_SAFE (&door->clients, client, struct muster_publication_client, node) {
        if (client->is_joined && client->join.is_following &&
            muster_incarnation_is_equal(&client->join.reader, &join->reader))
            client_close(client);
    }
}

static void join_receive(struct muster_publication_client *client,
                         const struct muster_frame_header *header)
{
    struct muster_publication_door *door = client->door;
    struct muster_publication_join join;
    struct muster_error error;

    if (muster_publication_join_unpack(client->join_bytes, &join, &error) != MUSTER_OK) {
        client_drop(client, error.text);
        return;
    }
    if (client->is_denied) {
        muster_error_set(&error, MUSTER_PERMISSION_DENIED, "%.100s may not call %s",
                         client->identity != NULL ? muster_identity_name(client->identity)
                                                  : "a reader without a certificate",
                         READ_METHOD);
        join_refuse(client, &error);
        return;
    }
    if (strcmp(join.name, door->name) != 0) {
        muster_error_set(&error, MUSTER_NOT_FOUND, "publication %s is not here, but %s", join.name,
                         door->name);
        join_refuse(client, &error);
        return;
    }
    if (join.is_following)
        earlier_close(door, &join);
    client->join = join;
    client->has_version = header->offset;
    client->is_joined = true;
    if (door->events->on_join != NULL)
        door->events->on_join(door->owner, client);
}

static void request_receive(struct muster_publication_client *client,
                            const struct muster_frame_header *header)
{
    struct muster_publication_request *request;

    if (client->request_count == MUSTER_PUBLICATION_WAITING_MAX || client->sending >= SENDING_MAX) {
        client_drop(client, "it asks for more at once than a reader does");
        return;
    }
    request = &client->requests[client->request_count++];
    *request = (struct muster_publication_request){
        .version = header->op.step,
        .base = header->offset,
        .mapped = header->descriptor,
        .since_ns = muster_loop_now_ns(client->door->env->loop),
        .chunk = header->chunk,
        .is_manifest = header->type == MUSTER_PUBLICATION_MANIFEST_REQUEST};
    (void)client_serve(client);
}

static void message_receive(struct muster_publication_client *client,
                            const struct muster_frame_header *header)
{
    struct muster_publication_door *door = client->door;
    const struct muster_publication_door_events *tell = door->events;

    switch (header->type) {
    case MUSTER_PUBLICATION_JOIN:
        join_receive(client, header);
        break;
    case MUSTER_PUBLICATION_WHERE:
        if (tell->on_where != NULL)
            tell->on_where(door->owner, client, header->op.step);
        break;
    case MUSTER_PUBLICATION_HAVE:
        client->has_version = header->op.step;
        if (tell->on_have != NULL)
            tell->on_have(door->owner, client);
        break;
    default:
        request_receive(client, header);
    }
}

static bool message_is_known(const struct muster_publication_client *client,
                             const struct muster_frame_header *header)
{
    bool is_join = header->type == MUSTER_PUBLICATION_JOIN;

    if (header->channel != MUSTER_FRAME_PUBLICATION || is_join == client->is_joined ||
        header->payload_bytes != (is_join ? MUSTER_PUBLICATION_JOIN_BYTES : 0))
        return false;
    return is_join || header->type == MUSTER_PUBLICATION_WHERE ||
           header->type == MUSTER_PUBLICATION_HAVE ||
           header->type == MUSTER_PUBLICATION_MANIFEST_REQUEST ||
           header->type == MUSTER_PUBLICATION_CHUNK_REQUEST;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_publication_client *client = muster_peer_link_data(link);

    if (!message_is_known(client, header)) {
        if (client->is_denied || !client->is_joined)
            return NULL; /* sent before it has read that it is refused; the link ends with it */
        client_drop(client, "it sent a message that no reader sends");
        return NULL;
    }
    return header->payload_bytes != 0 ? client->join_bytes : NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_publication_client *client = muster_peer_link_data(link);

    (void)buffer;
    if (message_is_known(client, header))
        message_receive(client, header);
}

static void on_ready(struct muster_peer_link *link)
{
    struct muster_publication_client *client = muster_peer_link_data(link);
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);

    if (hello->purpose != MUSTER_LINK_PUBLICATION || hello->intent != MUSTER_LINK_NEW)
        client_drop(client, "its link is for something else than a publication");
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_publication_client *client = muster_peer_link_data(link);

    MUSTER_LOG(client->door->env, DEBUG, "publication_reader_down", "reason", error->text);
    client_close(client);
}

static const struct muster_peer_link_events link_events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    struct muster_publication_door *door = muster_port_data(port);
    uint64_t deadline_ns = muster_loop_after_ns(door->env->loop, HELLO_TIMEOUT_NS);
    struct muster_publication_client *client =
        muster_mem_alloc_zero(door->env->mem, 1, sizeof(*client));

    if (client == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    client->door = door;
    muster_list_init(&client->awaiting);
    if (muster_tls_stream_is_one(stream))
        client->identity = muster_tls_stream_identity(stream);
    client->is_denied =
        door->authorization != NULL &&
        !muster_authorization_is_allowed(door->authorization, client->identity, READ_METHOD);
    muster_list_append(&door->clients, &client->node);
    if (muster_peer_link_accept(door->env, stream, &door->hello, deadline_ns, &link_events, client,
                                &client->link) == MUSTER_OK)
        return;
    client->link = NULL;
    client_close(client);
}

/* --- Life --- */

void muster_publication_hello_fill(struct muster_env *env, const char *job,
                                   struct muster_peer_hello *ret_hello)
{
    memset(ret_hello, 0, sizeof(*ret_hello));
    ret_hello->version = MUSTER_PEER_VERSION;
    ret_hello->purpose = MUSTER_LINK_PUBLICATION;
    muster_rng_fill(env->rng, ret_hello->incarnation.bytes, sizeof(ret_hello->incarnation.bytes));
    snprintf(ret_hello->job, sizeof(ret_hello->job), "%s", job);
}

enum muster_rc muster_publication_reach_fill(const struct muster_address *port, const char *reach,
                                             char ret_address[MUSTER_ADDRESS_TEXT_BYTES],
                                             struct muster_error *ret_error)
{
    struct muster_address address = *port;
    enum muster_rc rc =
        reach != NULL ? muster_address_parse(reach, &address, ret_error) : MUSTER_OK;

    if (rc == MUSTER_OK && muster_address_is_wildcard(&address))
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "nobody can connect to an address of all interfaces; set reach");
    if (rc == MUSTER_OK)
        muster_address_format(&address, ret_address);
    return rc;
}

enum muster_rc muster_publication_door_open(struct muster_env *env,
                                            const struct muster_publication_door_options *options,
                                            struct muster_publication_door **ret_door,
                                            struct muster_error *ret_error)
{
    struct muster_publication_door *door = muster_mem_alloc_zero(env->mem, 1, sizeof(*door));
    enum muster_rc rc;

    if (door == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for the port of a publication");
    door->env = env;
    door->name = options->name;
    door->host_key = options->host_key != NULL ? options->host_key : "";
    door->hello = *options->hello;
    door->authorization = options->authorization;
    door->versions = options->versions;
    door->events = options->events;
    door->owner = options->owner;
    muster_list_init(&door->clients);
    muster_list_init(&door->awaiting);
    muster_task_init(&door->serve, on_serve, door);
    muster_timer_init(&door->alive, on_alive, door);
    rc = muster_port_open(env, options->listen, NULL, on_peer, door, &door->port, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, door);
        return rc;
    }
    *ret_door = door;
    return MUSTER_OK;
}

const struct muster_address *muster_publication_door_address(
    const struct muster_publication_door *door)
{
    return muster_port_address(door->port);
}

const struct muster_publication_door_stats *muster_publication_door_stats(
    const struct muster_publication_door *door)
{
    return &door->stats;
}

struct muster_list *muster_publication_door_clients(struct muster_publication_door *door)
{
    return &door->clients;
}

static void on_port_closed(struct muster_port *port)
{
    struct muster_publication_door *door = muster_port_data(port);
    muster_publication_door_fn *closed = door->closed;
    void *owner = door->owner;

    muster_mem_free(door->env->mem, door);
    if (closed != NULL)
        closed(owner);
}

void muster_publication_door_close(struct muster_publication_door *door,
                                   muster_publication_door_fn *closed)
{
    door->closed = closed;
    while (!muster_list_is_empty(&door->clients))
        client_close(
            MUSTER_CONTAINER_OF(door->clients.next, struct muster_publication_client, node));
    muster_task_cancel(&door->serve);
    muster_timer_stop(&door->alive);
    muster_port_close(door->port, on_port_closed);
}
