/* Lanes: the operations of a group in the order in which all members call them, and what decides how each
 * goes on. */
#ifndef MUSTER_COLLECTIVE_LANE_H
#define MUSTER_COLLECTIVE_LANE_H

#include <muster/view.h>

#include "collective/group/run/executor.h"

struct muster_lane {
    uint32_t split; /* of group->splits, plus one; 0: a lane of all */
    bool is_used;
    bool has_issued, has_stable;
    struct muster_op_id issued_through, stable_through;
    uint64_t step; /* of next_sequence */
    uint32_t next_sequence;
    uint64_t step_before;  /* the one before in which operations were called here … */
    uint32_t count_before; /* … and how many */
    /* The first of the present attempt at the step, and of the last one at the step before: a step that runs again
     * goes on counting. */
    uint32_t first_sequence, first_before;
    uint32_t cost;         /* of active and retained runs */
    struct muster_list runs;
};

/** A lane tells the files above it by these. */
struct muster_lane_events {
    void (*on_activated)(struct muster_group *group, const struct muster_op_id *id);
    muster_timer_fn *on_timer; /* of a run */
};

/** Reasons for which the timer of a run is set. */
enum muster_timer_stage {
    MUSTER_TIMER_LOOK,         /* time to ask who has started it, and who never will */
    MUSTER_TIMER_DEADLINE,     /* the operation's own */
    MUSTER_TIMER_ANSWERS,      /* the others say whether they have started it */
    MUSTER_TIMER_GRACE,        /* the verdict is awaited */
    MUSTER_TIMER_CONTRADICTED, /* the others say what they have adopted */
    MUSTER_TIMER_STALLED,      /* the others make progress, or are left behind */
    MUSTER_TIMER_LINGERING,    /* the others are through with its memory */
};

/* run.c */
/** The id of the next operation of that lane. */
struct muster_op_id muster_lane_next_id(struct muster_group *group, uint32_t lane);
/** State and mode follow tables of moves. */
void muster_run_move_to(struct muster_run *run, enum muster_run_state state);
void muster_run_set_mode(struct muster_run *run, enum muster_run_mode mode);
MUSTER_MUST_CHECK enum muster_rc muster_run_new(struct muster_group *group,
                                                const struct muster_op_call *call,
                                                struct muster_op *op, struct muster_run **ret_run);
void muster_run_free(struct muster_run *run);
/** Hand the user's operation back with rc; error text must be in op->error already. */
void muster_run_hand_back(struct muster_run *run, enum muster_rc rc);
/** Hand back, and forget the run. */
void muster_run_end(struct muster_run *run, enum muster_rc rc);
/** The run belongs to another group from now on. */
void muster_run_move(struct muster_run *run, struct muster_group *group);
/** Take part in the group's epoch: participants, nothing heard yet. */
void muster_run_join_epoch(struct muster_run *run);
/** Give it the memory of its plan. False: no memory. */
MUSTER_MUST_CHECK bool muster_run_take_memory(struct muster_run *run);
/** Give up all memory of the plan: staging, undo copies, inputs. */
void muster_run_drop_memory(struct muster_run *run);
/** Put all saved inputs back. */
void muster_run_restore(struct muster_run *run);
/** The run's share of MUSTER_LANE_COST_MAX. */
uint32_t muster_run_cost(const struct muster_run *run);
/** Bytes that this member sends, and the most library memory that it needs meanwhile. topology: of
 * a TWO_LEVEL plan, else it may be NULL. */
struct muster_op_cost muster_plan_cost(const struct muster_plan *plan,
                                       const struct muster_topology *topology);
/** "all_reduce #12" */
const char *muster_run_name(const struct muster_run *run, char *ret_text, size_t size);
void muster_run_send_all(struct muster_run *run, enum muster_frame_type type);
/** The participant has started the operation, too; news while this member waits for it. */
void muster_run_hear_issued(struct muster_run *run, uint32_t participant);
/** That participant had its result so long after it had started the operation. */
void muster_run_hear_spent(struct muster_run *run, uint32_t participant, uint32_t us);

