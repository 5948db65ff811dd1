/* The ring: partial sums to each chunk's owner, final values onwards, all chunks in flight at once.
 */
#include "collective/group/group_internal.h"
#include "collective/kernel/combine.h"

#include <assert.h>
#include <string.h>

static uint8_t *input_at(const struct muster_run *run, const struct muster_plan_chunk *chunk)
{
    uintptr_t at = (uintptr_t)run->call.input + chunk->first * run->plan.element_bytes;

    return (uint8_t *)at;
}

static size_t bytes_of(const struct muster_run *run, const struct muster_plan_chunk *chunk)
{
    return chunk->count * run->plan.element_bytes;
}

/* Begin as many partial sums as the window allows. They leave from the tensor: its chunk is
 * overwritten only by the final value, which cannot come before this partial sum has arrived at the
 * next member. */
static void pump(struct muster_run *run)
{
    const struct muster_plan *plan = &run->plan;

    if (!plan->has_reduction || plan->start_block >= plan->block_count)
        return;
    while (run->start_next < plan->chunks_per_block &&
           run->start_next < run->start_final + plan->window) {
        uint32_t c = plan->start_block * plan->chunks_per_block + run->start_next++;
        struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);

        run->frame_weight = run->call.weight;
        muster_run_send(run, MUSTER_FRAME_REDUCE, plan->next, c, input_at(run, &chunk),
                        (uint32_t)bytes_of(run, &chunk), NULL);
    }
}

void muster_ring_mark_final(struct muster_run *run, uint32_t c)
{
    assert((run->chunks[c] & MUSTER_CHUNK_FINAL) == 0);
    run->chunks[c] |= MUSTER_CHUNK_FINAL;
    if (muster_plan_is_wanted(&run->plan, c))
        run->final_count++;
}

/* Pass on the final value of c, when the next member is ready for it. */
static void forward(struct muster_run *run, uint32_t c)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, c);
    size_t bytes;
    const void *at = muster_run_chunk_at(run, c, &bytes);

    switch (chunk.gather) {
    case MUSTER_GATHER_ALONE:
        muster_run_send(run, MUSTER_FRAME_GATHER, run->plan.next, c, NULL, 0, NULL);
        break;
    case MUSTER_GATHER_SOURCE:
    case MUSTER_GATHER_PASS:
        if (!run->plan.is_next_asked || run->has_next_started)
            muster_run_send(run, MUSTER_FRAME_GATHER, run->plan.next, c, at, (uint32_t)bytes, NULL);
        break;
    case MUSTER_GATHER_NONE:
    case MUSTER_GATHER_LAST:
    case MUSTER_GATHER_HEAR:
        break;
    }
}

static void note_start_block(struct muster_run *run, uint32_t c)
{
    if (c / run->plan.chunks_per_block != run->plan.start_block)
        return;
    run->start_final++;
    pump(run);
}

static bool is_finished(const struct muster_run *run)
{
    return !muster_run_awaits_root(run) && run->final_count == muster_plan_wanted_count(&run->plan);
}

static void become_final(struct muster_run *run, uint32_t c)
{
    muster_ring_mark_final(run, c);
    forward(run, c);
    note_start_block(run, c);
    if (is_finished(run) && run->state == MUSTER_RUN_ACTIVE)
        muster_run_complete(run);
}

/* What this member holds before anything has arrived. */
static void hold_own(struct muster_run *run)
{
    const struct muster_plan *plan = &run->plan;

    for (uint32_t c = 0; c < plan->chunk_count; c++) {
        struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);
        size_t bytes, part_offset;
        uint8_t *at;

        if (chunk.reduce != MUSTER_REDUCE_NONE || chunk.gather != MUSTER_GATHER_SOURCE)
            continue;
        at = muster_run_chunk_at(run, c, &bytes);
        part_offset =
            (chunk.first - muster_plan_block_first(plan, chunk.block)) * plan->element_bytes;
        if (plan->kind != MUSTER_OP_BROADCAST && bytes > 0 &&
            at != (const uint8_t *)run->call.input + part_offset)
            memcpy(at, (const uint8_t *)run->call.input + part_offset, bytes);
        muster_ring_mark_final(run, c);
    }
}

void muster_ring_start(struct muster_run *run)
{
    hold_own(run);
    /* a reduce says so only that members which mean different roots find it out */
    if (run->plan.is_next_asked || run->plan.kind == MUSTER_OP_REDUCE)
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
    pump(run);
    if (is_finished(run))
        muster_run_complete(run);
}

void muster_ring_hear_start(struct muster_run *run)
{
    if (run->has_next_started || run->is_adopting || !run->plan.is_next_asked)
        return;
    run->has_next_started = true;
    for (uint32_t c = 0; c < run->plan.chunk_count; c++)
        if ((run->chunks[c] & MUSTER_CHUNK_FINAL) != 0)
            forward(run, c);
}

/* --- Receiving --- */

static bool is_expected(const struct muster_run *run, const struct muster_frame_header *header,
                        const struct muster_plan_chunk *chunk)
{
    uint8_t state = run->chunks[header->chunk];

    if (header->type == MUSTER_FRAME_REDUCE)
        return (chunk->reduce == MUSTER_REDUCE_PASS || chunk->reduce == MUSTER_REDUCE_FINISH) &&
               (state & MUSTER_CHUNK_REDUCED) == 0 && header->payload_bytes == bytes_of(run, chunk);
    if ((state & MUSTER_CHUNK_TOLD) != 0)
        return false;
    if (chunk->gather == MUSTER_GATHER_HEAR)
        return header->payload_bytes == 0;
    return (chunk->gather == MUSTER_GATHER_PASS || chunk->gather == MUSTER_GATHER_LAST) &&
           header->payload_bytes == bytes_of(run, chunk);
}

