/* A run: one operation from its start until every member is known to have its result. */
#include "collective/group/group_internal.h"
#include "collective/kernel/combine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

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

static struct muster_lane *lane_of(struct muster_run *run)
{
    return &run->group->lanes[MUSTER_LANE_INDEX(run->id.lane)];
}

uint32_t muster_run_cost(const struct muster_run *run)
{
    switch (run->plan.algorithm) {
    case MUSTER_ALGORITHM_EXCHANGE:
        if (run->call.count * run->plan.element_bytes >
            muster_plan_direct_max_bytes(&run->group->view->plan))
            return MUSTER_RING_COST;
        return MUSTER_DIRECT_COST;
    case MUSTER_ALGORITHM_FLAT:
        return MUSTER_FLAT_COST;
    case MUSTER_ALGORITHM_DIRECT:
        return MUSTER_DIRECT_COST;
    default:
        return MUSTER_RING_COST;
    }
}

bool muster_run_awaits_root(const struct muster_run *run)
{
    return run->shm == NULL &&
           (run->plan.kind == MUSTER_OP_REDUCE || run->plan.kind == MUSTER_OP_GATHER) &&
           run->plan.index != run->plan.root;
}

/* --- Frames --- */

void muster_run_send(struct muster_run *run, enum muster_frame_type type, uint32_t participant,
                     uint32_t chunk, const void *payload, uint32_t bytes, void *buffer)
{
    struct muster_group *group = run->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = (uint8_t)type,
        .payload_bytes = bytes,
        .epoch = group->view->epoch,
        .op = run->id,
        .chunk = chunk,
        .offset = type == MUSTER_FRAME_REDUCE || type == MUSTER_FRAME_INPUT
                      ? run->frame_weight
                      : run->result.total_weight,
        .descriptor = run->descriptor,
    };

    run->result.sent_bytes += bytes;
    muster_wire_send(group->wire, muster_op_participant_rank(group, &run->id, participant), &header,
                     payload, buffer);
}

void muster_run_send_all(struct muster_run *run, enum muster_frame_type type)
{
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index)
            muster_run_send(run, type, i, 0, NULL, 0, NULL);
}

/* --- Memory --- */

static bool changes_input(const struct muster_run *run)
{
    bool is_in_place = run->call.kind == MUSTER_OP_ALL_REDUCE || run->call.kind == MUSTER_OP_REDUCE;

    return is_in_place && run->plan.algorithm == MUSTER_ALGORITHM_RING;
}

/* False: no memory. */
static bool take_peers(struct muster_run *run)
{
    size_t bytes = run->plan.n * sizeof(*run->peers);

    if (run->plan.algorithm != MUSTER_ALGORITHM_EXCHANGE)
        return true;
    run->peers = muster_buffer_get(run->group->pool, bytes);
    if (run->peers == NULL)
        return false;
    memset(run->peers, 0, bytes);
    return true;
}

size_t muster_run_table_bytes(const struct muster_plan *plan)
{
    size_t entries = (size_t)plan->chunk_count + plan->n;

    return entries * sizeof(void *) + entries;
}

bool muster_run_take_memory(struct muster_run *run)
{
    size_t chunk_count = run->plan.chunk_count;
    size_t bytes = muster_run_table_bytes(&run->plan);
    uint8_t *memory;

    if (run->memory != NULL)
        return true;
    memory = muster_buffer_get(run->group->pool, bytes);
    if (memory == NULL || !take_peers(run)) {
        muster_buffer_unref(memory);
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return false;
    }
    memset(memory, 0, bytes);
    run->memory = memory;
    run->undo = (void **)(void *)memory;
    run->inputs = run->undo + chunk_count;
    run->chunks = (uint8_t *)(run->inputs + run->plan.n);
    run->heard = run->chunks + chunk_count;
    lane_of(run)->cost += muster_run_cost(run);
    return true;
}

