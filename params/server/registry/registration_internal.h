/* Between the files of the registry: entry.c has the server's own key, keys.c reads all keys, peer.c has the servers
 * that they show, next_map.c changes the map. */
#ifndef MUSTER_PARAMS_SERVER_REGISTRATION_INTERNAL_H
#define MUSTER_PARAMS_SERVER_REGISTRATION_INTERNAL_H

#include <string.h>

#include <muster/registry.h>

#include "params/server/registry/departure.h"
#include "params/server/registry/registration.h"
#include "params/wire/server_record.h"

#define MUSTER_PARAMS_SERVER_LEASE_TTL_S  3u
#define MUSTER_PARAMS_REGISTRY_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define MUSTER_PARAMS_REGISTRY_RETRY_NS   (200 * MUSTER_NS_PER_MS)
#define MUSTER_PARAMS_REGISTRY_WRONG_NS                                                            \
    (5 * MUSTER_NS_PER_S) /* pause where something else answers */

/** A server that has a key. */
struct muster_params_peer {
    struct muster_list node;
    struct muster_params_registration *registration;
    struct muster_params_server_record record;
    uint64_t mod_revision;
    struct muster_process_watch watch;
    bool is_watched;
    struct muster_mem *mem;
    bool is_gone; /* its process has died: maps leave it out, though its key may still be there */
    bool is_deleting; /* its key is being deleted, … */
    bool is_buried;   /* … or has been, as far as this server knows */
    struct muster_registry_op op;
    /* This server's farewell to it (farewell.c). */
    struct muster_peer_link *farewell; /* NULL: none is under way */
    bool is_told;                      /* it knows that this server leaves */
    uint32_t unreached_count;          /* attempts in a row at its address that failed */
    uint64_t farewell_ns;              /* the next attempt is not made before … */
    uint64_t acknowledged_ns;          /* … and this one is given up then */
};

enum muster_params_registering {
    MUSTER_PARAMS_REGISTERING_LEASE,
    MUSTER_PARAMS_REGISTERING_PUT,
    MUSTER_PARAMS_REGISTERING_DONE,
    MUSTER_PARAMS_REGISTERING_WAITS, /* to try again */
};

struct muster_params_registration {
    struct muster_params_server *server;
    struct muster_registry *registry;
    char prefix[MUSTER_JOB_NAME_BYTES + 24];   /* "/muster/<job>/params/" */
    struct muster_params_server_record record; /* its own */
    uint32_t expected, told_count;             /* servers, before the first map; those told of */
    bool is_new_by_force;
    muster_params_failed_fn *failed; /* NULL: nobody hears of it */
    char endpoints[128];             /* of the registry, for people */
    struct muster_error away;        /* its last answer, where that was an error: for people */
    uint64_t away_ns;                /* since when it has been an error */
    /* Its own key. */
    enum muster_params_registering registering;
    bool is_changed; /* since the key was put */
    bool has_lease;
    struct muster_registry_lease lease;
    struct muster_registry_op put, revoke;
    struct muster_timer put_retry;
    /* All keys. */
    bool is_known; /* the Range was answered */
    bool is_short; /* a key was not taken for want of memory */
    struct muster_registry_op range;
    struct muster_registry_watch watch;
    bool is_watching;
    struct muster_timer range_retry;
    struct muster_list peers; /* of struct muster_params_peer */
    uint32_t peer_count;
    uint64_t map_revision; /* of the map's key; 0: there is none */
    /* The map names only servers that have gone (former.c). */
    bool is_lost;
    uint64_t lost_since_ns;
    char lost_address[MUSTER_PARAMS_ADDRESS_BYTES]; /* of one that had rows */
    struct muster_timer lost_look;
    /* Servers that are to begin the job have other cuts (begin.c). */
    bool is_differing;
    uint64_t differs_since_ns;
    bool is_refused; /* failed has been called */
    /* The next map. */
    bool is_swapping;
    struct muster_registry_op swap;
    struct muster_timer turn;
    struct muster_task look; /* whether it has given all away */
    bool is_our_turn;
    muster_params_registration_fn *left; /* NULL: it does not leave, or has */
    bool is_waiting;                     /* to leave, for a server that is dead */
    bool is_cut_off;                     /* likewise, for the registry */
    struct muster_params_departures departures;
    muster_params_registration_fn *closed;
    bool is_closing;
};

static inline uint64_t muster_params_registry_deadline_ns(
    const struct muster_params_registration *registration)
{
    return muster_loop_after_ns(registration->server->env->loop, MUSTER_PARAMS_REGISTRY_TIMEOUT_NS);
}

