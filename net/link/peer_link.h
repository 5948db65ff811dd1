/* A framed, introduced connection between two muster processes: the data plane and membership
 * control ride on it. */
#ifndef MUSTER_NET_PEER_LINK_H
#define MUSTER_NET_PEER_LINK_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/op_id.h>
#include <muster/stream.h>

#include "net/link/peer_version.h"

/* A port tells a peer link from HTTP/2 ("PRI ") by its first four bytes. */
#define MUSTER_PEER_MAGIC "MSTR"
/* Under TLS by ALPN; also the name that the certificate of a member must have where its credential
 * does not say which names are accepted. */
#define MUSTER_PEER_PROTOCOL "muster-link"
#define MUSTER_STRIPES_MAX   8u

struct muster_link_keys;
struct muster_peer_link;

enum muster_link_purpose {
    MUSTER_LINK_AS_OPENED = 0,    /* said by the accepting side: what the opener says */
    MUSTER_LINK_CONTROL = 1,      /* membership, heartbeats, state manifests: never behind data */
    MUSTER_LINK_DATA = 2,         /* chunks of collectives */
    MUSTER_LINK_STATE = 3,        /* chunks of the training state, on their way to a joiner */
    MUSTER_LINK_PARAMS = 4,       /* pushes and pulls of a client of parameters */
    MUSTER_LINK_PARAMS_COPY = 5,  /* changes of parameters, from a primary to its replica */
    MUSTER_LINK_PUBLICATION = 6,  /* versions of a publication, on their way to a reader */
    MUSTER_LINK_PARAMS_LEAVE = 7, /* a server of parameters says by it that it leaves its job */
};

enum muster_link_intent {
    MUSTER_LINK_NEW = 0,
    MUSTER_LINK_RESUME = 1, /* go on with the link of that session */
    MUSTER_LINK_PROBE = 2,  /* is that session known? (asked by the side that does not connect) */
};

/** The first message of each side, 136 bytes on the wire. A mismatch of job or version refuses the
 * link with a text that names both. The opener alone sets what stands after stripe_count. */
struct muster_peer_hello {
    char job[MUSTER_JOB_NAME_BYTES];
    struct muster_incarnation incarnation;
    uint32_t version;
    enum muster_link_purpose purpose;
    uint16_t stripe;       /* which of … */
    uint16_t stripe_count; /* … so many links for one thing; 0: 1 */
    enum muster_link_intent intent;
    uint64_t session;    /* of the link, chosen by its opener (NEW, 0: drawn); 0 on the wire: a lost
                          * connection is its end */
    uint64_t received;   /* RESUME: bytes that have arrived at the opener */
    uint32_t connection; /* of the session, counted by its opener: this one; PROBE: the lost one */
    struct muster_incarnation target; /* whom the opener means to reach; zero: whoever is there */
    /* This process's own, never sent: the interface of its own link-local address, by which it
     * reaches those of others. 0: it has none. */
    uint32_t scope_id;
    /* The keys of this process, never said: links but for CONTROL are in plain text, and by these
     * keys both sides prove who they are; target is set then. NULL: env->tls secures all links, or
     * none. */
    struct muster_link_keys *keys;
};

/** The receiver of a frame. */
enum muster_frame_channel {
    MUSTER_FRAME_COLLECTIVE = 1,
    MUSTER_FRAME_MEMBERSHIP = 2,
    MUSTER_FRAME_STATE = 3,
    MUSTER_FRAME_LINK = 4,   /* between the links themselves; no bytes of the session */
    MUSTER_FRAME_STRIPE = 5, /* the next frame comes over the next stripe */
    MUSTER_FRAME_PARAMS = 6,
    MUSTER_FRAME_PUBLICATION = 7,
};

/** 64 bytes on the wire, little endian, followed by payload_bytes. */
struct muster_frame_header {
    uint8_t channel; /* enum muster_frame_channel */
    uint8_t type;    /* by channel */
    uint16_t flags;
    uint32_t payload_bytes;
    uint64_t epoch;
    struct muster_op_id op;
    uint32_t phase; /* plan step, by type */
    uint32_t chunk;
    uint64_t offset;     /* by type */
    uint64_t descriptor; /* hash of the operation's description */
    uint64_t received;   /* the link's: bytes of the session that have arrived at the sender */
};
#define MUSTER_FRAME_HEADER_BYTES 64
#define MUSTER_FRAME_PAYLOAD_MAX  (16u << 20)

/* A link that can be resumed tells what has arrived when it sends anyhow, and by itself after so
 * much. Until then the sender keeps it. */
#define MUSTER_LINK_UNTOLD_BYTES (256u << 10)

