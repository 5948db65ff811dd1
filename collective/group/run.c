/* A run: what one operation holds, its frames, its memory and its end. Executors call the first half, the lane and
 * the files about views the second. Nothing here decides what happens next (lane.c does). */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

/* --- States --- */

#define BIT(state) (1u << (state))

/* By state: those that may follow. RETRY takes a run back to QUEUED from wherever it stands. */
static const uint8_t state_moves[] = {
    [MUSTER_RUN_PENDING] = BIT(MUSTER_RUN_QUEUED),
    [MUSTER_RUN_QUEUED] = BIT(MUSTER_RUN_QUEUED) | BIT(MUSTER_RUN_ACTIVE) | BIT(MUSTER_RUN_ENDED),
    [MUSTER_RUN_ACTIVE] = BIT(MUSTER_RUN_QUEUED) | BIT(MUSTER_RUN_ACTIVE) |
                          BIT(MUSTER_RUN_COMPLETE) | BIT(MUSTER_RUN_ENDED),
    [MUSTER_RUN_COMPLETE] =
        BIT(MUSTER_RUN_QUEUED) | BIT(MUSTER_RUN_DELIVERED) | BIT(MUSTER_RUN_ENDED),
    [MUSTER_RUN_DELIVERED] = BIT(MUSTER_RUN_QUEUED),
    [MUSTER_RUN_ENDED] = 0,
};

/* By mode: those that may follow. A run that lingers or contradicts ends in that mode, whatever the view says. */
static const uint8_t mode_moves[] = {
    [MUSTER_RUN_ORDINARY] = BIT(MUSTER_RUN_ORDINARY) | BIT(MUSTER_RUN_ADOPTING) |
                            BIT(MUSTER_RUN_LINGERING) | BIT(MUSTER_RUN_UNFIT) |
                            BIT(MUSTER_RUN_CONTRADICTED),
    [MUSTER_RUN_ADOPTING] =
        BIT(MUSTER_RUN_ORDINARY) | BIT(MUSTER_RUN_ADOPTING) | BIT(MUSTER_RUN_LINGERING),
    [MUSTER_RUN_LINGERING] = 0,
    [MUSTER_RUN_UNFIT] = BIT(MUSTER_RUN_UNFIT) | BIT(MUSTER_RUN_ADOPTING),
    [MUSTER_RUN_CONTRADICTED] = 0,
};

void muster_run_move_to(struct muster_run *run, enum muster_run_state state)
{
    MUSTER_ASSERT((state_moves[run->state] & BIT(state)) != 0);
    run->state = state;
}

void muster_run_set_mode(struct muster_run *run, enum muster_run_mode mode)
{
    MUSTER_ASSERT((mode_moves[run->mode] & BIT(mode)) != 0);
    run->mode = mode;
}

const char *muster_run_name(const struct muster_run *run, char *ret_text, size_t size)
{
    bool is_device = run->call.device.kind != MUSTER_DEVICE_NONE;
    const char *prefix = is_device ? "gpu " : "";
    const char *kind = is_device ? muster_device_kind_name(run->call.device.kind)
                                 : muster_op_kind_name(run->call.kind);

    if (run->id.step == 0)
        snprintf(ret_text, size, "%s%s #%u", prefix, kind, run->id.sequence);
    else
        snprintf(ret_text, size, "%s%s #%u of step %llu", prefix, kind, run->id.sequence,
                 (unsigned long long)run->id.step);
    return ret_text;
}

static struct muster_lane *lane_of(const struct muster_run *run)
{
    return &run->group->lanes[MUSTER_LANE_INDEX(run->id.lane)];
}

/* --- Executors --- */

static const struct muster_executor_ops *executor_of(const struct muster_plan *plan)
{
    switch (plan->algorithm) {
    case MUSTER_ALGORITHM_DIRECT:
        return &muster_direct_executor;
    case MUSTER_ALGORITHM_RING:
        return &muster_ring_executor;
    case MUSTER_ALGORITHM_EXCHANGE:
        return &muster_exchange_executor;
    case MUSTER_ALGORITHM_FLAT:
    case MUSTER_ALGORITHM_HOST:
        return &muster_shm_executor;
    default:
        return &muster_steps_executor;
    }
}

uint32_t muster_run_cost(const struct muster_run *run)
{
    return executor_of(&run->plan)->cost(run);
}

