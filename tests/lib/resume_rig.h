/* Two ends of a link that outlives its connection, over a network that breaks where it is told: for tests. */
#ifndef MUSTER_TEST_RESUME_RIG_H
#define MUSTER_TEST_RESUME_RIG_H

#include "cut_net.h"
#include "net/link/peer_link_internal.h"
#include "test_env.h"

#define RESUME_FRAMES      8
#define RESUME_PAYLOAD_MAX 9000

/** One side: what it sends, what it has got. */
struct resume_end {
    struct muster_peer_link *link;
    struct muster_peer_hello hello;
    struct muster_frame frames[RESUME_FRAMES];
    uint8_t payloads[RESUME_FRAMES][RESUME_PAYLOAD_MAX];
    unsigned sent_count, arrived_count;
    uint8_t room[RESUME_PAYLOAD_MAX];
    unsigned broken_count, resumed_count, abandoned_count;
    uint32_t progress;
    bool is_ready, is_down, is_paused;
    struct muster_error error;
};

struct resume_rig {
    struct test_env test;
    struct cut_net net;
    struct resume_end ends[2];        /* opener, acceptor */
    struct muster_peer_link *strange; /* accepted, its hello awaited */
    const uint32_t *sizes;
    unsigned count;
    uint64_t next_limits[2]; /* of the connection after the first */
    bool is_waiting;         /* the opener does not connect again by itself */
    bool is_closing;
    bool is_forgotten; /* the acceptor does not know any session */
    bool is_recalling; /* the acceptor takes its frames back once it has answered */
    const struct muster_frame_header *played; /* what the acceptor answers instead */
    struct resume_end *taker;   /* goes on with the opener's next connection; NULL: the acceptor */
    enum muster_rc taken;       /* how that went */
    uint64_t greeting_bytes[2]; /* before the first frame: of the opener, of the acceptor */
};

/** The only one: of the case that runs. */
extern struct resume_rig resume_rig;

/** Where the acceptor listens. */
extern const struct muster_address resume_anywhere;

/** A deadline that does not come. */
uint64_t resume_soon(void);
/** Frames of these sizes, in this order, go either way. */
void resume_open(const uint32_t *sizes, unsigned count);
/** Both have the key of a control link: each connection has to be proven. */
void resume_share_key(void);
/** Connect, and wait until both are ready. */
void resume_join(void);
void resume_close(void);
/** The opener connects again. */
void resume_reopen(struct resume_end *end);
/** The frame of this number, which must be the next one. */
void resume_send_frame(struct resume_end *end, unsigned i, uint64_t epoch);
/** All frames, both ways. */
void resume_send_all(void);
/** Until everything is there, and known to be there. */
void resume_run_through(void);
/** All frames of the opener have arrived; data is not used. */
bool resume_has_arrived(void *data);
/** A frame that no link sends leaves by its connection. */
void resume_play_frame(struct muster_peer_link *link, const struct muster_frame_header *header);

#endif
