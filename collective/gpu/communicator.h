/* One communicator of NCCL on one device, from its making to its end, without blocking the loop. */
#ifndef MUSTER_COLLECTIVE_GPU_COMMUNICATOR_H
#define MUSTER_COLLECTIVE_GPU_COMMUNICATOR_H

#include "collective/gpu/cuda_driver.h"
#include "collective/gpu/control.h"
#include "collective/gpu/nccl_library.h"

/* name, text */
#define MUSTER_GPU_STATE_MAP(X)                                                                    \
    X(NONE, "none")                                                                                \
    X(INITIALISING, "initialising") /* init, shrink or grow, until it is up */                     \
    X(READY, "ready")                                                                              \
    X(ISSUING, "issuing")       /* the last operation is not quite on its stream */                \
    X(FAILED, "failed")         /* an error: only abort is left */                                 \
    X(REVOKING, "revoking")     /* work in flight is being stopped */                              \
    X(REVOKED, "revoked")       /* quiet: may be the parent of another one */                      \
    X(FINALISING, "finalising") /* an orderly end, all members together … */                     \
    X(DESTROYING, "destroying") /* … and its last call */                                        \
    X(ABORTING, "aborting")                                                                        \
    X(ABANDONED, "abandoned") /* a call has not returned in time: left to itself */                \
    X(GONE, "gone")

enum muster_gpu_state {
#define X(name, text) MUSTER_GPU_##name,
    MUSTER_GPU_STATE_MAP(X)
#undef X
        MUSTER_GPU_STATE_COUNT
};

struct muster_gpu_communicator;

/** Told on the loop; from within a call of the owner's only when `start_` fails, or `stop` ends, at
 * once. The owner may release comm in there. */
struct muster_gpu_communicator_events {
    /* READY after INITIALISING, or after ISSUING. */
    void (*on_ready)(struct muster_gpu_communicator *comm);
    /* FAILED: comm->error. The owner aborts it. */
    void (*on_failed)(struct muster_gpu_communicator *comm);
    /* Nothing of it runs any more (REVOKED, GONE), or that cannot be had (ABANDONED). */
    void (*on_stopped)(struct muster_gpu_communicator *comm);
};

/** State that all communicators of a device share. */
struct muster_gpu_device {
    struct muster_env *env;
    struct muster_cuda *cuda;
    struct muster_nccl *nccl;
    struct muster_gpu_control *control;
    uint64_t init_timeout_ns, abort_timeout_ns;
    struct muster_list communicators; /* all that are not gone */
    uint64_t abandoned_count, reclaimed_count;
    /* Tests: sees every move. May be NULL. */
    void (*on_move)(enum muster_gpu_state from, enum muster_gpu_state to);
    void (*on_gone)(struct muster_gpu_device *device); /* a communicator's memory is gone */
};

struct muster_gpu_communicator {
    void *data; /* the owner's */
    struct muster_list node;
    struct muster_gpu_device *device;
    const struct muster_gpu_communicator_events *events; /* NULL: nobody waits for it any more */
    enum muster_gpu_state state;
    struct muster_error error;
    uint64_t key;         /* the same on all its members, never twice */
    uint32_t count, rank; /* of its members */
    struct muster_cuda_stream *stream;
    /* private */
    /* Lock-free. Writer: the library, by plain stores on the thread of the request, or on one of its own while the
     * parent makes this one; the loop, when it is gone. Reader: the loop, with acquire
     * (muster_gpu_communicator_handle). Before the request's answer it is only asked whether it is there yet, and
     * how it stands; from the answer on, the control's mutex orders it. */
    struct muster_nccl_comm *nccl;
    /* Shrink, grow: until the parent has done it, the library says only of the parent how it
     * stands, and writes `nccl` at its end. The two know each other for so long. */
    struct muster_gpu_communicator *parent, *child;
    struct muster_nccl_comm *parent_nccl; /* for the thread */
    struct muster_nccl_id id;
    bool has_id, is_shrinking, is_growing;
    bool is_call_pending; /* of the request's call, when it has returned */
    bool is_abort_wanted; /* as soon as the call has returned, or the parent has ended */
    bool was_abandoned;
    bool is_lent; /* a call of the owner's uses it: its end waits for that */
    int *excluded;
    uint32_t excluded_count;
    char name[32];
    struct muster_gpu_request request;
    struct muster_error answer; /* written on the thread */
    struct muster_timer timer;  /* polls, and gives up */
    uint64_t poll_ns, give_up_ns;
};

