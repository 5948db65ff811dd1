/* Operations between the processes of one host: each shows its inputs and what it has computed on
 * its board (board.h); nobody writes another's memory. */
#ifndef MUSTER_COLLECTIVE_SHM_H
#define MUSTER_COLLECTIVE_SHM_H

#include "collective/board/board.h"
#include "collective/plan/plan.h"
#include "collective/plan/shm_limits.h"
#include "collective/wire/wire.h"

struct muster_group;

/** A copy of an input, for memory that the others do not map. */
struct muster_shm_stage {
    void *at; /* NULL: none */
    size_t bytes;
};

/** The operations of this epoch go through boards. */
bool muster_shm_is_used(const struct muster_group *group);

#endif
