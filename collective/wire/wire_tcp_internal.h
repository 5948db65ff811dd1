/* Declarations that the files of the TCP wire share. */
#ifndef MUSTER_COLLECTIVE_WIRE_TCP_INTERNAL_H
#define MUSTER_COLLECTIVE_WIRE_TCP_INTERNAL_H

#include "collective/wire/wire.h"
#include "net/link/heal.h"

/* One frame on its way. */
struct wire_frame {
    struct muster_frame frame;
    struct muster_wire_peer *peer;
    struct muster_list node; /* peer->frames, peer->marks or wire->idle_frames */
    void *buffer;
};

/* One of the connections to a peer. */
struct wire_stripe {
    struct muster_wire_peer *peer;
    struct muster_peer_link *link; /* ready, on its way, or broken; or NULL */
    struct muster_link_heal heal;
};

/* Between hosts a connection may get less than its share of the path. */
#define MUSTER_STRIPES_ELSEWHERE 2u

struct muster_wire_peer {
    struct muster_wire *wire;
    struct muster_list node;
    struct muster_incarnation incarnation;
    char name[MUSTER_JOB_NAME_BYTES + 16]; /* "worker:3", for people */
    struct muster_address address;
    struct wire_stripe stripes[MUSTER_STRIPES_MAX];
    uint32_t stripe_count; /* 0: no links, and none on their way */
    uint64_t set;          /* their sessions but for the last byte */
    bool is_set_opener;
    bool is_elsewhere;       /* on another host */
    uint32_t send_stripe;    /* the next frame goes there */
    uint32_t receive_stripe; /* the next frame comes from there */
    uint32_t rank;           /* in the attached view */
    bool is_member;
    bool is_wanted; /* connect again when the link is lost */
    bool is_broken; /* a link was lost since attach: frames are missing, so none follow */
    bool is_paused;
    struct muster_list frames;
    struct muster_list marks; /* between them, held by links: the next stripe follows */
    struct muster_timer retry;
    uint64_t retry_ns; /* the backoff's last wait; 0: connected since */
};

struct muster_wire {
    struct muster_env *env;
    struct muster_peer_hello hello;
    const struct muster_wire_events *events;
    void *events_data;
    struct muster_buffer_pool pool;
    struct muster_list peers;
    struct muster_list idle_frames;
    const struct muster_wire_client *client;
    void *client_data;
    uint64_t epoch;
    uint32_t member_count;
    struct muster_wire_peer **members; /* by rank; NULL for this process */
    muster_wire_point_fn *failpoint;
    void *failpoint_data;
    bool is_cut;
    uint8_t priorities[MUSTER_LANES_MAX];
    bool has_priorities;
    uint64_t heal_ns;
    uint32_t stripe_bytes_min;
    uint32_t stripe_count; /* 0: 1 on this host, MUSTER_STRIPES_ELSEWHERE to others */
    uint64_t resumed_count;
};

/* collective/wire/tcp.c */
extern const struct muster_peer_link_events muster_wire_link_events; /* data: struct wire_stripe */
/** The member with that rank; another than this process. Asserts both. */
struct muster_wire_peer *muster_wire_member(const struct muster_wire *wire, uint32_t rank);

/* collective/wire/tcp_links.c */
struct muster_wire_peer *muster_wire_peer_find(const struct muster_wire *wire,
                                               const struct muster_incarnation *incarnation);
struct muster_wire_peer *muster_wire_peer_get(struct muster_wire *wire,
                                              const struct muster_incarnation *incarnation);
void muster_wire_peer_free(struct muster_wire_peer *peer);
void muster_wire_peer_name(struct muster_wire_peer *peer, const struct muster_member *member);
/** Open its links, unless there are some. */
void muster_wire_peer_connect(struct muster_wire_peer *peer);
/** Queued frames are lost, so nothing more may follow in this epoch. */
void muster_wire_lose_link(struct muster_wire_peer *peer, const struct muster_error *error);
void muster_wire_drop_links(struct muster_wire_peer *peer);
/** The link of a stripe has become ready: frames may go when all have. */
void muster_wire_stripe_ready(struct muster_wire_peer *peer);
/** All its links have been ready: broken ones take frames too. */
bool muster_wire_is_linked(const struct muster_wire_peer *peer);
/** The link from which the next frame is read; NULL: it is not there yet. */
struct muster_peer_link *muster_wire_turn(const struct muster_wire_peer *peer);
bool muster_wire_is_turn_of(const struct muster_wire_peer *peer,
                            const struct muster_peer_link *link);
/** The sender says that it goes on over the next stripe. */
void muster_wire_pass_turn(struct muster_wire_peer *peer);

/* collective/wire/tcp_heal.c */

/** Events of links. */
void muster_wire_on_broken(struct muster_peer_link *link, const struct muster_error *error);
void muster_wire_on_resumed(struct muster_peer_link *link);
void muster_wire_on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                             const struct muster_error *why);
/* collective/wire/tcp_send.c */

/** Queued frames go on the links, which have become ready. */
void muster_wire_send_pending(struct muster_wire_peer *peer);
/** Forget the frames to this peer that no link holds. */
void muster_wire_release_frames(struct muster_wire_peer *peer);
/** Frames are on their way: do not fall asleep before the next have had time to come. */
void muster_wire_expect(struct muster_wire *wire);
/** Ask the failpoint about a chunk. Returns whether the process goes on. */
bool muster_wire_pass_point(struct muster_wire *wire, const struct muster_frame_header *header,
                            bool is_send);

#endif
