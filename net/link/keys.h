/* The keys that this process shares with each other member: from the TLS session of their control
 * link. With them links in plain text prove who is there (docs/protocol.md, "Links"). */
#ifndef MUSTER_NET_LINK_KEYS_H
#define MUSTER_NET_LINK_KEYS_H

#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/stream.h>

/* The newest keys of each member are kept: a control link may have been connected several times,
 * and only one of the two sides may have noticed. */
#define MUSTER_LINK_KEYS_PER_PEER 4
#define MUSTER_LINK_KEY_ID_BYTES  8

struct muster_link_keys;

struct muster_link_key {
    uint8_t secret[32];
    uint8_t id[MUSTER_LINK_KEY_ID_BYTES]; /* known to everybody who listens */
};

/** Gives; NULL: no memory. */
struct muster_link_keys *muster_link_keys_new(struct muster_mem *mem);
/** Wipes them. NULL is accepted. */
void muster_link_keys_free(struct muster_link_keys *keys);

/** The names of a control link's ends, as both ends say them. */
struct muster_link_key_names {
    const char *job;
    const struct muster_incarnation *opener, *acceptor;
};
/** Export the key of a control link with peer. Errors: RESOURCE_EXHAUSTED, FAILED_PRECONDITION,
 * INTERNAL. */
MUSTER_MUST_CHECK enum muster_rc muster_link_keys_learn(struct muster_link_keys *keys,
                                                        const struct muster_incarnation *peer,
                                                        struct muster_stream *control,
                                                        const struct muster_link_key_names *names);
MUSTER_MUST_CHECK enum muster_rc muster_link_keys_put(struct muster_link_keys *keys,
                                                      const struct muster_incarnation *peer,
                                                      const struct muster_link_key *key);

bool muster_link_keys_has(const struct muster_link_keys *keys,
                          const struct muster_incarnation *peer);
/** The newest first; the rest of ret_ids is zero. */
void muster_link_keys_list(const struct muster_link_keys *keys,
                           const struct muster_incarnation *peer,
                           uint8_t ret_ids[MUSTER_LINK_KEYS_PER_PEER * MUSTER_LINK_KEY_ID_BYTES]);
/** Borrowed until the next is put; NULL: none of this name. */
const struct muster_link_key *muster_link_keys_find(const struct muster_link_keys *keys,
                                                    const struct muster_incarnation *peer,
                                                    const uint8_t id[MUSTER_LINK_KEY_ID_BYTES]);

#endif
