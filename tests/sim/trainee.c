/* The training loop of simulated processes. */
#include "tests/sim/trainee.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OP_TIMEOUT_NS (300 * MUSTER_NS_PER_S)
#define SEQUENCES_MAX 8        /* the ledger's room per step */
#define KEY_MASK      0xFFFFFF /* inputs are small whole numbers: sums are exact in every type */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t mixed = (a ^ (b * UINT64_C(0x9E3779B97F4A7C15))) * UINT64_C(0xBF58476D1CE4E5B9);

    return mixed ^ mixed >> 31;
}

/* The number that stands for a life in every sum. */
static int64_t key_of(uint32_t life)
{
    return (int64_t)(mix(77, life + 1) & KEY_MASK) | 1;
}

static int64_t key_sum(ledger_lives_type lives)
{
    int64_t sum = 0;
    uint32_t life;

    for (life = 0; life < LEDGER_LIVES_MAX; life++)
        if ((lives >> life & 1) != 0)
            sum += key_of(life);
    return sum;
}

static int64_t weight(const struct trainee_op *op, uint64_t element)
{
    return (int64_t)(1 + (mix(op->shape, element) & 0xFF));
}

/* Inputs and results. */

static size_t tensor_bytes(const struct trainee_op *op)
{
    return (size_t)op->tensor.count * muster_dtype_bytes(op->tensor.dtype);
}

static bool is_f64(const struct trainee_op *op)
{
    return op->tensor.dtype == MUSTER_F64;
}

static int64_t element_of(const struct trainee_op *op, uint64_t i)
{
    return is_f64(op) ? (int64_t)op->values->f64[i] : op->values->i64[i];
}

static void fill_inputs(struct trainee_op *op)
{
    uint64_t i;

    for (i = 0; i < op->tensor.count; i++) {
        int64_t value = key_of(op->trainee->life) * weight(op, i);

        if (is_f64(op))
            op->values->f64[i] = (double)value;
        else
            op->values->i64[i] = value;
    }
    memcpy(op->inputs, op->values, tensor_bytes(op));
}

/* Whose inputs are in: those who take part in some epoch up to now, or nobody (a wrong sum). */
static ledger_lives_type find_contributors(const struct trainee_op *op, uint64_t epoch)
{
    const struct ledger *ledger = op->trainee->ledger;
    int64_t first = op->tensor.count > 0 ? element_of(op, 0) : 0;

    for (; epoch > 0; epoch--) {
        ledger_lives_type lives = ledger_participants(ledger, epoch, op->id.step);

        if (lives != 0 && key_sum(lives) * weight(op, 0) == first)
            return lives;
    }
    return 0;
}

static void check_elements(const struct trainee_op *op, ledger_lives_type lives)
{
    int64_t sum = key_sum(lives);
    uint64_t i;

    for (i = 0; i < op->tensor.count; i++)
        if (element_of(op, i) != sum * weight(op, i)) {
            sim_fail(op->trainee->world,
                     "operation (%" PRIu64 ", %" PRIu32 ") at life %" PRIu32 ": element %" PRIu64
                     " is not the sum of lives %" PRIx64,
                     op->id.step, op->id.sequence, op->trainee->life, i, lives);
            return;
        }
}

static uint64_t digest_of(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t digest = count;

    while (count-- > 0)
        digest = mix(digest, *at++);
    return digest;
}

static uint32_t bit_count(ledger_lives_type lives)
{
    return (uint32_t)__builtin_popcountll(lives);
}

static void check_count(const struct trainee_op *op, ledger_lives_type lives)
{
    if (lives != 0 && bit_count(lives) != op->op.result.contributor_count)
        sim_fail(op->trainee->world,
                 "operation (%" PRIu64 ", %" PRIu32 ") names %" PRIu32
                 " contributors and sums lives %" PRIx64,
                 op->id.step, op->id.sequence, op->op.result.contributor_count, lives);
}

static void judge(struct trainee_op *op, enum muster_rc rc)
{
    struct trainee *trainee = op->trainee;
    struct ledger_outcome outcome = {.rc = rc, .has_value = !op->is_barrier};

    outcome.epoch = rc == MUSTER_OK ? op->op.result.epoch : trainee->ops->epoch(trainee->keeper);
    if (rc == MUSTER_OK && outcome.has_value) {
        outcome.contributors = find_contributors(op, outcome.epoch);
        outcome.digest = digest_of(op->values, tensor_bytes(op));
        check_elements(op, outcome.contributors);
        check_count(op, outcome.contributors);
    } else if (rc != MUSTER_OK && outcome.has_value &&
               memcmp(op->values, op->inputs, tensor_bytes(op)) != 0) {
        sim_fail(trainee->world,
                 "operation (%" PRIu64 ", %" PRIu32 ") ended with %s at life %" PRIu32
                 " and has changed its inputs",
                 op->id.step, op->id.sequence, muster_rc_name(rc), trainee->life);
    }
    ledger_done(trainee->ledger, trainee->life, &op->id, &outcome);
}

