/* One operation of a training loop: inputs that tell who gave them, results checked to the last
 * element. */
#include "tests/sim/trainee.h"

#include <inttypes.h>
#include <string.h>

#include "collective/view/progress.h"

#define OP_TIMEOUT_NS (300 * MUSTER_NS_PER_S)
#define KEY_MASK      0xFFFFFF /* inputs are small whole numbers: sums are exact in every type */
#define CANCEL_ONE_IN 150

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t mixed = (a ^ (b * UINT64_C(0x9E3779B97F4A7C15))) * UINT64_C(0xBF58476D1CE4E5B9);

    return mixed ^ mixed >> 31;
}

uint64_t sim_digest(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t digest = count;

    while (count-- > 0)
        digest = sim_mix(digest, *at++);
    return digest;
}

/* The number that stands for a life in every sum. */
static int64_t key_of(uint32_t life)
{
    return (int64_t)(sim_mix(77, life + 1) & KEY_MASK) | 1;
}

int64_t trainee_key_sum(ledger_lives_type lives)
{
    int64_t sum = 0;
    uint32_t life;

    for (life = 0; life < LEDGER_LIVES_MAX; life++)
        if ((lives >> life & 1) != 0)
            sum += key_of(life);
    return sum;
}

static int64_t op_weight(const struct trainee_op *op, uint64_t element)
{
    return (int64_t)(1 + (sim_mix(op->shape, element) & 0xFF));
}

int64_t trainee_op_value(const struct trainee_op *op, ledger_lives_type lives, uint64_t element)
{
    return trainee_key_sum(lives) * op_weight(op, element);
}

void trainee_op_complain(const struct trainee_op *op, const char *what, uint64_t number)
{
    sim_fail(op->trainee->world,
             "operation (%" PRIu64 ", %" PRIu32 ") of kind %d at life %" PRIu32 ": %s %" PRIx64,
             op->id.step, op->id.sequence, (int)op->kind, op->trainee->life, what, number);
}

/* Memory. */

static size_t tensor_bytes(const struct muster_tensor *tensor)
{
    return (size_t)tensor->count * muster_dtype_bytes(tensor->dtype);
}

int64_t trainee_op_element(const struct muster_tensor *tensor, uint64_t i)
{
    return tensor->dtype == MUSTER_F64 ? (int64_t)((const double *)tensor->data)[i]
                                       : ((const int64_t *)tensor->data)[i];
}

static void set_element(const struct muster_tensor *tensor, uint64_t i, int64_t value)
{
    if (tensor->dtype == MUSTER_F64)
        ((double *)tensor->data)[i] = (double)value;
    else
        ((int64_t *)tensor->data)[i] = value;
}

static bool has_own_output(const struct trainee_op *op)
{
    return op->kind == MUSTER_OP_ALL_GATHER || op->kind == MUSTER_OP_REDUCE_SCATTER ||
           (trainee_exchange_is(op->kind) && op->kind != MUSTER_OP_REDUCE);
}

void trainee_op_fini(struct trainee_op *op)
{
    struct muster_mem *mem;

    if (op->trainee == NULL)
        return;
    mem = op->trainee->env->mem;
    if (op->is_shared)
        op->trainee->ops->unshare(op->trainee->keeper, op->input.data);
    else
        muster_mem_free(mem, op->input.data);
    if (op->output.data != op->input.data)
        muster_mem_free(mem, op->output.data);
    muster_mem_free(mem, op->saved);
    op->input.data = op->output.data = op->saved = NULL;
}

/* Blocks of their own: a byte too far is seen. */
static void make_room(struct trainee_op *op)
{
    struct muster_mem *mem = op->trainee->env->mem;

    if ((op->shape >> 3 & 1) != 0 && op->trainee->ops->share != NULL)
        op->input.data = op->trainee->ops->share(op->trainee->keeper, tensor_bytes(&op->input));
    op->is_shared = op->input.data != NULL;
    if (!op->is_shared)
        op->input.data = sim_mem_alloc_surely(mem, tensor_bytes(&op->input));
    op->saved = sim_mem_alloc_surely(mem, tensor_bytes(&op->input));
    op->output.data =
        has_own_output(op) ? sim_mem_alloc_surely(mem, tensor_bytes(&op->output)) : op->input.data;
}

