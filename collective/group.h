/* Groups as the cluster layer drives them: open for a view, freeze, hand over to the next epoch. */
#ifndef MUSTER_COLLECTIVE_GROUP_H
#define MUSTER_COLLECTIVE_GROUP_H

#include <muster/collective.h>

#include "collective/progress.h"
#include "net/peer_link.h"

struct muster_wire;

/** Told on the loop; `data` of the options. */
struct muster_group_events {
    /* A link to this rank is gone: a suspicion, not a verdict. */
    void (*on_suspect)(void *data, const struct muster_incarnation *peer,
                       const struct muster_error *error);
    /* Deadline or cancel of an operation: ask the leader for ABORTED. */
    void (*on_abort_proposed)(void *data, const struct muster_op_id *op, enum muster_rc why);
    /* A frame of a higher epoch came from peer: ask it for that view. The link stays paused until the next
     * group opens. */
    void (*on_higher_epoch)(void *data, const struct muster_incarnation *peer, uint64_t epoch);
};

struct muster_group_options {
    struct muster_env *env;
    struct muster_view *view; /* shares */
    struct muster_incarnation self;
    struct muster_wire *wire; /* borrowed; serves one group at a time, survives epochs */
    const struct muster_group_events *events;
    void *data;
};

/** A group for options->view. Members whose from_step is later than an operation's step take no part in it. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_group_open(const struct muster_group_options *options,
                                                   struct muster_group **ret_group);

/** Operations started from now on belong to `step` (rises only). */
void muster_group_begin_step(struct muster_group *group, uint64_t step);
void muster_group_commit_step(struct muster_group *group, uint64_t step);

/** Stop: no operation completes, no byte of an operation changes, nothing of this epoch is sent after this returns. New
 *  operations may be started; they wait for the next epoch. Idempotent. ret_progress: gives, muster_progress_fini. */
MUSTER_MUST_CHECK enum muster_rc muster_group_freeze(struct muster_group *group,
                                                     struct muster_progress *ret_progress);

/** Apply the verdicts of next's view to the open operations of the frozen group: ADOPT fetches what is missing and
 *  completes, RETRY restores inputs and runs again on next, ABORTED restores and completes. All open operations
 *  move to next. Then `group` is empty and can be closed. */
void muster_group_hand_over(struct muster_group *group, struct muster_group *next);

/** Every open operation ends with rc (`why` is copied into op->error). For the excluded and the leaving. */
void muster_group_abort_all(struct muster_group *group, const struct muster_error *why);

/** The group must have no open operation. */
void muster_group_close(struct muster_group *group);

/** The wire: links to peers over which frames of collectives travel. One per process; groups come and go. */
struct muster_wire_events {
    void (*on_link_down)(void *data, const struct muster_incarnation *peer,
                         const struct muster_error *error);
};
struct muster_wire_options {
    struct muster_env *env;
    struct muster_peer_hello hello; /* job, incarnation; purpose is set inside */
    uint32_t send_buffer_bytes;     /* 0: 4 MiB */
    uint32_t receive_buffer_bytes;  /* 0: 4 MiB */
};
MUSTER_MUST_CHECK enum muster_rc muster_wire_tcp_open(const struct muster_wire_options *options,
                                                      struct muster_wire **ret_wire);
/** An accepted DATA link (after on_ready). Takes link. Of two members the one with the smaller incarnation connects. */
void muster_wire_accept(struct muster_wire *wire, struct muster_peer_link *link);
void muster_wire_close(struct muster_wire *wire);

#endif
