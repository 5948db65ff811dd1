/* ADOPT: the operation completes with what some survivor already holds. hand_over.c and the lane call it when the
 * view says so; the verdict names a source for each chunk, and receive.c brings the answers. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

/* The library's memory for the whole result, taken with the first chunk that is fetched. NULL: no memory. */
static uint8_t *direct_memory(struct muster_run *run)
{
    size_t bytes = run->call.count * run->plan.element_bytes;

    if (run->finished == NULL)
        run->finished = muster_buffer_get(run->group->pool, bytes);
    return run->finished;
}

/* The result grows in the caller's memory, not in the library's. */
static bool is_in_place(const struct muster_run *run)
{
    return run->ops->is_in_place != NULL && run->ops->is_in_place(run);
}

/* Where chunk c is kept, and its size. NULL: no memory. */
static uint8_t *chunk_memory(struct muster_run *run, uint32_t c, size_t *ret_bytes)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, c);
    uint8_t *memory;

    if (is_in_place(run))
        return muster_run_chunk_at(run, c, ret_bytes);
    *ret_bytes = run->call.kind == MUSTER_OP_BARRIER ? 0 : chunk.count * run->plan.element_bytes;
    memory = direct_memory(run);
    return memory != NULL ? memory + chunk.first * run->plan.element_bytes : NULL;
}

/* Wanted here, not here, and asked of nobody: a chunk is asked of one source only, so it comes once. */
static bool is_missing(const struct muster_run *run, uint32_t c)
{
    return (run->chunks[c] & (MUSTER_CHUNK_FINAL | MUSTER_CHUNK_ASKED)) == 0 &&
           muster_plan_is_wanted(&run->plan, c);
}

static void fetch_chunks(struct muster_run *run, uint32_t rank, uint32_t first, uint32_t count)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_FETCH,
        .epoch = run->group->view->epoch,
        .op = run->id,
        .chunk = first,
        .phase = count,
        .descriptor = run->descriptor,
    };

    muster_wire_send(run->group->wire, rank, &header, NULL, NULL);
}

/* Ask the source for the missing chunks among its own, as runs. */
static void fetch_from(struct muster_run *run, const struct muster_chunk_source *source)
{
    uint64_t end = (uint64_t)source->first + source->count;
    uint32_t c = source->first;

    if (source->rank == run->group->rank || source->rank >= run->group->view->member_count)
        return;
    while (c < end && c < run->plan.chunk_count) {
        uint32_t first = c;

        while (c < end && c < run->plan.chunk_count && is_missing(run, c))
            run->chunks[c++] |= MUSTER_CHUNK_ASKED;
        if (c > first)
            fetch_chunks(run, source->rank, first, c - first);
        else
            c++;
    }
}

static enum muster_run_outcome outcome_of(const struct muster_run *run)
{
    bool is_whole =
        run->state == MUSTER_RUN_ACTIVE && run->final_count == muster_plan_wanted_count(&run->plan);

    return is_whole ? MUSTER_RUN_HAS_RESULT : MUSTER_RUN_GOES_ON;
}

enum muster_run_outcome muster_run_adopt(struct muster_run *run,
                                         const struct muster_verdict *verdict)
{
    if (!muster_run_is_shared(run) && !muster_run_take_memory(run))
        return MUSTER_RUN_NO_MEMORY;
    muster_run_set_mode(run, MUSTER_RUN_ADOPTING);
    if (muster_run_is_shared(run))
        return run->ops->shared->adopt(run);
    run->heard[run->self_index] = MUSTER_HEARD_ISSUED;
    if (run->state >= MUSTER_RUN_COMPLETE) {
        muster_run_send_all(run, MUSTER_FRAME_COMPLETE);
        return MUSTER_RUN_HAD_RESULT;
    }
    muster_run_move_to(run, MUSTER_RUN_ACTIVE);
    if (run->result.contributor_count == 0)
        run->result.contributor_count = run->plan.n;
    for (uint32_t c = 0; c < run->plan.chunk_count; c++)
        run->chunks[c] &= (uint8_t)~MUSTER_CHUNK_ASKED;
    for (uint32_t i = 0; i < verdict->source_count; i++)
        fetch_from(run, &verdict->sources[i]);
    return outcome_of(run);
}

void muster_repair_serve(struct muster_run *run, uint32_t participant, uint32_t first,
                         uint32_t count)
{
    uint64_t end = (uint64_t)first + count;

    if (run->ops == NULL || muster_run_is_shared(run) ||
        (is_in_place(run) && run->state == MUSTER_RUN_DELIVERED))
        return; /* the memory is the caller's again; a member that asks breaks the protocol */
    for (uint64_t c = first; c < end && c < run->plan.chunk_count; c++) {
        size_t bytes;
        uint8_t *at;
        void *buffer = NULL;

        if ((run->chunks[c] & MUSTER_CHUNK_FINAL) == 0)
            continue;
        at = chunk_memory(run, (uint32_t)c, &bytes);
        if (run->finished != NULL)
            buffer = muster_buffer_ref(run->finished);
        muster_run_send(run, MUSTER_FRAME_CHUNK, participant, (uint32_t)c, at, (uint32_t)bytes,
                        buffer);
    }
}

enum muster_run_outcome muster_repair_receive(struct muster_run *run,
                                              const struct muster_frame_header *header,
                                              struct muster_receiving *receiving, void **ret_place)
{
    uint32_t c = header->chunk;
    uint8_t *place;
    size_t bytes;

    if (muster_run_is_shared(run) || !muster_run_is_adopting(run) || c >= run->plan.chunk_count ||
        (run->chunks[c] & MUSTER_CHUNK_ASKED) == 0 || (run->chunks[c] & MUSTER_CHUNK_FINAL) != 0)
        return MUSTER_RUN_UNEXPECTED;
    place = chunk_memory(run, c, &bytes);
    if (header->payload_bytes != bytes)
        return MUSTER_RUN_UNEXPECTED;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->chunk = c;
    receiving->weight = header->offset;
    if (place == NULL || !muster_run_save_undo(run, c))
        return MUSTER_RUN_NO_MEMORY;
    *ret_place = place;
    return MUSTER_RUN_GOES_ON;
}

enum muster_run_outcome muster_repair_received(struct muster_run *run,
                                               struct muster_receiving *receiving)
{
    MUSTER_ASSERT(muster_run_is_adopting(run));
    if ((run->chunks[receiving->chunk] & MUSTER_CHUNK_FINAL) != 0)
        return MUSTER_RUN_GOES_ON; /* another member has sent it meanwhile, unasked */
    run->result.total_weight = receiving->weight;
    muster_run_mark_final(run, receiving->chunk);
    return outcome_of(run);
}
