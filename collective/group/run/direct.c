/* Direct exchange for tiny operations: every input goes everywhere, everybody reduces all in rank order. One round trip
 * counts more than the bytes there, and the same order gives all members the same bits. The result is made in
 * the library's memory, so the caller's tensor does not change before delivery. */
#include "collective/group/run/executor.h"
#include "collective/kernel/combine.h"
#include "collective/wire/buffer_pool.h"

#include <muster/base.h>

#include <string.h>

/* In the run's buffer, with the inputs after it. */
struct direct_run {
    uint32_t input_count; /* inputs here, the own one included */
    uint64_t *weights;    /* by participant; a buffer of the pool, or NULL */
    void *inputs[];       /* by participant; buffers of the pool, or NULL */
};

static bool is_giver(const struct muster_run *run, uint32_t participant)
{
    return run->plan.kind != MUSTER_OP_BROADCAST || participant == run->plan.root;
}

static uint32_t giver_count(const struct muster_run *run)
{
    return run->plan.kind == MUSTER_OP_BROADCAST ? 1 : run->plan.n;
}

/* Participants that need the inputs to make the result. */
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
    const struct direct_run *direct = run->executor;
    const struct muster_op_call *call = &run->call;

    run->finished = muster_run_buffer(run, result_bytes(run));
    if (run->finished == NULL)
        return false;
    muster_combine_all(call, run->finished, (const void *const *)direct->inputs, direct->weights,
                       run->plan.n, call->count);
    return true;
}

static bool join_inputs(struct muster_run *run)
{
    const struct direct_run *direct = run->executor;
    uint8_t *at = muster_run_buffer(run, result_bytes(run));

    run->finished = at;
    if (run->finished == NULL)
        return false;
    for (uint32_t i = 0; i < run->plan.n; i++) {
        size_t part = input_bytes(run, i);

        if (part > 0)
            memcpy(at, direct->inputs[i], part);
        at += part;
    }
    return true;
}

/* False: no memory. */
static bool make_result(struct muster_run *run)
{
    const struct direct_run *direct = run->executor;

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
        run->finished = muster_buffer_ref(direct->inputs[run->plan.root]);
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
    struct direct_run *direct = run->executor;
    size_t bytes = run->plan.n * sizeof(*direct->weights);

    if (!run->call.is_weighted)
        return true;
    if (direct->weights == NULL)
        direct->weights = muster_run_buffer(run, bytes);
    if (direct->weights == NULL)
        return false;
    direct->weights[participant] = weight;
    run->result.total_weight += weight;
    return true;
}

static enum muster_run_outcome take_input(struct muster_run *run, uint32_t participant,
                                          void *buffer, uint64_t weight)
{
    struct direct_run *direct = run->executor;

    MUSTER_ASSERT(direct->inputs[participant] == NULL);
    direct->inputs[participant] = buffer;
    run->heard[participant] |= MUSTER_HEARD_INPUT; /* first: a second one is refused in any case */
    if (!take_weight(run, participant, weight))
        return MUSTER_RUN_NO_MEMORY;
    if (++direct->input_count < giver_count(run))
        return MUSTER_RUN_GOES_ON;
    if (!make_result(run))
        return MUSTER_RUN_NO_MEMORY;
    muster_run_mark_final(run, 0);
    return MUSTER_RUN_HAS_RESULT;
}

/* The only participant: the input is the result, whatever its size. */
static enum muster_run_outcome start_alone(struct muster_run *run)
{
    if (run->call.output != run->call.input && result_bytes(run) > 0)
        memmove(run->call.output, run->call.input, result_bytes(run));
    run->result.total_weight = run->call.weight;
    if (run->call.is_weighted && run->call.weight == 0 && result_bytes(run) > 0)
        memset(run->call.output, 0, result_bytes(run));
    muster_run_mark_final(run, 0);
    return MUSTER_RUN_HAS_RESULT;
}

static void send_input(struct muster_run *run, void *buffer)
{
    struct muster_run_frame frame = {.type = MUSTER_FRAME_INPUT,
                                     .offset = run->call.weight,
                                     .payload = buffer,
                                     .bytes = (uint32_t)input_bytes(run, run->plan.index)};

    for (frame.participant = 0; frame.participant < run->plan.n; frame.participant++) {
        if (frame.participant == run->plan.index || !is_taker(run, frame.participant))
            continue;
        frame.buffer = buffer != NULL ? muster_buffer_ref(buffer) : NULL;
        muster_run_send_frame(run, &frame);
    }
}

static enum muster_run_outcome direct_start(struct muster_run *run)
{
    size_t bytes = input_bytes(run, run->plan.index);
    void *buffer = NULL;

