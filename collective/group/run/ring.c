/* The ring (Patarasuk and Yuan 2009): partial sums go to each chunk's owner, final values onwards, all chunks in flight
 * at once. Each member sends to the next and receives from the one before, so every link carries the same. The
 * part that each member has in a chunk is the plan's (collective/plan). */
#include "collective/group/run/executor.h"
#include "collective/kernel/combine.h"
#include "collective/wire/buffer_pool.h"

#include <muster/base.h>

#include <string.h>

/* Received partial sums that have not gone on: at most so many are in the air (collective/README.md,
 * "Flow control"). */
#define STAGED_CHUNKS_MAX 32u

/* The window of partial sums, by the chunks that this member begins. */
struct ring_run {
    uint32_t start_next;   /* next chunk of plan.start_block to send */
    uint32_t start_final;  /* of them, known to be final */
    bool has_next_started; /* the next member takes final values */
};

static uint8_t *input_at(const struct muster_run *run, const struct muster_plan_chunk *chunk)
{
    uintptr_t at = (uintptr_t)run->call.input + chunk->first * run->plan.element_bytes;

    return (uint8_t *)at;
}

static size_t bytes_of(const struct muster_run *run, const struct muster_plan_chunk *chunk)
{
    return chunk->count * run->plan.element_bytes;
}

static void send_partial(struct muster_run *run, uint32_t c, uint64_t weight, const void *partial,
                         size_t bytes, void *buffer)
{
    const struct muster_run_frame frame = {
        .type = MUSTER_FRAME_REDUCE,
        .participant = run->plan.next,
        .chunk = c,
        .offset = weight,
        .payload = partial,
        .bytes = (uint32_t)bytes,
        .buffer = buffer,
    };

    muster_run_send_frame(run, &frame);
}

/* Begin as many partial sums as the window allows. They leave from the tensor: its chunk is
 * overwritten only by the final value, which cannot come before this partial sum has arrived at the
 * next member. */
static void send_partials(struct muster_run *run)
{
    const struct muster_plan *plan = &run->plan;
    struct ring_run *ring = run->executor;

    if (!plan->has_reduction || plan->start_block >= plan->block_count)
        return;
    while (ring->start_next < plan->chunks_per_block &&
           ring->start_next < ring->start_final + plan->window) {
        uint32_t c = plan->start_block * plan->chunks_per_block + ring->start_next++;
        struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);

        send_partial(run, c, run->call.weight, input_at(run, &chunk), bytes_of(run, &chunk), NULL);
    }
}

/* Pass on the final value of c, when the next member is ready for it. */
static void forward_chunk(struct muster_run *run, uint32_t c)
{
    const struct ring_run *ring = run->executor;
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, c);
    size_t bytes;
    const void *at = muster_run_chunk_at(run, c, &bytes);

    switch (chunk.gather) {
    case MUSTER_GATHER_ALONE:
        muster_run_send(run, MUSTER_FRAME_GATHER, run->plan.next, c, NULL, 0, NULL);
        break;
    case MUSTER_GATHER_SOURCE:
    case MUSTER_GATHER_PASS:
        if (!run->plan.is_next_asked || ring->has_next_started)
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
    struct ring_run *ring = run->executor;

    if (c / run->plan.chunks_per_block != run->plan.start_block)
        return;
    ring->start_final++;
    MUSTER_ASSERT(ring->start_final <= run->plan.chunks_per_block);
    send_partials(run);
}

static bool is_finished(const struct muster_run *run)
{
    return !muster_run_awaits_root(run) && run->final_count == muster_plan_wanted_count(&run->plan);
}

static enum muster_run_outcome become_final(struct muster_run *run, uint32_t c)
{
    muster_run_mark_final(run, c);
    forward_chunk(run, c);
    note_start_block(run, c);
    return is_finished(run) && run->state == MUSTER_RUN_ACTIVE ? MUSTER_RUN_HAS_RESULT
                                                               : MUSTER_RUN_GOES_ON;
}

/* Chunks that this member holds before anything has arrived. */
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
        muster_run_mark_final(run, c);
    }
}

