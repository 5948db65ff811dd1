/* The strategy's state, shared by training/strategy*.c. Everything belongs to the loop, except the
 * snapshot that the program's calls leave for its own reading. */
#ifndef MUSTER_TRAINING_STRATEGY_INTERNAL_H
#define MUSTER_TRAINING_STRATEGY_INTERNAL_H

#include <stdatomic.h>

#include <muster/collective.h>
#include <muster/env.h>
#include <muster/replicas.h>
#include <muster/runtime.h>
#include <muster/strategy.h>
#include <muster/strategy_blob.h>

#include "cluster/node/member.h"
#include "cluster/node/state_manifest.h"
#include "collective/gpu/device_batch.h"
#include "collective/group/group.h"
#include "runtime/system/huge_memory.h"
#include "runtime/system/process_system.h"
#include "training/activity.h"
#include "training/checkpoint/owner.h"
#include "training/expectation.h"
#include "training/failpoint.h"
#include "training/local_registry.h"
#include "training/place.h"
#include "training/report.h"
#include "training/strategy_checkpoint.h"
#include "training/strategy_preempt.h"
#include "training/strategy_saving.h"
#include "training/tensor_names.h"

#define MUSTER_STRATEGY_OPS_MAX 64 /* operations in flight for one call */

/** Where the program stands. */
enum muster_strategy_state {
    MUSTER_STRATEGY_OPEN,    /* tensors may be registered */
    MUSTER_STRATEGY_WAITING, /* not a member yet, or excluded: on_ready will come */
    MUSTER_STRATEGY_READY,   /* between steps */
    MUSTER_STRATEGY_STEP,    /* between begin and commit */
    MUSTER_STRATEGY_FAILED,  /* error says why; only close is left */
};

/** The program's call of begin. */
enum muster_strategy_begin {
    MUSTER_STRATEGY_BEGIN_OUTSIDE,  /* it is not in one */
    MUSTER_STRATEGY_BEGIN_MEMBER,   /* this process has the state already */
    MUSTER_STRATEGY_BEGIN_AWAITED,  /* on_ready will come, or on_failed */
    MUSTER_STRATEGY_BEGIN_NEW,      /* on_ready has come: a new job, whose state is given out */
    MUSTER_STRATEGY_BEGIN_SHARES,   /* the initial state goes to all */
    MUSTER_STRATEGY_BEGIN_RESTORED, /* on_ready has come: the tensors hold the members' state */
};

/** The way out of the job, whatever the state: each is reached at most once, in this order. */
enum muster_strategy_leave {
    MUSTER_STRATEGY_STAYS,
    MUSTER_STRATEGY_LEAVES, /* the node has been told; on_left will come */
    MUSTER_STRATEGY_LEFT,   /* the others know that it is no member any more */
};

/** The last change of view, until the launcher has been told. */
#define MUSTER_STRATEGY_NAMES_BYTES 512
struct muster_strategy_change {
    bool is_untold;
    uint64_t epoch;
    uint64_t step;
    uint32_t member_count;
    double recovery_ms; /* < 0: nobody was lost */
    uint64_t detected_ns, opened_ns;
    bool is_undelivered; /* somebody was lost, and no operation has been delivered since */
    char lost[MUSTER_STRATEGY_NAMES_BYTES], joined[MUSTER_STRATEGY_NAMES_BYTES];
    char reason[128];           /* the view's */
    const struct muster_op *op; /* the operation it interrupted, or NULL */
    enum muster_verdict_kind verdict;
};

/** The lanes below are those of the strategy's own operations, and of a GPU backend. */
#define MUSTER_STRATEGY_SPLIT_LANE 16u

struct muster_crew;
struct muster_device_memory;
struct muster_request;
struct muster_strategy_call;

/** Functions of strategy_request.c that calls and their operations use. */
struct muster_strategy_request_calls {
    /* Start all for call->request. In the seat, in a step. */
    enum muster_rc (*start)(struct muster_strategy *strategy,
                            const struct muster_strategy_call *call);
    /* An operation of a request has ended, on the loop. */
    void (*on_op_done)(struct muster_strategy *strategy, struct muster_op *op, enum muster_rc rc);
};

/** Memory of the host that calls on device memory use one after the other: strategy_stage.c. */
#define MUSTER_STRATEGY_ROOMS 8u
struct muster_strategy_room {
    struct muster_tensor tensor; /* of bytes */
    bool is_used;
    struct muster_device_memory *pinned_by; /* NULL: it is not pinned */
    bool is_extra;                          /* of one call only */
};

