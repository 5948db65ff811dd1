/* Declarations that the files of a communicator share. */
#ifndef MUSTER_COLLECTIVE_GPU_COMMUNICATOR_INTERNAL_H
#define MUSTER_COLLECTIVE_GPU_COMMUNICATOR_INTERNAL_H

#include "collective/gpu/communicator.h"

/** The only way from state to state: asserts the table of moves, and traces. */
void muster_gpu_communicator_move(struct muster_gpu_communicator *comm, enum muster_gpu_state to);
/** FAILED, and on_failed; when nobody waits for it, its end. */
void muster_gpu_communicator_fail_and_tell(struct muster_gpu_communicator *comm,
                                           const struct muster_error *why);
/** Towards GONE, on a thread of its own; when a call of its own, or of a child, has returned. */
void muster_gpu_communicator_abort(struct muster_gpu_communicator *comm);
/** The orderly end, after it was finalised. */
void muster_gpu_communicator_destroy(struct muster_gpu_communicator *comm);
/** Belongs to a communicator that is gone; a stream of one that was given up may be stuck for
 * ever: it stays. */
void muster_gpu_communicator_free(struct muster_gpu_communicator *comm);
void muster_gpu_communicator_tell_stopped(struct muster_gpu_communicator *comm);
/** The library's, or NULL: it writes it on a thread of its own while it makes a child. */
struct muster_nccl_comm *muster_gpu_communicator_handle(const struct muster_gpu_communicator *comm);
/** Look until it is no longer pending, at most so long. */
void muster_gpu_communicator_begin_poll(struct muster_gpu_communicator *comm, uint64_t timeout_ns);
void muster_gpu_communicator_on_timer(struct muster_timer *timer);
/** The two know each other no longer. */
void muster_gpu_communicator_leave_parent(struct muster_gpu_communicator *comm);
/** Fill in the request. */
void muster_gpu_communicator_prepare(struct muster_gpu_communicator *comm,
                                     muster_gpu_request_fn *work, muster_gpu_request_fn *on_answer);

#endif
