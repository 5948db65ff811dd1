/* Direct exchange for tiny operations: every input everywhere, everybody reduces all in rank order.
 */
#include "collective/group/group_internal.h"
#include "collective/kernel/combine.h"

#include <string.h>

static bool is_giver(const struct muster_run *run, uint32_t participant)
{
    return run->plan.kind != MUSTER_OP_BROADCAST || participant == run->plan.root;
}

static uint32_t giver_count(const struct muster_run *run)
{
    return run->plan.kind == MUSTER_OP_BROADCAST ? 1 : run->plan.n;
}

/* Who needs the inputs to make the result. */
static bool is_taker(const struct muster_run *run, uint32_t participant)
{
    return run->plan.kind != MUSTER_OP_REDUCE || participant == run->plan.root;
}

static size_t input_bytes(const struct muster_run *run, uint32_t participant)
{
    const uint64_t *offsets = run->call.offsets;
    uint64_t count = run->call.count;

    if (run->call.kind == MUSTER_OP_ALL_GATHER)
        count = run->call.part_count;
    else if (run->call.kind == MUSTER_OP_ALL_GATHER_UNEVEN)
        count = offsets[participant + 1] - offsets[participant];
    return run->call.kind == MUSTER_OP_BARRIER ? 0 : count * run->plan.element_bytes;
}

static size_t result_bytes(const struct muster_run *run)
{
    return run->call.kind == MUSTER_OP_BARRIER ? 0 : run->call.count * run->plan.element_bytes;
}

static bool reduce_inputs(struct muster_run *run)
{
    const struct muster_op_call *call = &run->call;

    run->finished = muster_buffer_get(run->group->pool, result_bytes(run));
    if (run->finished == NULL)
        return false;
    muster_combine_all(call, run->finished, (const void *const *)run->inputs, run->weights,
                       run->plan.n, call->count);
    return true;
}

static bool join_inputs(struct muster_run *run)
{
    uint8_t *at = muster_buffer_get(run->group->pool, result_bytes(run));

    run->finished = at;
    if (run->finished == NULL)
        return false;
    for (uint32_t i = 0; i < run->plan.n; i++) {
        size_t part = input_bytes(run, i);

        if (part > 0)
            memcpy(at, run->inputs[i], part);
        at += part;
    }
    return true;
}

/* False: no memory. */
static bool make_result(struct muster_run *run)
{
    if (result_bytes(run) == 0)
        return true;
    switch (run->call.kind) {
    case MUSTER_OP_ALL_REDUCE:
    case MUSTER_OP_REDUCE_SCATTER:
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
    case MUSTER_OP_REDUCE:
        return reduce_inputs(run);
    case MUSTER_OP_ALL_GATHER:
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return join_inputs(run);
    case MUSTER_OP_BROADCAST:
        run->finished = muster_buffer_ref(run->inputs[run->plan.root]);
        return true;
    case MUSTER_OP_BARRIER:
        return true;
    case MUSTER_OP_GATHER:
    case MUSTER_OP_SCATTER:
    case MUSTER_OP_ALL_TO_ALL:
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
    case MUSTER_OP_PERMUTE:
        break; /* exchanges */
    }
    return false;
}

/* False: no memory. */
static bool take_weight(struct muster_run *run, uint32_t participant, uint64_t weight)
{
    size_t bytes = run->plan.n * sizeof(*run->weights);

    if (!run->call.is_weighted)
        return true;
    if (run->weights == NULL)
        run->weights = muster_buffer_get(run->group->pool, bytes);
    if (run->weights == NULL)
        return false;
    run->weights[participant] = weight;
    run->result.total_weight += weight;
    return true;
}

static void take_input(struct muster_run *run, uint32_t participant, void *buffer, uint64_t weight)
{
    run->inputs[participant] = buffer;
    if (!take_weight(run, participant, weight)) {
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return;
    }
    run->heard[participant] |= MUSTER_HEARD_INPUT;
    if (++run->input_count < giver_count(run))
        return;
    if (!make_result(run)) {
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return;
    }
    run->chunks[0] |= MUSTER_CHUNK_FINAL;
    run->final_count = 1;
    muster_run_complete(run);
}