/** Memory of an open device, in the order in which they were opened. */
#define MUSTER_STRATEGY_MEMORIES_MAX 64u
struct muster_strategy_device_memory {
    struct muster_device_memory *memory;
    struct muster_device_batch batch; /* of calls of replicas; its memory is NULL: none */
};

/** Folders that the program has named for checkpoints, which are marked as the job's: strategy_folder.c. */
#define MUSTER_STRATEGY_NAMED_FOLDERS 8u
struct muster_strategy_named_folder {
    char *path;
    struct muster_checkpoint_owner owner;
};

/** The devices of the replicas: devices.c. */
struct muster_strategy_device {
    int gpu;
    void *stream; /* of the program; NULL: the default stream */
};
struct muster_strategy_devices {
    uint32_t count;    /* 0: the replicas compute on the CPU */
    bool is_asked_for; /* by the program, or a variable */
    struct muster_strategy_device list[MUSTER_REPLICAS_MAX];
};

/** Host memory of the calls of replicas, kept: replicas_memory.c. */
enum muster_replicas_room_of {
    MUSTER_REPLICAS_ROOM_SUMS,   /* what travels to the other members */
    MUSTER_REPLICAS_ROOM_VALUES, /* copies of what is on devices */
    MUSTER_REPLICAS_ROOM_COUNT,
};
struct muster_replicas_room {
    struct muster_tensor tensor;
    struct muster_device_memory *pinned_by; /* NULL: it is not pinned */
    bool is_pin_tried;
};

struct muster_strategy_split {
    struct muster_strategy *strategy;
    uint32_t lane;
    muster_color_fn *color;
    void *data;
    struct muster_split_table *table; /* its own: data of the color; NULL: the program's */
};

struct muster_blob_buffer {
    uint8_t *bytes;
    size_t size, capacity;
};

/** Bytes of the state whose number may change: strategy_blob.c, strategy_blob_state.c. */
struct muster_strategy_blobs {
    struct muster_strategy_blob {
        size_t tensor; /* its place among the registered tensors, which shows `committed` */
        struct muster_blob_buffer committed, next;
        bool has_next; /* next is the value from commit on, or the giver's in a new job */
    } at[MUSTER_BLOBS_MAX];
    size_t count;
    struct muster_node_blob shown[MUSTER_BLOBS_MAX]; /* to the node */
    bool are_shown;
};

/** The question whether the program wants out of a call that waits: strategy_end.c. */
struct muster_strategy_interrupt {
    muster_strategy_interrupt_fn *is_interrupted; /* the program's, or NULL */
    void *data;
    struct muster_timer
        timer; /* started by a call that waits; it may fire in a later one, or in none */
    bool is_waiting;
};

struct muster_strategy {
    struct muster_env *env;
    struct muster_runtime *runtime;
    struct muster_node *node;
    struct muster_report *report;
    struct muster_expectation expectation;
    struct muster_failpoint failpoint;
    struct muster_local_registry local;      /* of a process that trains alone */
    struct muster_replica_place place;       /* its part in the cluster */
    struct muster_resolver *opened_resolver; /* the program's, or NULL */
    bool is_fixed_size;
    /* With a fixed size the first member that is gone; or an operation that was skipped. */
    struct muster_error loss;
    struct muster_error error;

    bool has_incarnation; /* the launcher's, until it is freed */
    enum muster_strategy_state state;
    struct muster_node_tensor *tensors;
    size_t tensor_count;
    size_t tensor_capacity;
    struct muster_tensor_names names;    /* theirs */
    struct muster_state_size state_size; /* of all of them */
    struct muster_strategy_device_memory memories[MUSTER_STRATEGY_MEMORIES_MAX];
    atomic_size_t memory_count; /* devices that are open; grows in the program's thread alone */
    struct muster_huge_memory
        piece_room; /* strategy_memory.c: pieces of them in the host's memory */
    struct muster_strategy_room rooms[MUSTER_STRATEGY_ROOMS];
    uint64_t device_timeout_ns; /* of a wait for a device; 0: the default */
    uint64_t unpinned_bytes;    /* of the smallest room that could not be pinned; 0: none */
    struct muster_strategy_blobs blobs;

    uint64_t step;           /* the one begun last */
    uint64_t committed_step; /* the highest */
    uint64_t last_step;      /* of the job, by muster_strategy_begin_until; 0: not known */
    uint64_t steps_lost;
    uint64_t next_step; /* valid when on_ready has come */
    enum muster_strategy_begin begin;
    uint64_t waiting_since_ns;

    bool is_torn; /* the tensors have values of several members: never given to others */
    uint64_t shared_bytes;
    uint64_t wait_logged_ns; /* of the begin that waits */

