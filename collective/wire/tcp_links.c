/* Peers of the TCP wire and their links: who connects, which of two stays, and the stripes over
 * which frames are spread and come back into one order. */
#include "collective/wire/wire_tcp_internal.h"

#include <muster/base.h>

#include "runtime/value/backoff.h"

#include <stdio.h>
#include <string.h>

/* The kernel repeats the first packet after 1, 3 and 7 s: an attempt survives three losses. */
#define CONNECT_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
/* The peer may not listen yet, or may have died; membership decides which, and ends the retries
 * with the next view. The jitter keeps members that lost one peer together from coming back
 * together. */
static const struct muster_backoff reconnect = {.first_ns = 20 * MUSTER_NS_PER_MS,
                                                .max_ns = MUSTER_NS_PER_S,
                                                .growth_permille = 2000,
                                                .jitter_permille = 200};
/* Sessions of the links of one set differ in their last byte only, which says the stripe. */
#define SET_OF(session) ((session) & ~UINT64_C(0xff))

/* --- Peers --- */

struct muster_wire_peer *muster_wire_peer_find(const struct muster_wire *wire,
                                               const struct muster_incarnation *incarnation)
{
    MUSTER_LIST_EACH(&wire->peers, peer, struct muster_wire_peer, node) {
        if (muster_incarnation_is_equal(&peer->incarnation, incarnation))
            return peer;
    }
    return NULL;
}

static void on_retry(struct muster_timer *timer)
{
    muster_wire_peer_connect(timer->data);
}

struct muster_wire_peer *muster_wire_peer_get(struct muster_wire *wire,
                                              const struct muster_incarnation *incarnation)
{
    struct muster_wire_peer *peer = muster_wire_peer_find(wire, incarnation);

    if (peer != NULL)
        return peer;
    peer = muster_mem_alloc_zero(wire->env->mem, 1, sizeof(*peer));
    if (peer == NULL)
        return NULL;
    peer->wire = wire;
    peer->incarnation = *incarnation;
    muster_list_init(&peer->frames);
    muster_list_init(&peer->marks);
    muster_timer_init(&peer->retry, on_retry, peer);
    for (uint32_t i = 0; i < MUSTER_STRIPES_MAX; i++) {
        struct wire_stripe *stripe = &peer->stripes[i];

        stripe->peer = peer;
        muster_link_heal_init(&stripe->heal, wire->env, &wire->hello, muster_wire_on_given_up,
                              stripe);
    }
    muster_list_append(&wire->peers, &peer->node);
    return peer;
}

void muster_wire_peer_free(struct muster_wire_peer *peer)
{
    muster_timer_stop(&peer->retry);
    muster_wire_drop_links(peer);
    muster_wire_release_frames(peer);
    muster_list_remove(&peer->node);
    muster_mem_free(peer->wire->env->mem, peer);
}

void muster_wire_peer_name(struct muster_wire_peer *peer, const struct muster_member *member)
{
    snprintf(peer->name, sizeof(peer->name), "%s:%u", member->task_type, member->task_index);
    peer->address = member->address;
}

static void retry_later(struct muster_wire_peer *peer)
{
    struct muster_env *env = peer->wire->env;
    uint64_t delay_ns = muster_backoff_next(&reconnect, &peer->retry_ns, env->rng);

    muster_timer_start(&peer->retry, env->loop, muster_loop_after_ns(env->loop, delay_ns));
}

/* The state is settled before the two callbacks, and what they need is copied: the peer may be
 * freed here, and either callback may close the group or attach the next one. */
void muster_wire_lose_link(struct muster_wire_peer *peer, const struct muster_error *error)
{
    struct muster_wire *wire = peer->wire;
    struct muster_incarnation incarnation = peer->incarnation;
    struct muster_error named;
    bool was_member = peer->is_member;

    muster_error_set(&named, error->rc, "%s: %s", peer->name[0] != '\0' ? peer->name : "peer",
                     error->text);
    muster_wire_drop_links(peer);
    if (was_member) {
        peer->is_broken = true;
        muster_wire_release_frames(peer);
    }
    if (peer->is_wanted)
        retry_later(peer);
    else if (!was_member)
        muster_wire_peer_free(peer);
    if (was_member && wire->client != NULL)
        wire->client->on_link_down(wire->client_data, peer->rank, &named);
    if (!wire->is_cut && wire->events != NULL && wire->events->on_link_down != NULL)
        wire->events->on_link_down(wire->events_data, &incarnation, &named);
}

/* --- Stripes: one order over several connections ---
 * The sender goes to the next stripe after each large frame, and says so on the one it leaves; the
 * receiver reads frames from one stripe at a time and follows. What waits on the others is in their
 * sockets meanwhile. */

