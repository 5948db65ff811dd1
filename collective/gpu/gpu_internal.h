/* Declarations that the files of the GPU backend share: the backend of one device, its state for
 * a group, and one operation. */
#ifndef MUSTER_COLLECTIVE_GPU_INTERNAL_H
#define MUSTER_COLLECTIVE_GPU_INTERNAL_H

#include <muster/gpu.h>

#include "collective/gpu/communicator.h"
#include "collective/gpu/setup.h"
#include "collective/gpu/slot.h"
#include "collective/group/group_internal.h"

#define MUSTER_GPU_OPS_MAX 1024u /* open at once, per group */

struct muster_gpu_group;

/** Each member says this when it starts an operation; all see all of them before it runs. */
struct muster_gpu_word {
    uint64_t broken;   /* the highest setup of this epoch that it knows to be broken */
    uint64_t is_fit;   /* commit: all its operations ended well; else: the shapes fit its view */
    uint64_t to, from; /* send_recv: index + 1 of a participant, 0: nobody */
    uint64_t to_bytes, from_bytes;
};

/** One operation, from start to done. The backend's memory, reused. */
struct muster_gpu_op {
    struct muster_list node;
    struct muster_gpu_group *group;
    struct muster_op *user;
    muster_op_fn *done;
    struct muster_op agreement;
    struct muster_op_id id;
    enum muster_device_kind kind;
    struct muster_nccl_work work; /* ranks: of the epoch in which it was agreed */
    struct muster_incarnation root;
    uint64_t whole_count; /* elements of the longer tensor, where the shape depends on members */
    uint64_t epoch;       /* in which it was started */
    struct muster_cuda_stream *stream; /* the user's */
    struct muster_cuda_event *order;   /* what the user's stream held at start */
    struct muster_cuda_event *finish;
    struct muster_gpu_slot *slot; /* from sealed to its end */
    bool is_sealed, is_seen_done;
    enum muster_rc abort_why;  /* cancel or deadline of its own */
    struct muster_error error; /* why it was aborted */
    struct muster_timer timer;
    struct muster_gpu_word word;
    struct muster_gpu_word *words; /* of all; kept for the next use */
    uint32_t words_count;
    uint32_t agreed_count; /* members that agree: words that count */
};

struct muster_gpu_backend {
    struct muster_backend base;
    struct muster_env *env;
    struct muster_gpu_device device;
    struct muster_gpu_options options;
    struct muster_gpu_counters counters;
    char name[160];
    struct muster_wake *wake; /* an operation has finished */
    struct muster_list groups;
    struct muster_list idle_ops;
    struct muster_timer slow; /* finds lost callbacks and errors */
    struct muster_task task;  /* the end of closing */
    uint32_t alloc_count;     /* requests for memory under way */
    uint32_t setup_count;     /* dropped ones, too */
    bool is_closing;
    muster_gpu_close_fn *on_closed;
    void *on_closed_data;
};

/** State of the backend for a group, across its epochs. */
struct muster_gpu_group {
    struct muster_group_part base;
    struct muster_list node;
    struct muster_gpu_backend *backend;
    struct muster_group *group;  /* NULL: closed; freed when nothing is open */
    struct muster_list held;     /* started while frozen */
    struct muster_list agreeing; /* the members have not all started it */
    struct muster_list queued;   /* agreed, no communicator yet */
    struct muster_list issued;   /* on the stream, in order */
    struct muster_list aborted;  /* operations that end as soon as nothing of theirs runs */
    struct muster_list done;     /* callbacks are due */
    uint32_t open_count;
    struct muster_task task;
    struct muster_gpu_op *issuing; /* not sealed yet; in `issued` */
    struct muster_gpu_communicator *comm;
    struct muster_gpu_setup *setup; /* under way, or NULL */
    struct muster_op_id alarm;      /* the last that has come: may be of the next attempt */
    bool has_alarm;
    uint64_t comm_from_step; /* the participants of comm are those of this step */
    uint64_t serial;         /* of setups in this epoch */
    uint64_t broken;
    bool is_frozen, is_ended, is_calling;
    bool is_failed; /* no setup of this epoch has come up: nothing runs in it */
    bool is_step_clean;
    struct muster_error error; /* of is_failed */
};

/* collective/gpu/backend.c */
struct muster_gpu_backend *muster_gpu_backend_of(struct muster_backend *backend);
/** The backend's state for group; made when there is none. NULL: no memory. */
struct muster_gpu_group *muster_gpu_group_of(struct muster_gpu_backend *backend,
                                             struct muster_group *group);
/** The end of closing may be due. */
void muster_gpu_backend_settle(struct muster_gpu_backend *backend);
/** Operations are on a stream: look at them from time to time. */
void muster_gpu_backend_watch(struct muster_gpu_backend *backend);

/* collective/gpu/op.c */
enum muster_rc muster_gpu_op_start(struct muster_backend *backend, struct muster_op *op,
                                   struct muster_group *group,
                                   const struct muster_device_call *call, muster_op_fn *done);
void muster_gpu_op_cancel(struct muster_backend *backend, struct muster_op *op);
void muster_gpu_op_free(struct muster_gpu_backend *backend, struct muster_gpu_op *op);
/** Its callback comes in a later turn; error text is copied. */
void muster_gpu_op_end(struct muster_gpu_op *op, const struct muster_error *why);
/** Begin the agreement with the other members. */
void muster_gpu_op_agree(struct muster_gpu_op *op);
/** "all_reduce #5" */
const char *muster_gpu_op_name(const struct muster_gpu_op *op, char *ret_text, size_t size);

/* collective/gpu/call.c */
/** The call makes sense for this backend (tensors, types, reduction); nothing of a group. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_call_check(const struct muster_gpu_backend *backend,
                                                       const struct muster_device_call *call,
                                                       struct muster_error *ret_error);
/** Fill op's work, root and shape from a checked call. INVALID_ARGUMENT: not in this group. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_call_take(struct muster_gpu_op *op,
                                                      const struct muster_group *group,
                                                      const struct muster_device_call *call,
                                                      struct muster_error *ret_error);
/** The words of `count` members fit together, for all but commit; else the error. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_words_check(const struct muster_gpu_word *words,
                                                        uint32_t count,
                                                        enum muster_device_kind kind,
                                                        struct muster_error *ret_error);

/* collective/gpu/group.c */
extern const struct muster_group_part_ops muster_gpu_group_ops;
extern const struct muster_gpu_communicator_events muster_gpu_group_comm_events;
/** Agreed: run it, or queue it for a communicator. */
void muster_gpu_group_enter(struct muster_gpu_group *group, struct muster_gpu_op *op,
                            uint64_t broken);
/** Issue what is queued, as far as it goes. */
void muster_gpu_group_pump(struct muster_gpu_group *group);
/** The communicator is of no use any more: what it runs ends with why (first: with its own reason),
 * the other members are told. */
void muster_gpu_group_break(struct muster_gpu_group *group, struct muster_gpu_op *first,
                            const struct muster_error *why);
/** Finished operations are handed back; `is_slow`: look at events too. True: some are left. */
bool muster_gpu_group_collect(struct muster_gpu_group *group, bool is_slow);
/** The setup has ended: comm is up (takes it), or why not (all members know). */
void muster_gpu_group_set_up(struct muster_gpu_group *group, struct muster_gpu_communicator *comm,
                             const struct muster_error *why);
/** Freed when it is closed and nothing is open. */
void muster_gpu_group_settle(struct muster_gpu_group *group);

#endif