static void drop_buffers(struct muster_run *run)
{
    for (uint32_t c = 0; c < run->plan.chunk_count; c++)
        muster_buffer_unref(run->undo[c]);
    for (uint32_t i = 0; i < run->plan.n; i++)
        muster_buffer_unref(run->inputs[i]);
    muster_steps_drop(run);
    muster_buffer_unref(run->finished);
    run->finished = NULL;
    muster_buffer_unref(run->peers);
    run->peers = NULL;
    muster_buffer_unref(run->weights);
    run->weights = NULL;
}

void muster_run_drop_memory(struct muster_run *run)
{
    if (run->memory == NULL)
        return;
    if (run->shm != NULL)
        muster_shm_drop(run);
    else
        drop_buffers(run);
    muster_buffer_unref(run->memory);
    run->memory = NULL;
    run->final_count = run->start_next = run->start_final = run->input_count = 0;
    run->has_next_started = false;
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
    if (run->memory == NULL || run->state == MUSTER_RUN_DELIVERED)
        return;
    muster_shm_flat_restore(run);
    if (!changes_input(run))
        return;
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

/* --- Life --- */

struct muster_op_id muster_lane_next_id(struct muster_group *group, uint32_t index)
{
    struct muster_lane *lane = &group->lanes[index];

    if (lane->step != group->begun_step) {
        if (lane->next_sequence > 0) {
            lane->step_before = lane->step;
            lane->count_before = lane->next_sequence;
        }
        lane->step = group->begun_step;
        lane->next_sequence = 0;
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
    if (!muster_shm_is_used(group)) /* boards tell by themselves who is late */
        run->started_ns = muster_loop_clock_ns(group->env->loop);
    muster_list_init(&run->node);
    op->impl = run;
    op->cancel = muster_run_cancel;
    op->id = run->id;
    muster_run_start_deadline(run);
    *ret_run = run;
    return MUSTER_OK;
}

void muster_run_free(struct muster_run *run)
{
    muster_timer_stop(&run->timer);
    muster_list_remove(&run->node);
    if (run->is_held && --run->group->held_count == 0)
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
    if (rc != MUSTER_OK)
        muster_shm_revoke(run);
    run->op = NULL;
    op->impl = NULL;
    run->group->open_count--;
    op->result = run->result; /* first: right after a store to it, copying waits for that to land */
    op->result.is_torn = rc != MUSTER_OK && run->shm != NULL && run->state < MUSTER_RUN_COMPLETE &&
                         !muster_shm_has_input(run);
    op->result.wire = run->shm != NULL ? "shm" : "tcp";
    op->result.input = muster_shm_input_name(run);
    op->result.memory_bytes =
        run->group->pool->lent_peak_bytes + (run->shm != NULL ? muster_shm_held_bytes(run) : 0);
    op->result.epoch = run->group->view->epoch;
    if (rc == MUSTER_OK)
        op->error.sys = 0, op->error.text[0] = '\0'; /* not all of it */
    op->error.rc = rc;
    muster_list_append(&run->group->done, &op->node);
    muster_task_post(&run->group->task, run->group->env->loop);
    if (run->group->events->on_ended != NULL)
        run->group->events->on_ended(run->group->data);
}

void muster_run_move(struct muster_run *run, struct muster_group *group)
{
    if (run->op != NULL) {
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
    assert(run->self_index < run->participant_count);
    if (run->memory != NULL)
        memset(run->heard, 0, run->plan.n);
}

/* A step's operations are mostly like the one before. */
static bool is_remembered(const struct muster_plan_memo *memo,
                          const struct muster_plan_input *input, bool is_shm)
{
    const struct muster_plan_input *last = &memo->input;

    return memo->is_set && memo->is_shm == is_shm && last->kind == input->kind &&
           last->n == input->n && last->index == input->index && last->root == input->root &&
           last->count == input->count && last->offsets == NULL && input->offsets == NULL &&
           last->element_bytes == input->element_bytes && last->is_in_order == input->is_in_order &&
           last->is_weighted == input->is_weighted && last->host_count == input->host_count;
}

static void plan_by(struct muster_run *run, const struct muster_plan_input *input)
{
    struct muster_plan_memo *memo = &run->group->plan_memo;
    bool is_shm = muster_shm_is_used(run->group);

    if (!is_remembered(memo, input, is_shm)) {
        memo->input = *input;
        memo->plan = is_shm ? muster_shm_plan_make(input) : muster_plan_make(input);
        memo->is_shm = is_shm;
        memo->is_set = true;
    }
    run->plan = memo->plan;
}

void muster_run_make_plan(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_plan_input input = {
        .kind = run->call.kind,
        .n = run->participant_count,
        .index = run->self_index,
        .count = run->call.count,
        .offsets = run->call.offsets,
        .host_count = muster_group_topology(group, &run->id)->host_count,
        .element_bytes = muster_call_element_bytes(&run->call),
        .is_in_order = run->call.user.reduce != NULL && !run->call.user.is_commutative,
        .is_weighted = run->call.is_weighted,
        .parameters = group->view->plan,
    };
    uint32_t root;

    assert(run->memory == NULL);
    if (muster_op_kind_has_root(run->call.kind) &&
        muster_view_find(group->view, &run->call.root.incarnation, &root))
        input.root = muster_op_participant_index(group, &run->id, root);
    if (input.root >= input.n)
        input.root = 0;
    plan_by(run, &input);
}

/* False: no room on the board for now. */
static bool activate_shm(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = lane_of(run);

    if (!muster_shm_prepare(run))
        return run->abort_why == MUSTER_RESOURCE_EXHAUSTED;
    muster_shm_start(run);
    if (run->state == MUSTER_RUN_COMPLETE)
        muster_lane_settle(group, lane);
    return true;
}

static void activate(struct muster_run *run)
{
    if (!muster_run_take_memory(run))
        return;
    run->state = MUSTER_RUN_ACTIVE;
    run->result.contributor_count = run->plan.n;
    run->result.total_weight = 0;
    run->heard[run->self_index] = MUSTER_HEARD_ISSUED;
    switch (run->plan.algorithm) {
    case MUSTER_ALGORITHM_DIRECT:
        muster_direct_start(run);
        break;
    case MUSTER_ALGORITHM_RING:
        muster_ring_start(run);
        break;
    case MUSTER_ALGORITHM_EXCHANGE:
        muster_exchange_start(run);
        break;
    case MUSTER_ALGORITHM_FLAT:
    case MUSTER_ALGORITHM_HOST:
        break;
    default:
        muster_steps_start(run);
        break;
    }
}

/* The members have agreed on boards since it was issued. */
static void plan_for_shm(struct muster_run *run)
{
    if (run->plan.n == 1 || (muster_plan_is_shm(&run->plan) && run->memory == NULL))
        return;
    for (uint32_t i = 0; run->memory != NULL && i < run->plan.n; i++)
        if ((run->heard[i] & MUSTER_HEARD_MISMATCH) != 0)
            run->heard_over |= UINT64_C(1) << i;
    muster_run_drop_memory(run);
    muster_run_make_plan(run);
}

void muster_lane_advance(struct muster_group *group, struct muster_lane *lane)
{
    struct muster_list *node = lane->runs.next;

    if (group->is_frozen || !muster_shm_is_settled(group))
        return;
    while (node != &lane->runs) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);
        struct muster_op_id id = run->id;

        node = node->next;
        if (run->state != MUSTER_RUN_QUEUED || run->is_unfit ||
            run->abort_why == MUSTER_RESOURCE_EXHAUSTED)
            continue;
        if (muster_shm_is_used(group))
            plan_for_shm(run);
        if (lane->cost > 0 && lane->cost + muster_run_cost(run) > MUSTER_LANE_COST_MAX)
            return;
        if (!muster_plan_is_shm(&run->plan))
            activate(run);
        else if (!activate_shm(run))
            return;
        muster_group_replay_early(group, &id);
        node = lane->runs.next; /* completions may have changed the list */
    }
}

/* Why no member runs the operation in this epoch, or NULL. */
static const char *abort_reason(const struct muster_run *run, const struct muster_verdict *verdict)
{
    if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ABORTED)
        return "aborted";
    return run->group->view->is_below_min ? "fewer than the minimum of members" : NULL;
}

