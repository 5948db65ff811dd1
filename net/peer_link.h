/* A framed, introduced connection between two muster processes: the data plane and membership
 * control ride on it. */
#ifndef MUSTER_NET_PEER_LINK_H
#define MUSTER_NET_PEER_LINK_H

#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/op_id.h>
#include <muster/stream.h>

/* A port tells a peer link from HTTP/2 ("PRI ") by its first four bytes. */
#define MUSTER_PEER_MAGIC   "MSTR"
#define MUSTER_PEER_VERSION 1u

struct muster_peer_link;

enum muster_link_purpose {
    MUSTER_LINK_AS_OPENED = 0, /* said by the accepting side: what the opener says */
    MUSTER_LINK_CONTROL = 1,   /* membership, heartbeats, state manifests: never behind data */
    MUSTER_LINK_DATA = 2,      /* chunks of collectives */
    MUSTER_LINK_STATE = 3,     /* chunks of the training state, on their way to a joiner */
};

/** What each side says first, 96 bytes on the wire. A mismatch of job or version refuses the link
 * with a text that names both. */
struct muster_peer_hello {
    char job[MUSTER_JOB_NAME_BYTES];
    struct muster_incarnation incarnation;
    uint32_t version;
    enum muster_link_purpose purpose;
    uint32_t stripe;
};

/** Who a frame is for. */
enum muster_frame_channel {
    MUSTER_FRAME_COLLECTIVE = 1,
    MUSTER_FRAME_MEMBERSHIP = 2,
    MUSTER_FRAME_STATE = 3,
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
};
#define MUSTER_FRAME_HEADER_BYTES 64
#define MUSTER_FRAME_PAYLOAD_MAX  (16u << 20)

struct muster_frame;
typedef void muster_frame_done_fn(struct muster_frame *frame, enum muster_rc rc);

/** One frame to send. Caller's memory, borrowed with its payload until done. */
struct muster_frame {
    void *data;
    struct muster_frame_header header;
    const void *payload; /* header.payload_bytes of it */
    /* private */
    muster_frame_done_fn *done;
    struct muster_peer_link *link;
    uint8_t packed[MUSTER_FRAME_HEADER_BYTES];
    struct iovec iov[2];
    struct muster_stream_write write;
    struct muster_list node;
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
};

/** Connect to address and say hello. Borrows env and events, copies hello. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_open(
    struct muster_env *env, const struct muster_address *address,
    const struct muster_peer_hello *hello, uint64_t deadline_ns,
    const struct muster_peer_link_events *events, void *data, struct muster_peer_link **ret_link);
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
/** What the peer said; valid from on_ready. */
const struct muster_peer_hello *muster_peer_link_hello(const struct muster_peer_link *link);
/** This side has connected (open), not accepted. */
bool muster_peer_link_is_opener(const struct muster_peer_link *link);
bool muster_peer_link_is_ready(const struct muster_peer_link *link);

/** Queue a frame (also before on_ready). FAILED_PRECONDITION when down. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_link_send(struct muster_frame *frame,
                                                       struct muster_peer_link *link,
                                                       muster_frame_done_fn *done);
/** Queue a copy of header and payload; for small control messages. RESOURCE_EXHAUSTED beyond 64 MiB
 * queued. */
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
size_t muster_peer_link_queued_bytes(const struct muster_peer_link *link);

#endif