/* Alone, of whatever size: the input is the result. */
static void start_alone(struct muster_run *run)
{
    if (run->call.output != run->call.input && result_bytes(run) > 0)
        memmove(run->call.output, run->call.input, result_bytes(run));
    run->result.total_weight = run->call.weight;
    if (run->call.is_weighted && run->call.weight == 0 && result_bytes(run) > 0)
        memset(run->call.output, 0, result_bytes(run));
    run->chunks[0] |= MUSTER_CHUNK_FINAL;
    run->final_count = 1;
    muster_run_complete(run);
}

static void send_input(struct muster_run *run, void *buffer)
{
    size_t bytes = input_bytes(run, run->plan.index);

    for (uint32_t i = 0; i < run->plan.n; i++)
        if (i != run->plan.index && is_taker(run, i))
            muster_run_send(run, MUSTER_FRAME_INPUT, i, 0, buffer, (uint32_t)bytes,
                            buffer != NULL ? muster_buffer_ref(buffer) : NULL);
}

void muster_direct_start(struct muster_run *run)
{
    size_t bytes = input_bytes(run, run->plan.index);
    void *buffer = NULL;

    if (run->plan.n == 1) {
        start_alone(run);
        return;
    }
    if (!is_giver(run, run->plan.index)) {
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
        return;
    }
    if (bytes > 0) {
        buffer = muster_buffer_get(run->group->pool, bytes);
        if (buffer == NULL) {
            muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
            return;
        }
        memcpy(buffer, run->call.input, bytes);
    }
    run->frame_weight = run->call.weight;
    send_input(run, buffer);
    if (run->plan.kind == MUSTER_OP_REDUCE) /* so that who means another root finds it out */
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
    if (is_taker(run, run->plan.index))
        take_input(run, run->plan.index, buffer, run->call.weight);
    else
        muster_buffer_unref(buffer);
}

void *muster_direct_receive(struct muster_run *run, uint32_t participant,
                            const struct muster_frame_header *header,
                            struct muster_receiving *receiving)
{
    if (run->plan.algorithm != MUSTER_ALGORITHM_DIRECT || run->is_adopting ||
        !is_giver(run, participant) || !is_taker(run, run->plan.index) ||
        header->payload_bytes != input_bytes(run, participant) ||
        (run->heard[participant] & MUSTER_HEARD_INPUT) != 0)
        return NULL;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->run = run;
    receiving->type = header->type;
    receiving->chunk = 0;
    receiving->weight = header->offset;
    if (header->payload_bytes == 0)
        return NULL;
    receiving->buffer = muster_buffer_get(run->group->pool, header->payload_bytes);
    if (receiving->buffer == NULL)
        receiving->mode = MUSTER_RECEIVE_SHORT;
    return receiving->buffer;
}

void muster_direct_finish(struct muster_run *run, uint32_t participant,
                          struct muster_receiving *receiving)
{
    void *buffer = receiving->buffer;

    receiving->buffer = NULL;
    take_input(run, participant, buffer, receiving->weight);
}

void muster_direct_deliver(struct muster_run *run)
{
    const uint8_t *from = run->finished;
    size_t bytes = result_bytes(run);

    if (from == NULL || bytes == 0)
        return;
    if (run->call.kind == MUSTER_OP_REDUCE_SCATTER) {
        bytes = run->call.part_count * run->plan.element_bytes;
        from += run->plan.index * bytes;
    } else if (run->call.kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN) {
        const uint64_t *offsets = run->call.offsets + run->plan.index;

        bytes = (offsets[1] - offsets[0]) * run->plan.element_bytes;
        from += offsets[0] * run->plan.element_bytes;
    }
    if (run->call.kind != MUSTER_OP_BROADCAST || run->plan.index != run->plan.root ||
        run->is_adopting)
        memcpy(run->call.output, from, bytes);
}
