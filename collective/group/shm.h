/* Operations between the processes of one host: each shows its inputs and what it has computed on
 * its board (board.h); nobody writes another's memory. */
#ifndef MUSTER_COLLECTIVE_SHM_H
#define MUSTER_COLLECTIVE_SHM_H

#include "collective/board/board.h"
#include "collective/plan/plan.h"
#include "collective/plan/shm_limits.h"
#include "collective/wire/wire.h"

struct muster_run;
struct muster_lane;

/** A copy of an input, for memory that the others do not map. */
struct muster_shm_stage {
    void *at; /* NULL: none */
    size_t bytes;
};

/* --- Agreement (collective/group/shm/link.c): one answer of each member, all yes or nobody --- */

/** At the opening of a group: connect to the boards of all members, when all are on this host.
 * board NULL: answers no. */
MUSTER_MUST_CHECK enum muster_rc muster_shm_open(struct muster_group *group,
                                                 struct muster_board *board);
/** Boards of members that the next group does not have are released, when no run reads them. */
void muster_shm_close(struct muster_group *group);
bool muster_shm_is_used(const struct muster_group *group);
/** The members may agree on boards: a function of the view. */
bool muster_shm_is_eligible(const struct muster_view *view);
/** A frame BOARD. */
void muster_shm_hear_answer(struct muster_group *group, uint32_t rank, bool is_yes,
                            uint32_t refusal);

/* --- Driving --- */

/** An operation of the wire is complete: operations behind it in its lane may be known to be. */
void muster_shm_advance(struct muster_group *group, const struct muster_op_id *id);
/** From now on the loop works on them. */
void muster_shm_drive(struct muster_group *group);

#endif
