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
/** Whether this epoch uses boards is known. Operations wait for it. */
bool muster_shm_is_settled(const struct muster_group *group);
bool muster_shm_is_used(const struct muster_group *group);
/** The members may agree on boards: a function of the view. */
bool muster_shm_is_eligible(const struct muster_view *view);
/** A frame BOARD. */
void muster_shm_hear_answer(struct muster_group *group, uint32_t rank, bool is_yes,
                            uint32_t refusal);

/* --- One operation (collective/group/shm/run.c) --- */

/** False: no room on the board for now; the run waits in its lane. */
bool muster_shm_prepare(struct muster_run *run);
void muster_shm_start(struct muster_run *run);
/** How it shows its input (any run): muster_op_result. */
const char *muster_shm_input_name(const struct muster_run *run);
/** Some of its work. True: something moved. */
bool muster_shm_step(struct muster_run *run);
/** All participants are ready: it will end ADOPTED whatever happens, and work on it goes on while the
 * group is frozen. Else it is stopped: no byte changes here. */
void muster_shm_freeze(struct muster_run *run);
/** All have announced it, and nobody has taken that back. */
bool muster_shm_is_ready(const struct muster_run *run);
/** The caller's tensor is as it was. */
bool muster_shm_has_input(const struct muster_run *run);
/** Go on in the group of the next epoch, among the participants of the old one. */
void muster_shm_adopt(struct muster_run *run);
bool muster_shm_is_deliverable(const struct muster_run *run);
bool muster_shm_is_stable(const struct muster_run *run);
/** A small one that is over, whose turn has not come: its input again. */
void muster_shm_flat_restore(struct muster_run *run);
/** The caller gets its memory back without a result: nobody may rely on it any more. */
void muster_shm_revoke(struct muster_run *run);
/** Its place on the board is free again. Before the run's memory goes. */
void muster_shm_drop(struct muster_run *run);
/** Slots and staging of it. */
size_t muster_shm_held_bytes(const struct muster_run *run);
/** What a plan through boards sends and needs. */
struct muster_op_cost muster_shm_cost(const struct muster_plan *plan);
/** Note who has started it (run->heard). */
void muster_shm_hear(struct muster_run *run);

/* --- Without those that have stalled (collective/group/shm/leave.c) --- */

/** All have announced it, so that nobody needs to wait for anybody: it ends well whatever happens. */
bool muster_shm_is_sure(const struct muster_run *run);
/** Note how far the others are, and leave those behind that are where they were the last time. */
void muster_shm_leave_stalled(struct muster_run *run);
bool muster_shm_is_left_behind(const struct muster_run *run);
/** This process ends it alone. True: others still read its memory, so it goes on until they are
 * through (run->is_held). False: the announcement is taken back. */
bool muster_shm_hold(struct muster_run *run);
/** Somebody says that others were called. True: the announcement is taken back, and nobody goes on with
 * the operation. False: all have announced it alike on their boards, so it stands and ends well. */
bool muster_shm_withdraw(struct muster_run *run);
/** A held run: nobody needs it any more, and it has no result. */
bool muster_shm_is_released(const struct muster_run *run);

/* --- Driving (collective/group/shm/progress.c) --- */

/** An operation of the wire is complete: operations behind it in its lane may be known to be. */
void muster_shm_advance(struct muster_group *group, const struct muster_op_id *id);
/** From now on the loop works on them. */
void muster_shm_drive(struct muster_group *group);
void muster_shm_stop_driving(struct muster_group *group);
void muster_shm_init_driving(struct muster_group *group);

#endif