    bool has_worked; /* an operation was called since begin */

    /* checkpoints: strategy_checkpoint.c, strategy_saving.c, strategy_restore.c */
    struct muster_strategy_saving saving;
    struct muster_strategy_schedule schedule;
    struct muster_checkpoint_owner owner; /* of the schedule's folder */
    const char *awaited_folder,
        *awaited_job; /* that job has the folder; NULL: no folder is awaited */
    struct muster_strategy_named_folder named_folders[MUSTER_STRATEGY_NAMED_FOLDERS];
    uint32_t named_next;    /* the one that is replaced next */
    uint64_t updated_step;  /* the last one with update_begin; 0: none yet */
    char *restore_folder;   /* a new job begins from there; NULL: from its tensors */
    uint64_t restored_step; /* … and began after this step; 0: from its tensors */
    bool is_restore_begun;  /* the tensors may have parts of a checkpoint */

    uint32_t constant_batch; /* slots of a step, as the launcher says; 0: it says nothing */
    uint8_t *
        micro_slots; /* state: a byte for each slot of a step (micro_batches.c); NULL: not in micro-batches */
    bool is_micro_refused; /* the launcher has been told that options of micro-batches cannot be */

    struct muster_strategy_preemption preemption;

    /* the flight recorder: strategy_trace.c */
    struct muster_recorder *recorder; /* NULL: MUSTER_TRACE=off, or not open yet */
    bool is_always_traced;
    uint32_t traced_sequence; /* of the last operation that ended */

    /* the end: strategy_end.c */
    unsigned generation; /* of the process that opened it */
    struct muster_exit_hook exit_hook;
    struct muster_wake *exit_wake; /* another thread ends the process */
    struct muster_timer end_timer; /* looks whether the process takes itself down */
    enum muster_strategy_leave leave;
    /* LEFT, for a thread that is not in the seat: stored once by the loop when the leave is over,
     * loaded by the thread that ends the process. Sequentially consistent; nothing else is read. */
    atomic_bool is_over;

    uint64_t op_timeout_ns;
    struct muster_communication_options
        communication;    /* as asked for; the view's once there is one */
    bool is_reproducible; /* as asked for */
    void *stream;         /* of the program: comes before operations on the device */
    int nccl_ordinal;     /* of the device that the backend was opened on */
    struct muster_list_op list;
    struct muster_op ops[MUSTER_STRATEGY_OPS_MAX];
    size_t ops_started; /* of the running call, the first ones of ops */
    size_t ops_open;
    enum muster_rc ops_rc; /* the first failure of the call */
    const char *op_name;

    /* requests: strategy_request.c; struct open_request */
    struct muster_list requests; /* that have not ended */
    struct muster_list ended;    /* and have not been completed */
    struct muster_list deferred; /* that have not begun: their turn comes */
    size_t request_count;        /* of both */
    const struct muster_strategy_request_calls *request_calls; /* NULL: there was none */
    const struct muster_request *awaited;                      /* by the call that runs */

    struct muster_strategy_change change;
    struct muster_report_values progress, results;
    uint64_t progress_reported_ns;
    struct muster_activity activity;
    struct muster_strategy_interrupt interrupt;
    struct muster_timer activity_timer; /* when the launcher is told of it next */
    uint64_t epoch_reported;            /* of the last progress report */

    struct muster_strategy_split splits[MUSTER_SPLITS_MAX];
    uint32_t split_count;

    /* replicas: replicas.c and others */
    uint32_t replica_count, logical_device_count; /* of this member; of each replica */
    uint32_t first_replica, replicas_in_sync;     /* as of begin */
    struct muster_strategy_devices devices;
    struct muster_replicas_room replica_rooms[MUSTER_REPLICAS_ROOM_COUNT];
    struct muster_crew *crew;                     /* of the replicas; NULL: they have not run yet */
    void *replica_batches;                        /* copies of a step's records: replicas_data.c */

    /* the program's own copy */
    struct muster_view *view;        /* shares; by which they are counted */
    struct muster_view *view_before; /* shares; at the begin before; NULL: it was the first */
    uint32_t rank, size, joined;
    struct muster_op_result result; /* of the last call that delivered anything */
    bool has_result;                /* the running call has delivered something */
    bool has_started;               /* … has started something */
    uint64_t epoch;
};

static inline uint64_t muster_strategy_bytes_of(const struct muster_tensor *tensor)
{
    return tensor->count * muster_dtype_bytes(tensor->dtype);
}

/** The node's events; data is the strategy. */
extern const struct muster_node_events muster_strategy_node_events;