static enum muster_run_outcome ring_start(struct muster_run *run)
{
    hold_own(run);
    /* A reduce says START only so that members which mean different roots find it out. */
    if (run->plan.is_next_asked || run->plan.kind == MUSTER_OP_REDUCE)
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
    send_partials(run);
    return is_finished(run) ? MUSTER_RUN_HAS_RESULT : MUSTER_RUN_GOES_ON;
}

static enum muster_run_outcome ring_hear_start(struct muster_run *run, uint32_t participant,
                                               const struct muster_frame_header *header)
{
    struct ring_run *ring = run->executor;

    (void)header;
    if (participant != run->plan.next || run->state > MUSTER_RUN_COMPLETE ||
        ring->has_next_started || muster_run_is_adopting(run) || !run->plan.is_next_asked)
        return MUSTER_RUN_GOES_ON;
    ring->has_next_started = true;
    for (uint32_t c = 0; c < run->plan.chunk_count; c++)
        if ((run->chunks[c] & MUSTER_CHUNK_FINAL) != 0)
            forward_chunk(run, c);
    return MUSTER_RUN_GOES_ON;
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

/* The sum replaces the input, which then stands where the partial sum was: the undo copy. */
static bool is_swapped(const struct muster_run *run, const struct muster_plan_chunk *chunk)
{
    return chunk->reduce == MUSTER_REDUCE_FINISH &&
           (run->plan.kind == MUSTER_OP_ALL_REDUCE || run->plan.kind == MUSTER_OP_REDUCE);
}

static enum muster_run_outcome ring_receive(struct muster_run *run, uint32_t participant,
                                            const struct muster_frame_header *header,
                                            struct muster_receiving *receiving, void **ret_place)
{
    struct muster_plan_chunk chunk;
    size_t bytes;

    if (participant != run->plan.prev || muster_run_is_adopting(run) ||
        header->chunk >= run->plan.chunk_count)
        return MUSTER_RUN_UNEXPECTED;
    chunk = muster_plan_chunk(&run->plan, header->chunk);
    if (!is_expected(run, header, &chunk))
        return MUSTER_RUN_UNEXPECTED;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->chunk = header->chunk;
    receiving->weight = header->offset;
    if (header->type == MUSTER_FRAME_REDUCE) {
        receiving->buffer = muster_run_buffer(run, bytes_of(run, &chunk));
        *ret_place = receiving->buffer;
        return receiving->buffer != NULL ? MUSTER_RUN_GOES_ON : MUSTER_RUN_NO_MEMORY;
    }
    if (!muster_run_save_undo(run, header->chunk))
        return MUSTER_RUN_NO_MEMORY;
    *ret_place = muster_run_chunk_at(run, header->chunk, &bytes);
    return MUSTER_RUN_GOES_ON;
}

/* Add the own input to bytes [used, end) of the partial sum; at the owner that makes them final. It runs while the
 * rest of the chunk comes in, so that summing and receiving overlap. */
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

static void ring_progress(struct muster_run *run, struct muster_receiving *receiving,
                          size_t bytes_done)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, receiving->chunk);

    if (receiving->type == MUSTER_FRAME_REDUCE)
        add_input(run, &chunk, receiving, bytes_done - bytes_done % run->plan.element_bytes);
}

static enum muster_run_outcome partial_received(struct muster_run *run,
                                                struct muster_receiving *receiving)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, receiving->chunk);
    uint64_t weight = receiving->weight + run->call.weight;
    uint8_t *partial = receiving->buffer;
    uint32_t c = receiving->chunk;

    MUSTER_ASSERT((run->chunks[c] & MUSTER_CHUNK_REDUCED) == 0);
    add_input(run, &chunk, receiving, bytes_of(run, &chunk));
    run->chunks[c] |= MUSTER_CHUNK_REDUCED;
    receiving->buffer = NULL;
    if (chunk.reduce == MUSTER_REDUCE_PASS) {
        send_partial(run, c, weight, partial, bytes_of(run, &chunk), partial);
        return MUSTER_RUN_GOES_ON;
    }
    run->result.total_weight = weight;
    if (is_swapped(run, &chunk))
        run->undo[c] = partial;
    else
        muster_buffer_unref(partial);
    return become_final(run, c);
}

