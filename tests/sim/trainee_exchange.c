/* Exchanges, reduce and uneven parts in a simulated training loop: elements that tell who gave them
 * for whom. */
#include <muster/collective.h>

#include "tests/sim/trainee.h"

bool trainee_exchange_is(enum muster_op_kind kind)
{
    return kind >= MUSTER_OP_REDUCE && kind <= MUSTER_OP_PERMUTE;
}

/* Elements that the member at place `from` has for the one at place `to`. */
static uint64_t count_of(const struct trainee_op *op, uint32_t from, uint32_t to)
{
    switch (op->kind) {
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return (from + op->shape) % 3 * op->part;
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        return (to + op->shape) % 3 * op->part;
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        return (from * 3 + to * 5 + op->shape) % 4 * op->part;
    case MUSTER_OP_PERMUTE:
        return to == (from + 1) % op->n ? op->part : 0;
    default:
        return op->part;
    }
}

/* All members' parts, or what one has for all. */
static uint64_t op_total(const struct trainee_op *op, bool is_received)
{
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < op->n; i++)
        sum += is_received ? count_of(op, i, op->place) : count_of(op, op->place, i);
    return sum;
}

void trainee_exchange_shape(struct trainee_op *op)
{
    op->input.count = op->output.count = op->part;
    switch (op->kind) {
    case MUSTER_OP_GATHER:
        op->output.count = op->n * op->part;
        break;
    case MUSTER_OP_SCATTER:
        op->input.count = op->n * op->part;
        break;
    case MUSTER_OP_ALL_TO_ALL:
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        op->input.count = op_total(op, false);
        op->output.count = op_total(op, true);
        break;
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        op->input.count = count_of(op, op->place, 0);
        op->output.count = op_total(op, true);
        break;
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        op->input.count = op_total(op, false);
        op->output.count = count_of(op, 0, op->place);
        break;
    default:
        break;
    }
}

enum muster_rc trainee_exchange_start(struct trainee_op *op, struct muster_group *group,
                                      uint32_t root, muster_op_fn *done)
{
    uint64_t send_counts[LEDGER_LIVES_MAX], receive_counts[LEDGER_LIVES_MAX];
    struct muster_parts to = {op->input.data, send_counts, op->n, op->input.dtype};
    struct muster_parts from = {op->output.data, receive_counts, op->n, op->output.dtype};
    struct muster_route route = {(op->place + 1) % op->n, (op->place + op->n - 1) % op->n};
    uint32_t i;

    for (i = 0; i < op->n; i++) {
        send_counts[i] = count_of(op, op->place, i);
        receive_counts[i] = count_of(op, i, op->place);
    }
    switch (op->kind) {
    case MUSTER_OP_REDUCE:
        return muster_reduce_start(&op->op, group, &op->output, MUSTER_SUM, root, done);
    case MUSTER_OP_GATHER:
        return muster_gather_start(&op->op, group, &op->input, &op->output, root, done);
    case MUSTER_OP_SCATTER:
        return muster_scatter_start(&op->op, group, &op->input, &op->output, root, done);
    case MUSTER_OP_ALL_TO_ALL:
        return muster_all_to_all_start(&op->op, group, &op->input, &op->output, done);
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        return muster_all_to_all_uneven_start(&op->op, group, &to, &from, done);
    case MUSTER_OP_PERMUTE:
        return muster_permute_start(&op->op, group, &op->input, &op->output, &route, done);
    case MUSTER_OP_ALL_GATHER_UNEVEN:
        return muster_all_gather_uneven_start(&op->op, group, &op->input, &from, done);
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        return muster_reduce_scatter_uneven_start(&op->op, group, &to, &op->output, MUSTER_SUM,
                                                  done);
    default:
        return MUSTER_INTERNAL;
    }
}

/* --- Results --- */

static ledger_lives_type op_participants(const struct trainee_op *op)
{
    return ledger_participants_of(op->trainee->ledger, op->epoch, &op->id);
}

static ledger_lives_type life_at(const struct trainee_op *op, uint32_t place)
{
    ledger_lives_type lives = op_participants(op);
    uint32_t life;

    for (life = 0; life < LEDGER_LIVES_MAX; life++)
        if ((lives >> life & 1) != 0 &&
            ledger_place(op->trainee->ledger, op->epoch, &op->id, life) == place)
            return UINT64_C(1) << life;
    return 0;
}

/* Elements [at, at + count) of the output are those from `first` on of what these lives gave. */
static void check_run(const struct trainee_op *op, ledger_lives_type lives, uint64_t at,
                      uint64_t first, uint64_t count)
{
    uint64_t i;

    for (i = 0; i < count; i++)
        if (trainee_op_element(&op->output, at + i) != trainee_op_value(op, lives, first + i)) {
            trainee_op_complain(op, "wrong element", at + i);
            return;
        }
}

/* Where the part for this member begins in the input of the one at place `from`. */
static uint64_t first_of(const struct trainee_op *op, uint32_t from)
{
    uint64_t first = 0;
    uint32_t to;

    if (op->kind != MUSTER_OP_ALL_TO_ALL && op->kind != MUSTER_OP_ALL_TO_ALL_UNEVEN)
        return 0;
    for (to = 0; to < op->place; to++)
        first += count_of(op, from, to);
    return first;
}

static void check_from_all(const struct trainee_op *op)
{
    uint64_t at = 0;
    uint32_t from;

    for (from = 0; from < op->n; from++) {
        uint64_t count = count_of(op, from, op->place);

        check_run(op, life_at(op, from), at, first_of(op, from), count);
        at += count;
    }
}

/* Those of the epoch whose participants' inputs it sums; a root that was adopted may have any. */
static void check_reduced(const struct trainee_op *op)
{
    ledger_lives_type lives = 0;
    uint64_t epoch = op->op.result.epoch;

    for (; epoch > 0; epoch--) {
        lives = ledger_participants_of(op->trainee->ledger, epoch, &op->id);
        if (lives != 0 && trainee_op_element(&op->output, 0) == trainee_op_value(op, lives, 0))
            break;
    }
    check_run(op, lives, 0, 0, op->output.count);
    if ((uint32_t)__builtin_popcountll(lives) != op->op.result.contributor_count)
        trainee_op_complain(op, "the count of contributors is not that of lives", lives);
}

static uint64_t first_scattered(const struct trainee_op *op)
{
    uint64_t first = 0;
    uint32_t to;

    for (to = 0; to < op->place; to++)
        first += count_of(op, 0, to);
    return first;
}

void trainee_exchange_check(const struct trainee_op *op)
{
    bool is_root = op->root_life == op->trainee->life;
    ledger_lives_type root = UINT64_C(1) << op->root_life;

    switch (op->kind) {
    case MUSTER_OP_REDUCE:
        if (is_root)
            check_reduced(op);
        else
            check_run(op, UINT64_C(1) << op->trainee->life, 0, 0, op->output.count);
        break;
    case MUSTER_OP_GATHER:
        if (is_root)
            check_from_all(op);
        break;
    case MUSTER_OP_SCATTER:
        check_run(op, root, 0, op->place * op->part, op->part);
        break;
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
        check_run(op, op_participants(op), 0, first_scattered(op), op->output.count);
        break;
    default:
        check_from_all(op);
        break;
    }
}