static void fill_input(struct trainee_op *op)
{
    uint64_t i;

    if (op->flavour == TRAINEE_USER)
        trainee_reduce_fill(op);
    for (i = 0; i < op->input.count && op->flavour != TRAINEE_USER; i++)
        set_element(&op->input, i, key_of(op->trainee->life) * op_weight(op, i));
    memcpy(op->saved, op->input.data, tensor_bytes(&op->input));
}

/* Results. */

/* The epoch whose participants' inputs make up this sum; 0: none. */
static uint64_t find_epoch(const struct trainee_op *op, uint64_t epoch, uint64_t element,
                           int64_t value)
{
    for (; epoch > 0; epoch--) {
        ledger_lives_type lives = ledger_participants_of(op->trainee->ledger, epoch, &op->id);

        if (lives != 0 && trainee_key_sum(lives) * op_weight(op, element) == value)
            return epoch;
    }
    return 0;
}

static ledger_lives_type check_sum(const struct trainee_op *op, uint64_t epoch)
{
    ledger_lives_type lives;
    uint64_t i;

    epoch = find_epoch(op, epoch, 0, trainee_op_element(&op->output, 0));
    lives = ledger_participants_of(op->trainee->ledger, epoch, &op->id);
    for (i = 0; i < op->output.count; i++)
        if (trainee_op_element(&op->output, i) != trainee_key_sum(lives) * op_weight(op, i)) {
            trainee_op_complain(op, "wrong sum at element", i);
            break;
        }
    return lives;
}

/* This member's part of the sum: by its place among those who took part. */
static ledger_lives_type check_part(const struct trainee_op *op, uint64_t epoch)
{
    const struct ledger *ledger = op->trainee->ledger;
    uint64_t first = 0, i;
    ledger_lives_type lives;

    for (; epoch > 0; epoch--) {
        lives = ledger_participants_of(ledger, epoch, &op->id);
        first = ledger_place(ledger, epoch, &op->id, op->trainee->life) * op->output.count;
        if (trainee_key_sum(lives) * op_weight(op, first) == trainee_op_element(&op->output, 0))
            break;
    }
    lives = ledger_participants_of(ledger, epoch, &op->id);
    for (i = 0; i < op->output.count; i++)
        if (trainee_op_element(&op->output, i) !=
            trainee_key_sum(lives) * op_weight(op, first + i)) {
            trainee_op_complain(op, "wrong part at element", i);
            break;
        }
    return lives;
}

/* Life whose input begins with this element; LEDGER_LIVES_MAX: nobody's. */
static uint32_t find_giver(const struct trainee_op *op, int64_t value)
{
    uint32_t life = 0;

    while (life < LEDGER_LIVES_MAX && key_of(life) * op_weight(op, 0) != value)
        life++;
    return life;
}

static ledger_lives_type check_copy(const struct trainee_op *op, uint64_t first, uint64_t count)
{
    uint32_t life = find_giver(op, trainee_op_element(&op->output, first));
    uint64_t i;

    if (life == LEDGER_LIVES_MAX) {
        trainee_op_complain(op, "nobody's input at element", first);
        return 0;
    }
    for (i = 0; i < count; i++)
        if (trainee_op_element(&op->output, first + i) != key_of(life) * op_weight(op, i)) {
            trainee_op_complain(op, "wrong copy at element", first + i);
            break;
        }
    return UINT64_C(1) << life;
}

static ledger_lives_type check_gathered(const struct trainee_op *op)
{
    ledger_lives_type lives = 0;
    uint64_t part;

    for (part = 0; part < op->output.count / op->input.count; part++)
        lives |= check_copy(op, part * op->input.count, op->input.count);
    return lives;
}

static void check_count(const struct trainee_op *op, ledger_lives_type lives)
{
    if ((uint32_t)__builtin_popcountll(lives) != op->op.result.contributor_count)
        trainee_op_complain(op, "the count of contributors is not that of lives", lives);
}

