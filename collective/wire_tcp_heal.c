/* A broken connection between two living processes is healed below the group; docs/protocol.md,
 * "Links". */
#include "collective/wire_tcp_internal.h"

#include <errno.h>
#include <string.h>

#define HEAL_NS_DEFAULT  (3 * MUSTER_NS_PER_S)
#define ATTEMPT_NS       MUSTER_NS_PER_S
#define ATTEMPT_FIRST_NS MUSTER_NS_PER_MS
#define ATTEMPT_MAX_NS   (100 * MUSTER_NS_PER_MS)

static void give_up(struct muster_wire_peer *peer, const struct muster_error *why)
{
    struct muster_error error;

    muster_error_set(&error, why->rc, "%s; it could not be resumed: %s", peer->heal_error.text,
                     why->text);
    muster_wire_lose_link(peer, &error);
}

/* The peer is dead, or another, or does not want to. Reaching the network itself failed? Then it is
 * tried again. */
static bool is_final(const struct muster_error *error)
{
    return error->sys == ECONNREFUSED || error->rc == MUSTER_FAILED_PRECONDITION ||
           error->rc == MUSTER_INVALID_ARGUMENT;
}

static void attempt_later(struct muster_wire_peer *peer)
{
    struct muster_env *env = peer->wire->env;
    uint64_t due_ns = muster_loop_after_ns(env->loop, peer->attempt_ns);

    peer->attempt_ns =
        peer->attempt_ns * 2 < ATTEMPT_MAX_NS ? peer->attempt_ns * 2 : ATTEMPT_MAX_NS;
    muster_timer_start(&peer->heal_timer, env->loop,
                       due_ns < peer->heal_deadline_ns ? due_ns : peer->heal_deadline_ns);
}

static void has_failed(struct muster_wire_peer *peer, const struct muster_error *error)
{
    if (is_final(error) || muster_loop_now_ns(peer->wire->env->loop) >= peer->heal_deadline_ns)
        give_up(peer, error);
    else
        attempt_later(peer);
}

/* --- The side that does not connect asks whether the other one lives --- */

static void drop_probe(struct muster_wire_peer *peer)
{
    struct muster_peer_link *probe = peer->probe;

    peer->probe = NULL;
    muster_peer_link_close(probe);
}

/* It knows the connection: it will come. */
static void on_probe_answered(struct muster_peer_link *probe)
{
    struct muster_wire_peer *peer = muster_peer_link_data(probe);

    drop_probe(peer);
    muster_timer_start(&peer->heal_timer, peer->wire->env->loop, peer->heal_deadline_ns);
}

static void on_probe_down(struct muster_peer_link *probe, const struct muster_error *error)
{
    struct muster_wire_peer *peer = muster_peer_link_data(probe);
    struct muster_error why = *error;

    drop_probe(peer);
    has_failed(peer, &why);
}

static void *on_no_frame(struct muster_peer_link *probe, const struct muster_frame_header *header)
{
    (void)probe;
    (void)header;
    return NULL;
}

static void on_no_payload(struct muster_peer_link *probe, const struct muster_frame_header *header,
                          void *buffer)
{
    (void)probe;
    (void)header;
    (void)buffer;
}

static const struct muster_peer_link_events probe_events = {
    .on_ready = on_probe_answered,
    .on_frame = on_no_frame,
    .on_payload = on_no_payload,
    .on_down = on_probe_down,
};

static enum muster_rc open_probe(struct muster_wire_peer *peer, uint64_t deadline_ns)
{
    struct muster_peer_hello hello = peer->wire->hello;

    drop_probe(peer);
    hello.target = peer->incarnation;
    hello.intent = MUSTER_LINK_PROBE;
    hello.session = muster_peer_link_session(peer->link);
    hello.connection = muster_peer_link_connection(peer->link);
    return muster_peer_link_open(peer->wire->env, &peer->address, &hello, deadline_ns,
                                 &probe_events, peer, &peer->probe);
}

/* --- Attempts --- */

