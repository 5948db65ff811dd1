/* Control messages between members, as plain values and as bytes (proto/membership.proto, message
 * Control). */
#ifndef MUSTER_CLUSTER_CONTROL_PROTO_H
#define MUSTER_CLUSTER_CONTROL_PROTO_H

#include <muster/view.h>

#include "collective/view/progress.h"

enum muster_control_kind {
    MUSTER_CONTROL_FREEZE = 1,
    MUSTER_CONTROL_PROGRESS,
    MUSTER_CONTROL_COMMIT,
    MUSTER_CONTROL_VIEW_REQUEST,
    MUSTER_CONTROL_JOIN,
    MUSTER_CONTROL_LEAVE,
    MUSTER_CONTROL_ABORT_PROPOSE,
    MUSTER_CONTROL_HEARTBEAT,
    MUSTER_CONTROL_SUSPECT,
};

enum muster_heartbeat_state {
    MUSTER_HEARTBEAT_IDLE,
    MUSTER_HEARTBEAT_BUSY,
    MUSTER_HEARTBEAT_BLOCKED,
    MUSTER_HEARTBEAT_WAITING, /* for waiting_rank */
};

#define MUSTER_CONTROL_TEXT_BYTES 128

/** Fields beyond `kind` count as the comment of each says. */
struct muster_control {
    enum muster_control_kind kind;
    uint64_t epoch;                       /* all but progress and commit: the sender's view */
    uint64_t change_id;                   /* freeze, progress */
    struct muster_progress *progress;     /* progress */
    struct muster_view *view;             /* commit */
    uint64_t revision;                    /* commit: mod_revision of the key, 0 = not known */
    struct muster_member member;          /* join */
    uint64_t committed_step;              /* join, leave */
    bool is_ready;                        /* join */
    bool is_resigning;                    /* leave, progress: this epoch is left, not the job */
    bool is_done;                         /* leave: the sender's work is done */
    uint32_t done_calls;                  /* leave: in committed_step, + 1; 0: not known */
    bool is_confirmed;                    /* suspect: its death was seen, or the sender quits */
    bool is_silence;                      /* suspect: it is not heard */
    struct muster_op_id op;               /* abort_propose, heartbeat */
    enum muster_rc reason;                /* abort_propose */
    uint64_t view_digest;                 /* heartbeat; 0 = no view */
    uint64_t progress_count;              /* heartbeat */
    enum muster_heartbeat_state state;    /* heartbeat */
    uint32_t waiting_rank;                /* heartbeat */
    struct muster_incarnation accused;    /* suspect */
    char text[MUSTER_CONTROL_TEXT_BYTES]; /* suspect */
};

/** Borrows control. Gives *ret_bytes. */
MUSTER_MUST_CHECK enum muster_rc muster_control_pack(const struct muster_control *control,
                                                     struct muster_mem *mem, void **ret_bytes,
                                                     size_t *ret_size);
/** Gives what *ret_control points to: muster_control_fini. Errors: INVALID_ARGUMENT,
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_control_unpack(struct muster_mem *mem, const void *bytes,
                                                       size_t size,
                                                       struct muster_control *ret_control);
void muster_control_fini(struct muster_control *control);

#endif
