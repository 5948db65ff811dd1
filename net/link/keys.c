/* The keys that this process shares with each other member. Both ends of a TLS control link export
 * the same secret from its session (RFC 5705), so no key ever travels. */
#include "net/link/keys.h"

#include <stdio.h>
#include <string.h>

#include <muster/list.h>

#include "net/tls/stream.h"

#define LABEL "EXPORTER-muster-link" /* RFC 5705 4 */

struct muster_link_keys {
    struct muster_mem *mem;
    struct muster_list peers;
};

struct peer_keys {
    struct muster_list node;
    struct muster_incarnation peer;
    struct muster_link_key keys[MUSTER_LINK_KEYS_PER_PEER]; /* the newest first */
    size_t count;
};

struct muster_link_keys *muster_link_keys_new(struct muster_mem *mem)
{
    struct muster_link_keys *keys = muster_mem_alloc_zero(mem, 1, sizeof(*keys));

    if (keys == NULL)
        return NULL;
    keys->mem = mem;
    muster_list_init(&keys->peers);
    return keys;
}

void muster_link_keys_free(struct muster_link_keys *keys)
{
    struct muster_list *node;

    if (keys == NULL)
        return;
    while ((node = muster_list_pop(&keys->peers)) != NULL) {
        struct peer_keys *of_peer = MUSTER_CONTAINER_OF(node, struct peer_keys, node);

        explicit_bzero(of_peer->keys, sizeof(of_peer->keys));
        muster_mem_free(keys->mem, of_peer);
    }
    muster_mem_free(keys->mem, keys);
}

/* A list, as there are as many as members, and a look-up is for a new connection only. */
static struct peer_keys *find_peer(const struct muster_link_keys *keys,
                                   const struct muster_incarnation *peer)
{
    MUSTER_LIST_EACH(&keys->peers, of_peer, struct peer_keys, node) {
        if (muster_incarnation_is_equal(&of_peer->peer, peer))
            return of_peer;
    }
    return NULL;
}

enum muster_rc muster_link_keys_put(struct muster_link_keys *keys,
                                    const struct muster_incarnation *peer,
                                    const struct muster_link_key *key)
{
    struct peer_keys *of_peer = find_peer(keys, peer);

    if (of_peer == NULL) {
        of_peer = muster_mem_alloc_zero(keys->mem, 1, sizeof(*of_peer));
        if (of_peer == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        of_peer->peer = *peer;
        muster_list_append(&keys->peers, &of_peer->node);
    }
    /* The oldest key falls out at the end. */
    memmove(of_peer->keys + 1, of_peer->keys, sizeof(of_peer->keys) - sizeof(of_peer->keys[0]));
    of_peer->keys[0] = *key;
    if (of_peer->count < MUSTER_LINK_KEYS_PER_PEER)
        of_peer->count++;
    return MUSTER_OK;
}

enum muster_rc muster_link_keys_learn(struct muster_link_keys *keys,
                                      const struct muster_incarnation *peer,
                                      struct muster_stream *control,
                                      const struct muster_link_key_names *names)
{
    char label[sizeof(LABEL) + MUSTER_JOB_NAME_BYTES + 2 * MUSTER_INCARNATION_TEXT_BYTES];
    char opener[MUSTER_INCARNATION_TEXT_BYTES], acceptor[MUSTER_INCARNATION_TEXT_BYTES];
    struct muster_link_key key;
    enum muster_rc rc;

    _Static_assert(sizeof(key) == sizeof(key.secret) + MUSTER_LINK_KEY_ID_BYTES,
                   "secret and name are exported together");

    snprintf(label, sizeof(label), LABEL " %s %s %s", names->job,
             muster_incarnation_format(names->opener, opener),
             muster_incarnation_format(names->acceptor, acceptor));
    /* Job and both incarnations are in the label: a key is good for this pair in this job only. */
    rc = muster_tls_stream_export(control, label, (uint8_t *)&key, sizeof(key));
    if (rc == MUSTER_OK)
        rc = muster_link_keys_put(keys, peer, &key);
    explicit_bzero(&key, sizeof(key)); /* the copy on the stack */
    return rc;
}

bool muster_link_keys_has(const struct muster_link_keys *keys,
                          const struct muster_incarnation *peer)
{
    return find_peer(keys, peer) != NULL;
}

void muster_link_keys_list(const struct muster_link_keys *keys,
                           const struct muster_incarnation *peer,
                           uint8_t ret_ids[MUSTER_LINK_KEYS_PER_PEER * MUSTER_LINK_KEY_ID_BYTES])
{
    const struct peer_keys *of_peer = find_peer(keys, peer);
    size_t count = of_peer != NULL ? of_peer->count : 0;

    memset(ret_ids, 0, MUSTER_LINK_KEYS_PER_PEER * MUSTER_LINK_KEY_ID_BYTES);
    for (size_t i = 0; i < count; i++)
        memcpy(ret_ids + i * MUSTER_LINK_KEY_ID_BYTES, of_peer->keys[i].id,
               MUSTER_LINK_KEY_ID_BYTES);
}

const struct muster_link_key *muster_link_keys_find(const struct muster_link_keys *keys,
                                                    const struct muster_incarnation *peer,
                                                    const uint8_t id[MUSTER_LINK_KEY_ID_BYTES])
{
    const struct peer_keys *of_peer = find_peer(keys, peer);

    for (size_t i = 0; of_peer != NULL && i < of_peer->count; i++)
        if (memcmp(of_peer->keys[i].id, id, MUSTER_LINK_KEY_ID_BYTES) == 0)
            return &of_peer->keys[i];
    return NULL;
}
