/* Lists of tensors in a simulated training loop: each tensor is checked by itself, for parts of a
 * list may have been done in different views. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/trainee.h"

#define LIST_LANE       3
#define LIST_TIMEOUT_NS (300 * MUSTER_NS_PER_S)
#define GAP_BYTES       64
#define CANCEL_ONE_IN   150

static int64_t factor_of(const struct trainee_list *list, uint32_t tensor, uint64_t i)
{
    return (int64_t)(1 + (sim_mix(sim_mix(list->shape, tensor), i) & 0xFF));
}

static void set_elements(const struct muster_tensor *tensor, uint64_t i, int64_t value)
{
    if (tensor->dtype == MUSTER_F64)
        ((double *)tensor->data)[i] = (double)value;
    else
        ((int64_t *)tensor->data)[i] = value;
}

static struct muster_op_id id_of(const struct trainee_list *list)
{
    return (struct muster_op_id){.step = list->step, .lane = LIST_LANE};
}

static bool is_sum(const struct trainee_list *list, uint32_t tensor, uint64_t i,
                   ledger_lives_type lives)
{
    return lives != 0 && trainee_op_element(&list->tensors[tensor], i) ==
                             trainee_key_sum(lives) * factor_of(list, tensor, i);
}

/* The sum of one epoch's participants, or (broadcast) what one life had; 0: neither. */
static ledger_lives_type find_lives(const struct trainee_list *list, uint32_t tensor,
                                    uint64_t epoch)
{
    const struct ledger *ledger = list->trainee->ledger;
    uint32_t life;

    for (; !list->is_broadcast && epoch > 0; epoch--)
        if (is_sum(list, tensor, 0, ledger_participants(ledger, epoch, list->step)))
            return ledger_participants(ledger, epoch, list->step);
    for (life = 0; list->is_broadcast && life < LEDGER_LIVES_MAX; life++)
        if (is_sum(list, tensor, 0, UINT64_C(1) << life))
            return UINT64_C(1) << life;
    return 0;
}

static void check_tensor(const struct trainee_list *list, uint32_t tensor, uint64_t epoch)
{
    ledger_lives_type lives = 0;
    uint64_t i;

    if (list->tensors[tensor].count > 0)
        lives = find_lives(list, tensor, epoch);
    for (i = 0; i < list->tensors[tensor].count; i++)
        if (!is_sum(list, tensor, i, lives)) {
            sim_fail(list->trainee->world,
                     "list of step %" PRIu64 " at life %" PRIu32 ": tensor %" PRIu32
                     " is wrong at element %" PRIu64,
                     list->step, list->trainee->life, tensor, i);
            return;
        }
}

static void list_judge(struct trainee_list *list, enum muster_rc rc)
{
    struct trainee *trainee = list->trainee;
    struct ledger_outcome outcome = {.rc = rc, .is_partial = true, .has_value = true};
    struct muster_op_id id = id_of(list);
    uint32_t i;

    outcome.epoch = rc == MUSTER_OK ? list->op.result.epoch : trainee->ops->epoch(trainee->keeper);
    for (i = 0; i < list->count && rc == MUSTER_OK; i++) {
        const struct muster_tensor *tensor = &list->tensors[i];

        check_tensor(list, i, outcome.epoch);
        outcome.digest =
            sim_mix(outcome.digest, sim_digest(tensor->data, tensor->count * sizeof(int64_t)));
    }
    ledger_done(trainee->ledger, trainee->life, &id, &outcome);
}

static void on_done(struct muster_list_op *op, enum muster_rc rc)
{
    struct trainee_list *list = op->data;
    struct trainee *trainee = list->trainee;

    if (!list->is_open)
        sim_fail(trainee->world, "a list called back twice");
    list->is_open = false;
    if (rc == MUSTER_OK)
        trainee->ops->touch(trainee->keeper);
    if (rc != MUSTER_OK && rc != MUSTER_ABORTED && !trainee->may_cancel && !trainee->is_ending &&
        !trainee->wants_leave)
        sim_fail(trainee->world, "a list of life %" PRIu32 " ended with %d: %s", trainee->life,
                 (int)rc, op->error.text);
    list_judge(list, rc);
    trainee_aside_closed(trainee);
}

