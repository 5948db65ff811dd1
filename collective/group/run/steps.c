/* Plans of steps over frames: each chunk goes through its list, a window of chunks at a time. The lists come from
 * collective/plan/steps.h, which knows the algorithms; here they are only carried out. The lane drives it by the
 * table at the end. */
#include "collective/group/run/executor.h"
#include "collective/kernel/combine.h"
#include "collective/kernel/kernels.h"
#include "collective/plan/steps.h"
#include "collective/wire/buffer_pool.h"

#include <muster/base.h>

#include <string.h>

/* One buffer of the pool. */
struct steps_run {
    struct muster_step *steps; /* of all chunks */
    void **kept;               /* by step: what has arrived and is not used yet, or NULL */
    const void **operands;     /* by participant, for a sum of all … */
    uint64_t *weights;         /* … and theirs */
    uint64_t *kept_weights;    /* by step */
    uint32_t *begin;           /* by chunk, and one more: its steps */
    uint32_t *cursor;          /* by chunk: the step that is next */
    uint8_t *has_arrived;      /* by step */
    uint32_t step_count;
    uint32_t first_open; /* first chunk that is not through */
    bool is_asking;      /* sends wait for START … */
    bool is_blocked;     /* … and one does */
};

/* In the run's buffer. The list has its own, for its length is not known before it is made. */
struct steps_state {
    struct steps_run *list; /* NULL: no memory */
};

static struct steps_run *steps_of(const struct muster_run *run)
{
    const struct steps_state *state = run->executor;

    return state->list;
}

/* --- Places --- */

/* An all_reduce or reduce has its input in the output: work there would lose the input if the operation is run again.
 * All others work in the caller's output, where no input is overwritten. */
static bool steps_is_in_place(const struct muster_run *run)
{
    return run->call.kind != MUSTER_OP_ALL_REDUCE && run->call.kind != MUSTER_OP_REDUCE;
}

static uint64_t own_part_first(const struct muster_run *run)
{
    return muster_plan_block_first(&run->plan, run->plan.index);
}

static uint8_t *work_at(const struct muster_run *run, uint64_t first)
{
    if (run->call.kind == MUSTER_OP_REDUCE_SCATTER ||
        run->call.kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN)
        first -= own_part_first(run);
    return (uint8_t *)(steps_is_in_place(run) ? run->call.output : run->finished) +
           first * run->plan.element_bytes;
}

static const uint8_t *input_at(const struct muster_run *run, uint64_t first)
{
    if (run->call.kind == MUSTER_OP_ALL_GATHER || run->call.kind == MUSTER_OP_ALL_GATHER_UNEVEN)
        first -= own_part_first(run);
    return (const uint8_t *)run->call.input + first * run->plan.element_bytes;
}

static size_t bytes_of(const struct muster_run *run, const struct muster_step *step)
{
    return step->count * run->plan.element_bytes;
}

static bool is_incoming(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_RECEIVE || step->kind == MUSTER_STEP_REDUCE ||
           step->kind == MUSTER_STEP_HOLD;
}

/* --- The list --- */

