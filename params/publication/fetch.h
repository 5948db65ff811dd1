/* Fetching one version after the other. The chunks of each tree come from the first source of a list that can
 * be reached and goes on. */
#ifndef MUSTER_PARAMS_PUBLICATION_FETCH_H
#define MUSTER_PARAMS_PUBLICATION_FETCH_H

#include "params/publication/held.h"
#include "params/publication/messages.h"
#include "params/publication/tree.h"

struct muster_publication_fetch;

/** The chunks of one tree, which come from one source at a time. */
struct muster_publication_lane {
    struct muster_publication_fetch *fetch;
    uint32_t tree;
    struct muster_address sources[MUSTER_PUBLICATION_SOURCES_MAX];
    size_t source_count, source_at; /* at the count: all have been tried */
    struct muster_peer_link *link;  /* NULL: none. Kept between versions */
    struct muster_address link_address;
    bool is_joined; /* the link is ready */
    uint32_t open[MUSTER_PUBLICATION_REQUESTS_MAX];
    uint32_t open_count;
    uint32_t cursor; /* chunks of the tree before it have arrived, or are open */
    struct muster_timer silence;
    uint8_t *received; /* a manifest or a delta while it arrives */
    char text[sizeof(((struct muster_error *)0)->text)]; /* of a refusal */
};

struct muster_publication_fetch_events {
    /* Chunks have arrived, or the manifest: fetch->held has them. */
    void (*on_progress)(struct muster_publication_fetch *fetch);
    /* fetch->held is whole: the owner takes it. */
    void (*on_done)(struct muster_publication_fetch *fetch);
    /* All sources of a tree have been tried: the owner gives others, or abandons the version. fetch->error
     * tells why of the last. */
    void (*on_stuck)(struct muster_publication_fetch *fetch);
};

/** The owner's memory. */
struct muster_publication_fetch {
    void *owner;
    struct muster_error error;
    struct muster_reader_stats stats;        /* of what has been received */
    struct muster_held_version *held;        /* being filled; NULL: its manifest has not arrived */
    bool is_active;                          /* a version is wanted */
    uint64_t progress_ns;                    /* when bytes of it arrived last, or it was started */
    struct muster_publication_record record; /* of it */
    /* private */
    struct muster_env *env;
    struct muster_peer_hello hello;
    struct muster_publication_join join;
    const struct muster_publication_fetch_events *events;
    struct muster_held_version *base;
    struct muster_held_spare *spare; /* set by the owner */
    struct muster_publication_lane lanes[MUSTER_PUBLICATION_TREES];
    struct muster_task step;
};

/** Borrows env and events until fini; copies the others. */
void muster_publication_fetch_init(struct muster_publication_fetch *fetch, struct muster_env *env,
                                   const struct muster_peer_hello *hello,
                                   const struct muster_publication_join *join,
                                   const struct muster_publication_fetch_events *events);
/** Want the version of record. base: chunks that are equal there are copied; NULL: there is none. */
void muster_publication_fetch_start(struct muster_publication_fetch *fetch,
                                    const struct muster_publication_record *record,
                                    struct muster_held_version *base);
/** Fetch the chunks of a tree from these sources, from the first one that is missing. A tree whose sources
 * have not all been tried goes on with those. */
void muster_publication_fetch_from(struct muster_publication_fetch *fetch, uint32_t tree,
                                   const struct muster_address *sources, size_t count);
/** All sources of a tree have been tried, or none has been given. */
bool muster_publication_fetch_is_stuck(const struct muster_publication_fetch *fetch);
/** The version is not wanted any more; no event follows. Idempotent. */
void muster_publication_fetch_abandon(struct muster_publication_fetch *fetch);
void muster_publication_fetch_fini(struct muster_publication_fetch *fetch);

#endif
