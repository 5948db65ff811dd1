/* A board among strangers of the same host, who are played byte by byte. */
#ifndef MUSTER_TEST_BOARD_SCENE_H
#define MUSTER_TEST_BOARD_SCENE_H

#include "collective/board/board_internal.h"
#include "test_env.h"

#include <fcntl.h>
#include <sys/types.h>

#define SEGMENT_BYTES (MUSTER_BOARD_PAGE_BYTES + 8192)
#define SEALS         (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
#define FDS_MAX       3

/* The board under test, and what a stranger says to it. */
struct board_scene {
    struct test_env test;
    struct muster_board *board;
    struct muster_member self, other;
    struct muster_board_peer *peer;
    unsigned told_count;
    int raw;    /* the stranger's socket */
    int listen; /* … where the board dials */

    struct muster_board_message hello;
    struct muster_board_page page; /* the first of its segment */
    size_t file_bytes;             /* of its segment */
    int seals;
    int fds[FDS_MAX];
    unsigned fd_count;
    uint64_t probe;
    unsigned descriptors; /* that were open before */
};

/** By how much the user that the kernel names for the other side of a socket differs; until close. */
void board_scene_set_uid_more(uid_t more);
struct muster_board_system *board_scene_system_of(const struct board_scene *scene);
/** The side that dials is the board, or the stranger. hello and page are sound until a case changes
 * them. */
void board_scene_open(struct board_scene *scene, bool dials);
/** Fails the case when a descriptor was not closed. */
void board_scene_close(struct board_scene *scene);
void board_scene_turn(struct board_scene *scene);

/** The stranger connects: raw is a new socket. */
void board_scene_knock(struct board_scene *scene);
/** The board has connected. */
void board_scene_be_dialled(struct board_scene *scene);
int board_scene_memory_file(const void *content, size_t content_bytes, size_t bytes, int seals);
void board_scene_say(struct board_scene *scene, const struct muster_board_message *message,
                     const int *fds, unsigned fd_count);
void board_scene_say_hello(struct board_scene *scene);
void board_scene_say_type(struct board_scene *scene, unsigned type);
/** The type of what the board has said; 0: nothing, or it has hung up. */
unsigned board_scene_hear(struct board_scene *scene, struct muster_board_message *ret_message);
bool board_scene_has_hung_up(struct board_scene *scene);

/** Somebody here wants the stranger as a peer. */
void board_scene_ask_for_peer(struct board_scene *scene);
void board_scene_check_ready(struct board_scene *scene);
/** Open; the stranger is wanted, and connected: whichever of the two dials. */
void board_scene_open_met(struct board_scene *scene, bool dials);
/** Open, and served by the board: both know each other. */
void board_scene_open_ready(struct board_scene *scene);

#endif