struct muster_frame;
typedef void muster_frame_done_fn(struct muster_frame *frame, enum muster_rc rc);

/** One frame to send. Caller's memory, borrowed with its payload until done: until it has left, or,
 * when the link can be resumed, until the peer is known to have it. The payload may change earlier
 * if the peer is known to have it by other ways (an answer that depends on it). */
struct muster_frame {
    void *data;
    struct muster_frame_header header;
    const void *payload; /* header.payload_bytes of it */
    uint8_t priority;    /* goes before queued ones of less that have not begun to leave */
    /* private */
    muster_frame_done_fn *done;
    struct muster_peer_link *link;
    uint8_t packed[MUSTER_FRAME_HEADER_BYTES];
    struct iovec iov[2];
    struct muster_stream_write write;
    struct muster_list node;
    uint64_t end; /* offset in the session after its last byte; 0: never handed to a stream */
};

/** Told by the link, on the loop. Static table; `link_data` is what open was given. */
struct muster_peer_link_events {
    /* Hellos agree; muster_peer_link_hello tells who it is. */
    void (*on_ready)(struct muster_peer_link *link);
    /* A header is there: return where its payload goes (payload_bytes of room, borrowed until
     * on_payload or muster_peer_link_discard_receiving), or NULL to discard the payload. Not called
     * while paused. An owner that pauses the link in here and returns NULL is asked again for the
     * same frame after resume. */
    void *(*on_frame)(struct muster_peer_link *link, const struct muster_frame_header *header);
    /* May be NULL. bytes_done of the payload are in buffer by now; comes in steps of 64 KiB or more
     * while a large payload arrives, so that it can be used while it is in the cache. */
    void (*on_progress)(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done);
    /* The whole payload is in buffer (also called for payload_bytes 0, buffer NULL). Not for
     * discarded frames. */
    void (*on_payload)(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer);
    /* The link has failed or the peer refused or closed it. The last event but on_close; the owner
     * must close. */
    void (*on_down)(struct muster_peer_link *link, const struct muster_error *error);
    /* May be NULL: then a lost connection is on_down. A link has lost its connection (its opener's
     * also before it was ready), or an attempt to resume it has failed (error: UNAVAILABLE,
     * DEADLINE_EXCEEDED; sys ECONNREFUSED when nobody listens; FAILED_PRECONDITION when the peer
     * does not know the session or another process answers: final). Frames may be sent; they wait.
     * The owner calls muster_peer_link_reopen, waits for the peer's (muster_peer_link_take_over),
     * or closes. */
    void (*on_broken)(struct muster_peer_link *link, const struct muster_error *error);
    /* May be NULL. It goes on where it was; nothing was lost or doubled but what the peer has taken
     * back. */
    void (*on_resumed)(struct muster_peer_link *link);
    /* May be NULL. The peer has taken back the frame whose payload was being received: its buffer
     * is free. */
    void (*on_abandoned)(struct muster_peer_link *link);
};

/** Connect to address and say hello. Borrows env and events, copies hello. Gives. Under TLS a server of parameters
 * and a publisher, or reader, may show a certificate of that address; everybody may show one of a member
 * (MUSTER_PEER_PROTOCOL).
 * FAILED_PRECONDITION: there is no key for the target yet. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_open(
    struct muster_env *env, const struct muster_address *address,
    const struct muster_peer_hello *hello, uint64_t deadline_ns,
    const struct muster_peer_link_events *events, void *data, struct muster_peer_link **ret_link);
/**
 * The same for the text of an address or a name, which is looked up; the addresses of a name are tried in turn. Copies
 * endpoint.
 */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_open_endpoint(
    struct muster_env *env, const struct muster_endpoint *endpoint,
    const struct muster_peer_hello *hello, uint64_t deadline_ns,
    const struct muster_peer_link_events *events, void *data, struct muster_peer_link **ret_link);
/** The same over a stream that is connected already. Takes stream, also on failure. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_open_over(
    struct muster_env *env, struct muster_stream *stream, const struct muster_peer_hello *hello,
    uint64_t deadline_ns, const struct muster_peer_link_events *events, void *data,
    struct muster_peer_link **ret_link);
/** The accepted side: first bytes (the magic) unread. purpose and stripe are taken from the peer.
 * Takes stream. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_accept(
    struct muster_env *env, struct muster_stream *stream, const struct muster_peer_hello *hello,
    uint64_t deadline_ns, const struct muster_peer_link_events *events, void *data,
    struct muster_peer_link **ret_link);
/** No event follows; queued frames end with CANCELLED before this returns. The memory goes in a
 * later turn. Allowed in every event and frame callback. */
