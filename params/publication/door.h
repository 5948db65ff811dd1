/* The serving side of publishers and readers: answers requests for manifests and chunks as soon as the version
 * has them. */
#ifndef MUSTER_PARAMS_PUBLICATION_DOOR_H
#define MUSTER_PARAMS_PUBLICATION_DOOR_H

#include "net/link/port.h"
#include "params/publication/held.h"
#include "params/publication/messages.h"

struct muster_publication_door;
struct muster_publication_client;

enum muster_publication_prospect {
    MUSTER_PUBLICATION_IS_COMING, /* requests for it wait */
    MUSTER_PUBLICATION_IS_UNKNOWN, /* they wait for a moment: this side may not have heard of it yet */
    MUSTER_PUBLICATION_IS_PAST,    /* they are refused */
};

/** Told to the owner. All but on_missing may be NULL. */
struct muster_publication_door_events {
    /* That version is asked for, and not in the list. */
    enum muster_publication_prospect (*on_missing)(void *owner, uint64_t version);
    /* Something has arrived here lately: those that wait here are told to go on waiting. NULL: always. */
    bool (*is_progressing)(void *owner);
    void (*on_join)(void *owner, struct muster_publication_client *client);
    void (*on_where)(void *owner, struct muster_publication_client *client, uint64_t version);
    void (*on_have)(void *owner, struct muster_publication_client *client);
    void (*on_gone)(void *owner, struct muster_publication_client *client);
};

struct muster_publication_door_options {
    const char *name;     /* of the publication; borrowed until closed */
    const char *host_key; /* readers that have it, too, may map versions; borrowed until closed */
    const struct muster_peer_hello *hello;
    const struct muster_address *listen;
    const struct muster_authorization *authorization; /* borrowed until closed */
    const struct muster_list *versions; /* of struct muster_held_version; borrowed until closed */
    const struct muster_publication_door_events *events;
    void *owner;
};

/** A reader's link. */
struct muster_publication_client {
    struct muster_list node;
    uint32_t place;       /* the owner's: in its trees */
    uint64_t has_version; /* that it shows */
    bool is_joined;
    bool is_denied;
    const struct muster_identity *identity; /* of the link's stream; NULL: no certificate */
    struct muster_publication_join join;    /* once it is joined */
    /* private */
    struct muster_publication_door *door;
    struct muster_peer_link *link;
    struct muster_list awaiting; /* in door->awaiting while requests wait */
    uint32_t sending;            /* answers that have not left */
    uint32_t request_count;
    struct muster_publication_request {
        uint64_t version, base, mapped, since_ns;
        uint32_t chunk;
        bool is_manifest;
    } requests[MUSTER_PUBLICATION_WAITING_MAX];
    uint8_t join_bytes[MUSTER_PUBLICATION_JOIN_BYTES];
};

struct muster_publication_door_stats {
    uint64_t chunks, deltas, bytes;
};

/** A new incarnation of the job, for links of a publication. */
void muster_publication_hello_fill(struct muster_env *env, const char *job,
                                   struct muster_peer_hello *ret_hello);
/** The address that others connect to, which must be one of MUSTER_ADDRESS_TEXT_BYTES. reach NULL: that of the
 * port. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_publication_reach_fill(
    const struct muster_address *port, const char *reach,
    char ret_address[MUSTER_ADDRESS_TEXT_BYTES], struct muster_error *ret_error);

/** Listen. Borrows env. Gives. Errors: those of muster_port_open. */
MUSTER_MUST_CHECK enum muster_rc muster_publication_door_open(
    struct muster_env *env, const struct muster_publication_door_options *options,
    struct muster_publication_door **ret_door, struct muster_error *ret_error);
const struct muster_address *muster_publication_door_address(
    const struct muster_publication_door *door);
const struct muster_publication_door_stats *muster_publication_door_stats(
    const struct muster_publication_door *door);
/** Clients, joined ones and others. */
struct muster_list *muster_publication_door_clients(struct muster_publication_door *door);
/** A version has got a chunk, or has come or gone: answer the requests that wait. */
void muster_publication_door_progress(struct muster_publication_door *door);
/** False: the client is closed. */
MUSTER_MUST_CHECK bool muster_publication_client_send(struct muster_publication_client *client,
                                                      struct muster_frame_header header,
                                                      const void *payload, size_t bytes);
/** Versions are borrowed by no frame any more when this returns. closed may be NULL. */
typedef void muster_publication_door_fn(void *owner);
void muster_publication_door_close(struct muster_publication_door *door,
                                   muster_publication_door_fn *closed);

#endif
