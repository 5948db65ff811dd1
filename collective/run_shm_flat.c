/* Small operations through boards: every input in a slot of its owner, everybody reduces all. */
#include "collective/shm_internal.h"
#include "collective/combine.h"

#include <string.h>

void muster_shm_reduce_all(struct muster_run *run, void *into, uint64_t count)
{
    const struct muster_shm_run *shm = run->shm;

    muster_combine_all(&run->call, into, shm->sources, shm->weights, shm->n, count);
}

static void reduce(struct muster_run *run, uint64_t first, uint64_t count)
{
    struct muster_shm_run *shm = run->shm;

    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = shm->participants[i].input + first * run->plan.element_bytes;
    muster_shm_reduce_all(run, run->call.output, count);
}

static void join(struct muster_run *run)
{
    size_t part = muster_shm_input_bytes(run);

    for (uint32_t i = 0; i < run->shm->n && part > 0; i++)
        memcpy((uint8_t *)run->call.output + i * part, run->shm->participants[i].input, part);
}

/* The own slot holds the input until the run is dropped. */
void muster_shm_flat_restore(struct muster_run *run)
{
    const struct muster_shm_run *shm = run->shm;
    size_t bytes = muster_shm_input_bytes(run);

    if (run->plan.algorithm == MUSTER_ALGORITHM_FLAT && run->call.input == run->call.output &&
        run->call.kind == MUSTER_OP_ALL_REDUCE && shm != NULL && shm->slot != NULL &&
        shm->is_announced && bytes > 0)
        memcpy(run->call.output, shm->slot, bytes);
}

/* False: a slot has been used again, by a member that has gone on without this one. */
bool muster_shm_flat_finish(struct muster_run *run)
{
    const struct muster_op_call *call = &run->call;
    struct muster_shm_run *shm = run->shm;

    muster_shm_point(run, "before flat");
    switch (call->kind) {
    case MUSTER_OP_BARRIER:
        break;
    case MUSTER_OP_ALL_REDUCE:
        if (call->count > 0)
            reduce(run, 0, call->count);
        break;
    case MUSTER_OP_REDUCE_SCATTER:
        if (call->part_count > 0)
            reduce(run, shm->index * call->part_count, call->part_count);
        break;
    case MUSTER_OP_ALL_GATHER:
        join(run);
        break;
    case MUSTER_OP_BROADCAST:
        if (shm->index != run->plan.root && call->count > 0)
            memcpy(call->output, shm->participants[run->plan.root].input,
                   muster_shm_input_bytes(run));
        break;
    default: /* muster_shm_has: no other comes here */
        break;
    }
    shm->is_blocked = !muster_shm_is_valid(run);
    return !shm->is_blocked;
}