/** Wait in the driver's seat until is_done(strategy) or failure. Returns the strategy's error when it
 * failed. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_wait(struct muster_strategy *strategy,
                                                      bool (*is_done)(void *data));

/** Whether a call may be made now: by this thread, in this process. FAILED_PRECONDITION; muster_strategy_error
 * tells this thread why. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_check(struct muster_strategy *strategy,
                                                       const char *name);
/** The same, and takes the seat until leave. name is static text. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_enter(struct muster_strategy *strategy,
                                                       const char *name);
void muster_strategy_leave(struct muster_strategy *strategy);

/** Go to another state; the move must be one of the table in strategy_state.c. */
void muster_strategy_move(struct muster_strategy *strategy, enum muster_strategy_state to);
/** Go on in begin, by the table in strategy_state.c. */
void muster_strategy_move_begin(struct muster_strategy *strategy, enum muster_strategy_begin to);
/** STAYS to LEAVES, or LEAVES to LEFT. */
void muster_strategy_move_leave(struct muster_strategy *strategy, enum muster_strategy_leave to);
/** Fail for good with strategy->error: the others go on without this member. In the seat, or on the loop. */
void muster_strategy_fail(struct muster_strategy *strategy);

/** replica_count, logical_device_count and devices of the options, when the place of the process is known;
 * *replica_count is what the variables say, and becomes what holds. INVALID_ARGUMENT; of devices that are asked for
 * UNAVAILABLE, UNIMPLEMENTED. */
MUSTER_MUST_CHECK enum muster_rc muster_replicas_configure(
    struct muster_strategy *strategy, const struct muster_strategy_options *options,
    uint32_t *replica_count, struct muster_error *ret_error);

/** Open the devices that the program has asked for, before anybody counts on this member; those that it has not asked
 * for are opened when they are used. Errors: those of muster_device_memory_open, naming the device. */
MUSTER_MUST_CHECK enum muster_rc muster_devices_open(struct muster_strategy *strategy,
                                                     struct muster_error *ret_error);

/** The host memory of the calls of replicas. In the seat, or without a runtime. */
void muster_replicas_memory_free(struct muster_strategy *strategy);

/* Ends of this member between its calls. */
/** With a fixed size: members are gone with a new view. In the middle of a step, or in begin, this member ends at
 * once, and else in its next begin. */
void muster_strategy_note_loss(struct muster_strategy *strategy, const char *names,
                               const char *reason);
/** This member has committed `step` without an operation that others wait for: it ends likewise, of any size. On the
 * loop. */
void muster_strategy_note_skipped(struct muster_strategy *strategy, uint64_t step);
/** It is excluded, and gets another state. */
void muster_strategy_forget_skipped(struct muster_strategy *strategy);
/** FAILED from here on, if somebody is gone, or an operation was skipped. In the seat. */
void muster_strategy_apply_loss(struct muster_strategy *strategy);

/** The job was asked for steps in micro-batches, and this program has opened none: FAILED from here on. In the seat,
 * before the first step. FAILED_PRECONDITION. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_check_batch(struct muster_strategy *strategy);

/** This process is a member, and has the members' state. */
bool muster_strategy_is_member(const struct muster_strategy *strategy);

/** Tell the others, from now on, of an end of the process without close. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_watch_exit(struct muster_strategy *strategy);

/* The flight recorder. */
struct muster_strategy_call;
/** The ring, before anything is opened that uses it. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_open_trace(struct muster_strategy *strategy,
                                                            struct muster_error *ret_error);
/** Its file, as soon as the node is open. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_open_recorder(
    struct muster_strategy *strategy, const struct muster_node_options *node,
    struct muster_error *ret_error);
void muster_strategy_close_trace(struct muster_strategy *strategy);
/** Write the file: this strategy ends in an error. */
void muster_strategy_dump_trace(struct muster_strategy *strategy, const char *error);
void muster_strategy_trace_call(const struct muster_strategy *strategy,
                                const struct muster_strategy_call *call);
void muster_strategy_trace_result(const struct muster_strategy *strategy, enum muster_rc rc);
/** An operation has ended; id NULL: it has several. Before the activity counts it. */
void muster_strategy_trace_op(struct muster_strategy *strategy, const struct muster_op_id *id,
                              const struct muster_op_result *result);
void muster_strategy_trace_view(struct muster_strategy *strategy, const struct muster_view *view,
                                const struct muster_view *previous);
/** "adopt". Static. */
const char *muster_strategy_verdict_name(enum muster_verdict_kind kind);

/** Wait until is_done(data), also after failure; there may be no runtime yet. */
void muster_strategy_wait_until(struct muster_strategy *strategy, bool (*is_done)(void *data),
                                void *data);