static void *receive_partial(struct muster_run *run, const struct muster_plan_chunk *chunk,
                             struct muster_receiving *receiving)
{
    receiving->buffer = muster_buffer_get(run->group->pool, bytes_of(run, chunk));
    if (receiving->buffer == NULL)
        receiving->mode = MUSTER_RECEIVE_SHORT;
    return receiving->buffer;
}

/* The sum replaces the input, which then stands where the partial sum was: the undo copy. */
static bool is_swapped(const struct muster_run *run, const struct muster_plan_chunk *chunk)
{
    return chunk->reduce == MUSTER_REDUCE_FINISH &&
           (run->plan.kind == MUSTER_OP_ALL_REDUCE || run->plan.kind == MUSTER_OP_REDUCE);
}

void *muster_ring_receive(struct muster_run *run, const struct muster_frame_header *header,
                          struct muster_receiving *receiving)
{
    struct muster_plan_chunk chunk;
    size_t bytes;

    if (run->plan.algorithm != MUSTER_ALGORITHM_RING || run->is_adopting ||
        header->chunk >= run->plan.chunk_count)
        return NULL;
    chunk = muster_plan_chunk(&run->plan, header->chunk);
    if (!is_expected(run, header, &chunk))
        return NULL;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->run = run;
    receiving->type = header->type;
    receiving->chunk = header->chunk;
    receiving->weight = header->offset;
    if (header->type == MUSTER_FRAME_REDUCE)
        return receive_partial(run, &chunk, receiving);
    if (!muster_run_save_undo(run, header->chunk)) {
        receiving->mode = MUSTER_RECEIVE_SHORT;
        return NULL;
    }
    return muster_run_chunk_at(run, header->chunk, &bytes);
}

/* Add the own input to bytes [used, end) of the partial sum; at the owner that makes them final. */
static void add_input(struct muster_run *run, const struct muster_plan_chunk *chunk,
                      struct muster_receiving *receiving, size_t end)
{
    const struct muster_op_call *call = &run->call;
    size_t from = receiving->used, bytes = end - from, whole;
    size_t count = bytes / run->plan.element_bytes;
    uint8_t *partial = receiving->buffer + from;
    struct muster_operand own = {input_at(run, chunk) + from, call->weight};
    struct muster_operand sum = {partial, receiving->weight};
    uint8_t *output;

    receiving->used = end;
    if (chunk->reduce == MUSTER_REDUCE_PASS) {
        muster_combine(call, sum, own, count);
        return;
    }
    output = (uint8_t *)muster_run_chunk_at(run, receiving->chunk, &whole) + from;
    if (is_swapped(run, chunk)) {
        muster_combine_swap(call, (struct muster_operand){output, call->weight}, sum, count);
    } else {
        memcpy(output, partial, bytes);
        muster_combine(call, (struct muster_operand){output, receiving->weight}, own, count);
    }
    muster_combine_finish(call, output, run->plan.n, count);
}

void muster_ring_progress(struct muster_run *run, struct muster_receiving *receiving,
                          size_t bytes_done)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, receiving->chunk);

    if (receiving->type == MUSTER_FRAME_REDUCE)
        add_input(run, &chunk, receiving, bytes_done - bytes_done % run->plan.element_bytes);
}

static void finish_partial(struct muster_run *run, struct muster_receiving *receiving)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, receiving->chunk);
    uint8_t *partial = receiving->buffer;
    uint32_t c = receiving->chunk;

    add_input(run, &chunk, receiving, bytes_of(run, &chunk));
    run->chunks[c] |= MUSTER_CHUNK_REDUCED;
    receiving->buffer = NULL;
    run->frame_weight = receiving->weight + run->call.weight;
    if (chunk.reduce == MUSTER_REDUCE_PASS) {
        muster_run_send(run, MUSTER_FRAME_REDUCE, run->plan.next, c, partial,
                        (uint32_t)bytes_of(run, &chunk), partial);
        return;
    }
    run->result.total_weight = run->frame_weight;
    if (is_swapped(run, &chunk))
        run->undo[c] = partial;
    else
        muster_buffer_unref(partial);
    become_final(run, c);
}

void muster_ring_finish(struct muster_run *run, struct muster_receiving *receiving)
{
    uint32_t c = receiving->chunk;

    if (receiving->type == MUSTER_FRAME_REDUCE) {
        finish_partial(run, receiving);
        return;
    }
    run->chunks[c] |= MUSTER_CHUNK_TOLD;
    run->result.total_weight = receiving->weight;
    if (muster_plan_chunk(&run->plan, c).gather == MUSTER_GATHER_HEAR)
        note_start_block(run, c);
    else
        become_final(run, c);
}

void muster_ring_abandon(struct muster_run *run, struct muster_receiving *receiving)
{
    uint32_t c = receiving->chunk;
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, c);
    size_t bytes;
    uint8_t *at = muster_run_chunk_at(run, c, &bytes);

    if (receiving->type == MUSTER_FRAME_REDUCE) {
        if (is_swapped(run, &chunk) && receiving->used > 0)
            memcpy(at, receiving->buffer, receiving->used);
    } else if (run->undo[c] != NULL) {
        memcpy(at, run->undo[c], bytes);
        muster_buffer_unref(run->undo[c]);
        run->undo[c] = NULL;
    }
    muster_buffer_unref(receiving->buffer);
    receiving->buffer = NULL;
}
