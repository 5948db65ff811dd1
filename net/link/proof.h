/* How two members prove to each other, in plain text, that they are the two ends of a control link:
 * HMAC-SHA-256 by its key over both hellos and fresh nonces of both sides. */
#ifndef MUSTER_NET_LINK_PROOF_H
#define MUSTER_NET_LINK_PROOF_H

#include "net/tls/crypto.h"
#include "net/link/keys.h"
#include "net/link/peer_link.h"

#define MUSTER_HELLO_BYTES      136
#define MUSTER_LINK_NONCE_BYTES 16
#define MUSTER_LINK_MAC_BYTES   MUSTER_SHA256_BYTES
/* Hello, nonce, the names of the keys that the opener has. */
#define MUSTER_LINK_ASKED_BYTES                                                                    \
    (MUSTER_HELLO_BYTES + MUSTER_LINK_NONCE_BYTES +                                                \
     MUSTER_LINK_KEYS_PER_PEER * MUSTER_LINK_KEY_ID_BYTES)
/* Hello, nonce, the name of the one that counts; its proof follows. */
#define MUSTER_LINK_ANSWERED_BYTES                                                                 \
    (MUSTER_HELLO_BYTES + MUSTER_LINK_NONCE_BYTES + MUSTER_LINK_KEY_ID_BYTES)

/** The proof of one connection. The MACs cover the first three members, one after the
 * other. */
struct muster_link_proof {
    uint8_t role; /* who proves it */
    uint8_t asked[MUSTER_LINK_ASKED_BYTES];
    uint8_t answered[MUSTER_LINK_ANSWERED_BYTES];
    uint8_t answered_mac[MUSTER_LINK_MAC_BYTES]; /* leaves with answered */
    uint8_t opener_mac[MUSTER_LINK_MAC_BYTES];   /* what the opener says, or must say, then */
};

/** Opener: fill in asked. */
void muster_link_proof_ask(struct muster_link_proof *proof, struct muster_env *env,
                           const struct muster_peer_hello *self);
/** Acceptor: has read asked of `peer`; fills in answered and its proof, and what must follow.
 * UNAUTHENTICATED: no common key. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_link_proof_answer(
    struct muster_link_proof *proof, struct muster_env *env, const struct muster_peer_hello *self,
    const struct muster_incarnation *peer, const uint8_t asked[MUSTER_LINK_ASKED_BYTES],
    struct muster_error *ret_error);
/** Opener: has read answered with its proof; fills in opener_mac. UNAUTHENTICATED: it is not self's
 * target; UNAVAILABLE: by a key that is not here any more. */
MUSTER_MUST_CHECK enum muster_rc muster_link_proof_return(
    struct muster_link_proof *proof, const struct muster_peer_hello *self,
    const uint8_t answered[MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES],
    struct muster_error *ret_error);
/** Acceptor: what the opener has said is what it must say. UNAUTHENTICATED. */
MUSTER_MUST_CHECK enum muster_rc muster_link_proof_check(const struct muster_link_proof *proof,
                                                         const uint8_t mac[MUSTER_LINK_MAC_BYTES],
                                                         struct muster_error *ret_error);

#endif
