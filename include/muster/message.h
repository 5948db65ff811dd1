/* Messages: a tensor from one member to another. */
#ifndef MUSTER_MESSAGE_H
#define MUSTER_MESSAGE_H

#include <muster/base.h>
#include <muster/collective.h>

MUSTER_BEGIN

/**
 * Send `tensor` to the member with rank `to` in the group's view, exactly once: done comes with OK
 * when that member has the whole of it in the tensor of its muster_receive_start.
 *
 * The k-th send of a lane to a member goes to that member's k-th receive from this one in that lane,
 * in whatever order they are started and complete; messages do not stand in line with collective
 * operations, and both may send first. op->id counts them per lane, other member and direction. A
 * change of view that leaves both in, in the middle of it, delays a message only.
 *
 * Shape:   contiguous; count and dtype equal on both sides. A count of 0 is valid.
 * Units:   op->deadline_ns is loop time, absolute.
 * Owns:    borrows op and the tensor's memory until done.
 * Errors:  returned INVALID_ARGUMENT (no such rank, or this one's own; a bad tensor),
 *          FAILED_PRECONDITION (group closed), RESOURCE_EXHAUSTED; by done ABORTED (the other
 *          member has gone, or has given it up: the text says which), INVALID_ARGUMENT (count or
 *          dtype differ: on both sides, naming both), DEADLINE_EXCEEDED, CANCELLED,
 *          RESOURCE_EXHAUSTED. After the other's death, a deadline or a cancel without an answer
 *          within the grace period it may have been received nevertheless. Sent tensors do not
 *          change; a received one may be partly written after anything but OK.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_send_start(struct muster_op *op,
                                                              struct muster_group *group,
                                                              const struct muster_tensor *tensor,
                                                              uint32_t to, muster_op_fn *done);

/** The other end of muster_send_start; the same rules. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_receive_start(struct muster_op *op,
                                                                 struct muster_group *group,
                                                                 const struct muster_tensor *tensor,
                                                                 uint32_t from, muster_op_fn *done);

MUSTER_END

#endif