static enum muster_run_outcome ring_received(struct muster_run *run, uint32_t participant,
                                             struct muster_receiving *receiving)
{
    uint32_t c = receiving->chunk;

    (void)participant;
    if (receiving->type == MUSTER_FRAME_REDUCE)
        return partial_received(run, receiving);
    run->chunks[c] |= MUSTER_CHUNK_TOLD;
    run->result.total_weight = receiving->weight;
    if (muster_plan_chunk(&run->plan, c).gather != MUSTER_GATHER_HEAR)
        return become_final(run, c);
    note_start_block(run, c);
    return MUSTER_RUN_GOES_ON;
}

/* A chunk that came in half has changed the tensor: the swapped input goes back up to `used`, or the undo copy. */
static void ring_abandon(struct muster_run *run, struct muster_receiving *receiving)
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

static bool ring_is_in_place(const struct muster_run *run)
{
    (void)run;
    return true;
}

/* Inputs that final values have replaced. */
static void ring_restore(struct muster_run *run)
{
    for (uint32_t c = 0; c < run->plan.chunk_count; c++) {
        size_t bytes;
        void *at = muster_run_chunk_at(run, c, &bytes);

        if (run->undo[c] == NULL)
            continue;
        memcpy(at, run->undo[c], bytes);
        muster_buffer_unref(run->undo[c]);
        run->undo[c] = NULL;
    }
}

static size_t ring_state_bytes(const struct muster_plan *plan)
{
    (void)plan;
    return sizeof(struct ring_run);
}

/* --- Cost --- */

static uint32_t ring_cost(const struct muster_run *run)
{
    (void)run;
    return MUSTER_RING_COST;
}

static uint64_t ring_sent_bytes(const struct muster_plan *plan)
{
    uint64_t elements = 0;

    for (uint32_t c = 0; c < plan->chunk_count; c++) {
        struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);

        if (chunk.reduce == MUSTER_REDUCE_START || chunk.reduce == MUSTER_REDUCE_PASS)
            elements += chunk.count;
        if (chunk.gather == MUSTER_GATHER_SOURCE || chunk.gather == MUSTER_GATHER_PASS)
            elements += chunk.count;
    }
    return elements * plan->element_bytes;
}

/* Partial sums that have gone on and are not known to have arrived. */
static uint64_t untold_chunks(const struct muster_plan *plan)
{
    uint64_t most = 1 + MUSTER_LINK_UNTOLD_BYTES / (plan->chunk_elements * plan->element_bytes + 1);
    uint64_t passed = 0;

    for (uint32_t c = 0; c < plan->chunk_count; c++)
        passed += muster_plan_chunk(plan, c).reduce == MUSTER_REDUCE_PASS;
    return passed < most ? passed : most;
}

static uint64_t ring_memory_bytes(const struct muster_plan *plan)
{
    bool has_undo = plan->kind == MUSTER_OP_ALL_REDUCE || plan->kind == MUSTER_OP_REDUCE;
    uint64_t staged = plan->chunk_count < STAGED_CHUNKS_MAX ? plan->chunk_count : STAGED_CHUNKS_MAX;
    uint64_t chunks = (has_undo ? plan->chunk_count : 0) +
                      (plan->has_reduction ? staged + untold_chunks(plan) : 0);

    return chunks * muster_buffer_bytes(plan->chunk_elements * plan->element_bytes);
}

static struct muster_op_cost ring_plan_cost(const struct muster_plan *plan,
                                            const struct muster_topology *topology)
{
    (void)topology;
    return (struct muster_op_cost){.sent_bytes = ring_sent_bytes(plan),
                                   .memory_bytes = ring_memory_bytes(plan)};
}

const struct muster_executor_ops muster_ring_executor = {
    .name = "ring",
    .frames = 1u << MUSTER_FRAME_REDUCE | 1u << MUSTER_FRAME_GATHER,
    .cost = ring_cost,
    .state_bytes = ring_state_bytes,
    .plan_cost = ring_plan_cost,
    .start = ring_start,
    .receive = ring_receive,
    .progress = ring_progress,
    .received = ring_received,
    .abandon = ring_abandon,
    .hear_start = ring_hear_start,
    .is_in_place = ring_is_in_place,
    .restore = ring_restore,
};
