/* A plan as steps: what one member sends, receives and adds for each chunk, as a list. Pure.
 *
 * The steps of one chunk run in the order of the list; chunks are independent of each other. A
 * message is known by its two ends, its chunk and its number, so it may arrive before its step is
 * due; messages of no elements are left out on both sides. Sending never waits for the receiver.
 *
 * Elements that a member sends in an all_reduce of N elements, n members (one chunk; split at cache
 * lines, so up to a line more or less for each message):
 *   direct        (n-1) N
 *   ring          2 (n-1)/n N
 *   halving       2 (m-1)/m N, m = the power of two <= n; of the first 2 (n-m) members the even
 *                 send N to the next and do nothing else, the odd send N more
 *   double_tree   N/2 up in each tree, N/2 down to each child: at most 2 N; the root N
 *   blocks        (n-1)/n N of inputs, (n-1)/n N of results
 *   two_level     L = members of the smallest host; others: N. Leader j < L of a host with l
 *                 members: (L-1)/L N, then halving of N/L among the hosts, then (l-1) N/L
 */
#ifndef MUSTER_COLLECTIVE_PLAN_STEPS_H
#define MUSTER_COLLECTIVE_PLAN_STEPS_H

#include "collective/plan/plan.h"

/** A member gets nothing of a larger operation before it has said that it has started it. */
#define MUSTER_STEPS_UNASKED_BYTES_MAX ((uint64_t)1 << 20)

enum muster_step_kind {
    MUSTER_STEP_SEND,        /* the range to peer */
    MUSTER_STEP_RECEIVE,     /* final values from peer */
    MUSTER_STEP_REDUCE,      /* from peer, reduced with the range */
    MUSTER_STEP_HOLD,        /* from peer, kept for the next REDUCE_HELD of the range */
    MUSTER_STEP_REDUCE_HELD, /* the held ones and the own input, in the order of the members */
    MUSTER_STEP_KEEP,        /* the own input, as it is */
    MUSTER_STEP_FINISH,      /* all have been reduced: divide for MEAN */
};

struct muster_step {
    uint64_t first, count; /* elements of the whole vector */
    uint32_t peer;         /* SEND, RECEIVE, REDUCE, HOLD */
    uint8_t kind;          /* enum muster_step_kind */
    uint8_t message;       /* number of the message among those of this chunk from one to one */
    bool is_from_input;    /* SEND, REDUCE: the own operand is the input, not what was made of it */
};

/** Enough room for the steps of any chunk. */
uint32_t muster_steps_max(const struct muster_plan *plan);

/** The steps of plan->index for chunk c; returns how many (it may be 0). topology is used by
 * TWO_LEVEL only and may be NULL otherwise. */
uint32_t muster_steps_make(const struct muster_plan *plan, const struct muster_topology *topology,
                           uint32_t c, struct muster_step *ret_steps);

#endif
