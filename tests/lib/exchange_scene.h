/* One exchange (or reduce, or operation on uneven parts) on all members of a ring, whose every
 * element says who sent it to whom: for tests. */
#ifndef MUSTER_TEST_EXCHANGE_SCENE_H
#define MUSTER_TEST_EXCHANGE_SCENE_H

#include "group_ring.h"

#include <muster/collective.h>

struct exchange_scene {
    enum muster_op_kind kind;
    uint32_t n;
    uint64_t count; /* elements of an even part; uneven ones are multiples of it, 0 among them */
    uint32_t root;
    enum muster_dtype dtype; /* U8, I32 or I64 */
    bool is_in_place;        /* where the kind allows it */
    bool is_stopped_at_cut;
    bool is_mapped; /* memory that the other members see */
};

/** One member's operation, with its memory and what must be in it. */
struct exchange_seat {
    struct muster_op op;
    uint8_t *input, *output, *wanted; /* output may lie in the input, or the other way round */
    uint8_t *memory;
    struct muster_board *board; /* whose it is; NULL: the heap's */
    size_t input_bytes, output_bytes, memory_bytes;
    uint64_t send_counts[GROUP_RING_MAX], receive_counts[GROUP_RING_MAX];
    unsigned done_count;
    enum muster_rc rc;
};

struct exchange_stage {
    struct group_ring ring;
    struct exchange_scene scene;
    struct exchange_seat seats[GROUP_RING_MAX];
};

/** Stages opened from now on run what they can by this algorithm (AUTO: as usual). */
void exchange_stage_force(enum muster_algorithm algorithm);
void exchange_stage_open(struct exchange_stage *stage, const struct exchange_scene *scene);
void exchange_stage_close(struct exchange_stage *stage);
/** The stage that was opened last is closed, if it is open still: it must be static. */
int exchange_stage_tear_down(void **state);
#define EXCHANGE_CASE(name) cmocka_unit_test_teardown(name, exchange_stage_tear_down)
/** Fresh memory for another operation of the same stage. */
void exchange_stage_set(struct exchange_stage *stage, const struct exchange_scene *scene);
/** The same for one member: it calls something else than the others. */
void exchange_stage_set_seat(struct exchange_stage *stage, const struct exchange_scene *scene,
                             uint32_t member);
void exchange_stage_start(struct exchange_stage *stage, uint32_t member);
/** The callback of all operations: op->data is a seat. */
muster_op_fn exchange_stage_done;
void exchange_stage_start_all(struct exchange_stage *stage);
/** Until all living members' operations have ended. */
void exchange_stage_run(struct exchange_stage *stage);
bool exchange_stage_is_done(const struct exchange_stage *stage);
/** Outputs are what the kind says; `without`: bit r = member r did not contribute (reduce). */
void exchange_stage_check_output(struct exchange_stage *stage, uint32_t member, unsigned without);
/** Inputs are as they were. */
void exchange_stage_check_input(struct exchange_stage *stage, uint32_t member);

/** How operations have ended on those that live. */
struct exchange_tally {
    unsigned adopted, retried, aborted;
};
/** The survivors of victim have one outcome: the result with or without it, or ABORTED with inputs as they
 * were. Counts it. */
void exchange_stage_check_survivors(struct exchange_stage *stage, uint32_t victim,
                                    struct exchange_tally *tally);
/** An operation that fits the members no more is ended by a change of its own. */
void exchange_stage_change_when_proposed(struct exchange_stage *stage);

#endif