void muster_peer_link_close(struct muster_peer_link *link);

void *muster_peer_link_data(const struct muster_peer_link *link);
/** After an accepted link is told apart by its hello, its owner may change. */
void muster_peer_link_set_owner(struct muster_peer_link *link,
                                const struct muster_peer_link_events *events, void *data);
/** The peer's hello; valid from on_ready. */
const struct muster_peer_hello *muster_peer_link_hello(const struct muster_peer_link *link);
/** This side has connected (open), not accepted. */
bool muster_peer_link_is_opener(const struct muster_peer_link *link);
bool muster_peer_link_is_ready(const struct muster_peer_link *link);
/** It has been ready, and is neither down nor closed: ready, or broken and perhaps on its way back.
 */
bool muster_peer_link_is_met(const struct muster_peer_link *link);

/* --- Resuming a link whose connection broke (docs/protocol.md, "Links") --- */

uint64_t muster_peer_link_session(const struct muster_peer_link *link);
/** Which connection of the session it is on, or was on last. */
uint32_t muster_peer_link_connection(const struct muster_peer_link *link);
/** Opener, after on_broken: connect again and go on. Ends in on_resumed or on_broken. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_reopen(struct muster_peer_link *link,
                                                         const struct muster_address *address,
                                                         uint64_t deadline_ns);
/** Acceptor: go on over the connection of `with`, whose hello says RESUME and the session of link.
 * Closes with. Ends in on_resumed or on_broken. FAILED_PRECONDITION (nothing has happened): what
 * the peer lacks is not here any more. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_take_over(struct muster_peer_link *link,
                                                            struct muster_peer_link *with);
/** An accepted link that says RESUME becomes the session that it names, from its beginning: the
 * connection broke before this side had heard of it. False (nothing has happened): the peer has
 * heard of this side. The peer gives up if it knows that something had arrived here. */
MUSTER_MUST_CHECK bool muster_peer_link_begin_late(struct muster_peer_link *link);
enum muster_link_answer {
    MUSTER_LINK_IS_KNOWN = 0,
    MUSTER_LINK_IS_UNKNOWN = 1,
    MUSTER_LINK_IS_LACKING = 2, /* known, but what the other side lacks was taken back */
};
/** To an accepted link whose hello says RESUME or PROBE. Takes link: it is closed when the answer
 * is out. */
void muster_peer_link_answer(struct muster_peer_link *link, enum muster_link_answer answer);
/** Give all frames back to who has sent them, as if they never had been: none of their callbacks
 * will run. Then the link can only be closed. */
void muster_peer_link_yield(struct muster_peer_link *link);
/** The connection is known to be gone: on_broken follows before this returns. A no-op unless ready
 * and resumable. */
void muster_peer_link_break(struct muster_peer_link *link, const struct muster_error *why);

/** Queue a frame (also before on_ready). FAILED_PRECONDITION when down. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_send(struct muster_frame *frame,
                                                       struct muster_peer_link *link,
                                                       muster_frame_done_fn *done);
/** Queue a copy of header and payload; for small control messages. RESOURCE_EXHAUSTED beyond 64 MiB
 * that have not left, or that the peer has not confirmed. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_send_copy(
    struct muster_peer_link *link, const struct muster_frame_header *header, const void *payload);
/** Take back all COLLECTIVE frames of epochs < epoch: the unsent are dropped, the unsent rest of
 * one that is half out is copied. On return no such frame is borrowed any more and none of their
 * callbacks will run. */
void muster_peer_link_recall(struct muster_peer_link *link, uint64_t epoch);
/** The payload being received (if any, COLLECTIVE, epoch < `epoch`) is discarded from here on; its
 * buffer is free. */
void muster_peer_link_discard_receiving(struct muster_peer_link *link, uint64_t epoch);
/** Both, for the COLLECTIVE frames of one operation; but one of kept_type that has begun to arrive
 * is received to its end. */
void muster_peer_link_recall_op(struct muster_peer_link *link, const struct muster_op_id *op,
                                uint8_t kept_type);
/** Stop and resume reading frames (back-pressure, frames of a future epoch). A payload in progress
 * is finished first. */
void muster_peer_link_pause(struct muster_peer_link *link);
void muster_peer_link_resume(struct muster_peer_link *link);
/** Bytes that have not left. */
size_t muster_peer_link_queued_bytes(const struct muster_peer_link *link);
/** Bytes that have left and may have to be sent again. At most what both sockets hold and what is
 * untold. */
uint64_t muster_peer_link_unacked_bytes(const struct muster_peer_link *link);

#endif
