/* What the files of peer_link share. */
#ifndef MUSTER_NET_PEER_LINK_INTERNAL_H
#define MUSTER_NET_PEER_LINK_INTERNAL_H

#include "net/peer_link.h"

#define MUSTER_HELLO_BYTES       96
#define MUSTER_HELLO_START_BYTES 8 /* magic and version: alike in every version */
#define MUSTER_LINK_INBOX_BYTES  4096

enum muster_link_state {
    MUSTER_LINK_CONNECTING,
    MUSTER_LINK_HELLO, /* the peer's hello is awaited */
    MUSTER_LINK_READY,
    MUSTER_LINK_DOWN,
    MUSTER_LINK_CLOSED,
};

/** Where the receiver stands in the sequence header, payload, header … */
enum muster_link_receive {
    MUSTER_RECEIVE_HEADER,
    MUSTER_RECEIVE_ASK, /* the header is there, the owner has not said where the payload goes */
    MUSTER_RECEIVE_PAYLOAD,
};

struct muster_peer_link {
    struct muster_env *env;
    const struct muster_peer_link_events *events;
    void *data;
    struct muster_peer_hello self;
    struct muster_peer_hello peer;
    enum muster_link_state state;
    bool is_opener;
    struct muster_connect connect;
    bool is_connecting;
    struct muster_stream *stream;
    struct muster_timer timer; /* the hello's deadline */
    struct muster_task task;   /* resume, late failure, free */
    struct muster_error error; /* why it is down */

    struct muster_list frames; /* all that are queued, in order; owned by their senders */
    size_t queued_bytes;
    uint8_t hello[MUSTER_HELLO_BYTES];
    struct iovec hello_iov;
    struct muster_stream_write hello_write;
    bool is_hello_queued;

    struct muster_stream_read read;
    bool is_reading;
    bool is_reading_payload; /* the open read goes straight to the payload's place */
    bool is_paused;
    enum muster_link_receive receive;
    struct muster_frame_header header;
    uint8_t *payload; /* NULL: discarded */
    uint32_t payload_done;
    size_t turn_bytes; /* of payloads taken in this turn */
    size_t inbox_begin, inbox_end;
    uint8_t inbox[MUSTER_LINK_INBOX_BYTES];
};

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

/* peer_link.c */
/** Ends in events->on_down, unless the link is down or closed already. */
void muster_peer_link_fail(struct muster_peer_link *link, const struct muster_error *error);
/** The hello of the peer is in link->peer: compare, answer, become ready. */
void muster_peer_link_meet(struct muster_peer_link *link);

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