/* lane.c */
/** The run becomes part of the group's epoch: plan, verdict of the view, its turn. */
void muster_run_issue(struct muster_run *run);
/** True: it does not fit the members of this epoch, and its abort has been proposed to all. */
bool muster_run_is_refused(struct muster_run *run, const struct muster_verdict *verdict);
/** Make the plan for this group's participants. */
void muster_run_make_plan(struct muster_run *run);
/** Act on what an executor has come to. The run may end. */
void muster_run_conclude(struct muster_run *run, enum muster_run_outcome outcome);
void muster_run_hear_complete(struct muster_run *run, uint32_t participant);
/** Start runs of the lane whose turn has come. */
void muster_lane_advance(struct muster_group *group, struct muster_lane *lane);
/** Deliver what can be, forget what is stable, start what waits. */
void muster_lane_settle(struct muster_group *group, struct muster_lane *lane);
/** It ends here alone: stays in its lane until nobody reads its memory any more, and ends with its
 * result if it comes to one. False: it can end at once. */
bool muster_run_hold(struct muster_run *run, enum muster_rc rc);
/** All lingering runs end now. */
void muster_group_end_lingering(struct muster_group *group);

/* deadline.c */
/** op->cancel of an operation of the group. */
void muster_run_cancel(struct muster_op *op);
void muster_run_start_timer(struct muster_run *run, enum muster_timer_stage stage, uint64_t due_ns);
void muster_run_start_deadline(struct muster_run *run);
void muster_run_await_deadline(struct muster_run *run);
void muster_run_propose_abort(struct muster_run *run, enum muster_rc why);
/** It cannot come to a result here, and no change of view helps: the group expires. */
void muster_run_give_up(struct muster_run *run);
/** A lingering run does not wait for ever. */
void muster_run_await_release(struct muster_run *run);
/** Participants that have stalled are left behind after a while. */
void muster_run_await_stalled(struct muster_run *run);
/** The others are asked what they have adopted; without an answer it ends after the grace period. */
void muster_run_await_answers(struct muster_run *run);
/** After a change of view that did not end it. */
void muster_run_propose_again(struct muster_run *run);
void muster_run_hear_status(struct muster_run *run, uint32_t participant, bool is_issued);
/** Participants that have neither started it nor answered a question. */
uint32_t muster_run_silent_count(const struct muster_run *run);
/** It has memory, and the group is not frozen. */
bool muster_run_is_in_epoch(const struct muster_run *run);
/** Through boards, and all have announced it: it ends well whatever happens. */
bool muster_run_is_sure(const struct muster_run *run);
/** The others have gone on without this process. */
bool muster_run_is_left_behind(const struct muster_run *run);
/** op->error for an operation that ends because it was aborted: at fault is, as far as known, … */
void muster_run_explain_abort(struct muster_run *run, enum muster_rc rc, const char *reason);

/* expiry.c */
/** Its timer has fired. */
void muster_run_on_timer(struct muster_timer *timer);
/** No member has said what was adopted instead of it. */
void muster_run_end_contradicted(struct muster_run *run);

/* mismatch.c */
/** Consequence of a participant's description for a run. */
enum muster_mismatch_heard {
    MUSTER_MISMATCH_NOTED,     /* its lane is to be settled */
    MUSTER_MISMATCH_IS_THEIRS, /* decided here: the participant was told, and counts as complete */
    MUSTER_MISMATCH_CONTRADICTS, /* muster_run_end_contradicted is due */
};
enum muster_mismatch_heard muster_run_hear_mismatch(struct muster_run *run, uint32_t participant,
                                                    const struct muster_frame_header *header,
                                                    const char *text);
void muster_run_send_mismatch(struct muster_run *run);
/** The counts do not fit what this rank expects: it ends when the others have answered. */
void muster_run_send_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                             uint64_t expected);
/** After muster_run_set_dispute: all end, told by both sides. */
void muster_run_end_disputed(struct muster_run *run);
/** The members have adopted another operation under this id: ask them which, and end. */
void muster_run_contradict(struct muster_run *run);

/* repair.c */
/** The view says ADOPT: fetch what is missing. */
enum muster_run_outcome muster_run_adopt(struct muster_run *run,
                                         const struct muster_verdict *verdict);
void muster_repair_serve(struct muster_run *run, uint32_t participant, uint32_t first,
                         uint32_t count);
enum muster_run_outcome muster_repair_receive(struct muster_run *run,
                                              const struct muster_frame_header *header,
                                              struct muster_receiving *receiving, void **ret_place);
enum muster_run_outcome muster_repair_received(struct muster_run *run,
                                               struct muster_receiving *receiving);

#endif