/** For is_done: *data is a bool. */
bool muster_strategy_is_true(void *data);

/** Wait until no change of view is under way, or this process is no member any more. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_wait_view(struct muster_strategy *strategy);

/** Give every member of a new job the tensors of rank 0 (of the first that agrees with most, when
 * shapes differ). When the giver dies midway, all start over with those of a member whose own are
 * whole. In the seat. INVALID_ARGUMENT: this member has registered other tensors than most; the error
 * names the first. UNAVAILABLE: nobody's are whole any more. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_share_state(struct muster_strategy *strategy);

/** muster_strategy_broadcast in any state; name is for errors. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_broadcast_in_seat(
    struct muster_strategy *strategy, const char *name, const struct muster_tensor *tensors,
    size_t count, const struct muster_root *root);

/** The same on all members; otherwise as above. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_reduce_in_seat(
    struct muster_strategy *strategy, const char *name, const struct muster_tensor *tensor,
    enum muster_reduction reduction);

/** part r of output is member r's input; otherwise as above. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_gather_in_seat(
    struct muster_strategy *strategy, const char *name, const struct muster_tensor *input,
    const struct muster_tensor *output);

/** Tell the launcher of the last change of view, if it was not yet; op is the operation it
 * interrupted, ended, or NULL. */
void muster_strategy_tell_view(struct muster_strategy *strategy, const struct muster_op *op);

/** The program goes on to `state`. In the seat. */
void muster_strategy_move_activity(struct muster_strategy *strategy,
                                   enum muster_activity_state state);
/** Tell the launcher now and then what this member does and waits for. */
void muster_strategy_start_activity(struct muster_strategy *strategy);
void muster_strategy_stop_activity(struct muster_strategy *strategy);

/** An operation was delivered: the first one since a loss is told. */
void muster_strategy_tell_delivery(struct muster_strategy *strategy);

/** All splits on a group that has not inherited them. */
void muster_strategy_split_group(struct muster_strategy *strategy, struct muster_group *group);
/** The tables of all splits. No group has them any more. */
void muster_strategy_splits_free(struct muster_strategy *strategy);
/** member takes part in the step that has begun, and is in this one's group (NULL: of all). */
bool muster_strategy_takes_part(const struct muster_strategy *strategy,
                                const struct muster_strategy_split *split,
                                const struct muster_member *member);

/** Wait until no request is deferred: operations begin in the order of the calls. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_await_turn(struct muster_strategy *strategy);
/** Wait until no operation of a request is open. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_wait_requests(struct muster_strategy *strategy);
/** All requests that have ended are the program's again, but for their callbacks. In the seat. */
void muster_strategy_take_requests(struct muster_strategy *strategy, struct muster_list *completed);
/** Run these callbacks. Not in the seat. */
void muster_strategy_complete_requests(struct muster_list *completed);

/* Blobs. In the seat, but for the resize. */
/** Room for size bytes; what it held may be lost. False: there is no memory. Any thread. */
bool muster_blob_buffer_fits(struct muster_blob_buffer *buffer, size_t size);
/** The committed bytes of blob i have changed. */
void muster_strategy_blob_show(struct muster_strategy *strategy, size_t i);
/** Name tensors and blobs to the node. Errors: as muster_node_set_state. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_name_state(struct muster_strategy *strategy);
/** This tensor is the place of a blob. */
bool muster_strategy_is_blob(const struct muster_strategy *strategy, size_t tensor);
/** Register a tensor, or the place of a blob. has_blobs: the state has some. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_register_place(struct muster_strategy *strategy,
                                                                const char *name,
                                                                const struct muster_tensor *tensor,
                                                                bool has_blobs);
/** Values that were set since begin are forgotten, or committed. */
void muster_strategy_blobs_drop(struct muster_strategy *strategy);
void muster_strategy_blobs_commit(struct muster_strategy *strategy);
/** Give the root's blobs to all: they are the next commit's. Errors: as for a broadcast, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_blobs_give(struct muster_strategy *strategy,
                                                            bool is_giver,
                                                            const struct muster_root *root);
/** Those that came with the members' state are committed here. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_blobs_take(struct muster_strategy *strategy);
/** Room for a value of count bytes, in which the caller puts it; false: the tensor is not a blob's, or there is no
 * memory. Also in the thread that reads a checkpoint. */
bool muster_strategy_blob_resize(struct muster_strategy *strategy, size_t tensor, uint64_t count);
void muster_strategy_blobs_free(struct muster_strategy *strategy);

/** Keep rank, size and epoch as of now for the program. In the seat. */
void muster_strategy_snapshot(struct muster_strategy *strategy);

#endif