/* In one block, some of them neighbours: those need no copy. */
static void make_tensors(struct trainee_list *list)
{
    uint64_t shape = list->shape;
    uint8_t *at;
    uint32_t i;

    list->count = 1 + (uint32_t)(shape % TRAINEE_LIST_MAX);
    list->memory = sim_mem_alloc_surely(list->trainee->env->mem,
                                        TRAINEE_LIST_MAX * (1024 * sizeof(int64_t) + GAP_BYTES));
    at = list->memory;
    for (i = 0; i < list->count; i++) {
        uint64_t drawn = sim_mix(shape, i), k;

        list->tensors[i] =
            (struct muster_tensor){.data = at,
                                   .count = (drawn >> 8) % (UINT64_C(1) << drawn % 11),
                                   .dtype = (drawn >> 40 & 3) == 0 ? MUSTER_F64 : MUSTER_I64};
        for (k = 0; k < list->tensors[i].count; k++)
            set_elements(&list->tensors[i], k,
                         trainee_key_sum(UINT64_C(1) << list->trainee->life) *
                             factor_of(list, i, k));
        at += list->tensors[i].count * sizeof(int64_t);
        at += muster_rng_below(list->trainee->env->rng, 2) * GAP_BYTES;
    }
}

static uint32_t choose_root(const struct trainee_list *list, struct muster_group *group)
{
    const struct muster_view *view = muster_group_view(group);
    uint32_t rank = (uint32_t)(list->shape >> 32) % view->member_count;

    while (view->members[rank].from_step > list->step)
        rank = (rank + 1) % view->member_count;
    return rank;
}

bool trainee_list_start(struct trainee *trainee, struct muster_group *group, uint64_t shape)
{
    struct trainee_list *list = &trainee->list;
    struct muster_op_id id;
    enum muster_rc rc;

    if (list->is_open)
        sim_fail(trainee->world, "a list has never called back");
    muster_mem_free(trainee->env->mem, list->memory);
    list->trainee = trainee;
    list->step = trainee->step;
    list->shape = shape;
    list->is_broadcast = (shape >> 60 & 3) == 0;
    make_tensors(list);
    list->op.data = list;
    list->op.lane = LIST_LANE;
    list->op.deadline_ns = muster_loop_after_ns(trainee->env->loop, LIST_TIMEOUT_NS);
    list->op.bytes_per_pack = (shape >> 16 & 3) == 0 ? 0 : UINT64_C(16) << (shape >> 18) % 10;
    rc = list->is_broadcast
             ? muster_broadcast_list_start(&list->op, group, list->tensors, list->count,
                                           choose_root(list, group), on_done)
             : muster_all_reduce_list_start(&list->op, group, list->tensors, list->count,
                                            MUSTER_SUM, on_done);
    if (rc == MUSTER_FAILED_PRECONDITION && trainee->may_cancel)
        return false;
    id = id_of(list);
    ledger_started(trainee->ledger, trainee->life, &id);
    if (rc != MUSTER_OK) {
        sim_fail(trainee->world, "a list is refused: %d", (int)rc);
        return false;
    }
    list->is_open = true;
    trainee->aside_open++;
    if (trainee->may_cancel && muster_rng_below(trainee->env->rng, CANCEL_ONE_IN) == 0)
        muster_list_op_cancel(&list->op);
    return true;
}

void trainee_list_fini(struct trainee_list *list)
{
    if (list->trainee == NULL)
        return;
    muster_list_op_fini(&list->op);
    muster_mem_free(list->trainee->env->mem, list->memory);
    list->memory = NULL;
}
