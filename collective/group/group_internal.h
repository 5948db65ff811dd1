/* The group itself, for all files of its folder. */
#ifndef MUSTER_COLLECTIVE_GROUP_INTERNAL_H
#define MUSTER_COLLECTIVE_GROUP_INTERNAL_H

#include <muster/collective.h>
#include <muster/loop.h>

#include "collective/group/frames.h"
#include "collective/group/group.h"
#include "collective/group/lane.h"
#include "collective/group/parts.h"
#include "collective/group/shm.h"
#include "collective/view/topology.h"

/* The limit for one tensor: far above any memory, far below any overflow. */
#define MUSTER_OP_BYTES_MAX ((uint64_t)1 << 46)

/* Frames of operations that have not been started here: their links pause beyond this. */
#define MUSTER_EARLY_BYTES_MAX ((size_t)64 << 20)

/* The color of a member that takes part in nothing: no operation has it. */
#define MUSTER_COLOR_NONE (MUSTER_COLOR_MAX + 2)

/** The last plan that was made. */
struct muster_plan_memo {
    struct muster_plan_input input;
    struct muster_plan plan;
    bool is_set, is_shm;
};

/** Whether the operations of an epoch go through shared memory: known when all members have answered. */
enum muster_boards {
    MUSTER_BOARDS_UNUSED,
    MUSTER_BOARDS_UNKNOWN, /* operations wait */
    MUSTER_BOARDS_USED,
};

struct muster_group {
    struct muster_env *env;
    struct muster_view *view;
    struct muster_incarnation self;
    struct muster_wire *wire;
    struct muster_board *board; /* may be NULL */
    struct muster_buffer_pool *pool;
    const struct muster_group_events *events;
    void *data;
    uint64_t abort_grace_ns, answer_wait_ns;
    uint32_t rank;
    uint64_t from_step_max; /* operations of this step and later have all members as participants */
    uint64_t begun_step, committed_step;
    uint64_t frozen_begun_step, frozen_committed_step; /* what the vector says while frozen */
    uint64_t frozen_ns;
    bool is_frozen;
    bool is_starting; /* a start is under way: no callback may come */
    bool is_ended;    /* handed over, expired or aborted: starts fail */
    bool is_left;     /* closed as soon as its lingering runs have ended */
    bool is_closed;
    uint32_t lingering_count;
    enum muster_boards boards;
    const struct muster_lane_events *lane_events;
    struct muster_lane lanes[MUSTER_LANES_MAX];
    uint32_t lane_count;
    struct muster_split splits[MUSTER_SPLITS_MAX];
    uint32_t split_count;
    uint32_t open_count;        /* operations that were not handed back */
    struct muster_list pending; /* started while frozen */
    struct muster_list done;    /* user's operations whose callbacks are due … */
    bool
        is_done_late; /* … once COMPLETE has left: others wait for it, a program may compute long */
    struct muster_list early;
    struct muster_list pairs;   /* struct muster_pair: members with messages between them */
    struct muster_list looking; /* struct muster_message: those that the other's board tells of */
    size_t early_bytes, early_bytes_max;
    struct muster_topology topology;    /* of the participants of the last plan … */
    uint32_t topology_lane;             /* … of this color's lane; 0: of all */
    struct muster_receiving *receiving; /* by rank */
    bool *is_rank_paused;               /* by rank: its early frames exceed the limit */
    struct muster_task task;            /* callbacks, waiting runs, free */
    struct muster_shm *shm;             /* boards of the members; NULL: none */
    const char *wire_name;              /* static; NULL: not known yet */
    char wire_reason[320];              /* for people */
    struct muster_plan_memo plan_memo;
    struct muster_poller shm_poller; /* operations through boards are under way … */
    struct muster_task shm_task;     /* … on a loop that does not poll … */
    struct muster_timer shm_timer;   /* … and nothing has moved for a while */
    uint32_t shm_idle_turns;
    void (*shm_point)(void *data, const char *point); /* failpoint; NULL: none */
    void *shm_point_data;
    struct muster_group_part *parts[MUSTER_PARTS_MAX]; /* NULL: none */
    struct muster_group_part shm_part, messages_part;
    struct muster_op_id skipped; /* the last one that was logged */
};

