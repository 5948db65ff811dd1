/* The wire over peer links of purpose DATA: one per pair of processes, kept across epochs. */
#include "collective/wire_tcp_internal.h"

#include <muster/poller.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
#define RETRY_FIRST_NS     (20 * MUSTER_NS_PER_MS)
#define RETRY_MAX_NS       MUSTER_NS_PER_S
#define RETRY_JITTER       200u /* per mille */
/* To sleep and be woken takes 5 to 50 us, so who expects frames looks for so long first. */
#define AWAKE_NS (100 * MUSTER_NS_PER_US)

static void connect_peer(struct muster_wire_peer *peer);

/* --- Peers --- */

static struct muster_wire_peer *find_peer(const struct muster_wire *wire,
                                          const struct muster_incarnation *incarnation)
{
    for (struct muster_list *node = wire->peers.next; node != &wire->peers; node = node->next) {
        struct muster_wire_peer *peer = MUSTER_CONTAINER_OF(node, struct muster_wire_peer, node);

        if (muster_incarnation_is_equal(&peer->incarnation, incarnation))
            return peer;
    }
    return NULL;
}

static void on_retry(struct muster_timer *timer)
{
    connect_peer(timer->data);
}

static struct muster_wire_peer *peer_get(struct muster_wire *wire,
                                         const struct muster_incarnation *incarnation)
{
    struct muster_wire_peer *peer = find_peer(wire, incarnation);

    if (peer != NULL)
        return peer;
    peer = muster_mem_alloc_zero(wire->env->mem, 1, sizeof(*peer));
    if (peer == NULL)
        return NULL;
    peer->wire = wire;
    peer->incarnation = *incarnation;
    peer->retry_ns = RETRY_FIRST_NS;
    muster_list_init(&peer->frames);
    muster_timer_init(&peer->retry, on_retry, peer);
    muster_link_heal_init(&peer->heal, wire->env, &wire->hello, muster_wire_on_given_up, peer);
    muster_list_append(&wire->peers, &peer->node);
    return peer;
}

static void peer_free(struct muster_wire_peer *peer)
{
    muster_timer_stop(&peer->retry);
    muster_wire_drop_link(peer);
    muster_wire_release_frames(peer);
    muster_list_remove(&peer->node);
    muster_mem_free(peer->wire->env->mem, peer);
}

static void set_name(struct muster_wire_peer *peer, const struct muster_member *member)
{
    snprintf(peer->name, sizeof(peer->name), "%s:%u", member->task_type, member->task_index);
    peer->address = member->address;
}

static void retry_later(struct muster_wire_peer *peer)
{
    struct muster_env *env = peer->wire->env;
    uint64_t delay = muster_rng_jitter(env->rng, peer->retry_ns, RETRY_JITTER);

    peer->retry_ns = peer->retry_ns * 2 < RETRY_MAX_NS ? peer->retry_ns * 2 : RETRY_MAX_NS;
    muster_timer_start(&peer->retry, env->loop, muster_loop_after_ns(env->loop, delay));
}

void muster_wire_lose_link(struct muster_wire_peer *peer, const struct muster_error *error)
{
    struct muster_wire *wire = peer->wire;
    struct muster_incarnation incarnation = peer->incarnation;
    struct muster_error named;
    bool was_member = peer->is_member;

    muster_error_set(&named, error->rc, "%s: %s", peer->name[0] != '\0' ? peer->name : "peer",
                     error->text);
    muster_wire_drop_link(peer);
    if (was_member) {
        peer->is_broken = true;
        muster_wire_release_frames(peer);
    }
    if (peer->is_wanted)
        retry_later(peer);
    else if (!was_member)
        peer_free(peer);
    if (was_member && wire->client != NULL)
        wire->client->on_link_down(wire->client_data, peer->rank, &named);
    if (!wire->is_cut && wire->events != NULL && wire->events->on_link_down != NULL)
        wire->events->on_link_down(wire->events_data, &incarnation, &named);
}

/* --- Events of links --- */

static void on_ready(struct muster_peer_link *link)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);

    peer->retry_ns = RETRY_FIRST_NS;
    muster_link_heal_stop(&peer->heal);
    muster_wire_send_pending(peer);
}

static void pause_for_epoch(struct muster_wire_peer *peer, uint64_t epoch)
{
    struct muster_wire *wire = peer->wire;

    peer->is_paused = true;
    muster_peer_link_pause(peer->link);
    if (wire->client != NULL)
        wire->client->on_higher_epoch(wire->client_data, &peer->incarnation, epoch);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);
    struct muster_wire *wire = peer->wire;

    if (header->channel == MUSTER_FRAME_STATE)
        return wire->events != NULL && wire->events->on_state_frame != NULL
                   ? wire->events->on_state_frame(wire->events_data, link, header)
                   : NULL;
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

