/* A broken connection between two living processes is healed below the group; docs/protocol.md,
 * "Links". */
#include "collective/wire_tcp_internal.h"

void muster_wire_on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                             const struct muster_error *why)
{
    (void)link;
    muster_wire_lose_link(heal->data, why);
}

void muster_wire_on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);
    const struct muster_link_heal_goal goal = {.target = peer->incarnation,
                                               .address = &peer->address,
                                               .span_ns = peer->wire->heal_ns};

    if (!peer->is_member || peer->is_broken || peer->wire->is_cut)
        muster_wire_lose_link(peer, error);
    else
        muster_link_heal_broken(&peer->heal, link, &goal, error);
}

void muster_wire_on_resumed(struct muster_peer_link *link)
{
    struct muster_wire_peer *peer = muster_peer_link_data(link);

    muster_link_heal_resumed(&peer->heal, link, peer->name);
    peer->wire->resumed_count++;
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

void muster_wire_accept_resuming(struct muster_wire_peer *peer, struct muster_peer_link *link)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);
    bool is_here = is_known(peer, hello->session);
    struct muster_error error;

    if (hello->intent == MUSTER_LINK_PROBE)
        muster_link_heal_answer_probe(is_here ? peer->link : NULL, link);
    else if (is_here && muster_link_heal_accept(&peer->heal, peer->link, link, &error) != MUSTER_OK)
        muster_wire_lose_link(peer, &error);
    else if (!is_here && begins_late(peer, link))
        muster_wire_use_link(peer, link);
    else if (!is_here)
        muster_peer_link_answer(link, MUSTER_LINK_IS_UNKNOWN);
}
