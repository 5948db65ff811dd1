/* Two ends of a peer link over loopback, or one end and a stranger. */
#ifndef MUSTER_TEST_LINK_PAIR_H
#define MUSTER_TEST_LINK_PAIR_H

#include "test_env.h"
#include <muster/stream.h>
#include "net/link/peer_link.h"
#include "net/link/peer_link_internal.h"

#define FRAMES_MAX 64

/* One end of a link and all that it was told. */
struct link_end {
    struct muster_peer_link *link;
    bool is_ready, is_down;
    bool discards;        /* answers on_frame with NULL */
    bool pauses;          /* pauses in on_frame */
    bool takes_back;      /* discards the frame in on_progress and frees its buffer */
    bool recalls_but_it;  /* recalls its operation in on_progress, and keeps its type */
    bool closes_in_frame; /* closes the link in on_payload */
    struct muster_error error;
    unsigned asked_count, payload_count, progress_count;
    struct muster_frame_header headers[FRAMES_MAX];
    uint8_t *payloads[FRAMES_MAX];
    uint8_t *receiving;
};

struct link_pair {
    struct test_env test;
    struct muster_listener *listener;
    struct muster_peer_hello hellos[2];
    struct link_end ends[2];   /* opener, acceptor */
    struct muster_stream *raw; /* instead of the opener */
};

struct link_sent {
    struct muster_frame frame;
    unsigned done_count;
    enum muster_rc rc;
};

struct awaited {
    struct link_end *end;
    unsigned count;
};

uint64_t link_pair_soon(struct link_pair *pair);
void link_pair_init(struct link_pair *pair);
void link_pair_connect(struct link_pair *pair);
bool link_pair_is_settled(void *data);
void link_pair_open(struct link_pair *pair);
void link_pair_close(struct link_pair *pair);
void link_sent_init(struct link_sent *sent, uint64_t epoch, const void *payload, uint32_t bytes);
void link_pair_send_frame(struct link_pair *pair, struct link_sent *sent);
void link_pair_await_payloads(struct link_pair *pair, unsigned count);
void link_pair_await_raw(struct link_pair *pair);
/** pair->raw, a new one, instead of the opener: it is connected. */
void link_pair_dial(struct link_pair *pair);
/** pair->raw has said these bytes. */
void link_pair_say(struct link_pair *pair, const void *bytes, size_t count);
/** A key of which every byte is name. */
struct muster_link_key link_pair_key_of(uint8_t name);
void link_pair_put_key(struct muster_link_keys *keys, const struct muster_incarnation *peer,
                       uint8_t name);
uint8_t *link_pair_pattern_new(size_t bytes, unsigned seed);

/** The events of both ends; they expect their struct link_end as data. */
extern const struct muster_peer_link_events link_pair_events;

#endif
