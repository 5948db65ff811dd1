/* A model of collectives under membership: an operation's value is the set of its contributors. One
 * outcome for everybody. */
#include "membership_pump.h"

#include <string.h>

#include "cluster/membership/progress_proto.h"

static uint64_t node_bit(unsigned node)
{
    return (uint64_t)1 << node;
}

/* --- outcomes: what a whole job may see of one operation --- */

static void check_outcome(struct pump_node *node, const struct muster_op_id *id, uint64_t value)
{
    struct pump *pump = node->pump;

    for (size_t i = pump->outcome_count; i-- > 0;) {
        const struct pump_outcome *known = &pump->outcomes[i];

        if (known->generation != node->generation || known->step != id->step ||
            known->sequence != id->sequence)
            continue;
        if (known->value != value)
            pump_fail(pump, "step %llu.%u: %llx at node %u, %llx elsewhere",
                      (unsigned long long)id->step, id->sequence, (unsigned long long)value,
                      node->index, (unsigned long long)known->value);
        return;
    }
    if (pump->outcome_count < PUMP_OUTCOMES)
        pump->outcomes[pump->outcome_count++] = (struct pump_outcome){
            .generation = node->generation,
            .step = id->step,
            .sequence = id->sequence,
            .value = value,
        };
}

static bool is_complete(const struct pump_op *op)
{
    for (unsigned chunk = 0; chunk < PUMP_CHUNKS; chunk++)
        if (op->chunks[chunk] == 0)
            return false;
    return true;
}

static void node_deliver(struct pump_node *node, struct pump_op *op)
{
    for (unsigned chunk = 1; chunk < PUMP_CHUNKS; chunk++)
        if (op->chunks[chunk] != op->chunks[0])
            pump_fail(node->pump, "node %u: chunks of step %llu of different contributors",
                      node->index, (unsigned long long)op->id.step);
    op->is_delivered = true;
    node->deliveries++;
    node->committed_step = op->id.step;
    node->next_sequence = 0;
}

static void remove_op(struct pump_node *node, unsigned at)
{
    for (unsigned i = at + 1; i < node->op_count; i++)
        node->ops[i - 1] = node->ops[i];
    node->op_count--;
}

static uint64_t node_participants(const struct pump_node *node, const struct muster_op_id *id)
{
    uint64_t set = 0;

    for (uint32_t i = 0; i < node->view->member_count; i++)
        if (node->view->members[i].from_step <= id->step)
            set |= node_bit(pump_node_of(node->pump, &node->view->members[i].incarnation));
    return set;
}

/* --- running --- */

static void say_complete(struct pump_node *node, struct pump_op *op)
{
    uint64_t to = node_participants(node, &op->id);

    if (op->is_announced)
        return;
    op->is_announced = true;
    op->complete_from |= node_bit(node->index);
    for (unsigned i = 0; i < node->pump->node_count; i++)
        if ((to & node_bit(i)) != 0 && i != node->index)
            pump_send_complete(node, i, node->view->epoch, &op->id);
}

/* Deliver what may be delivered; forget, in order, what everybody has. */
static void node_settle(struct pump_node *node)
{
    for (unsigned i = 0; i < node->op_count;) {
        struct pump_op *op = &node->ops[i];
        uint64_t all = node_participants(node, &op->id);

        if (!is_complete(op))
            return;
        say_complete(node, op);
        if (!op->is_delivered && (op->is_small || (op->complete_from & all) == all))
            node_deliver(node, op);
        if (i > 0 || (op->complete_from & all) != all) {
            i++;
            continue;
        }
        check_outcome(node, &op->id, op->chunks[0]);
        node->has_stable = true;
        node->stable_through = op->id;
        remove_op(node, 0);
    }
}

void pump_ops_complete(struct pump_node *node, unsigned from, uint64_t epoch,
                       const struct muster_op_id *id)
{
    if (node->view == NULL || node->is_frozen || node->view->epoch != epoch)
        return;
    for (unsigned i = 0; i < node->op_count; i++)
        if (muster_op_id_compare(&node->ops[i].id, id) == 0)
            node->ops[i].complete_from |= node_bit(from);
    node_settle(node);
}

/* All participants have issued it in this epoch: then its chunks may become final anywhere, even
 * after a death. */
static bool may_run(struct pump_node *node, const struct pump_op *op)
{
    struct pump *pump = node->pump;
    uint64_t epoch = node->view->epoch;
    uint64_t all = node_participants(node, &op->id);

    if (muster_op_id_compare(&pump->issuing[epoch], &op->id) < 0) {
        pump->issuing[epoch] = op->id;
        pump->issuers[epoch] = 0;
    }
    if (muster_op_id_compare(&pump->issuing[epoch], &op->id) != 0)
        return true; /* others are past it */
    pump->issuers[epoch] |= node_bit(node->index);
    return (pump->issuers[epoch] & all) == all;
}