static bool is_for_client(const struct muster_wire_peer *peer,
                          const struct muster_frame_header *header)
{
    return header->channel == MUSTER_FRAME_COLLECTIVE && peer->wire->client != NULL &&
           header->epoch == peer->wire->epoch && peer->is_member && !peer->is_broken;
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);

    if (!is_for_client(peer, header))
        return;
    muster_wire_expect(peer->wire);
    peer->wire->client->on_progress(peer->wire->client_data, peer->rank, header, buffer,
                                    bytes_done);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);
    struct muster_wire *wire = peer->wire;

    if (header->channel == MUSTER_FRAME_STATE && wire->events != NULL &&
        wire->events->on_state_payload != NULL)
        wire->events->on_state_payload(wire->events_data, link, header, buffer);
    if (is_for_client(peer, header) && muster_wire_pass_point(wire, header, false))
        wire->client->on_payload(wire->client_data, peer->rank, header, buffer);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    muster_wire_lose_link(muster_peer_link_data(link), error);
}

static void on_abandoned(struct muster_peer_link *link)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);

    if (peer->is_member && !peer->is_broken && peer->wire->client != NULL)
        peer->wire->client->on_abandoned(peer->wire->client_data, peer->rank);
}

static const struct muster_peer_link_events link_events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_progress = on_progress,
    .on_payload = on_payload,
    .on_down = on_down,
    .on_broken = muster_wire_on_broken,
    .on_resumed = muster_wire_on_resumed,
    .on_abandoned = on_abandoned,
};

/* --- Links --- */

static void connect_peer(struct muster_wire_peer *peer)
{
    struct muster_wire *wire = peer->wire;
    struct muster_peer_hello hello = wire->hello;
    uint64_t deadline_ns = muster_loop_after_ns(wire->env->loop, CONNECT_TIMEOUT_NS);

    if (peer->link != NULL || wire->is_cut)
        return;
    hello.target = peer->incarnation;
    if (muster_peer_link_open(wire->env, &peer->address, &hello, deadline_ns, &link_events, peer,
                              &peer->link) != MUSTER_OK)
        retry_later(peer);
}

/* Of two links the one that the smaller incarnation opened stays; of two from one side the newer.
 */
static bool is_better(const struct muster_wire_peer *peer, const struct muster_peer_link *link)
{
    bool is_opener = muster_peer_link_is_opener(link);
    bool is_smaller = memcmp(peer->wire->hello.incarnation.bytes, peer->incarnation.bytes,
                             sizeof(peer->incarnation.bytes)) < 0;

    return peer->link == NULL || muster_peer_link_is_opener(peer->link) == is_opener ||
           is_opener == is_smaller;
}

void muster_wire_use_link(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    muster_wire_drop_link(peer);
    muster_timer_stop(&peer->retry);
    peer->link = link;
    peer->is_paused = false;
    muster_peer_link_set_owner(link, &link_events, peer);
    muster_wire_send_pending(peer);
}

/* The peer has given up the session: in an earlier epoch, then it has nothing of this one and all is
 * sent again; or in this one, then it has said so, and drops what comes. */
static void begin_anew(struct muster_wire_peer *peer)
{
    struct muster_wire *wire = peer->wire;

    muster_peer_link_yield(peer->link);
    muster_wire_drop_link(peer);
    if (!peer->is_broken && wire->client != NULL)
        wire->client->on_abandoned(wire->client_data, peer->rank);
}

void muster_wire_accept(struct muster_wire *wire, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    struct muster_wire_peer *peer;

    if (hello->intent != MUSTER_LINK_NEW && !wire->is_cut) {
        muster_wire_accept_resuming(hello->intent == MUSTER_LINK_PROBE
                                        ? find_peer(wire, &hello->incarnation)
                                        : peer_get(wire, &hello->incarnation),
                                    link);
        return;
    }
    peer = peer_get(wire, &hello->incarnation);
    if (peer == NULL || wire->is_cut || !is_better(peer, link)) {
        muster_peer_link_close(link);
        return;
    }
    if (peer->link != NULL && muster_peer_link_is_met(peer->link) && peer->is_member)
        begin_anew(peer);
    muster_wire_use_link(peer, link);
}

