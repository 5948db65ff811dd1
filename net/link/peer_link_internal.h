/* Shared by the files of peer_link. */
#ifndef MUSTER_NET_PEER_LINK_INTERNAL_H
#define MUSTER_NET_PEER_LINK_INTERNAL_H

#include "net/tls/dial.h"
#include "net/link/proof.h"
#include "net/link/peer_link.h"

#define MUSTER_HELLO_START_BYTES 8 /* magic and version: alike in every version */
#define MUSTER_LINK_INBOX_BYTES  4096

enum muster_link_state {
    MUSTER_LINK_CONNECTING,
    MUSTER_LINK_HELLO,  /* the peer's hello is awaited */
    MUSTER_LINK_PROOF,  /* acceptor, bare: the opener's proof is awaited */
    MUSTER_LINK_ANSWER, /* the peer's answer to RESUME or PROBE is awaited */
    MUSTER_LINK_READY,
    MUSTER_LINK_BROKEN, /* the connection is lost, the session is not */
    MUSTER_LINK_DOWN,
    MUSTER_LINK_CLOSED,
};

/** Where the receiver stands in the sequence header, payload, header … */
enum muster_link_receive {
    MUSTER_RECEIVE_HEADER,
    MUSTER_RECEIVE_ASK, /* the header is there, the owner has not said where the payload goes */
    MUSTER_RECEIVE_PAYLOAD,
};

/** The open read of the stream. */
enum muster_link_read {
    MUSTER_LINK_READ_NONE,
    MUSTER_LINK_READ_INBOX,
    MUSTER_LINK_READ_PAYLOAD, /* straight to the payload's place */
};

/** The first offset that no session reaches: years at any speed. A peer that names it is wrong, and
 * offsets below it cannot wrap round. */
#define MUSTER_LINK_OFFSET_END (UINT64_C(1) << 62)

/** Types of frames of channel LINK. */
enum muster_link_frame {
    MUSTER_LINK_FRAME_RECEIVED = 1, /* header.received is news */
    MUSTER_LINK_FRAME_ANSWER = 2,   /* to RESUME and PROBE; flags: enum muster_link_answer */
};

/** Where an opener dials, under a name that certificates are compared with. */
struct muster_link_place {
    struct muster_endpoint endpoint;
    struct muster_lookup lookup; /* of a name */
    bool is_looking;
    size_t tried; /* of the addresses that were found */
    uint64_t deadline_ns;
};

/* The fields that each frame touches come first, up to the bytes that the inbox has: of thousands of
 * links none is in the caches when its frame comes. */
struct muster_peer_link {
    struct muster_env *env;
    const struct muster_peer_link_events *events;
    void *data;
    struct muster_stream *stream;
    enum muster_link_state state;
    bool is_opener;
    bool is_bare; /* in plain text, in a job with TLS: both sides prove who they are */
    bool is_met;  /* has been ready */
    bool is_paused;
    struct muster_list frames; /* all that have not left, in order; owned by their senders */
    size_t queued_bytes;
    uint64_t session;       /* 0: cannot be resumed */
    uint64_t submitted;     /* offset in the session after the last frame given to a stream … */
    uint64_t written;       /* … and after the last that has left whole */
    uint64_t begun_end;     /* … and after what was taken back when it had begun to leave */
    uint64_t acked;         /* the peer has said that it has so much */
    uint64_t void_end;      /* what stands before it was taken back: cannot be sent again */
    uint64_t received;      /* bytes of headers and payloads that have been taken in … */
    uint64_t received_told; /* … as the peer knows */
    uint32_t untold_frames;
    enum muster_link_read reading;
    struct muster_stream_read read;
    enum muster_link_receive receive;
    uint32_t payload_done;
    uint8_t *payload; /* NULL: discarded */
    struct muster_frame_header header;
    size_t turn_bytes; /* of payloads taken in this turn */
    size_t inbox_begin, inbox_end;
    uint8_t inbox[MUSTER_LINK_INBOX_BYTES];

    struct muster_list unacked; /* have left; kept until the peer has said that it has them */
    uint32_t connection;        /* of the session, from 0 */
    struct muster_task task;    /* resume, late failure, free */
    struct muster_timer timer;  /* the hello's deadline */
    struct muster_timer ack_timer;
    uint8_t ack[MUSTER_FRAME_HEADER_BYTES]; /* the frame that says so, or answers */
    struct iovec ack_iov;
    struct muster_stream_write ack_write;
    bool is_ack_queued;
    struct muster_peer_hello self;
    struct muster_peer_hello peer;
    struct muster_link_proof proof;
    struct muster_link_place *place; /* NULL: an address alone, of a member */
    struct muster_dial dial;
    bool is_connecting; /* a look-up or a dial is under way */
    struct muster_error error; /* why it is down */
    uint8_t hello[MUSTER_HELLO_BYTES];
    struct iovec hello_iov;
    struct muster_stream_write hello_write;
    bool is_hello_queued;
    muster_stream_write_fn *hello_written; /* done of hello_write */
};

/** The stream's own error, or else text. UNAUTHENTICATED before the peer has said hello, where it refuses our
 * certificate: TLS 1.3 tells that after the handshake. */
static inline void muster_peer_link_lost_error(const struct muster_peer_link *link,
                                               const char *text, struct muster_error *ret_error)
{
    const struct muster_error *why =
        link->stream != NULL ? muster_stream_error(link->stream) : NULL;

    (void)muster_error_set(ret_error,
                           why != NULL && why->rc == MUSTER_UNAUTHENTICATED && !link->is_met
                               ? MUSTER_UNAUTHENTICATED
                               : MUSTER_UNAVAILABLE,
                           "%s", why != NULL ? why->text : text);
}