/** Allowed by the table of moves? */
bool muster_gpu_move_is_allowed(enum muster_gpu_state from, enum muster_gpu_state to);
const char *muster_gpu_state_name(enum muster_gpu_state state);

struct muster_gpu_communicator_options {
    struct muster_gpu_device *device;
    const struct muster_gpu_communicator_events *events;
    void *data;
    uint64_t key;
    uint32_t count, rank;
};
/** State NONE. Gives; muster_gpu_communicator_release. RESOURCE_EXHAUSTED, or the device's error. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_communicator_new(
    const struct muster_gpu_communicator_options *options,
    struct muster_gpu_communicator **ret_comm, struct muster_error *ret_error);

/* NONE -> INITIALISING; an error comes as on_failed. */
void muster_gpu_communicator_start_init(struct muster_gpu_communicator *comm,
                                        const struct muster_nccl_id *id);
/** excluded: ranks of parent; copied. parent is quiet (READY or REVOKED) and not used otherwise until
 * this one is READY or FAILED; released before, it is aborted, and this one with it. */
void muster_gpu_communicator_start_shrink(struct muster_gpu_communicator *comm,
                                          struct muster_gpu_communicator *parent,
                                          const uint32_t *excluded, uint32_t excluded_count);
/** parent NULL: this member is new. id NULL: an old member that did not make it. */
void muster_gpu_communicator_start_grow(struct muster_gpu_communicator *comm,
                                        struct muster_gpu_communicator *parent,
                                        const struct muster_nccl_id *id);

/** READY -> READY (on its stream now) or ISSUING (on_ready follows). An error: FAILED, without
 * on_failed. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_communicator_issue(struct muster_gpu_communicator *comm,
                                                               const struct muster_nccl_work *work,
                                                               struct muster_error *ret_error);
/** Look for an error that came on its own. READY only; may move to FAILED (on_failed). */
void muster_gpu_communicator_look(struct muster_gpu_communicator *comm);
/** Something of its owner's has found out: READY or ISSUING -> FAILED, without on_failed. */
void muster_gpu_communicator_fail(struct muster_gpu_communicator *comm,
                                  const struct muster_error *why);

/** Stop all work in flight: on_stopped follows. Calls that do not wait for others are made at once:
 * stop all communicators of a device before waiting for any. Idempotent. */
void muster_gpu_communicator_stop(struct muster_gpu_communicator *comm);
/** Its work is at an end (REVOKED, GONE, ABANDONED), or it has none to stop. */
bool muster_gpu_communicator_is_stopped(const struct muster_gpu_communicator *comm);
/** READY or REVOKED. */
bool muster_gpu_communicator_is_quiet(const struct muster_gpu_communicator *comm);
/** Quiet, and nothing else uses it: it may be shrunk, or grown. NULL may not. */
bool muster_gpu_communicator_can_be_parent(const struct muster_gpu_communicator *comm);
/** The library's, for a call on the control thread: until it is taken back, no end of it begins. It must be able to
 * be a parent. */
struct muster_nccl_comm *muster_gpu_communicator_lend(struct muster_gpu_communicator *comm);
/** The call has returned, or nobody waits for it any more; comm may be gone afterwards. */
void muster_gpu_communicator_take_back(struct muster_gpu_communicator *comm);

/** The owner needs it no more: it ends in the background (READY and is_orderly: all members finalise
 * it together; else it is aborted), then its memory goes. NULL is accepted. */
void muster_gpu_communicator_release(struct muster_gpu_communicator *comm, bool is_orderly);

#endif
