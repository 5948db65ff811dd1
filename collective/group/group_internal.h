/* What the files of a group share: the group, its lanes, and one run per operation. */
#ifndef MUSTER_COLLECTIVE_GROUP_INTERNAL_H
#define MUSTER_COLLECTIVE_GROUP_INTERNAL_H

#include <muster/collective.h>
#include <muster/loop.h>

#include "collective/group/group.h"
#include "collective/group/shm.h"
#include "collective/kernel/op_call.h"
#include "collective/plan/plan.h"
#include "collective/view/topology.h"
#include "collective/wire/wire.h"

/* Of one tensor: far above any memory, far below any overflow. */
#define MUSTER_OP_BYTES_MAX ((uint64_t)1 << 46)

/* Of one lane, at the same time: 4 rings or 64 direct exchanges; more wait their turn. */
#define MUSTER_LANE_COST_MAX 64u
#define MUSTER_RING_COST     16u
#define MUSTER_DIRECT_COST   1u
#define MUSTER_FLAT_COST     4u /* a lane has 16 places on the board */
/* Frames of operations that have not been started here: their links pause beyond this. */
#define MUSTER_EARLY_BYTES_MAX ((size_t)64 << 20)

enum muster_run_state {
    MUSTER_RUN_HELD,      /* started while the group was frozen: belongs to the next epoch */
    MUSTER_RUN_QUEUED,    /* issued, waits for its turn in the lane */
    MUSTER_RUN_ACTIVE,    /* frames travel */
    MUSTER_RUN_COMPLETE,  /* the whole result is here */
    MUSTER_RUN_DELIVERED, /* the caller has it */
    MUSTER_RUN_ENDED,     /* ended without a result; kept until all members know (mismatch) */
};

/** Bits of run->chunks[c]. */
enum {
    MUSTER_CHUNK_REDUCED = 1, /* its partial sum has arrived */
    MUSTER_CHUNK_FINAL = 2,   /* its final value is here */
    MUSTER_CHUNK_TOLD = 4,    /* its final value, or the news of it, has arrived */
    MUSTER_CHUNK_ASKED = 8,   /* fetched from a survivor */
};

/** Bits of run->heard[participant]. */
enum {
    MUSTER_HEARD_INPUT = 1,
    MUSTER_HEARD_COMPLETE = 2,
    MUSTER_HEARD_ISSUED = 4,    /* it has started the operation */
    MUSTER_HEARD_ANSWER = 8,    /* to QUERY */
    MUSTER_HEARD_MISMATCH = 16, /* it has ended it, for another was called */
    MUSTER_HEARD_ASKED = 32,    /* START was sent to it (steps) */
};

/** What goes to and comes from one participant of an exchange, in pieces of the plan's chunks. */
struct muster_exchange_peer {
    const uint8_t *send_at;
    uint8_t *receive_at;
    uint64_t send_bytes, receive_bytes;
    uint32_t sent, allowed; /* pieces: the next to send; how far it may go */
    uint32_t received;      /* all pieces below have arrived … */
    uint32_t beyond;        /* … and these beyond: bit i = piece received + i */
    bool has_started;       /* its START has come */
    bool is_awaited;        /* something is still to come from it */
};

/** One operation, from start until it is stable. Library memory, reused. */
struct muster_run {
    struct muster_list node; /* lane->runs, in order, or group->held */
    struct muster_group *group;
    struct muster_op *op; /* NULL once it was handed back */
    struct muster_op_id id;
    struct muster_op_call call;
    uint64_t descriptor;
    enum muster_run_state state;
    struct muster_op_result result;
    enum muster_op_phase phase; /* at the freeze */
    uint64_t deadline_ns;
    uint64_t started_ns; /* here; 0: not known */
    uint32_t spent_us;   /* from there to the whole result */
    uint32_t least_us;   /* of the others, the least that has been told … */
    uint32_t least_by;   /* … by this participant */
    struct muster_timer timer;
    uint64_t stalled_ns;      /* when to look next for participants that have stalled */
    enum muster_rc abort_why; /* CANCELLED, DEADLINE_EXCEEDED: proposed; OK: not */
    uint8_t timer_stage;      /* enum timer_stage of collective/group/run/deadline.c */
    uint64_t heard_over;      /* participants that had said MISMATCH before it had a board plan */
    bool is_mismatched;       /* own description has been sent (once more at the end) */
    bool is_contradicting;    /* unfit because the members have adopted another operation */
    bool is_held; /* ended here, but others still read its memory; op is not handed back */
    enum muster_rc held_rc; /* what it ends with when it does not come to a result */
    bool is_unfit; /* does not fit the members of this epoch, or what they have adopted: never runs,
                      all must agree on its end */

