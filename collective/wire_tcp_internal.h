/* What the files of the TCP wire share. */
#ifndef MUSTER_COLLECTIVE_WIRE_TCP_INTERNAL_H
#define MUSTER_COLLECTIVE_WIRE_TCP_INTERNAL_H

#include "collective/wire.h"
#include "net/link_heal.h"

/* One frame on its way. */
struct wire_frame {
    struct muster_frame frame;
    struct muster_wire_peer *peer;
    struct muster_list node; /* peer->frames, or wire->idle_frames */
    void *buffer;
};

struct muster_wire_peer {
    struct muster_wire *wire;
    struct muster_list node;
    struct muster_incarnation incarnation;
    char name[MUSTER_JOB_NAME_BYTES + 16]; /* "worker:3", for people */
    struct muster_address address;
    struct muster_peer_link *link; /* ready or on its way, or NULL */
    uint32_t rank;                 /* in the attached view */
    bool is_member;
    bool is_wanted; /* connect again when the link is lost */
    bool is_broken; /* a link was lost since attach: frames are missing, so none follow */
    bool is_paused;
    struct muster_list frames;
    struct muster_timer retry;
    uint64_t retry_ns;
    struct muster_link_heal heal;
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
    uint64_t heal_ns;
    uint64_t resumed_count;
};

/* wire_tcp.c */

/** What was queued is lost, so nothing more may follow in this epoch. */
void muster_wire_lose_link(struct muster_wire_peer *peer, const struct muster_error *error);

/** The peer's link is this one from now on. */
void muster_wire_use_link(struct muster_wire_peer *peer, struct muster_peer_link *link);
/* wire_tcp_heal.c */

/** Events of links. */
void muster_wire_on_broken(struct muster_peer_link *link, const struct muster_error *error);
void muster_wire_on_resumed(struct muster_peer_link *link);
void muster_wire_on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                             const struct muster_error *why);
/** An accepted link that says RESUME or PROBE; peer may be NULL. Takes link. */
void muster_wire_accept_resuming(struct muster_wire_peer *peer, struct muster_peer_link *link);

/* wire_tcp_send.c */

/** Queued frames go on the link, which has become ready. */
void muster_wire_send_pending(struct muster_wire_peer *peer);
/** Forget the frames to this peer that no link holds. */
void muster_wire_release_frames(struct muster_wire_peer *peer);
void muster_wire_drop_link(struct muster_wire_peer *peer);
/** Frames are on their way: do not fall asleep before the next have had time to come. */
void muster_wire_expect(struct muster_wire *wire);
/** Ask the failpoint about a chunk. Returns whether the process goes on. */
bool muster_wire_pass_point(struct muster_wire *wire, const struct muster_frame_header *header,
                            bool is_send);

#endif
