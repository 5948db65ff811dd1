/* Up to 17 members of a group in one process, on one loop, joined by loopback sockets: for tests.
 */
#ifndef MUSTER_TEST_GROUP_RING_H
#define MUSTER_TEST_GROUP_RING_H

#include "test_env.h"

#include <muster/stream.h>

#include "collective/group/group.h"
#include "sim_board.h"

#define GROUP_RING_MAX 17

struct group_ring;

/** The cut_at-th chunk that it sends or receives is its last moment. */
struct group_ring_member {
    struct group_ring *ring;
    struct muster_member self;
    struct muster_listener *listener;
    struct muster_wire *wire;
    struct muster_group *group; /* NULL when not in the view */
    struct muster_board *board; /* NULL: none */

    struct muster_peer_link *accepted[4 * GROUP_RING_MAX]; /* hello awaited */
    unsigned passed;                                       /* failpoints */
    unsigned cut_at;                                       /* 0: never */
    bool is_dead;
    bool is_leaving;   /* with its work done: the next view is without it */
    bool counts_calls; /* with is_leaving: its vote says how many operations its last step had */
    unsigned suspect_count, abort_count, expired_count, higher_count, death_count;
    unsigned skipped_count;
    uint64_t skipped_step; /* of the last operation */
    unsigned left_out_count;
    uint64_t left_out_step; /* of the last operation */
    struct muster_op_id abort_op;
    enum muster_rc abort_why;
    char suspect_text[MUSTER_ERROR_TEXT_BYTES]; /* of the last suspicion */
};

struct group_ring {
    struct test_env test;
    bool has_boards;
    struct sim_board_world boards;
    uint32_t count; /* members ever made */
    struct group_ring_member members[GROUP_RING_MAX];
    struct muster_plan_parameters plan;
    struct muster_view *view;
    uint64_t abort_grace_ns;
    bool is_stopped_at_cut; /* freeze all others the moment that a member is cut */
    bool has_cut;
    uint32_t per_host;     /* members on one host; 0: all */
    unsigned pieced_count; /* verdicts ADOPT that join chunks of members none of which has all */
};

/** Rings that are opened from now on have boards: operations go through them. */
extern bool group_ring_has_boards;
/** They have so many connections between two members, and the next one is used behind each payload
 * of 8 bytes or more. */
extern uint32_t group_ring_stripe_count;

/** A ring of n members in a view of epoch 1; small chunks, so that small tensors have many. */
void group_ring_open(struct group_ring *ring, uint32_t n);
/** The same with other plan parameters. */
void group_ring_open_plan(struct group_ring *ring, uint32_t n,
                          const struct muster_plan_parameters *plan);
/** The same on hosts of per_host members each. */
void group_ring_open_hosts(struct group_ring *ring, uint32_t n,
                           const struct muster_plan_parameters *plan, uint32_t per_host);
/** Closes what is open; every operation must have ended or belong to dead members. */
void group_ring_close(struct group_ring *ring);
/** Closes the ring that was opened last, if it is open still: it must be static, and so must the operations that
 * are open in it. */
int group_ring_tear_down(void **state);
#define GROUP_RING_CASE(name) cmocka_unit_test_teardown(name, group_ring_tear_down)
/** The case once more, with boards. */
int group_ring_set_boards(void **state);
int group_ring_tear_down_boards(void **state);
#define GROUP_RING_CASE_WITH_BOARDS(name)                                                          \
    cmocka_unit_test_setup_teardown(name, group_ring_set_boards, group_ring_tear_down_boards)

/** Turn the loop until every link between members with a wire is ready. A number of turns is not
 * enough: a busy system delivers later. */
void group_ring_wait_for_links(struct group_ring *ring);
/** Turn the loop this many times without waiting. */
void group_ring_turn(struct group_ring *ring, unsigned turns);

/** In the view, and not killed. */
bool group_ring_is_living(const struct group_ring *ring, uint32_t index);
/** Kill a member: links drop, nothing of it is heard any more. Its open operations end ABORTED. */
void group_ring_kill(struct group_ring *ring, uint32_t index);

/** Freeze all living members, decide view E+1 without the dead (and with `joiner`, an index of a
 * new member, or UINT32_MAX), hand over. */
void group_ring_change(struct group_ring *ring, uint32_t joiner);
/** The same in two steps: the votes become ring->view; one member follows to it. */
void group_ring_decide(struct group_ring *ring, uint32_t joiner);
void group_ring_follow(struct group_ring *ring, uint32_t index);
/** Open groups for the current view where there are none (after they were closed by hand). */
void group_ring_reopen(struct group_ring *ring);
void group_ring_freeze(struct group_ring *ring);
/** Add a member that is in no view yet. Returns its index. */
uint32_t group_ring_add(struct group_ring *ring);

#endif