/* A root that has come back is a joiner: steps that had begun go on without it. */
static bool takes_part(const struct muster_run *run, const struct muster_incarnation *member)
{
    uint32_t rank;

    return muster_view_find(run->group->view, member, &rank) &&
           muster_op_participant_index(run->group, &run->id, rank) != UINT32_MAX;
}

/* Started with a root or a size that this epoch does not have, or NULL. The others may have called
 * it with what fits, and wait: they must be told. */
static const char *misfit(const struct muster_run *run, const struct muster_verdict *verdict)
{
    bool is_adopted = verdict != NULL && verdict->kind == MUSTER_VERDICT_ADOPT;

    if (muster_op_kind_has_root(run->call.kind) && !is_adopted &&
        !takes_part(run, &run->call.root.incarnation))
        return "the root is gone";
    if (run->call.n > 0 && run->call.n != run->participant_count)
        return "the number of members has changed";
    if (run->call.members != 0 &&
        run->call.members != muster_op_participants_hash(run->group, run->group->view, &run->id))
        return "the members have changed";
    return NULL;
}

static void explain(struct muster_run *run, const char *reason)
{
    char text[192];

    snprintf(text, sizeof(text), "%s (view %llu: %s)", reason,
             (unsigned long long)run->group->view->epoch, run->group->view->reason);
    run->result.verdict = MUSTER_VERDICT_ABORTED;
    muster_run_explain_abort(run, MUSTER_ABORTED, text);
}

