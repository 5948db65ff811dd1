/* Groups as the cluster layer drives them: open for a view, freeze, hand over to the next epoch. */
#ifndef MUSTER_COLLECTIVE_GROUP_H
#define MUSTER_COLLECTIVE_GROUP_H

#include <muster/collective.h>

#include "collective/kernel/op_call.h"
#include "collective/view/progress.h"
#include "collective/wire/wire.h"

struct muster_board;

/** Told on the loop; `data` of the options. */
struct muster_group_events {
    /* A link to this rank is gone: a suspicion, not a verdict. */
    void (*on_suspect)(void *data, const struct muster_incarnation *peer,
                       const struct muster_error *error);
    /* May be NULL. The board of this member of the host says that it is dead: no suspicion. */
    void (*on_death)(void *data, const struct muster_incarnation *peer);
    /* Deadline or cancel of an operation: ask the leader for ABORTED. */
    void (*on_abort_proposed)(void *data, const struct muster_op_id *op, enum muster_rc why);
    /* A frame of a higher epoch came from peer: ask it for that view. The link stays paused until
     * the next group opens. */
    void (*on_higher_epoch)(void *data, const struct muster_incarnation *peer, uint64_t epoch);
    /* No verdict came within the grace period: all open operations have ended here
     * (DEADLINE_EXCEEDED, CANCELLED, ABORTED) and the group is frozen. This member's state may
     * differ: it must leave and come back by catch-up. */
    void (*on_expired)(void *data, const struct muster_error *error);
    /* May be NULL. An operation has ended; its callback follows in a later turn. */
    void (*on_ended)(void *data);
    /* May be NULL. Others wait for an operation of `step`, which has been committed here without it: it ends
     * on them, and this member's state lacks it. Once for an operation. */
    void (*on_skipped)(void *data, uint64_t step);
    /* May be NULL. An operation of `step` was called here, which a member that has left had committed without it:
     * it ends INVALID_ARGUMENT on all. */
    void (*on_left_out)(void *data, uint64_t step, const char *why);
};

#define MUSTER_ABORT_GRACE_NS_DEFAULT (2 * MUSTER_NS_PER_S)
#define MUSTER_ANSWER_WAIT_NS_DEFAULT (20 * MUSTER_NS_PER_MS)

struct muster_group_options {
    struct muster_env *env;
    struct muster_view *view; /* shares */
    struct muster_incarnation self;
    struct muster_wire *wire;   /* borrowed; serves one group at a time, survives epochs */
    struct muster_board *board; /* the same; NULL: members of this host use the wire as well */
    const struct muster_group_events *events;
    void *data;
    uint64_t abort_grace_ns; /* from a proposed abort to DEADLINE_EXCEEDED; 0: 2 s */
    uint64_t answer_wait_ns; /* at a deadline, for the others to say where they are; 0: 20 ms */
};

/** A group for options->view. Members whose from_step is later than an operation's step take no
 * part in it. Gives, muster_group_close or muster_group_leave. INVALID_ARGUMENT: the view lacks
 * options->self. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_group_open(const struct muster_group_options *options,
                                                   struct muster_group **ret_group);

/** Operations started from now on belong to `step` (rises only). */
void muster_group_begin_step(struct muster_group *group, uint64_t step);
/** Step `step` (rises only) is over here: an operation of it that was not called here never will be,
 * and members that wait for it are told so. */
void muster_group_commit_step(struct muster_group *group, uint64_t step);
/** Operations of lane 0 that were called here in `step`, the last one or the one before. */
uint32_t muster_group_count_called(const struct muster_group *group, uint64_t step);
/** No other member knows of any operation: they are counted from 0 again. */
void muster_group_start_over(struct muster_group *group);

/** Stop: no operation completes, no byte of an operation changes, nothing of this epoch is sent
 * after this returns. New operations may be started; they wait for the next epoch. Idempotent.
 * ret_progress: gives, muster_progress_fini. */
MUSTER_MUST_CHECK enum muster_rc muster_group_freeze(struct muster_group *group,
                                                     struct muster_progress *ret_progress);

/** muster_broadcast_start from a process. It ends ABORTED on all, at once, when the root takes no
 * part any more, and when members that know different views have chosen different roots. */
MUSTER_MUST_CHECK enum muster_rc muster_broadcast_start_from(struct muster_op *op,
                                                             struct muster_group *group,
                                                             const struct muster_tensor *tensor,
                                                             const struct muster_root *root,
                                                             muster_op_fn *done);