    uint32_t participant_count, self_index; /* in this epoch; the plan may be of an earlier one */
    uint32_t complete_count;                /* participants that are known to be complete */
    struct muster_plan plan;
    bool is_adopting; /* completes by fetching; the plan is the one of the epoch before */
    bool has_next_started;
    uint32_t final_count;               /* wanted chunks that are final here */
    uint32_t start_next;                /* next chunk of plan.start_block to send */
    uint32_t start_final;               /* of them, known to be final */
    uint32_t input_count;               /* direct: inputs here, the own one included */
    uint32_t peers_left;                /* exchange: participants from whom something is awaited */
    struct muster_exchange_peer *peers; /* exchange: by participant; a buffer of the pool */
    /* one buffer of the pool: */
    void *memory;
    struct muster_shm_run *shm; /* through boards: instead of the next four */
    void **undo;                /* by chunk: the input that a final value replaced, or NULL */
    void **inputs;              /* by participant (direct) */
    void *finished;             /* direct: the whole result; steps: it grows here */
    uint64_t frame_weight;      /* of the elements of the next REDUCE or INPUT frame */
    uint64_t *weights;          /* direct, by participant: a buffer of the pool, or NULL */
    uint8_t *chunks;            /* by chunk */
    uint8_t *heard;             /* by participant */
    struct muster_steps_run
        *steps; /* collective/group/run/steps.c; a buffer of the pool, or NULL */
};

/* The color of who takes part in nothing: no operation has it. */
#define MUSTER_COLOR_NONE (MUSTER_COLOR_MAX + 2)

struct muster_lane {
    uint32_t split; /* of group->splits, plus one; 0: a lane of all */
    bool is_used;
    bool has_issued, has_stable;
    struct muster_op_id issued_through, stable_through;
    uint64_t step; /* of next_sequence */
    uint32_t next_sequence;
    uint64_t step_before;  /* the one before in which operations were called here … */
    uint32_t count_before; /* … and how many */
    uint32_t cost;         /* of active and retained runs */
    struct muster_list runs;
};

enum muster_receive_mode {
    MUSTER_RECEIVE_NOTHING, /* discarded */
    MUSTER_RECEIVE_EARLY,   /* for an operation that is not active here yet */
    MUSTER_RECEIVE_DATA,    /* into the run's memory */
    MUSTER_RECEIVE_NOTE,    /* no payload, or a description */
    MUSTER_RECEIVE_SHORT,   /* there is no memory for it */
    MUSTER_RECEIVE_MESSAGE, /* between two members: message_receive.c */
};

/** The frame that is coming in from one peer. */
struct muster_receiving {
    enum muster_receive_mode mode;
    struct muster_run *run;
    struct muster_message *message; /* whose piece it is */
    uint8_t type;
    uint32_t chunk;
    uint8_t *buffer; /* of the pool, or NULL when it goes straight into the tensor */
    size_t used;     /* bytes of it that have been added in */
    uint64_t weight; /* of the members whose elements it holds */
};

/** A whole frame kept for later. */
struct muster_early {
    struct muster_list node;
    uint32_t rank;
    struct muster_frame_header header;
    void *buffer;
};

struct muster_group_device;
/** What a backend that holds something for a group does with it. */
struct muster_group_device_ops {
    /* Stop everything on the device at once, wait for nothing. */
    void (*freeze)(struct muster_group_device *device);
    /* The frozen group is followed by next. */
    void (*hand_over)(struct muster_group_device *device, struct muster_group *next);
    /* Every operation ends with why. */
    void (*end)(struct muster_group_device *device, const struct muster_error *why);
    void (*close)(struct muster_group_device *device);
    /* A member has sent ALARM. */
    void (*alarm)(struct muster_group_device *device, const struct muster_op_id *id);
};
struct muster_group_device {
    const struct muster_group_device_ops *ops;
};

