/* A peer link whose connection broke between two living processes is brought back; one healer per
 * link. docs/protocol.md, "Links". */
#ifndef MUSTER_NET_LINK_HEAL_H
#define MUSTER_NET_LINK_HEAL_H

#include "net/link/peer_link.h"

struct muster_link_heal;

/** It will not come back; the healer has stopped. The owner closes the link. */
typedef void muster_link_heal_fn(struct muster_link_heal *heal, struct muster_peer_link *link,
                                 const struct muster_error *why);

/** In its owner's memory, for as long as the link. */
struct muster_link_heal {
    void *data;
    /* private */
    struct muster_env *env;
    const struct muster_peer_hello *hello;
    muster_link_heal_fn *on_given_up;
    struct muster_peer_link *link; /* being healed, borrowed; NULL: none */
    struct muster_incarnation target;
    struct muster_address address;
    uint64_t deadline_ns;
    uint64_t delay_ns;   /* between attempts, and … */
    uint64_t attempt_ns; /* … for one: the last waits of two backoffs */
    struct muster_error error;
    bool is_starved; /* there was no memory for the last attempt */
    struct muster_timer timer;
    struct muster_peer_link *probe; /* of the side that does not connect; or NULL */
};

/** Borrows env and hello (of this process). */
void muster_link_heal_init(struct muster_link_heal *heal, struct muster_env *env,
                           const struct muster_peer_hello *hello, muster_link_heal_fn *on_given_up,
                           void *data);

/** Where a link leads, and how long it may stay broken. */
struct muster_link_heal_goal {
    struct muster_incarnation target;
    const struct muster_address *address; /* NULL: not known, the peer has to come; copied */
    uint64_t span_ns;                     /* 0: 3 s */
};
/** From the link's on_broken, also of a failed attempt: try again, or give up. */
void muster_link_heal_broken(struct muster_link_heal *heal, struct muster_peer_link *link,
                             const struct muster_link_heal_goal *goal,
                             const struct muster_error *error);
/** From on_resumed: logs what had broken it, and stops. */
void muster_link_heal_resumed(struct muster_link_heal *heal, const struct muster_peer_link *link,
                              const char *peer_name);
/** The link is closed, or has been given up. */
void muster_link_heal_stop(struct muster_link_heal *heal);
bool muster_link_heal_is_busy(const struct muster_link_heal *heal);
/** It is that link which is on its way back. */
bool muster_link_heal_is_of(const struct muster_link_heal *heal,
                            const struct muster_peer_link *link);

/** An accepted link says PROBE; link: the one with its session, or NULL. Takes accepted. link may
 * be broken when this returns. */
void muster_link_heal_answer_probe(struct muster_peer_link *link,
                                   struct muster_peer_link *accepted);
/** An accepted link says RESUME and the session of link. Takes accepted. FAILED_PRECONDITION: what
 * the peer lacks was taken back, as it has been told; link must be closed. */
MUSTER_MUST_CHECK enum muster_rc muster_link_heal_accept(struct muster_link_heal *heal,
                                                         struct muster_peer_link *link,
                                                         struct muster_peer_link *accepted,
                                                         struct muster_error *ret_error);

#endif