static void attempt(struct muster_wire_peer *peer)
{
    uint64_t deadline_ns = muster_loop_after_ns(peer->wire->env->loop, ATTEMPT_NS);
    enum muster_rc rc;

    if (deadline_ns > peer->heal_deadline_ns)
        deadline_ns = peer->heal_deadline_ns;
    if (muster_peer_link_is_opener(peer->link))
        rc = muster_peer_link_reopen(peer->link, &peer->address, deadline_ns);
    else
        rc = open_probe(peer, deadline_ns);
    if (rc != MUSTER_OK)
        attempt_later(peer);
}

void muster_wire_on_heal_due(struct muster_timer *timer)
{
    struct muster_wire_peer *peer = timer->data;
    struct muster_error error;

    if (muster_loop_now_ns(peer->wire->env->loop) < peer->heal_deadline_ns) {
        attempt(peer);
        return;
    }
    muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED, "no connection in time");
    give_up(peer, &error);
}

void muster_wire_stop_healing(struct muster_wire_peer *peer)
{
    muster_timer_stop(&peer->heal_timer);
    drop_probe(peer);
    peer->heal_deadline_ns = 0;
}

static void begin_healing(struct muster_wire_peer *peer, const struct muster_error *error)
{
    const struct muster_wire *wire = peer->wire;

    peer->heal_error = *error;
    peer->heal_deadline_ns =
        muster_loop_after_ns(wire->env->loop, wire->heal_ns != 0 ? wire->heal_ns : HEAL_NS_DEFAULT);
    peer->attempt_ns = ATTEMPT_FIRST_NS;
}

void muster_wire_on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);
    struct muster_wire *wire = peer->wire;

    if (!peer->is_member || peer->is_broken || wire->is_cut) {
        muster_wire_lose_link(peer, error);
        return;
    }
    if (peer->heal_deadline_ns != 0) {
        has_failed(peer, error);
        return;
    }
    begin_healing(peer, error);
    attempt(peer);
}

void muster_wire_on_resumed(struct muster_peer_link *link)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);

    muster_wire_stop_healing(peer);
    peer->wire->resumed_count++;
    MUSTER_LOG(peer->wire->env, WARN, "link_resumed", "peer", peer->name, "reason",
               peer->heal_error.text);
}

static bool is_known(const struct muster_wire_peer *peer, uint64_t session)
{
    return peer != NULL && peer->link != NULL && muster_peer_link_session(peer->link) == session;
}

/* The connection broke before its hello had come here. */
static bool begins_late(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    return peer != NULL && !peer->is_broken &&
           (peer->link == NULL || !muster_peer_link_is_met(peer->link)) &&
           muster_peer_link_begin_late(link) == MUSTER_OK;
}

static void answer_probe(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    bool answer = is_known(peer, hello->session);
    bool is_that = answer && muster_peer_link_connection(peer->link) == hello->connection;
    struct muster_error error;

    muster_peer_link_answer(link, answer ? MUSTER_LINK_IS_KNOWN : MUSTER_LINK_IS_UNKNOWN);
    muster_error_set(&error, MUSTER_UNAVAILABLE, "the peer has lost the connection");
    if (is_that)
        muster_peer_link_break(peer->link, &error);
}

void muster_wire_accept_resuming(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    struct muster_error error;

    if (hello->intent == MUSTER_LINK_PROBE) {
        answer_probe(peer, link);
        return;
    }
    if (!is_known(peer, hello->session)) {
        if (begins_late(peer, link))
            muster_wire_use_link(peer, link);
        else
            muster_peer_link_answer(link, MUSTER_LINK_IS_UNKNOWN);
        return;
    }
    muster_error_set(&error, MUSTER_UNAVAILABLE, "the peer has lost the connection");
    if (peer->heal_deadline_ns == 0)
        peer->heal_error = error;
    if (muster_peer_link_take_over(peer->link, link) == MUSTER_OK)
        return;
    muster_peer_link_answer(link, MUSTER_LINK_IS_LACKING);
    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "the peer has lost the connection, and what it lacks was taken back");
    muster_wire_lose_link(peer, &error);
}
