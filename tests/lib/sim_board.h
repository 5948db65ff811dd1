/* Boards of several members in one process, for tests: any loop, also a virtual one; the test says
 * who dies, and when. What a dead member writes from then on reaches nobody, though its code still
 * runs; who writes to the memory of another is stopped by SIGSEGV, as between processes. */
#ifndef MUSTER_TEST_SIM_BOARD_H
#define MUSTER_TEST_SIM_BOARD_H

#include "collective/board/board.h"

struct sim_board_world {
    struct muster_env *env;    /* its mem and loop */
    bool is_death_hidden;      /* is_dead stays false: killed, but not confirmed yet */
    bool is_reading_forbidden; /* of peers that become ready from now on */
    bool keeps_shares;         /* the case's own stay until their boards close */
    bool are_shares_refused;   /* nobody has room for what is shared from now on */
    unsigned signal_count;     /* signals ever sent */
    unsigned reading_count;    /* of all boards: what is freed meanwhile reads as zeroes */
    struct muster_list boards;
};

/** Borrows env until all boards are closed. */
void sim_board_world_init(struct sim_board_world *world, struct muster_env *env);

/** The board of one member. Fails the case when it cannot be made. Gives, muster_board_close. */
struct muster_board *sim_board_open(struct sim_board_world *world,
                                    const struct muster_incarnation *incarnation,
                                    size_t memory_bytes);

/** The same, of a member with a loop of its own, which may be gone after its death. */
struct muster_board *sim_board_open_on(struct sim_board_world *world, struct muster_loop *loop,
                                       const struct muster_incarnation *incarnation,
                                       size_t memory_bytes);
/** Close all that are open; their loops are not turned any more. */
void sim_board_world_fini(struct sim_board_world *world);

/** Somebody has called muster_board_enter, as one must before writing. */
bool sim_board_is_entered(const struct muster_board *board);

/** From this moment on it writes to nobody; is_dead is true of it (unless hidden), and on_peer comes
 * in the next turn. Its board may be closed before or after the others. */
void sim_board_kill(struct sim_board_world *world, const struct muster_incarnation *incarnation);

/** Connects between the two fail from now on, on both sides in the next turn; a connection that
 * exists breaks. */
void sim_board_refuse(struct sim_board_world *world, const struct muster_incarnation *a,
                      const struct muster_incarnation *b);

#endif