bool muster_run_awaits_root(const struct muster_run *run)
{
    return !muster_run_is_shared(run) &&
           (run->plan.kind == MUSTER_OP_REDUCE || run->plan.kind == MUSTER_OP_GATHER) &&
           run->plan.index != run->plan.root;
}

static size_t align_bytes(size_t bytes)
{
    return (bytes + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
}

/* Size of the buffer with the tables of a run: by chunk, by participant, and the executor's
 * state. */
static size_t table_bytes(const struct muster_plan *plan, const struct muster_executor_ops *ops)
{
    return plan->chunk_count * (sizeof(void *) + 1) + plan->n + align_bytes(ops->state_bytes(plan));
}

struct muster_op_cost muster_plan_cost(const struct muster_plan *plan,
                                       const struct muster_topology *topology)
{
    const struct muster_executor_ops *ops = executor_of(plan);
    struct muster_op_cost cost = ops->plan_cost(plan, topology);

    cost.memory_bytes += muster_buffer_bytes(sizeof(struct muster_run)) +
                         muster_buffer_bytes(0); /* a note that comes in */
    cost.memory_bytes +=
        muster_buffer_bytes(ops->shared != NULL ? ops->state_bytes(plan) : table_bytes(plan, ops));
    return cost;
}

/* --- What executors call --- */

void muster_run_send_frame(struct muster_run *run, const struct muster_run_frame *frame)
{
    struct muster_group *group = run->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = (uint8_t)frame->type,
        .payload_bytes = frame->bytes,
        .epoch = group->view->epoch,
        .op = run->id,
        .chunk = frame->chunk,
        .phase = frame->phase,
        .offset = frame->offset,
        .descriptor = run->descriptor,
    };

    run->result.sent_bytes += frame->bytes;
    muster_wire_send(group->wire, muster_op_participant_rank(group, &run->id, frame->participant),
                     &header, frame->payload, frame->buffer);
}

void muster_run_send(struct muster_run *run, enum muster_frame_type type, uint32_t participant,
                     uint32_t chunk, const void *payload, uint32_t bytes, void *buffer)
{
    const struct muster_run_frame frame = {
        .type = type,
        .participant = participant,
        .chunk = chunk,
        .offset = run->result.total_weight,
        .payload = payload,
        .bytes = bytes,
        .buffer = buffer,
    };

    muster_run_send_frame(run, &frame);
}

void muster_run_send_all(struct muster_run *run, enum muster_frame_type type)
{
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index)
            muster_run_send(run, type, i, 0, NULL, 0, NULL);
}

void *muster_run_buffer(const struct muster_run *run, size_t bytes)
{
    return muster_buffer_get(run->group->pool, bytes);
}

const struct muster_topology *muster_run_topology(struct muster_run *run)
{
    return muster_group_topology(run->group, &run->id);
}

uint32_t muster_run_direct_max_bytes(const struct muster_run *run)
{
    return muster_plan_direct_max_bytes(&run->group->view->plan);
}

void muster_run_mark_final(struct muster_run *run, uint32_t c)
{
    MUSTER_ASSERT(c < run->plan.chunk_count);
    MUSTER_ASSERT((run->chunks[c] & MUSTER_CHUNK_FINAL) == 0);
    run->chunks[c] |= MUSTER_CHUNK_FINAL;
    if (muster_plan_is_wanted(&run->plan, c))
        run->final_count++;
}

/* Flipped in the descriptor of a disputed operation: it then equals no member's, so every member finds the mismatch
 * by itself, also those whose own counts fit. */
#define DISPUTED (UINT64_C(1) << 63)

bool muster_run_set_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                            uint64_t expected, bool is_sent_here)
{
    if (run->op == NULL)
        return false;
    run->call.dispute.rank = muster_op_participant_rank(run->group, &run->id, participant);
    run->call.dispute.sent = sent;
    run->call.dispute.expected = expected;
    run->call.dispute.is_sent_here = is_sent_here;
    run->call.dispute.is_set = true;
    run->descriptor ^= DISPUTED;
    return true;
}

/* --- Memory --- */

/* Among the plans over TCP only a ring in place changes the caller's input, so it alone saves undo copies. */
static bool changes_input(const struct muster_run *run)
{
    bool is_in_place = run->call.kind == MUSTER_OP_ALL_REDUCE || run->call.kind == MUSTER_OP_REDUCE;

    return is_in_place && run->plan.algorithm == MUSTER_ALGORITHM_RING;
}