struct muster_peer_link *muster_wire_turn(const struct muster_wire_peer *peer)
{
    return peer->stripes[peer->receive_stripe].link;
}

bool muster_wire_is_turn_of(const struct muster_wire_peer *peer,
                            const struct muster_peer_link *link)
{
    return muster_wire_turn(peer) == link;
}

void muster_wire_pass_turn(struct muster_wire_peer *peer)
{
    MUSTER_ASSERT(peer->stripe_count > 0);
    peer->receive_stripe = (peer->receive_stripe + 1) % peer->stripe_count;
    if (muster_wire_turn(peer) != NULL)
        muster_peer_link_resume(muster_wire_turn(peer));
}

bool muster_wire_is_linked(const struct muster_wire_peer *peer)
{
    for (uint32_t i = 0; i < peer->stripe_count; i++)
        if (peer->stripes[i].link == NULL || !muster_peer_link_is_met(peer->stripes[i].link))
            return false;
    return peer->stripe_count > 0;
}

void muster_wire_stripe_ready(struct muster_wire_peer *peer)
{
    if (!muster_wire_is_linked(peer))
        return;
    peer->retry_ns = 0; /* connected: the next failure waits the first delay again */
    muster_wire_send_pending(peer);
}

/* --- Links --- */

/* The pointer is cleared before the close: the frames that end in it must not find the link again.
 */
static void drop_link(struct wire_stripe *stripe)
{
    struct muster_peer_link *link = stripe->link;

    muster_link_heal_stop(&stripe->heal);
    stripe->link = NULL;
    muster_peer_link_close(link);
}

void muster_wire_drop_links(struct muster_wire_peer *peer)
{
    for (uint32_t i = 0; i < peer->stripe_count; i++)
        drop_link(&peer->stripes[i]);
    peer->stripe_count = peer->send_stripe = peer->receive_stripe = 0;
}

static void begin_set(struct muster_wire_peer *peer, uint64_t set, uint32_t stripe_count,
                      bool is_opener)
{
    peer->set = set;
    peer->stripe_count = stripe_count;
    peer->is_set_opener = is_opener;
    peer->is_paused = false;
}

static uint32_t wanted_stripes(const struct muster_wire_peer *peer)
{
    if (peer->wire->stripe_count != 0)
        return peer->wire->stripe_count;
    return peer->is_elsewhere ? MUSTER_STRIPES_ELSEWHERE : 1;
}

void muster_wire_peer_connect(struct muster_wire_peer *peer)
{
    struct muster_wire *wire = peer->wire;
    struct muster_peer_hello hello = wire->hello;
    uint64_t deadline_ns = muster_loop_after_ns(wire->env->loop, CONNECT_TIMEOUT_NS);
    enum muster_rc rc = MUSTER_OK;

    if (peer->stripe_count > 0 || wire->is_cut)
        return;
    /* A session of 0 means that a link cannot be resumed; the bit keeps the drawn set from being 0.
     */
    begin_set(peer, SET_OF(muster_rng_next(wire->env->rng)) | 0x100, wanted_stripes(peer), true);
    hello.target = peer->incarnation;
    hello.stripe_count = (uint16_t)peer->stripe_count;
    for (uint32_t i = 0; i < peer->stripe_count && rc == MUSTER_OK; i++) {
        hello.stripe = (uint16_t)i;
        hello.session = peer->set | i;
        rc = muster_peer_link_open(wire->env, &peer->address, &hello, deadline_ns,
                                   &muster_wire_link_events, &peer->stripes[i],
                                   &peer->stripes[i].link);
    }
    if (rc == MUSTER_OK)
        return;
    muster_wire_drop_links(peer);
    retry_later(peer);
}

void muster_wire_retry(struct muster_wire *wire, const struct muster_incarnation *incarnation)
{
    struct muster_wire_peer *peer = muster_wire_peer_find(wire, incarnation);

    if (peer == NULL || !muster_timer_is_started(&peer->retry))
        return;
    muster_timer_stop(&peer->retry);
    muster_wire_peer_connect(peer);
}

/* Two sets of connections: the one that the smaller incarnation opened stays; of two from one
 * side the newer. */
static bool is_better(const struct muster_wire_peer *peer, const struct muster_peer_link *link)
{
    bool is_opener = muster_peer_link_is_opener(link);
    bool is_smaller = memcmp(peer->wire->hello.incarnation.bytes, peer->incarnation.bytes,
                             sizeof(peer->incarnation.bytes)) < 0;

    return peer->stripe_count == 0 || peer->is_set_opener == is_opener || is_opener == is_smaller;
}

