/* The training loop of simulated processes. */
#include "tests/sim/trainee.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define SEQUENCES_MAX 8 /* the ledger's room per step */
#define BEGIN_POLL_NS (2 * MUSTER_NS_PER_MS)

/* The loop. */

static void continue_step(struct trainee *trainee);

static void wait_then(struct trainee *trainee, uint64_t delay_max_ns)
{
    struct muster_loop *loop = trainee->env->loop;

    muster_timer_start(
        &trainee->timer, loop,
        muster_loop_after_ns(loop, muster_rng_below(trainee->env->rng, delay_max_ns + 1)));
}

static void on_done(struct trainee_op *op)
{
    struct trainee *trainee = op->trainee;

    trainee->done_count++;
    if (trainee->is_running && trainee->done_count == trainee->op_count)
        wait_then(trainee, trainee->pace_ns);
}

/* Operations of a round leave one by one, so that a change may fall between them. */
static void issue_next(struct trainee *trainee)
{
    struct muster_op_id id = {.step = trainee->step, .sequence = trainee->sequence};

    trainee->sequence++;
    trainee_op_start(&trainee->slots[trainee->issued++], trainee, &id, NULL, on_done);
    if (trainee->is_running && trainee->issued < trainee->op_count)
        wait_then(trainee, trainee->pace_ns / 10);
}

/* Some state changes before any operation: statistics of a forward pass, the state of a generator.
 * Only where joiners are waited for: a stage without nodes copies the state when it likes. */
static void change_early(struct trainee *trainee)
{
    for (uint32_t i = 0; trainee->ops->may_begin != NULL && i < TRAINEE_STATE_COUNT; i += 3)
        trainee->state[i] = (int64_t)sim_mix((uint64_t)trainee->state[i], trainee->step);
}

static void begin_step(struct trainee *trainee)
{
    trainee->has_begun =
        trainee->ops->may_begin == NULL || trainee->ops->may_begin(trainee->keeper, trainee->step);
    if (!trainee->has_begun) {
        wait_then(trainee, BEGIN_POLL_NS);
        return;
    }
    trainee->sequence = 0;
    trainee->issued = trainee->done_count = 0;
    trainee->op_count = 1 + (uint32_t)(sim_mix(trainee->seed, trainee->step) % TRAINEE_OPS_MAX);
    trainee->ops->begin_step(trainee->keeper, trainee->step);
    change_early(trainee);
    trainee_mail_begin(trainee);
    trainee_aside_begin(trainee);
    if (trainee->is_running)
        issue_next(trainee);
}

void trainee_aside_closed(struct trainee *trainee)
{
    trainee->aside_open--;
    if (!trainee->is_running || trainee->aside_open > 0 || trainee->issued < trainee->op_count ||
        trainee->done_count < trainee->op_count)
        return;
    muster_timer_stop(&trainee->timer);
    wait_then(trainee, trainee->pace_ns);
}

/* Start aborted operations again, in the same order everywhere. False: none was aborted. */
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
        int64_t gradient = trainee_op_gradient(op, i);

        trainee->state[i] = (int64_t)sim_mix((uint64_t)trainee->state[i], (uint64_t)gradient);
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
    if (!trainee->has_begun)
        begin_step(trainee);
    else if (trainee->issued < trainee->op_count)
        issue_next(trainee);
    else if (trainee->done_count == trainee->op_count && !start_again(trainee) &&
             trainee->aside_open == 0)
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
    trainee->color = ledger_color(incarnation);
    trainee->seed = seed;
    trainee->ops = ops;
    trainee->keeper = keeper;
    trainee->may_cancel = seed % 3 == 0;
    trainee->pace_ns = (UINT64_C(1) << 21) << sim_mix(seed, 5) % 5;
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
    return sim_digest(trainee->state, sizeof(trainee->state));
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

    for (i = 0; i < TRAINEE_OPS_MAX; i++)
        trainee_op_fini(&trainee->slots[i]);
    trainee_aside_fini(trainee);
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