/* members.c */
uint32_t muster_group_participants(const struct muster_group *group, uint64_t step);
/** Index of that rank among the participants; UINT32_MAX: takes no part. */
uint32_t muster_group_participant_index(const struct muster_group *group, uint64_t step,
                                        uint32_t rank);
/** Which participants of an operation share a host. Borrowed until the next call. */
const struct muster_topology *muster_group_topology(struct muster_group *group,
                                                    const struct muster_op_id *id);
struct muster_run *muster_group_find(const struct muster_group *group,
                                     const struct muster_op_id *id);
/** "worker:3" */
const char *muster_group_rank_name(const struct muster_group *group, uint32_t rank, char *ret_text,
                                   size_t size);
/** Run the callbacks that are due. The last thing that an event does: they may do anything. */
void muster_group_run_done(struct muster_group *group);

/* group.c */
/** A group that was left and holds nothing any more is freed after its callbacks. */
void muster_group_finish(struct muster_group *group);

/* split.c: as above, of an operation, which may be one of some members. */
bool muster_op_takes_part(const struct muster_group *group, const struct muster_op_id *id,
                          const struct muster_member *member);
uint32_t muster_op_participants(const struct muster_group *group, const struct muster_op_id *id);
/** A hash of the participants among the members of `view`: equal for the same processes in the
 * same order. */
uint64_t muster_op_participants_hash(const struct muster_group *group,
                                     const struct muster_view *view, const struct muster_op_id *id);
uint32_t muster_op_participant_rank(const struct muster_group *group, const struct muster_op_id *id,
                                    uint32_t index);
uint32_t muster_op_participant_index(const struct muster_group *group,
                                     const struct muster_op_id *id, uint32_t rank);
/** False: this member has not made the split of this lane yet. */
bool muster_group_is_lane_known(const struct muster_group *group, const struct muster_op_id *id);
/** The lane as operations of this member name it: with its color. */
uint32_t muster_group_lane_number(const struct muster_group *group, uint32_t lane);
/** Step and lane of an operation that is started now. */
struct muster_op_id muster_group_next_id(const struct muster_group *group, uint32_t lane);
void muster_group_inherit_splits(struct muster_group *next, const struct muster_group *group);

/* collective/group/start.c */
/** A checked call becomes a run. Takes call->offsets. */
MUSTER_MUST_CHECK enum muster_rc muster_group_start_call(struct muster_op *op,
                                                         struct muster_group *group,
                                                         const struct muster_op_call *call,
                                                         muster_op_fn *done);
bool muster_group_is_tensor_valid(const struct muster_tensor *tensor);
/** False: the log and op's error, if there is one, say why. */
bool muster_group_has_meaning(const struct muster_group *group, const struct muster_op_call *call,
                              struct muster_op *op);
bool muster_group_are_apart(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes);
/** The root by its rank in the group's view. False: takes no part. */
bool muster_group_find_root(const struct muster_group *group, uint32_t rank,
                            struct muster_root *ret_root);

/* mismatch.c */
/** The operation belongs to a step that is committed here, in which it was not called: it never will be. */
bool muster_group_has_skipped(const struct muster_group *group, const struct muster_op_id *id);
/** Tell that member so: the operation ends there. */
void muster_group_say_skipped(struct muster_group *group, uint32_t rank,
                              const struct muster_op_id *id);
/** A member that is gone has committed the operation's step, in which it did not call it. */
bool muster_run_is_left_out(const struct muster_run *run, const struct muster_view *view);
/** End it with INVALID_ARGUMENT; the run is gone. */
void muster_run_end_left_out(struct muster_run *run, const struct muster_view *view);

/* freeze.c */
/** Links forget the epoch's frames, half-received chunks are rolled back. Idempotent. */
void muster_group_stop(struct muster_group *group);
/** Stop, and end every operation: `first` (may be NULL) with first_rc, the others with why->rc. */
void muster_group_end_all(struct muster_group *group, const struct muster_error *why,
                          struct muster_run *first, enum muster_rc first_rc);

#endif