/* Between start and end lies a change of view, or none: the operation must know. */
static void check_interruption(const struct trainee_op *op)
{
    const struct muster_op_result *result = &op->op.result;

    /* through boards an operation may end while the change of view is under way */
    if (!result->is_interrupted && result->epoch != op->epoch)
        trainee_op_complain(op, "does not know whether it was interrupted since epoch", op->epoch);
}

static void check_ok(const struct trainee_op *op, struct ledger_outcome *outcome)
{
    check_interruption(op);
    outcome->has_value = true;
    if (op->flavour != TRAINEE_SUM) {
        trainee_reduce_check(op, outcome);
        outcome->digest = sim_digest(op->output.data, tensor_bytes(&op->output));
        return;
    }
    switch (op->kind) {
    case MUSTER_OP_ALL_REDUCE:
        outcome->contributors = check_sum(op, outcome->epoch);
        check_count(op, outcome->contributors);
        break;
    case MUSTER_OP_REDUCE_SCATTER: /* each has another part: only who is in it can be compared */
        outcome->contributors = check_part(op, outcome->epoch);
        return;
    case MUSTER_OP_BROADCAST:
        outcome->contributors = check_copy(op, 0, op->output.count);
        outcome->is_partial = true;
        break;
    case MUSTER_OP_ALL_GATHER:
        outcome->contributors = check_gathered(op);
        break;
    case MUSTER_OP_BARRIER:
        outcome->has_value = false;
        return;
    default: /* each has something else: only that all have it can be compared */
        trainee_exchange_check(op);
        outcome->is_partial = true;
        return;
    }
    outcome->digest = sim_digest(op->output.data, tensor_bytes(&op->output));
}

static bool is_expected(const struct trainee_op *op, enum muster_rc rc)
{
    return rc == MUSTER_ABORTED || (op->trainee->may_starve && rc == MUSTER_RESOURCE_EXHAUSTED) ||
           (op->is_unfit && rc == MUSTER_INVALID_ARGUMENT) ||
           (op->trainee->may_cancel &&
            (rc == MUSTER_CANCELLED || rc == MUSTER_DEADLINE_EXCEEDED)) ||
           ((op->trainee->wants_leave || op->trainee->is_ending) && rc == MUSTER_CANCELLED);
}

static void op_judge(struct trainee_op *op, enum muster_rc rc)
{
    struct trainee *trainee = op->trainee;
    struct ledger_outcome outcome = {.rc = rc};

    if (rc == MUSTER_OK) {
        outcome.epoch = op->op.result.epoch;
        check_ok(op, &outcome);
    } else {
        outcome.epoch = trainee->ops->epoch(trainee->keeper);
        if (!is_expected(op, rc))
            trainee_op_complain(op, op->op.error.text, (uint64_t)rc);
    }
    if (rc != MUSTER_OK && op->kind != MUSTER_OP_BARRIER && op->kind != MUSTER_OP_BROADCAST &&
        !(op->op.result.is_torn && outcome.epoch == 0) && /* left out, and told so */
        memcmp(op->input.data, op->saved, tensor_bytes(&op->input)) != 0)
        trainee_op_complain(op, "inputs changed by a failure", (uint64_t)rc);
    ledger_done(trainee->ledger, trainee->life, &op->id, &outcome);
}

static void on_done(struct muster_op *base, enum muster_rc rc)
{
    struct trainee_op *op = base->data;

    if (muster_op_id_compare(&base->id, &op->id) != 0)
        trainee_op_complain(op, "calls itself sequence", base->id.sequence);
    if (op->state != TRAINEE_OP_OPEN)
        trainee_op_complain(op, "called back twice", 0);
    if (rc == MUSTER_OK)
        op->trainee->ops->touch(op->trainee->keeper);
    op_judge(op, rc);
    op->state = rc == MUSTER_OK ? TRAINEE_OP_OK : TRAINEE_OP_FAILED;
    op->done(op);
}

int64_t trainee_op_gradient(const struct trainee_op *op, uint64_t i)
{
    /* a part is different on each member: no gradient for a common state */
    if (op->state != TRAINEE_OP_OK || op->kind == MUSTER_OP_BARRIER ||
        op->kind == MUSTER_OP_REDUCE_SCATTER || trainee_exchange_is(op->kind))
        return 1;
    return trainee_op_element(&op->output, i % op->output.count);
}

