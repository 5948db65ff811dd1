/* The wire as groups see it: peers by incarnation, frames out, frames in. */
#ifndef MUSTER_COLLECTIVE_WIRE_H
#define MUSTER_COLLECTIVE_WIRE_H

#include <muster/collective.h>
#include <muster/view.h>

#include "collective/wire/buffer_pool.h"
#include "net/link/peer_link.h"

struct muster_wire;
struct muster_wire_peer;

#define MUSTER_LANES_MAX 64u

/** Types of frames of channel COLLECTIVE. */
enum muster_frame_type {
    MUSTER_FRAME_START = 1, /* the sender has started the op and takes final chunks; of an exchange:
                               it has all pieces before `chunk`, expects `offset` elements */
    MUSTER_FRAME_REDUCE,    /* partial sum of a chunk */
    MUSTER_FRAME_GATHER,    /* final value of a chunk; without payload: it is final at its owner */
    MUSTER_FRAME_INPUT,     /* the whole input of the sender (direct) */
    MUSTER_FRAME_COMPLETE,  /* the sender has its whole result */
    MUSTER_FRAME_FETCH,     /* wanted: chunks [chunk, chunk + phase) */
    MUSTER_FRAME_CHUNK,     /* final value of a chunk, asked for by FETCH */
    MUSTER_FRAME_MISMATCH,  /* payload: the description of the operation as the sender calls it */
    MUSTER_FRAME_QUERY,     /* have you started it? */
    MUSTER_FRAME_STATUS,    /* flags 1: yes */
    MUSTER_FRAME_PIECE,     /* chunk-th piece of the part for the receiver; offset: its elements */
    MUSTER_FRAME_BOARD,     /* flags 1: the sender can use the boards of all; of no operation */
    MUSTER_FRAME_STEP,      /* a message of a plan of steps: number `phase` of chunk `chunk` */
    /* Messages; flags: dtype, offset: elements; from the sender, phase: its lowest open sequence.
     */
    MUSTER_FRAME_OFFER,    /* it has been started */
    MUSTER_FRAME_TAKE,     /* the receiver has started it too, and has all pieces before `chunk` */
    MUSTER_FRAME_MESSAGE,  /* chunk-th piece */
    MUSTER_FRAME_WITHDRAW, /* the sender gives it up */
    MUSTER_FRAME_OUTCOME,  /* from the receiver: how it ended (flags: rc; phase: dtype) */
    MUSTER_FRAME_ALARM, /* of a backend: what the members were making has failed at the sender; op: the
                           round in which all tell how it went */
};

/** The wire: links to peers over which frames of collectives travel. One per process; groups come
 * and go. */
struct muster_wire_events {
    /* May be NULL. A DATA link is gone, whether or not the peer is a member. */
    void (*on_link_down)(void *data, const struct muster_incarnation *peer,
                         const struct muster_error *error);
};
struct muster_wire_options {
    struct muster_env *env;
    struct muster_peer_hello hello;          /* job, incarnation; purpose is set inside */
    const struct muster_wire_events *events; /* may be NULL; borrowed */
    void *data;
    uint64_t heal_ns; /* a member whose connection breaks has so long to come back; 0: 3 s */
    /* Connections to a member, by the side that opens them, at most MUSTER_STRIPES_MAX; 0: 1 on
     * this host, 2 to others. */
    uint32_t stripe_count;
    uint32_t stripe_bytes_min; /* after a payload of so much the next stripe follows; 0: 32 KiB */
};
MUSTER_MUST_CHECK enum muster_rc muster_wire_tcp_open(const struct muster_wire_options *options,
                                                      struct muster_wire **ret_wire);
/** An accepted DATA link (after on_ready). Takes link. Of two members the one with the smaller
 * incarnation connects. */
void muster_wire_accept(struct muster_wire *wire, struct muster_peer_link *link);
/** The obstacle of its links is gone: connect now, if they are to be tried again later. */
void muster_wire_retry(struct muster_wire *wire, const struct muster_incarnation *peer);
/** No group may be open. */
void muster_wire_close(struct muster_wire *wire);

/** A point inside an operation: a chunk is about to be sent, or has been received and is not used
 * yet. */
struct muster_wire_point {
    struct muster_op_id op;
    uint32_t chunk;
    const char *phase; /* "reduce", "gather", "direct", "exchange", "message",
                           "repair" */
    bool is_send;
};
/** Called on every chunk. True: the wire is cut on the spot, as if the process had died here
 * (tests); a real process raises SIGKILL instead of returning. */
typedef bool muster_wire_point_fn(void *data, const struct muster_wire_point *at);
/** fn NULL: none. */
void muster_wire_set_failpoint(struct muster_wire *wire, muster_wire_point_fn *fn, void *data);

/** The wire tells the group that it serves by these. Like muster_peer_link_events, with the peer's
 * rank. */
struct muster_wire_client {
    void *(*on_frame)(void *client, uint32_t rank, const struct muster_frame_header *header);
    void (*on_progress)(void *client, uint32_t rank, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done);
    void (*on_payload)(void *client, uint32_t rank, const struct muster_frame_header *header,
                       void *buffer);
    /* A frame of a higher epoch waits on this peer's link, which is paused until the next attach.
     */
    void (*on_higher_epoch)(void *client, const struct muster_incarnation *peer, uint64_t epoch);
    /* The frame that was coming in from there will not come to its end. */
    void (*on_abandoned)(void *client, uint32_t rank);
    /* The link is lost for good: a broken connection that is healed in time goes unnoticed. */
    void (*on_link_down)(void *client, uint32_t rank, const struct muster_error *error);
};

/** Serve `client`: the members of view get links, and only frames of its epoch are let through.
 * Links of others stay until they break. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_wire_attach(struct muster_wire *wire,
                                                    const struct muster_view *view,
                                                    const struct muster_wire_client *client,
                                                    void *data);
/** Serve nobody; a no-op when another client is attached. */
void muster_wire_detach(struct muster_wire *wire, void *data);

/** One frame to the member with that rank. payload is borrowed until the peer is known to have it
 * or recall takes it back; `buffer` (from the wire's pool, may be NULL) is unreferenced then.
 * Memory without a buffer may change as soon as something has come that depends on the frame's
 * arrival (the final value of its chunk, COMPLETE of all). Frames to a peer whose link is lost are
 * dropped. */
void muster_wire_send(struct muster_wire *wire, uint32_t rank,
                      const struct muster_frame_header *header, const void *payload, void *buffer);

/** Frames of the lane with that index go before queued ones of lanes of lower priority (0 … 255, 0
 * at first). */
void muster_wire_set_priority(struct muster_wire *wire, uint32_t lane, uint8_t priority);

/** Take back every frame of epochs < epoch, and stop receiving into their buffers. */
void muster_wire_recall(struct muster_wire *wire, uint64_t epoch);
/** The same for one operation; a description (MISMATCH) that has begun to arrive is still received:
 * it may be the one that says that the operation is over there. */
void muster_wire_recall_op(struct muster_wire *wire, const struct muster_op_id *op);

/** Read no further frames from that peer until resume (the frame in on_frame that got NULL is asked
 * for again). */
void muster_wire_pause(struct muster_wire *wire, uint32_t rank);
void muster_wire_resume(struct muster_wire *wire, uint32_t rank);
/** The peer breaks the protocol: its link is closed. */
void muster_wire_refuse(struct muster_wire *wire, uint32_t rank, const char *text);

/** Every frame has left. */
bool muster_wire_is_idle(const struct muster_wire *wire);

struct muster_buffer_pool *muster_wire_pool(struct muster_wire *wire);

#endif
