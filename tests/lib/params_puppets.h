/* Several servers of parameters that a case plays, with one map, and a client of theirs. */
#ifndef MUSTER_TEST_PARAMS_PUPPETS_H
#define MUSTER_TEST_PARAMS_PUPPETS_H

#include "params_peer.h"

#define PARAMS_PUPPETS_MAX    3u
#define PARAMS_PUPPETS_SHARDS 8u
#define PARAMS_PUPPET_PIECES  64u

struct params_puppet {
    struct params_host host;
    uint32_t index;
    uint32_t link;                         /* of host.link_count, whose frames are read */
    uint32_t handled;                      /* frames of it */
    uint32_t pieces[PARAMS_PUPPET_PIECES]; /* of pushes, by their sequences */
};

struct params_puppets {
    struct test_env test;
    struct muster_env *env;
    uint32_t count;
    struct params_puppet list[PARAMS_PUPPETS_MAX]; /* their ids rise */
    struct muster_params_map *map;                 /* each puppet tells it over each new link */
    struct muster_params *params;
    uint32_t clock_sources; /* of the next client; 0: it does not tick */
    bool is_done;           /* the opening or closing of the client, with rc */
    enum muster_rc rc;
};

/** Each leads an equal part of the shards, in their order, by map 1. */
void params_puppets_open(struct params_puppets *puppets, uint32_t count);
/** The client is closed before. */
void params_puppets_close(struct params_puppets *puppets);
/** The map gets the next number. Nobody is told. */
void params_puppets_map_next(struct params_puppets *puppets);
/** The primary of a shard since the present map; puppet UINT32_MAX: it has none. */
void params_puppets_lead(struct params_puppets *puppets, uint32_t shard, uint32_t puppet);
/** All shards from the present map on. */
void params_puppets_lead_all(struct params_puppets *puppets, uint32_t puppet);
/** Tell the present map over the link of this puppet. */
void params_puppets_tell(struct params_puppets *puppets, uint32_t puppet);
/** The puppet leads the shard by the next map, of which the teller tells. */
void params_puppets_move(struct params_puppets *puppets, uint32_t shard, uint32_t puppet,
                         uint32_t teller);

/** Start opening a client; server NULL: the address of puppet 0. */
void params_puppets_client(struct params_puppets *puppets, const char *server);
/** Open it: the puppets answer OPEN with slot 10 + index and generation 1. */
void params_puppets_client_await(struct params_puppets *puppets);
/** A table, which has number 5 + index at each puppet. */
struct muster_params_table *params_puppets_table(struct params_puppets *puppets,
                                                 const struct muster_params_schema *schema);
enum muster_rc params_puppets_client_close(struct params_puppets *puppets);

/** A frame of the newest link that was not taken yet. */
struct params_puppet_frame {
    struct muster_frame_header header;
    const uint8_t *payload; /* until the puppet's next frame or link */
};
/** False: there is none now. */
bool params_puppet_next(struct params_puppet *puppet, struct params_puppet_frame *ret_frame);
/** Until there is one. */
struct params_puppet_frame params_puppet_await(struct params_puppet *puppet);
/** The next one, of this type; fails the case otherwise. */
struct params_puppet_frame params_puppet_expect(struct params_puppet *puppet,
                                                enum muster_params_message type);
void params_puppet_send(struct params_puppet *puppet, const struct muster_frame_header *header,
                        const void *payload);
void params_puppet_opened(struct params_puppet *puppet, uint64_t slot, uint64_t generation,
                          uint64_t sequence);
/** Await OPEN and answer it, with slot 10 + index and position 1; returns OPEN. */
struct params_puppet_frame params_puppet_reopen(struct params_puppet *puppet, uint64_t generation);
/** Answer TABLE, with a number. */
void params_puppet_table_opened(struct params_puppet *puppet,
                                const struct params_puppet_frame *frame, uint32_t number);
/** The newest message of this sequence. */
void params_puppet_acknowledge(struct params_puppet *puppet, uint64_t sequence);
void params_puppet_moved(struct params_puppet *puppet, const struct params_puppet_frame *frame,
                         uint64_t epoch);
void params_puppet_refuse(struct params_puppet *puppet, const struct params_puppet_frame *frame,
                          enum muster_rc rc, const char *text);
/** A lost connection; the client comes again. */
void params_puppet_hang_up(struct params_puppet *puppet);

#endif