/* Starting. */

bool trainee_op_takes_part(const struct muster_op_id *id, const struct muster_member *member)
{
    uint32_t color = id->lane / MUSTER_LANE_COLOR;

    return member->from_step <= id->step &&
           (color == 0 || ledger_color(&member->incarnation) + 1 == color);
}

static uint32_t participants_now(const struct muster_group *group, const struct muster_op_id *id)
{
    const struct muster_view *view = muster_group_view(group);
    uint32_t count = 0, rank;

    for (rank = 0; rank < view->member_count; rank++)
        count += trainee_op_takes_part(id, &view->members[rank]);
    return count;
}

/* The same place among the participants on every member: another process in another view. */
static uint32_t choose_root(const struct trainee_op *op, const struct muster_group *group,
                            uint32_t participant_count)
{
    const struct muster_view *view = muster_group_view(group);
    uint32_t place = (uint32_t)((op->shape >> 4 & 0xF) % participant_count), rank = 0;

    if (op->is_unfit)
        place = (place + op->trainee->life / 2 % 2) % participant_count;
    for (; rank + 1 < view->member_count; rank++)
        if (trainee_op_takes_part(&op->id, &view->members[rank]) && place-- == 0)
            break;
    return rank;
}

static enum muster_op_kind kind_with_root(uint64_t shape)
{
    static const enum muster_op_kind kinds[] = {MUSTER_OP_BROADCAST, MUSTER_OP_BROADCAST,
                                                MUSTER_OP_REDUCE, MUSTER_OP_GATHER,
                                                MUSTER_OP_SCATTER};

    return kinds[(shape >> 40) % (sizeof(kinds) / sizeof(kinds[0]))];
}

static void choose_shape(struct trainee_op *op, const struct trainee_wish *wish,
                         uint32_t participant_count)
{
    enum { KINDS = 18 };
    static const enum muster_op_kind kinds[KINDS] = {
        MUSTER_OP_ALL_REDUCE,
        MUSTER_OP_ALL_REDUCE,
        MUSTER_OP_ALL_REDUCE,
        MUSTER_OP_ALL_REDUCE,
        MUSTER_OP_ALL_REDUCE,
        MUSTER_OP_BARRIER,
        MUSTER_OP_ALL_GATHER,
        MUSTER_OP_REDUCE_SCATTER,
        MUSTER_OP_BROADCAST,
        MUSTER_OP_REDUCE,
        MUSTER_OP_REDUCE,
        MUSTER_OP_GATHER,
        MUSTER_OP_SCATTER,
        MUSTER_OP_ALL_TO_ALL,
        MUSTER_OP_ALL_TO_ALL_UNEVEN,
        MUSTER_OP_PERMUTE,
        MUSTER_OP_ALL_GATHER_UNEVEN,
        MUSTER_OP_REDUCE_SCATTER_UNEVEN,
    };
    uint64_t shape = wish->shape != 0
                         ? wish->shape
                         : sim_mix(sim_mix(op->trainee->seed, op->id.step), op->id.sequence);
    uint64_t count_max = UINT64_C(1) << (shape >> 8 & 0xFF) % 10;
    uint64_t count = 1 + (shape >> 24 & 0xFFFF) % count_max;

    op->shape = shape;
    op->kind = wish->has_root ? kind_with_root(shape) : kinds[(shape >> 40) % KINDS];
    op->is_unfit = wish->is_unfit;
    op->flavour = wish->flavour;
    if (op->flavour != TRAINEE_SUM)
        op->kind = MUSTER_OP_ALL_REDUCE;
    op->input.dtype = op->output.dtype = (shape >> 20 & 1) != 0 ? MUSTER_F64 : MUSTER_I64;
    op->input.count = op->output.count = count;
    if (op->kind == MUSTER_OP_ALL_GATHER)
        op->output.count = count * participant_count;
    if (op->kind == MUSTER_OP_REDUCE_SCATTER)
        op->input.count = count * participant_count;
    op->part = count;
    op->n = participant_count;
    op->place = (uint32_t)ledger_place(op->trainee->ledger, op->epoch, &op->id, op->trainee->life);
    if (trainee_exchange_is(op->kind))
        trainee_exchange_shape(op);
    if (op->flavour != TRAINEE_SUM)
        trainee_reduce_shape(op);
}