/** The last plan that was made. */
struct muster_plan_memo {
    struct muster_plan_input input;
    struct muster_plan plan;
    bool is_set, is_shm;
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
    bool is_ended; /* handed over, expired or aborted: starts fail */
    bool is_left;  /* closed as soon as its held runs have ended */
    bool is_closed;
    uint32_t held_count;
    struct muster_lane lanes[MUSTER_LANES_MAX];
    uint32_t lane_count;
    struct muster_split splits[MUSTER_SPLITS_MAX];
    uint32_t split_count;
    uint32_t open_count;     /* operations that were not handed back */
    struct muster_list held; /* started while frozen */
    struct muster_list done; /* user's operations whose callbacks are due … */
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
    struct muster_group_device *device; /* the backend's; NULL: none yet */
    struct muster_op_id skipped;        /* the last one that was logged */
};

/* group.c */
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

/** A group that was left and holds nothing any more is freed after its callbacks. */
void muster_group_finish(struct muster_group *group);

/* backend.c: nothing without a device */
void muster_group_device_freeze(struct muster_group *group);
void muster_group_device_hand_over(struct muster_group *group, struct muster_group *next);
void muster_group_device_end(struct muster_group *group, const struct muster_error *why);
void muster_group_device_close(struct muster_group *group);
void muster_group_device_alarm(struct muster_group *group, const struct muster_op_id *id);

/* plan_cost.c */
/** What this member sends, and the most library memory that it needs meanwhile. topology: of a
 * TWO_LEVEL plan, else it may be NULL. */
struct muster_op_cost muster_plan_cost(const struct muster_plan *plan,
                                       const struct muster_topology *topology);

/* split.c: as above, of an operation, which may be one of some members. */
bool muster_op_takes_part(const struct muster_group *group, const struct muster_op_id *id,
                          const struct muster_member *member);
uint32_t muster_op_participants(const struct muster_group *group, const struct muster_op_id *id);
/** Who they are among the members of `view`: equal for the same processes in the same order. */
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

/* run.c */
/** The id of the next operation of that lane. */
struct muster_op_id muster_lane_next_id(struct muster_group *group, uint32_t lane);
MUSTER_MUST_CHECK enum muster_rc muster_run_new(struct muster_group *group,
                                                const struct muster_op_call *call,
                                                struct muster_op *op, struct muster_run **ret_run);
/** The run becomes part of the group's epoch: plan, verdict of the view, its turn. */
void muster_run_issue(struct muster_run *run);
/** True: it does not fit the members of this epoch, and its abort has been proposed to all. */
bool muster_run_is_refused(struct muster_run *run, const struct muster_verdict *verdict);
/** Take part in the group's epoch: participants, nothing heard yet. */
void muster_run_join_epoch(struct muster_run *run);
/** Make the plan for this group's participants. */
void muster_run_make_plan(struct muster_run *run);
/** Give it the memory of its plan. False: no memory; the run has ended with RESOURCE_EXHAUSTED. */
bool muster_run_take_memory(struct muster_run *run);
/** What it holds, counted against MUSTER_LANE_COST_MAX. */
uint32_t muster_run_cost(const struct muster_run *run);
/** Of the buffer with its tables: by chunk, by participant. */
size_t muster_run_table_bytes(const struct muster_plan *plan);
/** Give up all memory of the plan: staging, undo copies, inputs. */
void muster_run_drop_memory(struct muster_run *run);
/** Start runs of the lane whose turn has come. */
void muster_lane_advance(struct muster_group *group, struct muster_lane *lane);
/** Deliver what can be, forget what is stable, start what waits. */
void muster_lane_settle(struct muster_group *group, struct muster_lane *lane);
/** The whole result is here: tell all, deliver what can be. */
void muster_run_complete(struct muster_run *run);
/** That participant had its result so long after it had started the operation. */
void muster_run_hear_spent(struct muster_run *run, uint32_t participant, uint32_t us);
void muster_run_hear_complete(struct muster_run *run, uint32_t participant);
/** The run belongs to another group from now on. */
void muster_run_move(struct muster_run *run, struct muster_group *group);
/** Hand the user's operation back with rc; error text must be in op->error already. */
void muster_run_hand_back(struct muster_run *run, enum muster_rc rc);
/** Hand back, and forget the run. */
void muster_run_end(struct muster_run *run, enum muster_rc rc);
void muster_run_free(struct muster_run *run);
/** The participant has started the operation, too; news while this member waits for it. */
void muster_run_hear_issued(struct muster_run *run, uint32_t participant);
/** "all_reduce #12" */
const char *muster_run_name(const struct muster_run *run, char *ret_text, size_t size);
/** Send a frame of this run to a participant. */
void muster_run_send(struct muster_run *run, enum muster_frame_type type, uint32_t participant,
                     uint32_t chunk, const void *payload, uint32_t bytes, void *buffer);