/* The loop. */

static void continue_step(struct trainee *trainee);

static void wait_then(struct trainee *trainee, uint64_t delay_max_ns)
{
    struct muster_loop *loop = trainee->env->loop;

    muster_timer_start(
        &trainee->timer, loop,
        muster_loop_after_ns(loop, muster_rng_below(trainee->env->rng, delay_max_ns + 1)));
}

static void on_done(struct muster_op *base, enum muster_rc rc)
{
    struct trainee_op *op = base->data;
    struct trainee *trainee = op->trainee;

    if (muster_op_id_compare(&base->id, &op->id) != 0)
        sim_fail(trainee->world,
                 "operation (%" PRIu64 ", %" PRIu32 ") calls itself (%" PRIu64 ", %" PRIu32 ")",
                 op->id.step, op->id.sequence, base->id.step, base->id.sequence);
    if (op->state != TRAINEE_OP_OPEN)
        sim_fail(trainee->world, "an operation of life %" PRIu32 " calls back twice",
                 trainee->life);
    if (rc == MUSTER_OK)
        trainee->ops->touch(trainee->keeper);
    judge(op, rc);
    op->state = rc == MUSTER_OK ? TRAINEE_OP_OK : TRAINEE_OP_FAILED;
    trainee->done_count++;
    if (trainee->is_running && trainee->done_count == trainee->op_count)
        wait_then(trainee, trainee->pace_ns);
}

static void choose_shape(struct trainee_op *op)
{
    const struct trainee *trainee = op->trainee;
    uint64_t shape = mix(mix(trainee->seed, op->id.step), op->id.sequence);
    uint64_t count_max = UINT64_C(1) << (shape >> 8 & 0xFF) % 10;

    op->shape = shape;
    op->is_barrier = shape % 11 == 0;
    op->tensor.dtype = (shape >> 20 & 1) != 0 ? MUSTER_F64 : MUSTER_I64;
    op->tensor.count = 1 + (shape >> 24 & 0xFFFF) % count_max;
}

static void make_room(struct trainee_op *op)
{
    struct muster_mem *mem = op->trainee->env->mem;

    muster_mem_free(mem, op->values);
    muster_mem_free(mem, op->inputs);
    op->values = muster_mem_alloc(mem, tensor_bytes(op));
    op->inputs = muster_mem_alloc(mem, tensor_bytes(op));
    op->tensor.data = op->values;
}

static void start_op(struct trainee *trainee, struct trainee_op *op)
{
    struct muster_group *group = trainee->ops->group(trainee->keeper);
    enum muster_rc rc;

    if (op->state == TRAINEE_OP_OPEN)
        sim_fail(trainee->world, "an operation of life %" PRIu32 " has never called back",
                 trainee->life);
    op->trainee = trainee;
    op->id = (struct muster_op_id){.step = trainee->step, .sequence = trainee->sequence++};
    op->op = (struct muster_op){.data = op};
    op->op.deadline_ns = muster_loop_after_ns(trainee->env->loop, OP_TIMEOUT_NS);
    op->state = TRAINEE_OP_OPEN;
    choose_shape(op);
    make_room(op);
    fill_inputs(op);
    ledger_started(trainee->ledger, trainee->life, &op->id);
    if (group == NULL) {
        sim_fail(trainee->world, "life %" PRIu32 " has a step to do and no group", trainee->life);
        return;
    }
    rc = op->is_barrier ? muster_barrier_start(&op->op, group, on_done)
                        : muster_all_reduce_start(&op->op, group, &op->tensor, MUSTER_SUM, on_done);
    if (rc != MUSTER_OK)
        sim_fail(trainee->world, "life %" PRIu32 " may not start an operation: %s", trainee->life,
                 muster_rc_name(rc));
}

/* Operations of a round leave one by one, so that a change may fall between them. */
static void issue_next(struct trainee *trainee)
{
    start_op(trainee, &trainee->slots[trainee->issued++]);
    if (trainee->issued < trainee->op_count)
        wait_then(trainee, trainee->pace_ns / 10);
}