static size_t align_bytes(size_t bytes)
{
    return (bytes + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
}

static size_t list_bytes(uint32_t step_count, uint32_t chunk_count, uint32_t n)
{
    return align_bytes(sizeof(struct steps_run)) +
           step_count * (sizeof(struct muster_step) + sizeof(void *) + sizeof(uint64_t)) +
           n * (sizeof(void *) + sizeof(uint64_t)) +
           (2 * (size_t)chunk_count + 1) * sizeof(uint32_t) + step_count;
}

static struct steps_run *list_new(struct muster_run *run, uint32_t step_count)
{
    uint32_t chunk_count = run->plan.chunk_count, n = run->plan.n;
    size_t bytes = list_bytes(step_count, chunk_count, n);
    uint8_t *memory = muster_run_buffer(run, bytes);
    struct steps_run *state = (struct steps_run *)(void *)memory;

    if (memory == NULL)
        return NULL;
    memset(memory, 0, bytes);
    state->steps = (struct muster_step *)(void *)(memory + align_bytes(sizeof(*state)));
    state->kept = (void **)(void *)(state->steps + step_count);
    state->operands = (const void **)(void *)(state->kept + step_count);
    state->kept_weights = (uint64_t *)(void *)(state->operands + n);
    state->weights = state->kept_weights + step_count;
    state->begin = (uint32_t *)(void *)(state->weights + n);
    state->cursor = state->begin + chunk_count + 1;
    state->has_arrived = (uint8_t *)(state->cursor + chunk_count);
    state->step_count = step_count;
    return state;
}

static uint32_t count_steps(const struct muster_run *run, const struct muster_topology *topology,
                            struct muster_step *scratch)
{
    uint32_t count = 0;

    for (uint32_t c = 0; c < run->plan.chunk_count; c++)
        count += muster_steps_make(&run->plan, topology, c, scratch);
    return count;
}

static void fill_steps(struct muster_run *run, const struct muster_topology *topology,
                       struct muster_step *scratch)
{
    struct steps_run *state = steps_of(run);
    uint32_t next = 0;

    for (uint32_t c = 0; c < run->plan.chunk_count; c++) {
        uint32_t count = muster_steps_make(&run->plan, topology, c, scratch);

        memcpy(state->steps + next, scratch, count * sizeof(*scratch));
        state->begin[c] = state->cursor[c] = next;
        next += count;
    }
    state->begin[run->plan.chunk_count] = next;
}

static void steps_finish(struct muster_run *run)
{
    struct steps_state *state = run->executor;

    if (state->list == NULL)
        return;
    for (uint32_t s = 0; s < state->list->step_count; s++)
        muster_buffer_unref(state->list->kept[s]);
    muster_buffer_unref(state->list);
    state->list = NULL;
}

/* False: no memory. */
static bool take_memory(struct muster_run *run)
{
    const struct muster_plan *plan = &run->plan;
    struct steps_state *state = run->executor;
    const struct muster_topology *topology = muster_run_topology(run);
    struct muster_step *scratch =
        muster_run_buffer(run, muster_steps_max(plan) * sizeof(struct muster_step));

    MUSTER_ASSERT(state->list == NULL);
    if (scratch == NULL)
        return false;
    state->list = list_new(run, count_steps(run, topology, scratch));
    if (state->list != NULL)
        fill_steps(run, topology, scratch);
    muster_buffer_unref(scratch);
    if (state->list == NULL || steps_is_in_place(run))
        return state->list != NULL;
    run->finished = muster_run_buffer(run, plan->count * plan->element_bytes);
    if (run->finished == NULL)
        steps_finish(run); /* frames that come have no place */
    return run->finished != NULL;
}

/* --- Steps --- */

static void send_step(struct muster_run *run, uint32_t c, const struct muster_step *step)
{
    bool is_library = !step->is_from_input && !steps_is_in_place(run);
    const struct muster_run_frame frame = {
        .type = MUSTER_FRAME_STEP,
        .participant = step->peer,
        .chunk = c,
        .phase = step->message,
        .offset = step->is_from_input ? run->call.weight : run->result.total_weight,
        .payload = step->is_from_input ? input_at(run, step->first) : work_at(run, step->first),
        .bytes = (uint32_t)bytes_of(run, step),
        .buffer = is_library ? muster_buffer_ref(run->finished) : NULL,
    };

    muster_run_send_frame(run, &frame);
}

static void reduce_kept(struct muster_run *run, uint32_t s)
{
    const struct muster_step *step = &steps_of(run)->steps[s];
    const struct muster_op_call *call = &run->call;
    uint8_t *work = work_at(run, step->first);
    const void *both[] = {input_at(run, step->first), steps_of(run)->kept[s]};

    if (step->is_from_input && call->user.reduce != NULL)
        memcpy(work, both[0], bytes_of(run, step));
    if (step->is_from_input && call->user.reduce == NULL)
        muster_kernel_reduce_all(call->dtype,
                                 call->reduction == MUSTER_MEAN ? MUSTER_SUM : call->reduction,
                                 work, both, 2, step->count);
    else
        muster_combine(call, (struct muster_operand){work, 0},
                       (struct muster_operand){steps_of(run)->kept[s], 0}, step->count);
    muster_buffer_unref(steps_of(run)->kept[s]);
    steps_of(run)->kept[s] = NULL;
}

static void add_operand(struct muster_run *run, uint32_t *count, const void *at, uint64_t weight)
{
    steps_of(run)->operands[*count] = at;
    steps_of(run)->weights[(*count)++] = weight;
}

/* Blocks have all inputs here; elsewhere the sums of one host go on to the others'. */
static void combine_held(struct muster_run *run, void *work, uint32_t n, size_t count)
{
    const struct steps_run *state = steps_of(run);
    struct muster_op_call call = run->call;

    if (run->plan.algorithm != MUSTER_ALGORITHM_BLOCKS && call.reduction == MUSTER_MEAN)
        call.reduction = MUSTER_SUM;
    muster_combine_all(&call, work, state->operands, state->weights, n, count);
    run->result.total_weight = 0;
    for (uint32_t i = 0; i < n; i++)
        run->result.total_weight += state->weights[i];
}

/* The held ones come by rising participant; the own input has its place among them. */
static void reduce_held(struct muster_run *run, uint32_t c, uint32_t s)
{
    struct steps_run *state = steps_of(run);
    const struct muster_step *step = &state->steps[s];
    uint8_t *work = work_at(run, step->first);
    uint32_t count = 0;
    bool has_own = false;

    for (uint32_t before = state->begin[c]; before < s; before++) {
        if (state->steps[before].kind != MUSTER_STEP_HOLD)
            continue;
        if (!has_own && state->steps[before].peer > run->plan.index) {
            add_operand(run, &count, input_at(run, step->first), run->call.weight);
            has_own = true;
        }
        add_operand(run, &count, state->kept[before], state->kept_weights[before]);
    }
    if (!has_own)
        add_operand(run, &count, input_at(run, step->first), run->call.weight);
    combine_held(run, work, count, step->count);
    for (uint32_t before = state->begin[c]; before < s; before++) {
        if (state->steps[before].kind != MUSTER_STEP_HOLD)
            continue;
        muster_buffer_unref(state->kept[before]);
        state->kept[before] = NULL;
    }
}

/* False: it has to wait, for a frame or for a START. Steps of a chunk run in order, so one that waits holds up the
 * rest of its chunk and no other chunk. */
static bool run_step(struct muster_run *run, uint32_t c, uint32_t s)
{
    struct steps_run *state = steps_of(run);
    const struct muster_step *step = &state->steps[s];

    if (is_incoming(step) && !state->has_arrived[s])
        return false;
    switch ((enum muster_step_kind)step->kind) {
    case MUSTER_STEP_SEND:
        if (state->is_asking && (run->heard[step->peer] & MUSTER_HEARD_ISSUED) == 0) {
            state->is_blocked = true;
            return false;
        }
        send_step(run, c, step);
        break;
    case MUSTER_STEP_REDUCE:
        reduce_kept(run, s);
        break;
    case MUSTER_STEP_REDUCE_HELD:
        reduce_held(run, c, s);
        break;
    case MUSTER_STEP_KEEP:
        if (work_at(run, step->first) != input_at(run, step->first))
            memcpy(work_at(run, step->first), input_at(run, step->first), bytes_of(run, step));
        break;
    case MUSTER_STEP_FINISH:
        if (run->plan.algorithm != MUSTER_ALGORITHM_BLOCKS)
            muster_combine_finish(&run->call, work_at(run, step->first), run->plan.n, step->count);
        break;
    case MUSTER_STEP_RECEIVE: /* it is in its place */
    case MUSTER_STEP_HOLD:
        break;
    }
    return true;
}

static void advance_chunk(struct muster_run *run, uint32_t c)
{
    struct steps_run *state = steps_of(run);
    uint32_t end = state->begin[c + 1];

    if (state->cursor[c] == end && (run->chunks[c] & MUSTER_CHUNK_REDUCED) != 0)
        return;
    while (state->cursor[c] < end && run_step(run, c, state->cursor[c]))
        state->cursor[c]++;
    if (state->cursor[c] < end)
        return;
    run->chunks[c] |= MUSTER_CHUNK_REDUCED;
    if (muster_plan_is_wanted(&run->plan, c))
        muster_run_mark_final(run, c);
}

static bool is_through(const struct muster_run *run, uint32_t c)
{
    return (run->chunks[c] & MUSTER_CHUNK_REDUCED) != 0;
}

static uint32_t window_end(const struct muster_run *run)
{
    uint64_t end = (uint64_t)steps_of(run)->first_open + run->plan.window;

    return end < run->plan.chunk_count ? (uint32_t)end : run->plan.chunk_count;
}

/* Chunks [from, end of the window), and those that come into the window thereby. */
static void advance_from(struct muster_run *run, uint32_t from)
{
    struct steps_run *state = steps_of(run);

    for (uint32_t c = from; c < window_end(run); c++) {
        advance_chunk(run, c);
        while (state->first_open < run->plan.chunk_count && is_through(run, state->first_open))
            state->first_open++;
    }
}

static enum muster_run_outcome outcome_of(const struct muster_run *run)
{
    bool is_whole = run->state == MUSTER_RUN_ACTIVE &&
                    steps_of(run)->first_open == run->plan.chunk_count &&
                    !muster_run_awaits_root(run);

    return is_whole ? MUSTER_RUN_HAS_RESULT : MUSTER_RUN_GOES_ON;
}

static enum muster_run_outcome advance_blocked(struct muster_run *run)
{
    steps_of(run)->is_blocked = false;
    advance_from(run, steps_of(run)->first_open);
    return outcome_of(run);
}

/* START goes once to each participant whose frames this member awaits: the sender of a large operation waits for it,
 * so that nobody has to keep much for an operation that it has not started. */
static void ask_senders(struct muster_run *run)
{
    struct steps_run *state = steps_of(run);

    for (uint32_t s = 0; s < state->step_count; s++) {
        uint32_t peer = state->steps[s].peer;

        if (!is_incoming(&state->steps[s]) || (run->heard[peer] & MUSTER_HEARD_ASKED) != 0)
            continue;
        run->heard[peer] |= MUSTER_HEARD_ASKED;
        muster_run_send(run, MUSTER_FRAME_START, peer, 0, NULL, 0, NULL);
    }
}

static enum muster_run_outcome steps_start(struct muster_run *run)
{
    if (!take_memory(run))
        return MUSTER_RUN_NO_MEMORY;
    steps_of(run)->is_asking =
        run->plan.count * run->plan.element_bytes > MUSTER_STEPS_UNASKED_BYTES_MAX;
    if (steps_of(run)->is_asking)
        ask_senders(run);
    else if (muster_op_kind_has_root(
                 run->call.kind)) /* a member that means another root finds out */
        muster_run_send(run, MUSTER_FRAME_START, run->plan.prev, 0, NULL, 0, NULL);
    advance_from(run, 0);
    return outcome_of(run);
}

static void steps_deliver(struct muster_run *run)
{
    if (run->finished != NULL && !muster_run_awaits_root(run))
        memcpy(run->call.output, run->finished, run->call.count * run->plan.element_bytes);
}

/* Sends that waited for START go out. */
static enum muster_run_outcome steps_hear_start(struct muster_run *run, uint32_t participant,
                                                const struct muster_frame_header *header)
{
    (void)participant;
    (void)header;
    if (steps_of(run) == NULL || muster_run_is_adopting(run) || !steps_of(run)->is_blocked)
        return MUSTER_RUN_GOES_ON;
    return advance_blocked(run);
}

/* --- Receiving --- */

/* The step that waits for this message; step_count: none does. */
static uint32_t find_step(const struct muster_run *run, uint32_t participant,
                          const struct muster_frame_header *header)
{
    const struct steps_run *state = steps_of(run);

    for (uint32_t s = state->begin[header->chunk]; s < state->begin[header->chunk + 1]; s++) {
        const struct muster_step *step = &state->steps[s];

        if (is_incoming(step) && step->peer == participant && step->message == header->phase)
            return s;
    }
    return state->step_count;
}

static enum muster_run_outcome steps_receive(struct muster_run *run, uint32_t participant,
                                             const struct muster_frame_header *header,
                                             struct muster_receiving *receiving, void **ret_place)
{
    const struct steps_run *state = steps_of(run);
    uint32_t s;

    if (state == NULL || muster_run_is_adopting(run) || header->chunk >= run->plan.chunk_count)
        return MUSTER_RUN_UNEXPECTED;
    s = find_step(run, participant, header);
    if (s == state->step_count || state->has_arrived[s] != 0 ||
        header->payload_bytes != bytes_of(run, &state->steps[s]))
        return MUSTER_RUN_UNEXPECTED;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->chunk = s;
    receiving->weight = header->offset;
    if (state->steps[s].kind == MUSTER_STEP_RECEIVE) {
        *ret_place = work_at(run, state->steps[s].first);
        return MUSTER_RUN_GOES_ON;
    }
    receiving->buffer = muster_run_buffer(run, header->payload_bytes);
    *ret_place = receiving->buffer;
    return receiving->buffer != NULL ? MUSTER_RUN_GOES_ON : MUSTER_RUN_NO_MEMORY;
}

/* The chunk that step s belongs to, by bisection: begin[] rises. */
static uint32_t chunk_of(const struct steps_run *state, uint32_t s, uint32_t chunk_count)
{
    uint32_t low = 0, high = chunk_count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (state->begin[middle] <= s)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum muster_run_outcome steps_received(struct muster_run *run, uint32_t participant,
                                              struct muster_receiving *receiving)
{
    struct steps_run *state = steps_of(run);
    uint32_t s = receiving->chunk, c = chunk_of(state, s, run->plan.chunk_count);

    (void)participant;
    MUSTER_ASSERT(state->has_arrived[s] == 0);
    state->has_arrived[s] = 1;
    state->kept[s] = receiving->buffer;
    state->kept_weights[s] = receiving->weight;
    if (state->steps[s].kind == MUSTER_STEP_RECEIVE)
        run->result.total_weight = receiving->weight;
    receiving->buffer = NULL;
    if (state->is_blocked)
        return advance_blocked(run);
    if (c >= window_end(run))
        return MUSTER_RUN_GOES_ON;
    advance_chunk(run, c);
    if (state->first_open < run->plan.chunk_count && is_through(run, state->first_open))
        advance_from(run, state->first_open);
    return outcome_of(run);
}

static size_t steps_state_bytes(const struct muster_plan *plan)
{
    (void)plan;
    return sizeof(struct steps_state);
}

/* --- Cost --- */

static uint32_t steps_cost(const struct muster_run *run)
{
    (void)run;
    return MUSTER_RING_COST;
}

struct tally {
    uint64_t sent, staged, staged_max; /* bytes; of one chunk, of the fullest */
    uint64_t staged_all;
    uint32_t step_count;
};

static void tally_chunk(struct tally *tally, const struct muster_plan *plan,
                        const struct muster_step *steps, uint32_t count)
{
    tally->staged = 0;
    for (uint32_t s = 0; s < count; s++) {
        size_t bytes = steps[s].count * plan->element_bytes;

        if (steps[s].kind == MUSTER_STEP_SEND)
            tally->sent += bytes;
        else if (steps[s].kind == MUSTER_STEP_REDUCE || steps[s].kind == MUSTER_STEP_HOLD)
            tally->staged += muster_buffer_bytes(bytes);
    }
    if (tally->staged > tally->staged_max)
        tally->staged_max = tally->staged;
    tally->staged_all += tally->staged;
    tally->step_count += count;
}

static struct muster_op_cost steps_plan_cost(const struct muster_plan *plan,
                                             const struct muster_topology *topology)
{
    size_t scratch_bytes = muster_steps_max(plan) * sizeof(struct muster_step);
    struct muster_step *scratch = muster_mem_alloc(muster_mem_system(), scratch_bytes);
    struct muster_op_cost cost = {.sent_bytes = 0};
    struct tally tally = {.sent = 0};
    bool has_work = plan->kind == MUSTER_OP_ALL_REDUCE || plan->kind == MUSTER_OP_REDUCE;

    if (scratch == NULL)
        return cost;
    for (uint32_t c = 0; c < plan->chunk_count; c++)
        tally_chunk(&tally, plan, scratch, muster_steps_make(plan, topology, c, scratch));
    muster_mem_free(muster_mem_system(), scratch);
    cost.sent_bytes = tally.sent;
    cost.memory_bytes =
        muster_buffer_bytes(scratch_bytes) +
        muster_buffer_bytes(list_bytes(tally.step_count, plan->chunk_count, plan->n));
    if (has_work)
        cost.memory_bytes += muster_buffer_bytes(plan->count * plan->element_bytes);
    /* The window holds back only members that take part in a chunk until its end: of an all_reduce, all. */
    if (plan->kind == MUSTER_OP_ALL_REDUCE && tally.staged_max * plan->window < tally.staged_all)
        cost.memory_bytes += tally.staged_max * plan->window;
    else
        cost.memory_bytes += tally.staged_all;
    return cost;
}

const struct muster_executor_ops muster_steps_executor = {
    .name = "steps",
    .frames = 1u << MUSTER_FRAME_STEP,
    .cost = steps_cost,
    .state_bytes = steps_state_bytes,
    .plan_cost = steps_plan_cost,
    .start = steps_start,
    .receive = steps_receive,
    .received = steps_received,
    .hear_start = steps_hear_start,
    .is_in_place = steps_is_in_place,
    .deliver = steps_deliver,
    .finish = steps_finish,
};

static size_t no_state_bytes(const struct muster_plan *plan)
{
    (void)plan;
    return 0;
}

const struct muster_executor_ops muster_fetch_executor = {
    .name = "fetch",
    .cost = steps_cost,
    .state_bytes = no_state_bytes,
    .is_in_place = steps_is_in_place,
    .deliver = steps_deliver,
};