bool muster_run_take_memory(struct muster_run *run)
{
    const struct muster_executor_ops *ops = executor_of(&run->plan);
    size_t bytes;
    uint8_t *memory;

    if (run->memory != NULL)
        return true;
    /* Its place on the board comes with its turn. Until then it may hear of mismatches, or fetch its result. */
    if (ops->shared != NULL)
        ops = &muster_fetch_executor;
    bytes = table_bytes(&run->plan, ops);
    memory = muster_buffer_get(run->group->pool, bytes);
    if (memory == NULL)
        return false;
    memset(memory, 0, bytes);
    run->memory = memory;
    run->ops = ops;
    run->undo = (void **)(void *)memory;
    run->executor = run->undo + run->plan.chunk_count;
    run->chunks = (uint8_t *)run->executor + align_bytes(ops->state_bytes(&run->plan));
    run->heard = run->chunks + run->plan.chunk_count;
    lane_of(run)->cost += muster_run_cost(run);
    return true;
}

void muster_run_drop_memory(struct muster_run *run)
{
    if (run->memory == NULL)
        return;
    if (run->ops->finish != NULL)
        run->ops->finish(run);
    for (uint32_t c = 0; run->ops->shared == NULL && c < run->plan.chunk_count; c++)
        muster_buffer_unref(run->undo[c]);
    muster_buffer_unref(run->finished);
    muster_buffer_unref(run->memory);
    run->finished = run->memory = run->executor = NULL;
    run->undo = NULL;
    run->chunks = run->heard = NULL;
    run->ops = NULL;
    run->final_count = 0;
    /* The plan is still the one by which the cost was counted: callers make a new one after this. */
    MUSTER_ASSERT(lane_of(run)->cost >= muster_run_cost(run));
    lane_of(run)->cost -= muster_run_cost(run);
}

void *muster_run_chunk_at(const struct muster_run *run, uint32_t c, size_t *ret_bytes)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(&run->plan, c);
    uint64_t first = chunk.first;

    if (run->call.kind == MUSTER_OP_REDUCE_SCATTER ||
        run->call.kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN)
        first -= muster_plan_block_first(&run->plan, chunk.block);
    *ret_bytes = chunk.count * run->plan.element_bytes;
    return (uint8_t *)run->call.output + first * run->plan.element_bytes;
}

bool muster_run_save_undo(struct muster_run *run, uint32_t c)
{
    size_t bytes;
    const void *at = muster_run_chunk_at(run, c, &bytes);

    if (!changes_input(run) || run->undo[c] != NULL)
        return true;
    run->undo[c] = muster_buffer_get(run->group->pool, bytes);
    if (run->undo[c] == NULL)
        return false;
    memcpy(run->undo[c], at, bytes);
    return true;
}

void muster_run_restore(struct muster_run *run)
{
    /* A delivered output is the caller's, who may have changed it since. */
    if (run->memory == NULL || run->state == MUSTER_RUN_DELIVERED)
        return;
    if (run->ops->restore != NULL && (changes_input(run) || run->ops->shared != NULL))
        run->ops->restore(run);
}

/* --- Beginning and end --- */

/* Sequences begin with 0 in each step, so that a joiner that starts with a step counts as the others do. What the
 * step before had is remembered: others may still ask for an operation that this member never called. */
struct muster_op_id muster_lane_next_id(struct muster_group *group, uint32_t index)
{
    struct muster_lane *lane = &group->lanes[index];

    if (lane->step != group->begun_step) {
        if (lane->next_sequence > 0) {
            lane->step_before = lane->step;
            lane->count_before = lane->next_sequence;
            lane->first_before = lane->first_sequence;
        }
        lane->step = group->begun_step;
        lane->next_sequence = lane->first_sequence = 0;
    }
    lane->is_used = true;
    return (struct muster_op_id){.step = lane->step,
                                 .lane = muster_group_lane_number(group, index),
                                 .sequence = lane->next_sequence++};
}

enum muster_rc muster_run_new(struct muster_group *group, const struct muster_op_call *call,
                              struct muster_op *op, struct muster_run **ret_run)
{
    struct muster_run *run;