void muster_wire_connect(struct muster_wire *wire, const struct muster_member *member)
{
    struct muster_wire_peer *peer = peer_get(wire, &member->incarnation);

    if (peer == NULL)
        return;
    set_name(peer, member);
    peer->is_wanted = true;
    connect_peer(peer);
}

struct muster_peer_link *muster_wire_link(struct muster_wire *wire,
                                          const struct muster_incarnation *incarnation)
{
    struct muster_wire_peer *peer = find_peer(wire, incarnation);

    if (peer == NULL || peer->link == NULL || !muster_peer_link_is_ready(peer->link))
        return NULL;
    return peer->link;
}

/* --- Serving a group --- */

void muster_wire_expect(struct muster_wire *wire)
{
    muster_loop_stay_awake(wire->env->loop, AWAKE_NS);
}

static void attach_member(struct muster_wire *wire, const struct muster_view *view, uint32_t rank)
{
    struct muster_wire_peer *peer = wire->members[rank];

    set_name(peer, &view->members[rank]);
    peer->rank = rank;
    peer->is_member = true;
    peer->is_broken = false;
    peer->is_wanted = memcmp(wire->hello.incarnation.bytes, peer->incarnation.bytes,
                             sizeof(peer->incarnation.bytes)) < 0;
    if (peer->is_wanted)
        connect_peer(peer);
}

static void leave_members(struct muster_wire *wire)
{
    struct muster_list *node = wire->peers.next;

    while (node != &wire->peers) {
        struct muster_wire_peer *peer = MUSTER_CONTAINER_OF(node, struct muster_wire_peer, node);

        node = node->next;
        if (peer->is_member)
            peer->is_wanted = false;
        peer->is_member = false;
        if (peer->is_paused && peer->link != NULL)
            muster_peer_link_resume(peer->link);
        peer->is_paused = false;
    }
}

static void forget_strangers(struct muster_wire *wire)
{
    struct muster_list *node = wire->peers.next;

    while (node != &wire->peers) {
        struct muster_wire_peer *peer = MUSTER_CONTAINER_OF(node, struct muster_wire_peer, node);

        node = node->next;
        if (!peer->is_member && !peer->is_wanted && peer->link == NULL)
            peer_free(peer);
    }
}

/* Those on this host compete for its processors. */
static uint32_t count_neighbours(const struct muster_wire *wire, const struct muster_view *view)
{
    const char *host_key = NULL;
    uint32_t count = 0, rank;

    if (muster_view_find(view, &wire->hello.incarnation, &rank))
        host_key = view->members[rank].host_key;
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
        members[rank] = peer_get(wire, incarnation);
        if (members[rank] == NULL) {
            muster_mem_free(wire->env->mem, members);
            return MUSTER_RESOURCE_EXHAUSTED;
        }
    }
    leave_members(wire);
    muster_mem_free(wire->env->mem, wire->members);
    wire->members = members;
    wire->member_count = view->member_count;
    wire->epoch = view->epoch;
    wire->client = client;
    wire->client_data = data;
    for (uint32_t rank = 0; rank < view->member_count; rank++)
        if (members[rank] != NULL)
            attach_member(wire, view, rank);
    forget_strangers(wire);
    muster_loop_set_crowd(wire->env->loop, count_neighbours(wire, view));
    return MUSTER_OK;
}

void muster_wire_detach(struct muster_wire *wire, void *data)
{
    if (wire->client_data != data)
        return;
    wire->client = NULL;
    wire->client_data = NULL;
}

void muster_wire_pause(struct muster_wire *wire, uint32_t rank)
{
    if (wire->members[rank]->link != NULL)
        muster_peer_link_pause(wire->members[rank]->link);
}

void muster_wire_resume(struct muster_wire *wire, uint32_t rank)
{
    if (wire->members[rank]->link != NULL)
        muster_peer_link_resume(wire->members[rank]->link);
}

void muster_wire_refuse(struct muster_wire *wire, uint32_t rank, const char *text)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s", text);
    muster_wire_lose_link(wire->members[rank], &error);
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
    while (!muster_list_is_empty(&wire->peers))
        peer_free(MUSTER_CONTAINER_OF(wire->peers.next, struct muster_wire_peer, node));
    while ((node = muster_list_pop(&wire->idle_frames)) != NULL)
        muster_mem_free(wire->env->mem, MUSTER_CONTAINER_OF(node, struct wire_frame, node));
    muster_buffer_pool_fini(&wire->pool);
    muster_mem_free(wire->env->mem, wire->members);
    muster_mem_free(wire->env->mem, wire);
}
