/* The messages by which two members prove who they are where they speak in plain text: the opener
 * asks with a nonce, the acceptor answers with its own and a MAC over both, the opener returns a
 * MAC. Fresh nonces of both sides make recorded messages worthless. */
#include "net/link/proof.h"

#include <stddef.h>
#include <string.h>

#include "net/link/peer_link_internal.h"

/* The role is a part of what is proven, so a MAC that is sent back to its maker proves nothing. */
#define ROLE_OPENER   'o'
#define ROLE_ACCEPTOR 'a'
#define NONCE_AT      MUSTER_HELLO_BYTES
#define IDS_AT        (MUSTER_HELLO_BYTES + MUSTER_LINK_NONCE_BYTES)

void muster_link_proof_ask(struct muster_link_proof *proof, struct muster_env *env,
                           const struct muster_peer_hello *self)
{
    muster_peer_hello_pack(self, proof->asked);
    muster_rng_fill(env->rng, proof->asked + NONCE_AT, MUSTER_LINK_NONCE_BYTES);
    muster_link_keys_list(self->keys, &self->target, proof->asked + IDS_AT);
}

static enum muster_rc compute_proof(struct muster_link_proof *proof, uint8_t role,
                                    const struct muster_link_key *key,
                                    uint8_t ret_mac[MUSTER_LINK_MAC_BYTES],
                                    struct muster_error *ret_error)
{
    enum muster_rc rc;

    _Static_assert(offsetof(struct muster_link_proof, answered_mac) ==
                       1 + MUSTER_LINK_ASKED_BYTES + MUSTER_LINK_ANSWERED_BYTES,
                   "what is proven stands together");
    proof->role = role;
    rc = muster_crypto_hmac_sha256(key->secret, sizeof(key->secret), proof,
                                   offsetof(struct muster_link_proof, answered_mac), ret_mac);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "no memory for a proof");
}

/* The opener's order counts: its newest first. */
static const struct muster_link_key *common_key(const struct muster_link_proof *proof,
                                                const struct muster_link_keys *keys,
                                                const struct muster_incarnation *peer)
{
    for (size_t i = 0; i < MUSTER_LINK_KEYS_PER_PEER; i++) {
        const uint8_t *id = proof->asked + IDS_AT + i * MUSTER_LINK_KEY_ID_BYTES;
        const struct muster_link_key *key = muster_link_keys_find(keys, peer, id);

        if (key != NULL)
            return key;
    }
    return NULL;
}

enum muster_rc muster_link_proof_answer(struct muster_link_proof *proof, struct muster_env *env,
                                        const struct muster_peer_hello *self,
                                        const struct muster_incarnation *peer,
                                        const uint8_t asked[MUSTER_LINK_ASKED_BYTES],
                                        struct muster_error *ret_error)
{
    const struct muster_link_key *key;
    enum muster_rc rc;

    /* The proof covers the question too, so a change on the way is found out. */
    memcpy(proof->asked, asked, sizeof(proof->asked));
    key = common_key(proof, self->keys, peer);
    if (key == NULL)
        return muster_error_set(ret_error, MUSTER_UNAUTHENTICATED,
                                "the peer names no key of a control link with this process");
    muster_peer_hello_pack(self, proof->answered);
    muster_rng_fill(env->rng, proof->answered + NONCE_AT, MUSTER_LINK_NONCE_BYTES);
    memcpy(proof->answered + IDS_AT, key->id, sizeof(key->id));
    rc = compute_proof(proof, ROLE_OPENER, key, proof->opener_mac, ret_error);
    if (rc == MUSTER_OK)
        rc = compute_proof(proof, ROLE_ACCEPTOR, key, proof->answered_mac, ret_error);
    return rc;
}

/* In constant time: how long it takes must not tell how many bytes were right. */
static enum muster_rc compare_macs(const uint8_t *said, const uint8_t *expected,
                                   struct muster_error *ret_error)
{
    if (muster_crypto_is_equal(said, expected, MUSTER_LINK_MAC_BYTES))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_UNAUTHENTICATED,
                            "the peer does not prove that it is the other end of the control link");
}

enum muster_rc muster_link_proof_return(
    struct muster_link_proof *proof, const struct muster_peer_hello *self,
    const uint8_t answered[MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES],
    struct muster_error *ret_error)
{
    const struct muster_link_key *key =
        muster_link_keys_find(self->keys, &self->target, answered + IDS_AT);
    enum muster_rc rc;

    if (key == NULL)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "the peer names a key that is not here");
    memcpy(proof->answered, answered, sizeof(proof->answered));
    rc = compute_proof(proof, ROLE_ACCEPTOR, key, proof->answered_mac, ret_error);
    if (rc == MUSTER_OK)
        rc = compare_macs(answered + sizeof(proof->answered), proof->answered_mac, ret_error);
    /* The opener's own proof is made for a peer that has proven itself, and for no other. */
    if (rc == MUSTER_OK)
        rc = compute_proof(proof, ROLE_OPENER, key, proof->opener_mac, ret_error);
    return rc;
}

enum muster_rc muster_link_proof_check(const struct muster_link_proof *proof,
                                       const uint8_t mac[MUSTER_LINK_MAC_BYTES],
                                       struct muster_error *ret_error)
{
    return compare_macs(mac, proof->opener_mac, ret_error);
}
