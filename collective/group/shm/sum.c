/* Sums of what the participants show, and where they go. */
#include "collective/group/shm/shm_internal.h"
#include "collective/kernel/combine.h"

#include <string.h>

void muster_shm_reduce_all(struct muster_run *run, void *into, uint64_t count)
{
    const struct muster_shm_run *shm = run->executor;

    muster_combine_all(&run->call, into, shm->sources, shm->weights, shm->n, count);
}

size_t muster_shm_chunk_offset(const struct muster_run *run, uint32_t c)
{
    return muster_plan_chunk(&run->plan, c).first * run->plan.element_bytes;
}

bool muster_shm_reduce_chunk(struct muster_run *run, uint32_t c)
{
    struct muster_shm_run *shm = run->executor;

    atomic_thread_fence(memory_order_release); /* what the slot held has been shown */
    muster_shm_point(run, "before sum");
    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = shm->participants[i].input + muster_shm_chunk_offset(run, c);
    muster_shm_reduce_all(run, shm->slot, muster_plan_chunk(&run->plan, c).count);
    muster_shm_point(run, "summed");
    return muster_shm_is_valid(run);
}

void muster_shm_hold_chunk(struct muster_run *run, uint32_t c)
{
    muster_shm_point(run, "before hold");
    atomic_store_explicit(&muster_shm_of(run)->entry->held, c + 1, memory_order_release);
    atomic_thread_fence(memory_order_release); /* before the next stores, too */
    muster_shm_point(run, "hold");
}

void muster_shm_place_chunk(struct muster_run *run, uint32_t c, const uint8_t *from)
{
    struct muster_shm_run *shm = run->executor;
    size_t bytes;
    uint8_t *output = muster_run_chunk_at(run, c, &bytes);

    shm->is_begun = true;
    if (shm->stage.at != NULL)
        memcpy((uint8_t *)shm->stage.at + muster_shm_chunk_offset(run, c), from, bytes);
    memcpy(output, from, bytes);
    run->result.sent_bytes += bytes;
}
