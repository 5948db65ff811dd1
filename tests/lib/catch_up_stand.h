/* A joiner of a large state against real state servers over loopback, all in one process, with boards that the case may
 * let them have. */
#ifndef MUSTER_TEST_CATCH_UP_STAND_H
#define MUSTER_TEST_CATCH_UP_STAND_H

#include "test_env.h"

#include <muster/stream.h>

#include "cluster/node/catch_up.h"
#include "cluster/node/state_server.h"
#include "sim_board.h"

#define CATCH_UP_MEMBERS 3
/* More than what every member hashes whole (state_server.c), in chunks. */
#define CATCH_UP_CHUNKS 100u
#define CATCH_UP_BYTES  (CATCH_UP_CHUNKS * (size_t)MUSTER_STATE_CHUNK_BYTES)

struct catch_up_member {
    struct muster_node_tensor tensor; /* of bytes */
    struct muster_state_chunks chunks;
    struct muster_state_server *server;
    struct muster_listener *listener;
    struct muster_peer_hello hello;
    struct muster_peer_link *greeting; /* accepted, hello not there yet */
    struct muster_board *board;        /* NULL: none */
    unsigned links;
};

struct catch_up_stand {
    struct test_env test;
    struct sim_board_world boards;
    struct catch_up_member members[CATCH_UP_MEMBERS];
    struct muster_node_tensor tensor; /* the joiner's */
    struct muster_state_chunks chunks;
    struct muster_incarnation self;
    struct muster_board *board;
    struct muster_member entries[CATCH_UP_MEMBERS]; /* of the view */
    struct muster_view *view;
    struct muster_catch_up catch_up;
    bool is_done;
    enum muster_rc rc;
};

/** All members hold the same bytes, the joiner others. */
void catch_up_stand_open(struct catch_up_stand *stand);
void catch_up_stand_close(struct catch_up_stand *stand);
uint8_t *catch_up_stand_bytes(struct catch_up_stand *stand, int member);
/** Joiner and members have boards, and are peers. */
void catch_up_stand_connect(struct catch_up_stand *stand);
void catch_up_stand_commit(struct catch_up_stand *stand, uint64_t step);
void catch_up_stand_start(struct catch_up_stand *stand, uint64_t step);
/** Turns until the fetch is over, which ends in `expected`; with OK the joiner has the bytes of member 1. */
void catch_up_stand_finish(struct catch_up_stand *stand, enum muster_rc expected);
void catch_up_stand_close_member(struct catch_up_stand *stand, int member);
/** The view that the fetch starts with has `count` members from `first` on. */
void catch_up_stand_view(struct catch_up_stand *stand, uint32_t first, uint32_t count);
/** A later view with `count` members from `first` on. */
void catch_up_stand_follow(struct catch_up_stand *stand, uint64_t epoch, uint32_t first,
                           uint32_t count);
/** How many chunks the member has hashed. */
uint32_t catch_up_stand_hashed(struct catch_up_stand *stand, int member);

#endif