/* 0: what the hello says of stripes makes no sense. */
static uint32_t stripe_count_of(const struct muster_peer_hello *hello)
{
    uint32_t count = hello->stripe_count == 0 ? 1 : hello->stripe_count;

    return count <= MUSTER_STRIPES_MAX && hello->stripe < count ? count : 0;
}

static bool is_of_set(const struct muster_wire_peer *peer, const struct muster_peer_hello *hello)
{
    return peer->stripe_count == stripe_count_of(hello) && peer->set == SET_OF(hello->session);
}

/* A second connection for one stripe of a set would replace the link, and end its frames while
 * those of the other stripes are still on their way: the common order would have a hole. */
static bool has_stripe(const struct muster_wire_peer *peer, const struct muster_peer_hello *hello)
{
    return is_of_set(peer, hello) && peer->stripes[hello->stripe].link != NULL;
}

static void use_link(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    struct wire_stripe *stripe = &peer->stripes[muster_peer_link_hello(link)->stripe];

    MUSTER_ASSERT(stripe->link == NULL);
    muster_timer_stop(&peer->retry);
    stripe->link = link;
    muster_peer_link_set_owner(link, &muster_wire_link_events, stripe);
    muster_wire_stripe_ready(peer);
}

/* The peer has given up the sessions: in an earlier epoch, then it has nothing of this one and all
 * is sent again; or in this one, then it has said so, and drops what comes. */
static void begin_anew(struct muster_wire_peer *peer)
{
    struct muster_wire *wire = peer->wire;
    bool was_linked = muster_wire_is_linked(peer) && peer->is_member;

    for (uint32_t i = 0; was_linked && i < peer->stripe_count; i++)
        muster_peer_link_yield(peer->stripes[i].link);
    muster_wire_drop_links(peer);
    if (was_linked && !peer->is_broken && wire->client != NULL)
        wire->client->on_abandoned(wire->client_data, peer->rank);
}

static void accept_new(struct muster_wire *wire, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    struct muster_wire_peer *peer = muster_wire_peer_get(wire, &hello->incarnation);

    if (peer == NULL || wire->is_cut || stripe_count_of(hello) == 0 || !is_better(peer, link) ||
        has_stripe(peer, hello)) {
        muster_peer_link_close(link);
        return;
    }
    if (!is_of_set(peer, hello)) {
        begin_anew(peer);
        begin_set(peer, SET_OF(hello->session), stripe_count_of(hello), false);
    }
    use_link(peer, link);
}

/* The connection broke before its hello had come here. */
static bool begins_late(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    bool is_free;

    if (peer == NULL || peer->is_broken || stripe_count_of(hello) == 0)
        return false;
    is_free = is_of_set(peer, hello) ? peer->stripes[hello->stripe].link == NULL
                                     : !muster_wire_is_linked(peer);
    if (!is_free || !muster_peer_link_begin_late(link))
        return false;
    if (!is_of_set(peer, hello)) {
        muster_wire_drop_links(peer);
        begin_set(peer, SET_OF(hello->session), stripe_count_of(hello), false);
    }
    return true;
}

/* NULL: no link here has that session, or there is no such peer. */
static struct wire_stripe *stripe_of_session(struct muster_wire_peer *peer, uint64_t session)
{
    for (uint32_t i = 0; peer != NULL && i < peer->stripe_count; i++)
        if (peer->stripes[i].link != NULL &&
            muster_peer_link_session(peer->stripes[i].link) == session)
            return &peer->stripes[i];
    return NULL;
}

static void accept_resuming(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    struct wire_stripe *stripe = stripe_of_session(peer, hello->session);
    struct muster_error error;

    if (hello->intent == MUSTER_LINK_PROBE)
        muster_link_heal_answer_probe(stripe != NULL ? stripe->link : NULL, link);
    else if (stripe == NULL && begins_late(peer, link))
        use_link(peer, link);
    else if (stripe == NULL)
        muster_peer_link_answer(link, MUSTER_LINK_IS_UNKNOWN);
    else if (muster_link_heal_accept(&stripe->heal, stripe->link, link, &error) != MUSTER_OK)
        muster_wire_lose_link(peer, &error);
}

void muster_wire_accept(struct muster_wire *wire, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);

    if (hello->intent == MUSTER_LINK_NEW || wire->is_cut)
        accept_new(wire, link);
    else if (hello->intent == MUSTER_LINK_PROBE)
        accept_resuming(muster_wire_peer_find(wire, &hello->incarnation), link);
    else
        accept_resuming(muster_wire_peer_get(wire, &hello->incarnation), link);
}
