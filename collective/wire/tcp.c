/* The wire over peer links of purpose DATA: one or several per pair of processes, kept across
 * epochs. This file takes in what links tell, serves the attached group, and opens and closes the
 * wire; tcp_links.c owns the links, tcp_send.c sends, tcp_heal.c brings broken links back. */
#include "collective/wire/wire_tcp_internal.h"

#include <muster/loop.h>

#include <string.h>

/* To sleep and be woken takes 5 to 50 us, so a process that expects frames looks for so long first.
 */
#define AWAKE_NS (100 * MUSTER_NS_PER_US)
/* A change of stripes costs a frame of its own, which a smaller payload does not pay for. */
#define STRIPE_BYTES_MIN (32u << 10)

/* --- Events of links --- */

static struct muster_wire_peer *peer_of(const struct muster_peer_link *link)
{
    const struct wire_stripe *stripe = muster_peer_link_data(link);

    return stripe->peer;
}

static void on_ready(struct muster_peer_link *link)
{
    struct wire_stripe *stripe = muster_peer_link_data(link);

    muster_link_heal_stop(&stripe->heal);
    muster_wire_stripe_ready(stripe->peer);
}

/* A peer that has installed the next view sooner may send at once. Its frames wait in the socket
 * until the group here has installed that view too; muster_wire_attach reads on. */
static void pause_for_epoch(struct muster_wire_peer *peer, uint64_t epoch)
{
    struct muster_wire *wire = peer->wire;

    MUSTER_ASSERT(muster_wire_turn(peer) != NULL);
    peer->is_paused = true;
    muster_peer_link_pause(muster_wire_turn(peer));
    if (wire->client != NULL)
        wire->client->on_higher_epoch(wire->client_data, &peer->incarnation, epoch);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_wire_peer *peer = peer_of(link);
    struct muster_wire *wire = peer->wire;

    if (!muster_wire_is_turn_of(peer, link)) { /* pass_turn resumes it, and it asks again */
        muster_peer_link_pause(link);
        return NULL;
    }
    if (header->channel != MUSTER_FRAME_COLLECTIVE)
        return NULL;
    if (header->epoch > wire->epoch || wire->client == NULL) {
        pause_for_epoch(peer, header->epoch);
        return NULL;
    }
    if (header->epoch < wire->epoch || !peer->is_member || peer->is_broken)
        return NULL;
    muster_wire_expect(wire);
    return wire->client->on_frame(wire->client_data, peer->rank, header);
}

/* Asked again for each piece of a payload: the view may have changed since on_frame. */
static bool is_for_client(const struct muster_wire_peer *peer,
                          const struct muster_frame_header *header)
{
    return header->channel == MUSTER_FRAME_COLLECTIVE && peer->wire->client != NULL &&
           header->epoch == peer->wire->epoch && peer->is_member && !peer->is_broken;
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    struct muster_wire_peer *peer = peer_of(link);

    if (!is_for_client(peer, header))
        return;
    muster_wire_expect(peer->wire);
    peer->wire->client->on_progress(peer->wire->client_data, peer->rank, header, buffer,
                                    bytes_done);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_wire_peer *peer = peer_of(link);
    struct muster_wire *wire = peer->wire;

    if (header->channel == MUSTER_FRAME_STRIPE)
        muster_wire_pass_turn(peer);
    if (is_for_client(peer, header) && muster_wire_pass_point(wire, header, false))
        wire->client->on_payload(wire->client_data, peer->rank, header, buffer);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    muster_wire_lose_link(peer_of(link), error);
}

static void on_abandoned(struct muster_peer_link *link)
{
    struct muster_wire_peer *peer = peer_of(link);

    if (peer->is_member && !peer->is_broken && peer->wire->client != NULL)
        peer->wire->client->on_abandoned(peer->wire->client_data, peer->rank);
}

const struct muster_peer_link_events muster_wire_link_events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_progress = on_progress,
    .on_payload = on_payload,
    .on_down = on_down,
    .on_broken = muster_wire_on_broken,
    .on_resumed = muster_wire_on_resumed,
    .on_abandoned = on_abandoned,
};

/* --- Serving a group --- */

void muster_wire_expect(struct muster_wire *wire)
{
    muster_loop_stay_awake(wire->env->loop, AWAKE_NS);
}

static const char *own_host_key(const struct muster_wire *wire, const struct muster_view *view)
{
    uint32_t rank;

    return muster_view_find(view, &wire->hello.incarnation, &rank) ? view->members[rank].host_key
                                                                   : NULL;
}

static void attach_member(struct muster_wire *wire, const struct muster_view *view, uint32_t rank)
{
    struct muster_wire_peer *peer = wire->members[rank];
    const char *host_key = own_host_key(wire, view);

    peer->is_elsewhere = host_key != NULL && strcmp(host_key, view->members[rank].host_key) != 0;
    muster_wire_peer_name(peer, &view->members[rank]);
    peer->rank = rank;
    peer->is_member = true;
    peer->is_broken = false;
    peer->is_wanted = memcmp(wire->hello.incarnation.bytes, peer->incarnation.bytes,
                             sizeof(peer->incarnation.bytes)) < 0;
    if (peer->is_wanted)
        muster_wire_peer_connect(peer);
}

/* The links stay: most members of the old view are in the next one too. A paused link is resumed,
 * and its frame is judged by the new epoch. */