static enum muster_rc start_exchange(struct trainee_op *op, struct muster_group *group)
{
    uint32_t root = choose_root(op, group, op->n);

    op->root_life =
        ledger_life(op->trainee->ledger, &muster_group_view(group)->members[root].incarnation);
    return trainee_exchange_start(op, group, root, on_done);
}

static enum muster_rc begin_op(struct trainee_op *op, struct muster_group *group,
                               uint32_t participant_count)
{
    if (op->flavour != TRAINEE_SUM)
        return trainee_reduce_start(op, group, on_done);
    switch (op->kind) {
    case MUSTER_OP_ALL_REDUCE:
        return muster_all_reduce_start(&op->op, group, &op->output, MUSTER_SUM, on_done);
    case MUSTER_OP_BROADCAST:
        return muster_broadcast_start(&op->op, group, &op->output,
                                      choose_root(op, group, participant_count), on_done);
    case MUSTER_OP_ALL_GATHER:
        return muster_all_gather_start(&op->op, group, &op->input, &op->output, on_done);
    case MUSTER_OP_REDUCE_SCATTER:
        return muster_reduce_scatter_start(&op->op, group, &op->input, &op->output, MUSTER_SUM,
                                           on_done);
    case MUSTER_OP_BARRIER:
        return muster_barrier_start(&op->op, group, on_done);
    default:
        return start_exchange(op, group);
    }
}

void trainee_op_start(struct trainee_op *op, struct trainee *trainee, const struct muster_op_id *id,
                      const struct trainee_wish *wish, trainee_op_fn *done)
{
    static const struct trainee_wish none;
    struct muster_group *group = trainee->ops->group(trainee->keeper);
    uint32_t participant_count;
    enum muster_rc rc;

    if (op->state == TRAINEE_OP_OPEN)
        trainee_op_complain(op, "has never called back", 0);
    trainee_op_fini(op);
    *op = (struct trainee_op){.trainee = trainee, .id = *id, .done = done};
    op->op.data = op;
    op->op.lane = MUSTER_LANE_INDEX(id->lane);
    op->op.deadline_ns = muster_loop_after_ns(trainee->env->loop, OP_TIMEOUT_NS);
    op->state = TRAINEE_OP_OPEN;
    if (group == NULL && trainee->ops->epoch(trainee->keeper) == 0) {
        op->state = TRAINEE_OP_NONE; /* left out, and about to be told */
        trainee_halt(trainee);
        return;
    }
    if (group == NULL) {
        trainee_op_complain(op, "no group to start it on", 0);
        return;
    }
    op->epoch = muster_group_view(group)->epoch;
    participant_count = participants_now(group, id);
    choose_shape(op, wish != NULL ? wish : &none, participant_count);
    make_room(op);
    fill_input(op);
    sim_note(trainee->world, "op_start", trainee->life,
             id->step * 10000 + id->lane * 10 + id->sequence,
             (uint64_t)op->kind * 1000000 + op->input.count * 10 + op->flavour);
    rc = begin_op(op, group, participant_count);
    if (rc == MUSTER_RESOURCE_EXHAUSTED && trainee->may_starve) {
        trainee->ops->feed(trainee->keeper); /* the program makes room and tries again */
        rc = begin_op(op, group, participant_count);
    }
    if (rc == MUSTER_FAILED_PRECONDITION && trainee->may_cancel) {
        /* no verdict came in time on what was cancelled: the group has ended, an exclusion follows
         */
        op->state = TRAINEE_OP_NONE;
        trainee_halt(trainee);
        return;
    }
    ledger_started(trainee->ledger, trainee->life, id);
    if (rc != MUSTER_OK)
        trainee_op_complain(op, "refused to start", (uint64_t)rc);
    else if (trainee->may_cancel && muster_rng_below(trainee->env->rng, CANCEL_ONE_IN) == 0)
        muster_op_cancel(&op->op);
}
