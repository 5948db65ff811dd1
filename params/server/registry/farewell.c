/* Servers that leave while the registry is away tell each other so by links: keys cannot say it then. A server that
 * knows that all others leave, and that they know the same of it, has nobody to give its rows to. */
#include "params/server/registry/registration_internal.h"

#include <muster/address.h>

#define TIMEOUT_NS (2 * MUSTER_NS_PER_S)
#define AGAIN_NS   (200 * MUSTER_NS_PER_MS)
/* A server that has answered by its hello, and stands still since. */
#define ACKNOWLEDGED_NS (2 * TIMEOUT_NS)
/* A queue of connections that is full for a moment is no server that has gone. */
#define UNREACHED_MIN 3u
/* As long as a lease: a registry that is slow, or is started again, has answered by then. */
#define PATIENCE_NS (MUSTER_PARAMS_SERVER_LEASE_TTL_S * MUSTER_NS_PER_S)

static void look_post(const struct muster_params_peer *peer)
{
    struct muster_params_registration *registration = peer->registration;

    if (!registration->is_closing)
        muster_task_post(&registration->look, registration->server->env->loop);
}

void muster_params_farewell_drop(struct muster_params_peer *peer)
{
    struct muster_peer_link *link = peer->farewell;

    peer->farewell = NULL;
    if (link != NULL)
        muster_peer_link_close(link);
}

/* Its hello says nothing yet: a server that refuses the farewell sends one, too. */
static void on_ready(struct muster_peer_link *link)
{
    (void)link;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_peer *peer = muster_peer_link_data(link);

    if (header->channel != MUSTER_FRAME_PARAMS || header->type != MUSTER_PARAMS_LEFT)
        return NULL;
    peer->is_told = true;
    muster_params_farewell_drop(peer);
    look_post(peer);
    return NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_params_peer *peer = muster_peer_link_data(link);

    MUSTER_LOG(peer->registration->server->env, DEBUG, "params_farewell_failed", "address",
               peer->record.server.address, "reason", error->text);
    peer->unreached_count++;
    muster_params_farewell_drop(peer);
    look_post(peer);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void farewell_send(struct muster_params_peer *peer)
{
    struct muster_params_server *server = peer->registration->server;
    struct muster_peer_hello hello = server->hello;
    struct muster_address address;

    peer->farewell_ns = muster_loop_after_ns(server->env->loop, AGAIN_NS);
    peer->acknowledged_ns = muster_loop_after_ns(server->env->loop, ACKNOWLEDGED_NS);
    hello.purpose = MUSTER_LINK_PARAMS_LEAVE;
    hello.incarnation = server->region->head->id;
    hello.target = peer->record.server.id; /* another server may answer at its address */
    if (muster_address_parse(peer->record.server.address, &address, NULL) != MUSTER_OK ||
        muster_peer_link_open(server->env, &address, &hello,
                              muster_loop_after_ns(server->env->loop, TIMEOUT_NS), &events, peer,
                              &peer->farewell) != MUSTER_OK)
        peer->farewell = NULL;
}

void muster_params_farewells_send(struct muster_params_registration *registration)
{
    uint64_t now_ns = muster_loop_now_ns(registration->server->env->loop);

    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        if (peer->farewell != NULL && peer->acknowledged_ns <= now_ns)
            muster_params_farewell_drop(peer);
        if (!peer->is_told && peer->farewell == NULL && peer->farewell_ns <= now_ns &&
            !muster_incarnation_is_equal(&peer->record.server.id,
                                         &registration->record.server.id))
            farewell_send(peer);
    }
}

bool muster_params_farewell_is_final(const struct muster_params_registration *registration)
{
    uint64_t now_ns = muster_loop_now_ns(registration->server->env->loop);

    return registration->away.rc != MUSTER_OK && now_ns - registration->away_ns >= PATIENCE_NS;
}

bool muster_params_farewell_is_mutual(struct muster_params_registration *registration,
                                      const struct muster_params_peer *peer)
{
    return muster_params_departure_has(&registration->departures, &peer->record.server.id) &&
           (peer->is_told || peer->unreached_count >= UNREACHED_MIN);
}

static void on_leaves(struct muster_params_server *server, const struct muster_incarnation *id)
{
    struct muster_params_registration *registration = server->registration;
    const struct muster_params_map_server leaver = {.id = *id, .is_leaving = true};

    muster_params_departure_note(&registration->departures, &leaver);
    if (!registration->is_closing)
        muster_task_post(&registration->look, server->env->loop);
}

void muster_params_farewell_init(struct muster_params_registration *registration)
{
    registration->server->on_leaves = on_leaves;
}