static inline void muster_params_registry_retry(struct muster_params_registration *registration,
                                                struct muster_timer *timer)
{
    struct muster_loop *loop = registration->server->env->loop;

    muster_timer_start(timer, loop,
                       muster_loop_after_ns(loop, registration->away.rc == MUSTER_UNIMPLEMENTED
                                                      ? MUSTER_PARAMS_REGISTRY_WRONG_NS
                                                      : MUSTER_PARAMS_REGISTRY_RETRY_NS));
}

static inline struct muster_bytes muster_params_text_bytes(const char *text)
{
    return (struct muster_bytes){text, strlen(text)};
}

static inline void muster_params_decide_post(struct muster_params_registration *registration)
{
    muster_task_post(&registration->server->decide, registration->server->env->loop);
}

/** Read all keys again, later. */
static inline void muster_params_keys_read_later(struct muster_params_registration *registration)
{
    muster_params_registry_retry(registration, &registration->range_retry);
}

/* --- key.c --- */

void muster_params_server_key_format(const struct muster_params_registration *registration,
                                     const struct muster_incarnation *id, char *key, size_t room);
/** False: it is not the key of a server. */
bool muster_params_server_key_parse(const struct muster_params_registration *registration,
                                    struct muster_bytes key, struct muster_incarnation *ret_id);
bool muster_params_key_is_map(const struct muster_params_registration *registration,
                              struct muster_bytes key);

/* --- ready.c --- */

/** The registry has answered, or has not: whoever waits for it can say so. error is for rc other than OK. */
void muster_params_registry_note(struct muster_params_registration *registration, enum muster_rc rc,
                                 const struct muster_error *error);

/* --- entry.c --- */

void muster_params_entry_init(struct muster_params_registration *registration);
/** Put the server's own key, under a lease. */
void muster_params_entry_register(struct muster_params_registration *registration);
/** registration->record has changed. */
void muster_params_entry_change(struct muster_params_registration *registration);

/* --- peer.c --- */

struct muster_params_peer *muster_params_peer_find(
    const struct muster_params_registration *registration, const struct muster_incarnation *id);
/** The key is there, or has another value. Without memory registration->is_short is set. */
void muster_params_peer_put(struct muster_params_registration *registration,
                            const struct muster_registry_kv *kv);
/** The keys of servers that are gone are deleted without a new map. */
void muster_params_peers_bury(struct muster_params_registration *registration);
/** Its key is gone. Frees peer. */
void muster_params_peer_lost(struct muster_params_peer *peer);
void muster_params_peers_free(struct muster_params_registration *registration);

/* --- former.c --- */

void muster_params_former_init(struct muster_params_registration *registration);
/** True: what the range has is not to be taken now. A server that died keeps its key for as long as its lease lasts. */
bool muster_params_former_job_stops(struct muster_params_registration *registration,
                                    const struct muster_registry_op *range);
/** Keys have changed: perhaps the last server that had rows has gone, or one of them is back. */
void muster_params_former_check(struct muster_params_registration *registration);
/** Where registration->is_lost. */
void muster_params_former_describe(const struct muster_params_registration *registration,
                                   struct muster_error *ret_error);

/** Nothing comes of this server: failed is called. */
void muster_params_join_refuse(struct muster_params_registration *registration,
                               const struct muster_error *error);

/* --- begin.c --- */

/** True: the first map is not to be made now. */
bool muster_params_begin_differs(struct muster_params_registration *registration);
/** Where registration->is_differing. */
void muster_params_begin_describe(const struct muster_params_registration *registration,
                                  struct muster_error *ret_error);

/* --- keys.c --- */

void muster_params_keys_init(struct muster_params_registration *registration);
void muster_params_keys_read(struct muster_params_registration *registration);

/* --- farewell.c --- */

void muster_params_farewell_init(struct muster_params_registration *registration);
/** The registry is away: tell the others by links that this server leaves. */
void muster_params_farewells_send(struct muster_params_registration *registration);
/** The registry has been away for so long that nobody waits for it who could not give anything away. */
bool muster_params_farewell_is_final(const struct muster_params_registration *registration);
/** Whether the peer leaves, and knows or cannot be told that this server does. */
bool muster_params_farewell_is_mutual(struct muster_params_registration *registration,
                                      const struct muster_params_peer *peer);
/** The peer is forgotten. */
void muster_params_farewell_drop(struct muster_params_peer *peer);

/* --- fence.c --- */

/** True: what the range has is not to be taken; it is read again. */
bool muster_params_fence_delays(struct muster_params_registration *registration,
                                const struct muster_registry_op *range);

/* --- next_map.c --- */

void muster_params_next_map_init(struct muster_params_registration *registration);

#endif