/* A chunk that a verdict says to fetch. */
static bool node_fetch(struct pump_node *node, struct pump_op *op,
                       const struct muster_verdict *verdict, unsigned chunk)
{
    struct pump *pump = node->pump;

    for (uint32_t i = 0; i < verdict->source_count; i++) {
        const struct muster_chunk_source *source = &verdict->sources[i];
        const struct pump_node *holder;

        if (chunk < source->first || chunk >= source->first + source->count)
            continue;
        holder = &pump->nodes[pump_node_of(pump, &node->view->members[source->rank].incarnation)];
        if (!holder->is_alive || holder->is_frozen || holder->view == NULL ||
            holder->view->epoch != node->view->epoch)
            return false;
        for (unsigned k = 0; k < holder->op_count; k++)
            if (muster_op_id_compare(&holder->ops[k].id, &op->id) == 0 &&
                holder->ops[k].chunks[chunk] != 0) {
                op->chunks[chunk] = holder->ops[k].chunks[chunk];
                return true;
            }
        pump_fail(pump, "node %u: source %u of chunk %u does not hold it", node->index,
                  holder->index, chunk);
        return false;
    }
    pump_fail(pump, "node %u: chunk %u of an adopted operation has no source", node->index, chunk);
    return false;
}

static void run_op(struct pump_node *node, struct pump_op *op)
{
    const struct muster_verdict *verdict = muster_view_verdict(node->view, &op->id);
    unsigned chunk = (unsigned)pump_random(node->pump, PUMP_CHUNKS);

    if (op->chunks[chunk] != 0)
        return;
    if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ADOPT)
        node_fetch(node, op, verdict, chunk);
    else if (may_run(node, op))
        op->chunks[chunk] = node_participants(node, &op->id);
}

static void abort_at_issue(struct pump_node *node, const struct muster_op_id *id)
{
    check_outcome(node, id, PUMP_ABORTED);
    node->next_sequence++;
}

static void node_issue(struct pump_node *node)
{
    struct muster_op_id id = {.step = node->committed_step + 1, .sequence = node->next_sequence};
    const struct muster_verdict *verdict;
    struct pump_op *op;

    if (node->op_count > 0 && !node->ops[node->op_count - 1].is_delivered)
        return;
    if (node->op_count == PUMP_OPS_MAX ||
        (node->view->is_stopping && id.step > node->view->stop_step))
        return;
    node->begun_step = id.step;
    node->has_issued = true;
    node->issued_through = id;
    verdict = muster_view_verdict(node->view, &id);
    if (verdict != NULL && verdict->kind == MUSTER_VERDICT_ABORTED) {
        abort_at_issue(node, &id);
        return;
    }
    op = &node->ops[node->op_count++];
    memset(op, 0, sizeof(*op));
    op->id = id;
    op->is_small = id.step % 2 == 0;
    may_run(node, op);
}

/* A joiner takes the state before its first step from any older member that has it. */
static bool catch_up(struct pump_node *node)
{
    uint32_t rank;
    uint64_t from_step;

    if (!node->is_behind)
        return true;
    if (node->pump->is_catch_up_held)
        return false;
    muster_view_find(node->view, &node->member.incarnation, &rank);
    from_step = node->view->members[rank].from_step;
    for (uint32_t i = 0; i < node->view->member_count; i++) {
        const struct pump_node *other =
            &node->pump->nodes[pump_node_of(node->pump, &node->view->members[i].incarnation)];

        if (!other->is_alive || other == node || other->is_behind || other->view == NULL ||
            other->view->epoch != node->view->epoch || other->committed_step + 1 < from_step)
            continue;
        if (other->committed_step + 1 > from_step)
            pump_fail(node->pump, "step %llu ended without the joiner %u",
                      (unsigned long long)from_step, node->index);
        node->generation = other->generation;
        node->is_behind = false;
    }
    if (!node->is_behind)
        node->committed_step = from_step - 1;
    return !node->is_behind;
}

void pump_ops_tick(struct pump_node *node)
{
    if (node->view == NULL || node->is_frozen || node->paused_until_ns > node->pump->now_ns ||
        !catch_up(node))
        return;
    for (unsigned i = 0; i < node->op_count; i++)
        run_op(node, &node->ops[i]);
    node_settle(node);
    node_issue(node);
}

/* --- changes of view --- */

static struct muster_progress_op vector_of(struct muster_mem *mem, const struct pump_op *op)
{
    struct muster_progress_op vector = {.id = op->id, .descriptor = 7, .has_inputs = true};
    bool is_begun = false;