    if (group->open_count == 0)
        group->pool->lent_peak_bytes = group->pool->lent_bytes;
    run = muster_buffer_get(group->pool, sizeof(*run));
    if (run == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    group->open_count++;
    memset(run, 0, sizeof(*run));
    if (group->lane_count <= op->lane)
        group->lane_count = op->lane + 1;
    run->group = group;
    run->op = op;
    run->id = call->device.kind != MUSTER_DEVICE_NONE ? call->device.id
                                                      : muster_lane_next_id(group, op->lane);
    run->call = *call;
    run->descriptor = muster_call_hash(call);
    run->deadline_ns = op->deadline_ns;
    if (group->boards !=
        MUSTER_BOARDS_USED) /* Boards tell by themselves who is late, without a look at the clock. */
        run->started_ns = muster_loop_clock_ns(group->env->loop);
    muster_list_init(&run->node);
    op->impl = run;
    op->id = run->id;
    *ret_run = run;
    return MUSTER_OK;
}

void muster_run_free(struct muster_run *run)
{
    muster_timer_stop(&run->timer);
    muster_list_remove(&run->node);
    if (muster_run_is_lingering(run) && --run->group->lingering_count == 0)
        muster_task_post(&run->group->task, run->group->env->loop);
    muster_run_drop_memory(run);
    muster_buffer_unref(run->call.offsets);
    muster_buffer_unref(run);
}

void muster_run_hand_back(struct muster_run *run, enum muster_rc rc)
{
    struct muster_op *op = run->op;

    muster_timer_stop(&run->timer);
    if (op == NULL)
        return;
    /* Before the caller has its memory back, nobody may read it any more. */
    if (rc != MUSTER_OK && muster_run_is_shared(run))
        run->ops->shared->revoke(run);
    MUSTER_ASSERT(op->impl == run && run->group->open_count > 0);
    run->op = NULL;
    op->impl = NULL;
    run->group->open_count--;
    /* Copied first: a wide load right after a narrow store to the same place waits until that has landed. */
    op->result = run->result;
    op->result.wire = "tcp";
    op->result.input = "sent";
    op->result.memory_bytes = run->group->pool->lent_peak_bytes;
    if (muster_run_is_shared(run))
        run->ops->shared->show_result(run, rc, &op->result);
    op->result.epoch = run->group->view->epoch;
    if (rc == MUSTER_OK)
        op->error.sys = 0, op->error.text[0] = '\0'; /* Clearing all of the text would cost more. */
    op->error.rc = rc;
    muster_list_append(&run->group->done, &op->node);
    muster_task_post(&run->group->task, run->group->env->loop);
    if (run->group->events->on_ended != NULL)
        run->group->events->on_ended(run->group->data);
}

void muster_run_move(struct muster_run *run, struct muster_group *group)
{
    MUSTER_ASSERT(run->group != group);
    if (run->op != NULL) {
        MUSTER_ASSERT(run->group->open_count > 0);
        run->group->open_count--;
        group->open_count++;
    }
    run->group = group;
}

void muster_run_end(struct muster_run *run, enum muster_rc rc)
{
    muster_run_hand_back(run, rc);
    muster_run_free(run);
}

void muster_run_join_epoch(struct muster_run *run)
{
    struct muster_group *group = run->group;

    run->participant_count = muster_op_participants(group, &run->id);
    run->self_index = muster_op_participant_index(group, &run->id, group->rank);
    run->complete_count = 0;
    run->least_us = UINT32_MAX;
    MUSTER_ASSERT(run->self_index < run->participant_count);
    if (run->memory != NULL)
        memset(run->heard, 0, run->plan.n);
}

/* --- News --- */

void muster_run_hear_issued(struct muster_run *run, uint32_t participant)
{
    if ((run->heard[participant] & MUSTER_HEARD_ISSUED) != 0 || participant == run->self_index)
        return;
    run->heard[participant] |= MUSTER_HEARD_ISSUED;
    run->result.met_ns = muster_loop_now_ns(run->group->env->loop);
    run->result.last_rank = muster_op_participant_rank(run->group, &run->id, participant);
}

void muster_run_hear_spent(struct muster_run *run, uint32_t participant, uint32_t us)
{
    if (us == 0 || us >= run->least_us)
        return; /* not known, or not the least */
    run->least_us = us;
    run->least_by = participant;
}