    if (run->plan.n == 1)
        return start_alone(run);
    if (!is_giver(run, run->plan.index)) {
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
        return MUSTER_RUN_GOES_ON;
    }
    if (bytes > 0) {
        buffer = muster_run_buffer(run, bytes);
        if (buffer == NULL)
            return MUSTER_RUN_NO_MEMORY;
        memcpy(buffer, run->call.input, bytes);
    }
    send_input(run, buffer);
    if (run->plan.kind ==
        MUSTER_OP_REDUCE) /* so that a member that means another root finds it out */
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
    if (is_taker(run, run->plan.index))
        return take_input(run, run->plan.index, buffer, run->call.weight);
    muster_buffer_unref(buffer);
    return MUSTER_RUN_GOES_ON;
}

static enum muster_run_outcome direct_receive(struct muster_run *run, uint32_t participant,
                                              const struct muster_frame_header *header,
                                              struct muster_receiving *receiving, void **ret_place)
{
    if (muster_run_is_adopting(run) || !is_giver(run, participant) ||
        !is_taker(run, run->plan.index) || header->payload_bytes != input_bytes(run, participant) ||
        (run->heard[participant] & MUSTER_HEARD_INPUT) != 0)
        return MUSTER_RUN_UNEXPECTED;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->chunk = 0;
    receiving->weight = header->offset;
    if (header->payload_bytes == 0)
        return MUSTER_RUN_GOES_ON;
    receiving->buffer = muster_run_buffer(run, header->payload_bytes);
    *ret_place = receiving->buffer;
    return receiving->buffer != NULL ? MUSTER_RUN_GOES_ON : MUSTER_RUN_NO_MEMORY;
}

static enum muster_run_outcome direct_received(struct muster_run *run, uint32_t participant,
                                               struct muster_receiving *receiving)
{
    void *buffer = receiving->buffer;

    receiving->buffer = NULL;
    return take_input(run, participant, buffer, receiving->weight);
}

static void direct_deliver(struct muster_run *run)
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
        muster_run_is_adopting(run))
        memcpy(run->call.output, from, bytes);
}

static void direct_finish(struct muster_run *run)
{
    struct direct_run *direct = run->executor;

    MUSTER_ASSERT(direct != NULL);
    for (uint32_t i = 0; i < run->plan.n; i++)
        muster_buffer_unref(direct->inputs[i]);
    muster_buffer_unref(direct->weights);
}

static size_t direct_state_bytes(const struct muster_plan *plan)
{
    return sizeof(struct direct_run) + plan->n * sizeof(void *);
}

/* --- Cost --- */

static uint32_t direct_cost(const struct muster_run *run)
{
    (void)run;
    return MUSTER_DIRECT_COST;
}

/* One member's input to an operation in which all members' inputs go to all. */
static uint64_t direct_input_bytes(const struct muster_plan *plan)
{
    uint64_t bytes = plan->kind == MUSTER_OP_BARRIER ? 0 : plan->count * plan->element_bytes;

    return plan->kind == MUSTER_OP_ALL_GATHER ? bytes / plan->n : bytes;
}

static struct muster_op_cost direct_plan_cost(const struct muster_plan *plan,
                                              const struct muster_topology *topology)
{
    uint64_t input = direct_input_bytes(plan);
    uint64_t receivers = plan->n - 1;
    uint64_t givers = plan->kind == MUSTER_OP_BROADCAST ? 1 : plan->n;
    bool is_giver = plan->kind != MUSTER_OP_BROADCAST || plan->index == plan->root;
    bool has_result = input > 0 && plan->kind != MUSTER_OP_BROADCAST;
    struct muster_op_cost cost = {.sent_bytes = 0};

    (void)topology;
    if (plan->kind == MUSTER_OP_REDUCE)
        receivers = plan->index == plan->root ? 0 : 1;
    cost.sent_bytes = is_giver ? receivers * input : 0;
    if (plan->n == 1 || input == 0)
        return cost;
    cost.memory_bytes = givers * muster_buffer_bytes(input);
    if (has_result)
        cost.memory_bytes += muster_buffer_bytes(plan->count * plan->element_bytes);
    return cost;
}

const struct muster_executor_ops muster_direct_executor = {
    .name = "direct",
    .frames = 1u << MUSTER_FRAME_INPUT,
    .cost = direct_cost,
    .state_bytes = direct_state_bytes,
    .plan_cost = direct_plan_cost,
    .start = direct_start,
    .receive = direct_receive,
    .received = direct_received,
    .deliver = direct_deliver,
    .finish = direct_finish,
};