    vector.kind = MUSTER_OP_ALL_REDUCE;
    vector.is_abort_proposed = op->is_abort_proposed;
    vector.chunk_count = PUMP_CHUNKS;
    vector.chunks_final = muster_mem_alloc_zero(mem, 1, 1);
    for (unsigned chunk = 0; chunk < PUMP_CHUNKS; chunk++)
        if (op->chunks[chunk] != 0) {
            vector.chunks_final[0] = (uint8_t)(vector.chunks_final[0] | 1u << chunk);
            is_begun = true;
        }
    vector.phase = is_begun ? MUSTER_PHASE_GATHER : MUSTER_PHASE_REDUCE;
    if (is_complete(op))
        vector.phase = op->is_delivered ? MUSTER_PHASE_DELIVERED : MUSTER_PHASE_COMPLETE;
    return vector;
}

struct muster_progress *pump_ops_freeze(struct pump_node *node)
{
    struct muster_mem *mem = node->pump->mem;
    struct muster_progress *progress = muster_mem_alloc_zero(mem, 1, sizeof(*progress));

    node->is_frozen = true;
    progress->mem = mem;
    progress->epoch = node->view == NULL ? 0 : node->view->epoch;
    progress->begun_step = node->begun_step;
    progress->committed_step = node->committed_step;
    progress->lacks_state = node->is_behind;
    progress->lane_count = 1;
    progress->lanes = muster_mem_alloc_zero(mem, 1, sizeof(*progress->lanes));
    progress->lanes[0].has_issued = node->has_issued;
    progress->lanes[0].issued_through = node->issued_through;
    progress->lanes[0].has_stable = node->has_stable;
    progress->lanes[0].stable_through = node->stable_through;
    progress->ops = muster_mem_alloc_zero(mem, PUMP_OPS_MAX, sizeof(*progress->ops));
    for (unsigned i = 0; i < node->op_count; i++)
        progress->ops[progress->op_count++] = vector_of(mem, &node->ops[i]);
    return progress;
}

/* ADOPT without sources: every survivor has the whole result, so it is delivered and forgotten at
 * once. */
static bool node_conclude(struct pump_node *node, struct pump_op *op)
{
    if (!is_complete(op))
        pump_fail(node->pump, "node %u: adopted without sources, but not complete", node->index);
    if (!op->is_delivered)
        node_deliver(node, op);
    check_outcome(node, &op->id, op->chunks[0]);
    node->has_stable = true;
    node->stable_through = op->id;
    return true;
}

/* Returns false when the operation has ended. */
static bool apply_verdict(struct pump_node *node, struct pump_op *op,
                          const struct muster_view *view)
{
    const struct muster_verdict *verdict = muster_view_verdict(view, &op->id);
    struct pump *pump = node->pump;

    op->complete_from = 0;
    op->is_announced = false;
    if (verdict == NULL) {
        pump_fail(pump, "node %u: no verdict on step %llu", node->index,
                  (unsigned long long)op->id.step);
        return true;
    }
    if (verdict->kind != MUSTER_VERDICT_ADOPT && op->is_delivered)
        pump_fail(pump, "node %u: a delivered operation is not adopted", node->index);
    if (verdict->kind == MUSTER_VERDICT_ADOPT) {
        pump->verdicts_adopt++;
        return verdict->source_count > 0 || !node_conclude(node, op);
    }
    memset(op->chunks, 0, sizeof(op->chunks));
    if (verdict->kind == MUSTER_VERDICT_RETRY) {
        pump->verdicts_retry++;
        return true;
    }
    pump->verdicts_abort++;
    check_outcome(node, &op->id, PUMP_ABORTED);
    node->next_sequence = op->id.sequence + 1;
    return false;
}

static void begin_anew(struct pump_node *node, const struct muster_view *view)
{
    uint32_t rank;

    muster_view_find(view, &node->member.incarnation, &rank);
    node->op_count = 0;
    node->begun_step = 0;
    node->committed_step = 0;
    node->next_sequence = 0;
    node->has_issued = node->has_stable = false;
    node->generation = view->epoch;
    node->is_behind = view->members[rank].from_step > 0;
}

void pump_ops_open(struct pump_node *node, struct muster_view *view, bool is_hand_over)
{
    if (!is_hand_over)
        begin_anew(node, view);
    node->is_failed = node->is_failed || (view->is_state_lost && node->is_behind);
    for (unsigned i = 0; i < node->op_count;)
        if (apply_verdict(node, &node->ops[i], view))
            i++;
        else
            remove_op(node, i);
    muster_view_unref(node->view);
    node->view = muster_view_ref(view);
    node->is_frozen = false;
}

void pump_ops_abort(struct pump_node *node)
{
    muster_view_unref(node->view);
    node->view = NULL;
    node->is_frozen = false;
    node->op_count = 0;
}

/* All open operations end here with an error; the group takes no part in anything more. */
void pump_ops_expire(struct pump_node *node)
{
    for (unsigned i = 0; i < node->op_count; i++)
        if (!node->ops[i].is_delivered)
            node->next_sequence = node->ops[i].id.sequence + 1;
    node->op_count = 0;
    node->is_frozen = true;
}