/* peer_frame.c */
void muster_peer_hello_pack(const struct muster_peer_hello *hello,
                            uint8_t ret_bytes[MUSTER_HELLO_BYTES]);
/** Bytes of a hello of this version. INVALID_ARGUMENT names what is wrong. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_hello_unpack(const uint8_t bytes[MUSTER_HELLO_BYTES],
                                                          struct muster_peer_hello *ret_hello,
                                                          struct muster_error *ret_error);
void muster_frame_header_pack(const struct muster_frame_header *header,
                              uint8_t ret_bytes[MUSTER_FRAME_HEADER_BYTES]);
/** INVALID_ARGUMENT: an unknown channel or a payload above MUSTER_FRAME_PAYLOAD_MAX. */
MUSTER_MUST_CHECK enum muster_rc muster_frame_header_unpack(
    const uint8_t bytes[MUSTER_FRAME_HEADER_BYTES], struct muster_frame_header *ret_header,
    struct muster_error *ret_error);
/** Magic and version of the first MUSTER_HELLO_START_BYTES. */
MUSTER_MUST_CHECK enum muster_rc muster_peer_hello_check_start(const uint8_t *bytes,
                                                               struct muster_error *ret_error);

/* peer_link_resume.c */
/** The peer has said how much it has. False: it cannot have so much; the link has failed. */
bool muster_peer_link_hear_received(struct muster_peer_link *link, uint64_t received);
/** After a frame was used: say so when it is time. */
void muster_peer_link_note_received(struct muster_peer_link *link);
/** The answer to our RESUME or PROBE. */
void muster_peer_link_hear_answer(struct muster_peer_link *link,
                                  const struct muster_frame_header *answer);
void muster_peer_link_on_ack_due(struct muster_timer *timer);

/** The peer has so much: all that it lacks can still be sent, or was recalled. */
bool muster_peer_link_can_resume(const struct muster_peer_link *link, uint64_t received);
/** Answer a RESUME: the connection goes on. */
void muster_peer_link_answer_resume(struct muster_peer_link *link, uint64_t received);

/* peer_link_core.c */
void muster_peer_link_move(struct muster_peer_link *link, enum muster_link_state state);
/** A connection is lost: on_broken, or on_down where there is no session. */
void muster_peer_link_lose(struct muster_peer_link *link, const struct muster_error *error);
/** Its offset in the session stands: bytes of it may have arrived. */
bool muster_peer_link_has_begun(const struct muster_peer_link *link,
                                const struct muster_frame *frame);
/** The offsets of the frames that have not begun to leave, after one was taken back. */
void muster_peer_link_renumber(struct muster_peer_link *link);
/** BROKEN: what has not arrived is queued again, without what cannot be sent on another connection.
 */
void muster_peer_link_forget_connection(struct muster_peer_link *link);
/** Rests of recalled frames end; no other connection needs them. */
void muster_peer_link_drop_rests(struct muster_peer_link *link);
/** Frames that have left but are not confirmed stand before the others again. */
void muster_peer_link_take_back_unacked(struct muster_peer_link *link);
/** Bytes of a payload that have arrived count, and the open read of it ends. */
void muster_peer_link_recall_payload(struct muster_peer_link *link);
/** Close the stream; its open read ends, its timers stop. */
void muster_peer_link_drop_stream(struct muster_peer_link *link);
/** The stream forgets every write; the frames stay. */
void muster_peer_link_recall_writes(struct muster_peer_link *link);
void muster_peer_link_submit(struct muster_peer_link *link, struct muster_frame *frame);
/** Take it out of its list and tell its owner. */
void muster_frame_finish(struct muster_frame *frame, enum muster_rc rc);
size_t muster_frame_bytes(const struct muster_frame *frame);
/** Ends in events->on_down, unless the link is down or closed already. */
void muster_peer_link_fail(struct muster_peer_link *link, const struct muster_error *error);

/* peer_link_meet.c */
/** The connection is there: say hello. True: nothing is said first, so read the peer's at once;
 * else hello_written does. */
bool muster_peer_link_greet(struct muster_peer_link *link);
/** Bytes of what the peer says first. */
size_t muster_peer_link_hello_bytes(const struct muster_peer_link *link);
/** The hello of the peer is in link->peer, all that it says first in bytes: compare, answer, become
 * ready. */
void muster_peer_link_meet(struct muster_peer_link *link, const uint8_t *bytes);
/** The opener's proof has come. */
void muster_peer_link_hear_proof(struct muster_peer_link *link, const uint8_t *mac);

/** Which COLLECTIVE frames: of epochs < epoch_end and, unless NULL, of op. */
struct muster_frame_match {
    uint64_t epoch_end;
    const struct muster_op_id *op;
};
bool muster_frame_is_match(const struct muster_frame_match *match,
                           const struct muster_frame_header *header);
void muster_peer_link_recall_matching(struct muster_peer_link *link,
                                      const struct muster_frame_match *match);

/* peer_link_receive.c */
void muster_peer_link_discard_matching(struct muster_peer_link *link,
                                       const struct muster_frame_match *match);
/** Go on with what is in the inbox, then read on. */
void muster_peer_link_receive(struct muster_peer_link *link);

#endif