static void begin_step(struct trainee *trainee)
{
    trainee->sequence = 0;
    trainee->issued = trainee->done_count = 0;
    trainee->op_count = 1 + (uint32_t)(mix(trainee->seed, trainee->step) % TRAINEE_OPS_MAX);
    trainee->ops->begin_step(trainee->keeper, trainee->step);
    issue_next(trainee);
}

/* What was aborted is started again, in the same order everywhere. False: nothing was. */
static bool start_again(struct trainee *trainee)
{
    uint32_t i, count = 0;

    for (i = 0; i < trainee->op_count; i++)
        if (trainee->slots[i].state == TRAINEE_OP_FAILED)
            count++;
    if (count == 0 || trainee->sequence + count > SEQUENCES_MAX) /* everybody gives up alike */
        return false;
    trainee->op_count = count;
    trainee->issued = trainee->done_count = 0;
    issue_next(trainee);
    return true;
}

static void update_state(struct trainee *trainee)
{
    uint32_t i;

    for (i = 0; i < TRAINEE_STATE_COUNT; i++) {
        const struct trainee_op *op = &trainee->slots[i % trainee->op_count];
        int64_t gradient =
            op->is_barrier || op->state != TRAINEE_OP_OK ? 1 : element_of(op, i % op->tensor.count);

        trainee->state[i] = (int64_t)mix((uint64_t)trainee->state[i], (uint64_t)gradient);
    }
}

static void commit_step(struct trainee *trainee)
{
    update_state(trainee);
    trainee->committed = trainee->step;
    ledger_state(trainee->ledger, trainee->life, trainee->step, trainee_state_digest(trainee));
    trainee->ops->commit_step(trainee->keeper, trainee->step);
    trainee->step++;
    if (trainee->wants_leave) {
        trainee->is_running = false;
        trainee->ops->may_leave(trainee->keeper);
        return;
    }
    begin_step(trainee);
}

static void continue_step(struct trainee *trainee)
{
    if (!trainee->is_running)
        return;
    if (trainee->issued < trainee->op_count)
        issue_next(trainee);
    else if (trainee->done_count == trainee->op_count && !start_again(trainee))
        commit_step(trainee);
}

static void on_timer(struct muster_timer *timer)
{
    continue_step(timer->data);
}

void trainee_init(struct trainee *trainee, struct sim_node *node, struct ledger *ledger,
                  const struct muster_incarnation *incarnation, uint64_t seed,
                  const struct trainee_keeper_ops *ops, void *keeper)
{
    memset(trainee, 0, sizeof(*trainee));
    trainee->world = sim_node_world(node);
    trainee->ledger = ledger;
    trainee->env = sim_node_env(node);
    trainee->life = ledger_life(ledger, incarnation);
    trainee->seed = seed;
    trainee->ops = ops;
    trainee->keeper = keeper;
    trainee->pace_ns = (UINT64_C(1) << 19) << mix(seed, 5) % 7;
    muster_timer_init(&trainee->timer, on_timer, trainee);
    trainee_reset_state(trainee);
}

void trainee_reset_state(struct trainee *trainee)
{
    uint32_t i;

    for (i = 0; i < TRAINEE_STATE_COUNT; i++)
        trainee->state[i] = i;
}

uint64_t trainee_state_digest(const struct trainee *trainee)
{
    return digest_of(trainee->state, sizeof(trainee->state));
}

void trainee_go(struct trainee *trainee, uint64_t next_step)
{
    assert(!trainee->is_running);
    if (next_step > 1)
        ledger_state(trainee->ledger, trainee->life, next_step - 1, trainee_state_digest(trainee));
    trainee->is_running = true;
    trainee->step = next_step;
    begin_step(trainee);
}

void trainee_fini(struct trainee *trainee)
{
    uint32_t i;

    for (i = 0; i < TRAINEE_OPS_MAX; i++) {
        muster_mem_free(trainee->env->mem, trainee->slots[i].values);
        muster_mem_free(trainee->env->mem, trainee->slots[i].inputs);
    }
}

void trainee_halt(struct trainee *trainee)
{
    trainee->is_running = false;
    muster_timer_stop(&trainee->timer);
}

void trainee_wish_leave(struct trainee *trainee)
{
    trainee->wants_leave = true;
    if (!trainee->is_running)
        trainee->ops->may_leave(trainee->keeper);
}