bool muster_run_is_refused(struct muster_run *run, const struct muster_verdict *verdict)
{
    const char *reason = misfit(run, verdict);

    if (reason == NULL)
        return false;
    explain(run, reason);
    run->is_unfit = true; /* the explanation stays */
    muster_run_propose_abort(run, MUSTER_ABORTED);
    return true;
}

void muster_run_issue(struct muster_run *run)
{
    struct muster_lane *lane = lane_of(run);
    const struct muster_verdict *verdict = muster_view_verdict(run->group->view, &run->id);
    struct muster_group *group;
    const char *reason;

    muster_run_join_epoch(run);
    reason = abort_reason(run, verdict);
    lane->has_issued = true;
    lane->issued_through = run->id;
    run->state = MUSTER_RUN_QUEUED;
    muster_list_remove(&run->node);
    muster_list_append(&lane->runs, &run->node);
    muster_run_make_plan(run);
    if (reason != NULL) {
        explain(run, reason);
        muster_run_end(run, MUSTER_ABORTED);
        return;
    }
    if (muster_run_is_refused(run, verdict))
        return;
    group = run->group;
    if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ADOPT) {
        if (verdict->descriptor != run->descriptor) {
            muster_run_contradict(run);
            return;
        }
        run->result.verdict = MUSTER_VERDICT_ADOPT;
        muster_run_adopt(run, verdict);
        muster_group_replay_early(group, &verdict->op);
    }
    muster_lane_advance(group, lane);
}

/* --- Completion --- */

/* Direct: who has all inputs knows that all have called. A broadcast needs one input only, and must
 * not end a step that a joiner has not reached (docs/protocol.md, "Steps and state"). */
static bool is_deliverable(const struct muster_run *run)
{
    if (run->shm != NULL)
        return muster_shm_is_deliverable(run);
    bool has_all_called =
        run->plan.algorithm == MUSTER_ALGORITHM_DIRECT && run->call.kind != MUSTER_OP_BROADCAST;

    return run->state == MUSTER_RUN_COMPLETE &&
           (has_all_called || run->complete_count == run->participant_count);
}

