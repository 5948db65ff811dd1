/* Small operations through boards: every input in a slot of its owner, everybody takes its result
 * from all. */
#include "collective/group/shm/shm_internal.h"
#include "collective/kernel/combine.h"

#include <string.h>

void muster_shm_reduce_all(struct muster_run *run, void *into, uint64_t count)
{
    const struct muster_shm_run *shm = run->executor;

    muster_combine_all(&run->call, into, shm->sources, shm->weights, shm->n, count);
}

/* The own slot holds the input until the run is dropped. */
void muster_shm_flat_restore(struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;
    bool is_in_place = run->call.kind == MUSTER_OP_ALL_REDUCE || run->call.kind == MUSTER_OP_REDUCE;
    size_t bytes = muster_shm_input_bytes(run);

    if (run->plan.algorithm == MUSTER_ALGORITHM_FLAT && is_in_place && shm->slot != NULL &&
        shm->is_announced && bytes > 0)
        memcpy(run->call.output, shm->slot, bytes);
}

/* False: a slot has been used again, by a member that has gone on without this one. */
bool muster_shm_flat_finish(struct muster_run *run)
{
    struct muster_shm_run *shm = run->executor;

    muster_shm_point(run, "before flat");
    muster_shm_exchange_finish(run);
    shm->is_blocked = !muster_shm_is_valid(run);
    return !shm->is_blocked;
}