void muster_run_send_all(struct muster_run *run, enum muster_frame_type type);
/** Where chunk c lies in the output, and how long it is. */
void *muster_run_chunk_at(const struct muster_run *run, uint32_t c, size_t *ret_bytes);
/** Save the input under a chunk of the output that is about to change. False: no memory. */
bool muster_run_save_undo(struct muster_run *run, uint32_t c);
/** Put all saved inputs back. */
void muster_run_restore(struct muster_run *run);

/** What it counts for in its lane. */
uint32_t muster_run_cost(const struct muster_run *run);
/** Has no result of its own but for the root's: it is complete when the root is. */
bool muster_run_awaits_root(const struct muster_run *run);

/* collective/group/start.c */
/** A checked call becomes a run. Takes call->offsets. */
MUSTER_MUST_CHECK enum muster_rc muster_group_start_call(struct muster_op *op,
                                                         struct muster_group *group,
                                                         const struct muster_op_call *call,
                                                         muster_op_fn *done);
bool muster_group_is_tensor_valid(const struct muster_tensor *tensor);
bool muster_group_has_meaning(const struct muster_group *group, const struct muster_op_call *call);
bool muster_group_are_apart(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes);
/** The root by its rank in the group's view. False: takes no part. */
bool muster_group_find_root(const struct muster_group *group, uint32_t rank,
                            struct muster_root *ret_root);

/* collective/group/run/exchange.c */
void muster_exchange_start(struct muster_run *run);
/** Where a piece goes; NULL: discarded. The run may have ended (counts that do not fit). */
void *muster_exchange_receive(struct muster_run *run, uint32_t participant,
                              const struct muster_frame_header *header,
                              struct muster_receiving *receiving);
void muster_exchange_finish(struct muster_run *run, uint32_t participant,
                            const struct muster_receiving *receiving);
void muster_exchange_hear_start(struct muster_run *run, uint32_t participant,
                                const struct muster_frame_header *header);

/* collective/group/run/ring.c */
void muster_ring_start(struct muster_run *run);
void *muster_ring_receive(struct muster_run *run, const struct muster_frame_header *header,
                          struct muster_receiving *receiving);
void muster_ring_progress(struct muster_run *run, struct muster_receiving *receiving,
                          size_t bytes_done);
void muster_ring_finish(struct muster_run *run, struct muster_receiving *receiving);
/** The frame will not be finished: undo what was done with its first part. */
void muster_ring_abandon(struct muster_run *run, struct muster_receiving *receiving);
void muster_ring_hear_start(struct muster_run *run);
/** Chunk c has become final here by whatever way: count it. */
void muster_ring_mark_final(struct muster_run *run, uint32_t c);

/* collective/group/run/direct.c */
void muster_direct_start(struct muster_run *run);
void *muster_direct_receive(struct muster_run *run, uint32_t participant,
                            const struct muster_frame_header *header,
                            struct muster_receiving *receiving);
void muster_direct_finish(struct muster_run *run, uint32_t participant,
                          struct muster_receiving *receiving);
/** Copy the result to the caller's memory: at delivery. */
void muster_direct_deliver(struct muster_run *run);

/* collective/group/run/steps.c */
void muster_steps_start(struct muster_run *run);
void *muster_steps_receive(struct muster_run *run, uint32_t participant,
                           const struct muster_frame_header *header,
                           struct muster_receiving *receiving);
void muster_steps_finish(struct muster_run *run, struct muster_receiving *receiving);
/** A participant has started the operation: what waited for that goes out. The run may end. */
void muster_steps_hear_start(struct muster_run *run);
/** What the list of this member sends, and the memory of list, work and what waits. */
struct muster_op_cost muster_steps_cost(const struct muster_plan *plan,
                                        const struct muster_topology *topology);
