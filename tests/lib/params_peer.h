/* One end of a link of parameters that a case plays: a client that sends what no client sends, or a
 * server that answers as the case wants. */
#ifndef MUSTER_TEST_PARAMS_PEER_H
#define MUSTER_TEST_PARAMS_PEER_H

#include "net/link/peer_link.h"
#include "net/link/port.h"
#include "params/wire/frame.h"
#include "params/wire/map.h"
#include "test_env.h"

#define PARAMS_PEER_FRAMES_MAX 1024u

struct params_peer {
    struct muster_env *env;
    struct muster_peer_link *link; /* NULL: closed, or nobody has come yet */
    bool is_ready, is_down;
    bool is_client;            /* ALIVE is answered, and neither kept nor counted */
    bool discards;             /* frames are not kept, and not counted; nor are maps */
    bool is_slow;              /* it does not read on where it keeps as many frames as it can */
    const struct muster_params_map *map; /* that it tells first; NULL: none */
    struct muster_error error; /* of a link that is down */
    uint32_t count;            /* frames that have come since the link was new */
    struct muster_frame_header headers[PARAMS_PEER_FRAMES_MAX];
    uint8_t *payloads[PARAMS_PEER_FRAMES_MAX + 1]; /* one more is being received */
};

/** A client: a link to address, ready; fails the case. hello->job, purpose and intent are the
 * case's. */
void params_peer_open(struct params_peer *peer, struct muster_env *env, const char *address,
                      const struct muster_peer_hello *hello);
struct muster_peer_hello params_peer_hello(void);
/** header->payload_bytes bytes; copied. */
void params_peer_send(struct params_peer *peer, const struct muster_frame_header *header,
                      const void *payload);
/** Send a map. */
void params_peer_tell(struct params_peer *peer, const struct muster_params_map *map);
/** Until so many frames have come, or the link is down. */
void params_peer_await(struct params_peer *peer, uint32_t count);
void params_peer_await_down(struct params_peer *peer);
void params_peer_close(struct params_peer *peer);

/** A server: the newest link is `peer`, those before it are closed. */
struct params_host {
    struct muster_port *port;
    struct muster_peer_hello hello;
    struct params_peer peer;
    uint32_t link_count;
    bool is_slow; /* of each link's peer */
    const struct muster_params_map *map; /* that it tells each link first: of itself, or the case's */
    struct muster_params_map *own_map;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_closed;
};
void params_host_open(struct params_host *host, struct muster_env *env);
void params_host_close(struct params_host *host);
/** Until a link beyond the first `link_count` ones has sent `count` frames. */
void params_host_await(struct params_host *host, uint32_t link_count, uint32_t count);
/** The newest link has sent OPEN; it is answered. */
void params_host_answer_open(struct params_host *host, uint32_t link_count, uint64_t slot,
                             uint64_t generation, uint32_t shard_count);
/** The frame of this place is TABLE; it is answered with table 0. */
void params_host_answer_table(struct params_host *host, uint32_t frame);

#endif
