/* State catch-up of a joiner: fetches a committed state in chunks from several members at once,
 * each chunk checked by its hash. Before its admission it fetches in the same way what the members do not change. */
#ifndef MUSTER_CLUSTER_CATCH_UP_H
#define MUSTER_CLUSTER_CATCH_UP_H

#include "cluster/node/state_manifest.h"
#include "net/link/peer_link.h"

struct muster_catch_up;
typedef void muster_catch_up_fn(struct muster_catch_up *catch_up, enum muster_rc rc);

struct muster_catch_up_options {
    struct muster_env *env;
    struct muster_state_chunks *chunks; /* borrowed; the state is written into its tensors */
    const struct muster_view *view;     /* borrowed during start: its members are the sources */
    struct muster_peer_hello hello;     /* job and own incarnation */
    struct muster_board *board;         /* borrowed; peers whose memory can be read; or NULL */
    uint64_t
        step; /* the state wanted: from_step - 1; MUSTER_STATE_STABLE: what is there, ahead of the admission */
    bool
        is_first; /* with MUSTER_STATE_STABLE: do not wait for the hashes of what can be fetched anyway */
    uint64_t deadline_ns; /* absolute loop time */
};

/** One catch-up. Caller's memory until done. */
struct muster_catch_up {
    void *data;
    /* valid in done */
    struct muster_error error;
    uint64_t bytes_fetched; /* chunks that were equal already are not fetched */
    uint64_t bytes_read;    /* of them, in memory of members on this host */
    uint32_t sources;       /* members that sent a manifest */
    /* The state's, from env->mem: done takes them. NULL ahead of the admission, and after an error. */
    struct muster_node_blob *blobs;
    size_t blob_count;
    /* private */
    muster_catch_up_fn *done;
    void *impl;
};

/**
 * Make the tensors of `chunks` state `step` of the members of view. Every member is asked: those
 * that take part in it (from_step <= step) must have it and must agree; another joiner may have
 * got it already. A link that breaks is opened again until a view says that the member is gone
 * (muster_catch_up_follow) or the deadline has passed.
 *
 * Ahead of the admission nobody must agree, and done comes when the sources that have answered have sent what they
 * have, be it nothing: INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED and CANCELLED are the only errors then.
 *
 * Owns:    borrows catch_up and the tensors' memory until done.
 * Errors:  returned RESOURCE_EXHAUSTED; by done INVALID_ARGUMENT (the members registered other
 * tensors; names the first that differs), DATA_LOSS (members disagree about the state, or send
 * other bytes than they announced; names them), UNAVAILABLE (no member is left that has it, or
 * they went on without this one), DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, CANCELLED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_catch_up_start(
    struct muster_catch_up *catch_up, const struct muster_catch_up_options *options,
    muster_catch_up_fn *done);
/** A later view: a source that is not a member of it is not asked any more. Borrows view during the call. */
void muster_catch_up_follow(struct muster_catch_up *catch_up, const struct muster_view *view);
/** done still comes, with CANCELLED unless it was on its way. */
void muster_catch_up_cancel(struct muster_catch_up *catch_up);

#endif