/** Copy the result to the caller's memory: at delivery. */
void muster_steps_deliver(struct muster_run *run);
/** Free the list and what has arrived. */
void muster_steps_drop(struct muster_run *run);
/** The result comes about in the caller's output, not in run->finished. */
bool muster_steps_is_in_place(const struct muster_run *run);

/* collective/group/receive.c */
extern const struct muster_wire_client muster_group_wire_client;
/** Use the frames that came before their run was active. The run may end in here. */
void muster_group_replay_early(struct muster_group *group, const struct muster_op_id *id);
void muster_group_drop_early(struct muster_group *group);
/** Forget the half-received frames (their links discard them), restoring what they changed. */
void muster_group_abandon_receiving(struct muster_group *group, const struct muster_run *run);

/* collective/group/run/deadline.c */
/** op->cancel of an operation of the group. */
void muster_run_cancel(struct muster_op *op);
void muster_run_start_deadline(struct muster_run *run);
void muster_run_propose_abort(struct muster_run *run, enum muster_rc why);
/** It cannot come to a result here, and no change of view helps: the group expires. */
void muster_run_give_up(struct muster_run *run);
/** A held run does not wait for ever. */
void muster_run_await_release(struct muster_run *run);
/** The others are asked what they have adopted; without an answer it ends after the grace period. */
void muster_run_await_answers(struct muster_run *run);
/** After a change of view that did not end it. */
void muster_run_propose_again(struct muster_run *run);
void muster_run_hear_status(struct muster_run *run, uint32_t participant, bool is_issued);
/** op->error for an operation that ends because it was aborted: whose fault it is, as far as known.
 */
void muster_run_explain_abort(struct muster_run *run, enum muster_rc rc, const char *reason);

/* collective/group/run/mismatch.c */
/** The operation belongs to a step that is committed here, in which it was not called: it never will be. */
bool muster_group_has_skipped(const struct muster_group *group, const struct muster_op_id *id);
/** Tell that member so: the operation ends there. */
void muster_group_say_skipped(struct muster_group *group, uint32_t rank,
                              const struct muster_op_id *id);
void muster_run_send_mismatch(struct muster_run *run);
/** The description of participant arrived. */
void muster_run_hear_mismatch(struct muster_run *run, uint32_t participant,
                              const struct muster_frame_header *header, const char *text);
/** Counts of this rank and of participant do not fit: all end, told by both. */
void muster_run_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                        uint64_t expected, bool is_sent_here);
/** The same, of what this rank expects: it ends when the others have answered. */
void muster_run_say_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                            uint64_t expected);
/** The members have adopted another operation under this id: ask them which, and end. */
void muster_run_contradict(struct muster_run *run);
/** Nobody has said which. */
void muster_run_end_contradicted(struct muster_run *run);

/* collective/group/run/repair.c */
/** The view says ADOPT: fetch what is missing. */
void muster_run_adopt(struct muster_run *run, const struct muster_verdict *verdict);
void muster_repair_serve(struct muster_run *run, uint32_t participant, uint32_t first,
                         uint32_t count);
void *muster_repair_receive(struct muster_run *run, const struct muster_frame_header *header,
                            struct muster_receiving *receiving);
void muster_repair_finish(struct muster_run *run, struct muster_receiving *receiving);

/* collective/group/leave.c */
/** Ends alone, as muster_run_end; or stays in its lane until nobody reads its memory any more, and
 * ends with its result if it comes to one. True: it stays. */
bool muster_run_hold(struct muster_run *run, enum muster_rc rc);
/** Held runs that nobody needs any more end. */
void muster_lane_release(struct muster_lane *lane);
/** It ends now, with its result if it is whole. */
void muster_run_end_held(struct muster_run *run);
/** All of them. */
void muster_group_give_up_held(struct muster_group *group);

/* collective/group/freeze.c */
/** Links forget the epoch's frames, half-received chunks are rolled back. Idempotent. */
void muster_group_stop(struct muster_group *group);
/** Stop, and end every operation: `first` (may be NULL) with first_rc, the others with why->rc. */
void muster_group_end_all(struct muster_group *group, const struct muster_error *why,
                          struct muster_run *first, enum muster_rc first_rc);

#endif
