/* A walk through a box of chips on which neighbours in the walk are neighbours in the box. */
#ifndef MUSTER_RESOLVERS_TPU_RING_H
#define MUSTER_RESOLVERS_TPU_RING_H

#include <stdint.h>

struct muster_tpu_ring_place {
    int32_t at[3]; /* x, y, z */
};

/**
 * Place number `index` of the ring through a box of sizes[0] x sizes[1] x sizes[2] chips.
 *
 * Every place comes exactly once, the first is (0, 0, 0). With even sizes it is a ring: the last is
 * a neighbour of the first. A box with an odd size above 1 is walked line by line, one dimension
 * alone from end to end.
 */
struct muster_tpu_ring_place muster_tpu_ring_place(const int32_t sizes[3], uint32_t index);

#endif
