/* All-reduces by weight, and by a function of the program's own, in a simulated training loop. */
#include <muster/collective.h>

#include <math.h>
#include <string.h>

#include "tests/sim/trainee.h"

/* An affine function modulo 2^64: composing them is associative, and not commutative. */
struct affine {
    uint64_t factor, term;
};

#define WORDS (sizeof(struct affine) / sizeof(uint64_t))

static struct affine compose_affine(struct affine first, struct affine then)
{
    return (struct affine){first.factor * then.factor, first.term * then.factor + then.term};
}

static struct affine element_of(const struct trainee_op *op, uint32_t life, uint64_t i)
{
    uint64_t mixed = sim_mix(sim_mix(op->shape, i), life);

    return (struct affine){mixed | 1, sim_mix(mixed, 1)};
}

static void reduce_affine(void *data, void *into, const void *from, size_t count)
{
    struct affine *sums = into;
    const struct affine *elements = from;
    size_t i;

    (void)data;
    for (i = 0; i < count; i++)
        sums[i] = compose_affine(sums[i], elements[i]);
}

static uint64_t weight_of(const struct trainee_op *op, uint32_t life)
{
    return sim_mix(op->shape, 1000 + life) % 5;
}

void trainee_reduce_shape(struct trainee_op *op)
{
    op->input.dtype = op->flavour == TRAINEE_USER ? MUSTER_I64 : MUSTER_F64;
    if (op->flavour == TRAINEE_USER)
        op->input.count *= WORDS;
    op->output = op->input;
}

void trainee_reduce_fill(struct trainee_op *op)
{
    struct affine *elements = op->input.data;
    uint64_t i;

    for (i = 0; i < op->input.count / WORDS; i++)
        elements[i] = element_of(op, op->trainee->life, i);
}

enum muster_rc trainee_reduce_start(struct trainee_op *op, struct muster_group *group,
                                    muster_op_fn *done)
{
    static const struct muster_user_reduction reduction = {
        .name = "compose", .element_bytes = sizeof(struct affine), .reduce = reduce_affine};

    if (op->flavour == TRAINEE_WEIGHTED)
        return muster_all_reduce_weighted_start(&op->op, group, &op->output,
                                                weight_of(op, op->trainee->life), done);
    return muster_all_reduce_user_start(&op->op, group, op->output.data, op->output.count / WORDS,
                                        &reduction, done);
}

/* --- Results --- */

static uint32_t life_at(const struct trainee_op *op, uint64_t epoch, uint64_t place)
{
    const struct ledger *ledger = op->trainee->ledger;
    ledger_lives_type lives = ledger_participants_of(ledger, epoch, &op->id);
    uint32_t life;

    for (life = 0; life < LEDGER_LIVES_MAX; life++)
        if ((lives >> life & 1) != 0 && ledger_place(ledger, epoch, &op->id, life) == place)
            break;
    return life;
}

static bool is_composed(const struct trainee_op *op, uint64_t epoch, uint64_t i)
{
    ledger_lives_type lives = ledger_participants_of(op->trainee->ledger, epoch, &op->id);
    uint64_t n = (uint64_t)__builtin_popcountll(lives), place;
    struct affine sum = {1, 0};

    for (place = 0; place < n; place++)
        sum = compose_affine(sum, element_of(op, life_at(op, epoch, place), i));
    return n > 0 && memcmp(&sum, (struct affine *)op->output.data + i, sizeof(sum)) == 0;
}

static void check_composed(const struct trainee_op *op, struct ledger_outcome *outcome)
{
    uint64_t epoch = outcome->epoch, i;

    while (epoch > 0 && !is_composed(op, epoch, 0))
        epoch--;
    for (i = 0; i < op->output.count / WORDS; i++)
        if (!is_composed(op, epoch, i)) {
            trainee_op_complain(op, "wrong composition at element", i);
            break;
        }
    outcome->contributors = ledger_participants_of(op->trainee->ledger, epoch, &op->id);
}

/* The mean of the numbers that stand for lives; their weights to ret_total. */
static double mean_of(const struct trainee_op *op, ledger_lives_type lives, uint64_t *ret_total)
{
    uint64_t total = 0;
    double sum = 0;
    uint32_t life;

    for (life = 0; life < LEDGER_LIVES_MAX; life++)
        if ((lives >> life & 1) != 0) {
            total += weight_of(op, life);
            sum += (double)trainee_key_sum(UINT64_C(1) << life) * (double)weight_of(op, life);
        }
    *ret_total = total;
    return total == 0 ? 0 : sum / (double)total;
}

/* Members of weight 0 are not looked at, so that two epochs may come to the same mean. */
static bool is_mean(const struct trainee_op *op, uint64_t epoch, uint64_t i)
{
    ledger_lives_type lives = ledger_participants_of(op->trainee->ledger, epoch, &op->id);
    double got = ((const double *)op->output.data)[i], wanted;
    uint64_t total;

    wanted = mean_of(op, lives, &total) * (double)(trainee_op_value(op, 1, i) / trainee_key_sum(1));
    return lives != 0 && total == op->op.result.total_weight &&
           (uint32_t)__builtin_popcountll(lives) == op->op.result.contributor_count &&
           fabs(got - wanted) <= 1e-9 * fabs(wanted);
}

static void check_mean(const struct trainee_op *op, struct ledger_outcome *outcome)
{
    uint64_t epoch = outcome->epoch, i;

    while (epoch > 0 && !is_mean(op, epoch, 0))
        epoch--;
    for (i = 0; i < op->output.count; i++)
        if (epoch == 0 || !is_mean(op, epoch, i)) {
            trainee_op_complain(op, "wrong mean at element", i);
            break;
        }
    outcome->is_partial = true;
}

void trainee_reduce_check(const struct trainee_op *op, struct ledger_outcome *outcome)
{
    if (op->flavour == TRAINEE_WEIGHTED)
        check_mean(op, outcome);
    else
        check_composed(op, outcome);
}