static void leave_members(struct muster_wire *wire)
{
    MUSTER_LIST_EACH_SAFE (&wire->peers, peer, struct muster_wire_peer, node) {
        if (peer->is_member)
            peer->is_wanted = false;
        peer->is_member = false;
        if (peer->is_paused && muster_wire_turn(peer) != NULL)
            muster_peer_link_resume(muster_wire_turn(peer));
        peer->is_paused = false;
    }
}

/* A peer without links and without a view has nothing left; those with links live until they break.
 */
static void forget_non_members(struct muster_wire *wire)
{
    MUSTER_LIST_EACH_SAFE (&wire->peers, peer, struct muster_wire_peer, node) {
        if (!peer->is_member && !peer->is_wanted && peer->stripe_count == 0)
            muster_wire_peer_free(peer);
    }
}

/* The members on this host compete for its processors; the loop looks less long when there are more
 * of them than processors. */
static uint32_t count_neighbours(const struct muster_wire *wire, const struct muster_view *view)
{
    const char *host_key = own_host_key(wire, view);
    uint32_t count = 0;

    for (uint32_t i = 0; host_key != NULL && i < view->member_count; i++)
        count += strcmp(view->members[i].host_key, host_key) == 0;
    return count;
}

enum muster_rc muster_wire_attach(struct muster_wire *wire, const struct muster_view *view,
                                  const struct muster_wire_client *client, void *data)
{
    struct muster_wire_peer **members = muster_mem_alloc_zero(wire->env->mem, view->member_count,
                                                              sizeof(struct muster_wire_peer *));

    if (members == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t rank = 0; rank < view->member_count; rank++) {
        const struct muster_incarnation *incarnation = &view->members[rank].incarnation;

        if (muster_incarnation_is_equal(incarnation, &wire->hello.incarnation))
            continue;
        members[rank] = muster_wire_peer_get(wire, incarnation);
        if (members[rank] == NULL) {
            muster_mem_free(wire->env->mem, members);
            return MUSTER_RESOURCE_EXHAUSTED;
        }
    }
    leave_members(wire); /* nothing can fail from here on: until now the old view is served */
    muster_mem_free(wire->env->mem, wire->members);
    wire->members = members;
    wire->member_count = view->member_count;
    wire->epoch = view->epoch;
    wire->client = client;
    wire->client_data = data;
    for (uint32_t rank = 0; rank < view->member_count; rank++)
        if (members[rank] != NULL)
            attach_member(wire, view, rank);
    forget_non_members(wire);
    muster_loop_set_crowd(wire->env->loop, count_neighbours(wire, view));
    return MUSTER_OK;
}

void muster_wire_detach(struct muster_wire *wire, void *data)
{
    if (wire->client_data != data) /* the group of the next view has attached already */
        return;
    wire->client = NULL;
    wire->client_data = NULL;
}

struct muster_wire_peer *muster_wire_member(const struct muster_wire *wire, uint32_t rank)
{
    MUSTER_ASSERT(rank < wire->member_count && wire->members[rank] != NULL);
    return wire->members[rank];
}

void muster_wire_pause(struct muster_wire *wire, uint32_t rank)
{
    struct muster_peer_link *link = muster_wire_turn(muster_wire_member(wire, rank));

    if (link != NULL)
        muster_peer_link_pause(link);
}

void muster_wire_resume(struct muster_wire *wire, uint32_t rank)
{
    struct muster_peer_link *link = muster_wire_turn(muster_wire_member(wire, rank));

    if (link != NULL)
        muster_peer_link_resume(link);
}

void muster_wire_refuse(struct muster_wire *wire, uint32_t rank, const char *text)
{
    struct muster_wire_peer *peer = muster_wire_member(wire, rank);
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s", text);
    muster_wire_lose_link(peer, &error);
}

struct muster_buffer_pool *muster_wire_pool(struct muster_wire *wire)
{
    return &wire->pool;
}

/* --- Life --- */

enum muster_rc muster_wire_tcp_open(const struct muster_wire_options *options,
                                    struct muster_wire **ret_wire)
{
    struct muster_wire *wire = muster_mem_alloc_zero(options->env->mem, 1, sizeof(*wire));

    if (wire == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    wire->env = options->env;
    wire->hello = options->hello;
    wire->hello.purpose = MUSTER_LINK_DATA;
    wire->events = options->events;
    wire->events_data = options->data;
    wire->heal_ns = options->heal_ns;
    wire->stripe_count =
        options->stripe_count < MUSTER_STRIPES_MAX ? options->stripe_count : MUSTER_STRIPES_MAX;
    wire->stripe_bytes_min =
        options->stripe_bytes_min != 0 ? options->stripe_bytes_min : STRIPE_BYTES_MIN;
    muster_buffer_pool_init(&wire->pool, options->env->mem);
    muster_list_init(&wire->peers);
    muster_list_init(&wire->idle_frames);
    *ret_wire = wire;
    return MUSTER_OK;
}

void muster_wire_close(struct muster_wire *wire)
{
    struct muster_list *node;

    if (wire == NULL)
        return;
    /* Links give their frames back to idle_frames and buffers to the pool, so those two go last. */
    while (!muster_list_is_empty(&wire->peers))
        muster_wire_peer_free(MUSTER_CONTAINER_OF(wire->peers.next, struct muster_wire_peer, node));
    while ((node = muster_list_pop(&wire->idle_frames)) != NULL)
        muster_mem_free(wire->env->mem, MUSTER_CONTAINER_OF(node, struct wire_frame, node));
    muster_buffer_pool_fini(&wire->pool);
    muster_mem_free(wire->env->mem, wire->members);
    muster_mem_free(wire->env->mem, wire);
}