/** muster_reduce_start to a process. */
MUSTER_MUST_CHECK enum muster_rc muster_reduce_start_from(
    struct muster_op *op, struct muster_group *group, const struct muster_tensor *tensor,
    enum muster_reduction reduction, const struct muster_root *root, muster_op_fn *done);

/** muster_all_gather_start and others by the ranks of `view`, which the caller knows:
 * where the group has other members by now they end ABORTED on all. */
MUSTER_MUST_CHECK enum muster_rc muster_all_gather_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_tensor *input, const struct muster_tensor *output, muster_op_fn *done);
MUSTER_MUST_CHECK enum muster_rc muster_all_to_all_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_tensor *input, const struct muster_tensor *output, muster_op_fn *done);
MUSTER_MUST_CHECK enum muster_rc muster_all_gather_uneven_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_tensor *input, const struct muster_parts *output, muster_op_fn *done);
MUSTER_MUST_CHECK enum muster_rc muster_all_to_all_uneven_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_parts *input, const struct muster_parts *output, muster_op_fn *done);
MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_tensor *input, const struct muster_tensor *output,
    enum muster_reduction reduction, muster_op_fn *done);
MUSTER_MUST_CHECK enum muster_rc muster_reduce_scatter_uneven_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_parts *input, const struct muster_tensor *output,
    enum muster_reduction reduction, muster_op_fn *done);
/** As the above, with the root given as a process instead of a rank. */
MUSTER_MUST_CHECK enum muster_rc muster_gather_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_tensor *input, const struct muster_tensor *output,
    const struct muster_root *root, muster_op_fn *done);
MUSTER_MUST_CHECK enum muster_rc muster_scatter_start_in(
    struct muster_op *op, struct muster_group *group, const struct muster_view *view,
    const struct muster_tensor *input, const struct muster_tensor *output,
    const struct muster_root *root, muster_op_fn *done);

/** Between freeze and the end of the group. */
bool muster_group_is_frozen(const struct muster_group *group);

/** Apply the verdicts of next's view to the open operations of the frozen group: ADOPT fetches what
 * is missing and completes, RETRY restores inputs and runs again on next, ABORTED restores and
 * completes. All open operations move to next. Then `group` is empty and can be closed. */
void muster_group_hand_over(struct muster_group *group, struct muster_group *next);

/** Every open operation ends with rc (`why` is copied into op->error). For the excluded and the
 * leaving. One through boards that all have announced ends when the others are through with its
 * memory, with its result if it comes to one. */
void muster_group_abort_all(struct muster_group *group, const struct muster_error *why);

/** The group must have no open operation; those that only wait for others end now. Its memory goes in
 * a later turn, after the callbacks that are due. NULL is accepted. */
void muster_group_close(struct muster_group *group);

/** After muster_group_abort_all, muster_group_hand_over: the group closes by itself as soon as nobody
 * reads the memory of its operations any more, which have ended by then. */
void muster_group_leave(struct muster_group *group);
/** A group that was left has not closed yet, or not called back. */
bool muster_group_is_awaited(const struct muster_board *board);
/** Before the board and the wire are closed: groups that were left close now. */
void muster_group_close_left(struct muster_board *board);

/** The wait of the oldest operation that is under way, as far as this member knows. */
struct muster_group_wait {
    /* in the group's view: that member has not started it, or not given an answer that all need first */
    uint32_t rank;
    char op[64]; /* "all_reduce #0 of step 812", "the agreement on shared memory" */
};
/** False: nothing is under way, or all members have started what is. */
bool muster_group_waits_for(const struct muster_group *group, struct muster_group_wait *ret_wait);

/** An operation is under way: issued, and not ended here. */
bool muster_group_is_busy(const struct muster_group *group);
/** Operations are under way, and all of them will end by themselves, with the same result whoever
 * dies: all members have announced them on boards. */
bool muster_group_is_finishing(const struct muster_group *group);
/** No operation is open and no result is retained for others: leaving now costs nobody anything. */
bool muster_group_is_idle(const struct muster_group *group);

/** Called before and after every store that others see. Tests end the process there. */
typedef void muster_shm_point_fn(void *data, const char *point);
void muster_group_set_shm_failpoint(struct muster_group *group, muster_shm_point_fn *fn,
                                    void *data);

#endif
