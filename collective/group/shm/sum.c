/* Sums of what the participants show, and where they go. chunks.c and takeover.c call these for the chunks of a
 * large all_reduce, exchange.c for its pieces; the arithmetic is collective/kernel's. The order in which a sum
 * may be made, held and placed is in docs/boards.md, "In place". */
#include "collective/group/shm/shm_internal.h"
#include "collective/kernel/combine.h"

#include <string.h>

/* The sources stand in rank order, the same for every member: whoever sums a chunk gets the same bits. */
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

    MUSTER_ASSERT(shm->slot != NULL && shm->ready_count == shm->n);
    /* The mark or count that has shown the slot's last sum becomes visible before the slot changes: a reader of
     * the slot that loads a new word of it sees that, too (take_held). */
    atomic_thread_fence(memory_order_release);
    muster_shm_point(run, "before sum");
    for (uint32_t i = 0; i < shm->n; i++)
        shm->sources[i] = shm->participants[i].input + muster_shm_chunk_offset(run, c);
    muster_shm_reduce_all(run, shm->slot, muster_plan_chunk(&run->plan, c).count);
    muster_shm_point(run, "summed");
    /* A participant that was dropped meanwhile may have changed its input under the sum. */
    return muster_shm_is_valid(run);
}

void muster_shm_hold_chunk(struct muster_run *run, uint32_t c)
{
    muster_shm_point(run, "before hold");
    atomic_store_explicit(&muster_shm_of(run)->entry->held, c + 1, memory_order_release);
    /* A release store orders only what comes before it. The stores to the place of the input come after: an heir
     * that loads one of them must see `held`. */
    atomic_thread_fence(memory_order_release);
    muster_shm_point(run, "hold");
}

void muster_shm_place_chunk(struct muster_run *run, uint32_t c, const uint8_t *from)
{
    struct muster_shm_run *shm = run->executor;
    size_t bytes;
    uint8_t *output = muster_run_chunk_at(run, c, &bytes);

    shm->is_begun = true;
    if (shm->stage.at != NULL) /* The others read the input there, and look for the sum in the same place. */
        memcpy((uint8_t *)shm->stage.at + muster_shm_chunk_offset(run, c), from, bytes);
    memcpy(output, from, bytes);
    run->result.sent_bytes += bytes;
}
