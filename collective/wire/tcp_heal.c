/* A broken connection between two living processes is healed below the group (docs/protocol.md,
 * "Links"): the group sees a delay, or on_link_down when the healer has given up. */
#include "collective/wire/wire_tcp_internal.h"

void muster_wire_on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                             const struct muster_error *why)
{
    const struct wire_stripe *stripe = heal->data;

    (void)link;
    muster_wire_lose_link(stripe->peer, why);
}

void muster_wire_on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct wire_stripe *stripe = muster_peer_link_data(link);
    struct muster_wire_peer *peer = stripe->peer;
    const struct muster_link_heal_goal goal = {
        .target = peer->incarnation, .address = &peer->address, .span_ns = peer->wire->heal_ns};

    /* Nobody waits for a peer that is not a member, and frames to a broken one are lost already. */
    if (!peer->is_member || peer->is_broken || peer->wire->is_cut)
        muster_wire_lose_link(peer, error);
    else
        muster_link_heal_broken(&stripe->heal, link, &goal, error);
}

void muster_wire_on_resumed(struct muster_peer_link *link)
{
    struct wire_stripe *stripe = muster_peer_link_data(link);

    muster_link_heal_resumed(&stripe->heal, link, stripe->peer->name);
    stripe->peer->wire->resumed_count++;
}