/* No member has the result of these before all have started them. */
static bool awaits_all(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_ALL_REDUCE || kind == MUSTER_OP_REDUCE_SCATTER ||
           kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN || kind == MUSTER_OP_ALL_GATHER ||
           kind == MUSTER_OP_ALL_GATHER_UNEVEN || kind == MUSTER_OP_BARRIER;
}

/* Plans over TCP hear the start of their neighbours only, who may have waited themselves. But all have
 * the result at about the same time: who has spent the least on it has started last. */
static void find_last(struct muster_run *run)
{
    uint32_t waited_us = run->spent_us > run->least_us ? run->spent_us - run->least_us : 0;

    if (run->plan.algorithm == MUSTER_ALGORITHM_DIRECT || !awaits_all(run->call.kind) ||
        run->least_us == UINT32_MAX || run->spent_us == 0)
        return;
    run->result.met_ns = run->started_ns + waited_us * MUSTER_NS_PER_US;
    run->result.last_rank = muster_op_participant_rank(run->group, &run->id, run->least_by);
}

static void deliver(struct muster_run *run)
{
    if (run->shm == NULL)
        find_last(run);
    if (run->plan.algorithm == MUSTER_ALGORITHM_DIRECT)
        muster_direct_deliver(run);
    else
        muster_steps_deliver(run);
    if (run->shm == NULL && run->plan.algorithm != MUSTER_ALGORITHM_DIRECT)
        run->group->is_done_late = true;
    run->state = MUSTER_RUN_DELIVERED;
    muster_run_hand_back(run, MUSTER_OK);
}

static bool is_stable(const struct muster_run *run)
{
    if (run->state == MUSTER_RUN_DELIVERED && run->shm != NULL)
        return muster_shm_is_stable(run);
    return (run->state == MUSTER_RUN_DELIVERED || run->state == MUSTER_RUN_ENDED) &&
           run->complete_count == run->participant_count;
}

/* Callbacks come in lane order; what all members have is forgotten. */
void muster_lane_settle(struct muster_group *group, struct muster_lane *lane)
{
    struct muster_list *node;
    bool has_freed = false;

    for (node = lane->runs.next; node != &lane->runs; node = node->next) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);

        if (is_deliverable(run))
            deliver(run);
        if (run->state < MUSTER_RUN_DELIVERED)
            break;
    }
    while (!muster_list_is_empty(&lane->runs)) {
        struct muster_run *run = MUSTER_CONTAINER_OF(lane->runs.next, struct muster_run, node);

        if (!is_stable(run))
            break;
        lane->has_stable = true;
        lane->stable_through = run->id;
        muster_run_free(run);
        has_freed = true;
    }
    if (has_freed)
        muster_lane_advance(group, lane);
}

/* 0: not known. */
static uint32_t spent_us(const struct muster_run *run)
{
    uint64_t us;

    if (run->started_ns == 0)
        return 0;
    us = (muster_loop_clock_ns(run->group->env->loop) - run->started_ns) / MUSTER_NS_PER_US;
    return us < UINT32_MAX ? (uint32_t)us + 1 : UINT32_MAX;
}

void muster_run_complete(struct muster_run *run)
{
    assert(run->state == MUSTER_RUN_ACTIVE);
    run->state = MUSTER_RUN_COMPLETE;
    muster_shm_advance(run->group, &run->id);
    run->spent_us = spent_us(run);
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index)
            muster_run_send(run, MUSTER_FRAME_COMPLETE, i, run->spent_us, NULL, 0, NULL);
    muster_run_hear_complete(run, run->self_index);
}

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

void muster_run_hear_complete(struct muster_run *run, uint32_t participant)
{
    if ((run->heard[participant] & MUSTER_HEARD_COMPLETE) != 0)
        return;
    run->heard[participant] |= MUSTER_HEARD_COMPLETE;
    run->complete_count++;
    if (run->state == MUSTER_RUN_ACTIVE && muster_run_awaits_root(run) &&
        participant == run->plan.root)
        muster_run_complete(run);
    else
        muster_lane_settle(run->group, lane_of(run));
}
