/* One operation of int32 on all members of a ring, whose every element says which member gave it: for tests. */
#ifndef MUSTER_TEST_OP_SCENE_H
#define MUSTER_TEST_OP_SCENE_H

#include "group_ring.h"

#include <muster/collective.h>

struct op_scene {
    enum muster_op_kind kind; /* ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER */
    enum muster_reduction reduction;
    uint32_t n;
    uint64_t count; /* elements of one tensor or part */
    uint32_t root;
    bool is_staged; /* ordinary memory, also where the other members could map it */
};

/** One member's operation, with its memory. */
struct op_seat {
    struct muster_op op; /* data: the seat */
    int32_t *input, *output;
    size_t input_count, output_count;
    unsigned done_count;
    enum muster_rc rc;
    struct muster_board *board; /* whose the memory is; NULL: the heap's, with canaries behind */
    /* The case's own: stores that others see, and those at which something happens. */
    unsigned passed, cut_at, stand_at;
    bool is_started, is_checked;
};

extern struct group_ring op_ring;
extern struct op_seat op_seats[GROUP_RING_MAX];

/** How operations have ended on those that live. */
extern struct op_tally {
    unsigned adopted, retried, aborted;
} op_tally;

/** Element i of the member's input. */
int32_t op_value_at(uint32_t member, uint64_t i);
/** The callback of all: op->data is a seat. */
muster_op_fn op_seat_done;

/** Fresh memory, filled; op is ready to start, with a deadline of 60 s. */
void op_seat_init(const struct op_scene *scene, uint32_t member);
/** Fails the case when something was written behind the memory. */
void op_seat_fini(uint32_t member);
MUSTER_MUST_CHECK enum muster_rc op_seat_try_start(const struct op_scene *scene, uint32_t member,
                                                   muster_op_fn *done);
void op_seat_start(const struct op_scene *scene, uint32_t member);
/** On all members that live. */
void op_scene_start(const struct op_scene *scene);
/** Memory for all n members of the ring, which is open. */
void op_scene_init(const struct op_scene *scene);
/** Memory is given back, and the ring closes. */
void op_scene_close(const struct op_scene *scene);
/** The same, if it is open still. */
int op_scene_tear_down(void **state);
/** All of the first n members that live have ended it. */
bool op_scene_is_done(uint32_t n);
/** Until they have. */
void op_scene_run(uint32_t n);

/** The result is what the kind says; `without`: bit r = member r did not contribute. */
void op_scene_check_result(const struct op_scene *scene, uint32_t member, unsigned without);
/** Inputs are as they were. */
void op_scene_check_input(const struct op_scene *scene, uint32_t member);
/** The survivors have one outcome: the result, or ABORTED with inputs as they were. Counts it. victims are in
 * the order of their deaths: which of them contributed follows from how many did. */
void op_scene_check_survivors(const struct op_scene *scene, const uint32_t *victims,
                              uint32_t victim_count);
/** An operation that fits the members no more is ended by a change of its own. */
void op_scene_change_when_proposed(uint32_t n);
/** After the change a sum of `count` elements works as before, with the survivors only. */
void op_scene_check_next(const struct op_scene *scene, uint64_t count, unsigned dead);

#endif
