/* The sums of a step: with claims by one all_reduce, or of micro-batches by the exchange of their values. */
#include <inttypes.h>
#include <string.h>

#include "collective/group/group.h"
#include "tests/sim/data_worker.h"
#include "tests/sim/sim_internal.h"
#include "tests/sim/trainee.h"

#define OP_TIMEOUT_NS (300 * MUSTER_NS_PER_S)

static struct sim_world *world_of(const struct data_worker *worker)
{
    return worker->task->cast->world;
}

static void step_complain(const struct data_worker *worker, const char *what,
                          const struct muster_error *error)
{
    sim_fail(world_of(worker), "life %" PRIu32 ", step %" PRIu64 ": %s: %s", worker->life,
             worker->step, what, error->text);
}

/* --- Claims --- */

static void claims_begin(struct data_worker *worker, uint32_t rank, uint32_t size)
{
    struct data_sum *sum = &worker->sum;
    struct muster_dataset_batch batch;
    struct muster_error error;

    memset(sum, 0, sizeof(*sum));
    if (muster_dataset_next_share(worker->dataset, rank, size, &batch, &error) != MUSTER_OK) {
        step_complain(worker, "no share", &error);
        return;
    }
    for (size_t i = 0; i < batch.count; i++)
        sum->uses[data_book_number(&batch.records[i])] += 1;
    sum->lives[worker->life / DATA_LIFE_BITS] += (float)(1u << worker->life % DATA_LIFE_BITS);
    muster_dataset_record_claims(worker->dataset, sum->claims);
}

static void claims_take(const struct data_worker *worker, struct ledger_outcome *outcome)
{
    for (uint32_t i = 0; i < DATA_LIFE_WORDS; i++)
        outcome->contributors |= (ledger_lives_type)worker->sum.lives[i] << i * DATA_LIFE_BITS;
    outcome->digest = sim_digest(&worker->sum, sizeof(worker->sum));
}

static void claims_update(struct data_worker *worker)
{
    struct data_book *book = worker->book;
    struct muster_error error;
    uint64_t used = 0;
    enum muster_rc rc =
        muster_dataset_apply_claims(worker->dataset, worker->sum.claims, &used, &error);

    if (rc == MUSTER_ABORTED) {
        book->overlaps++;
        return;
    }
    if (rc != MUSTER_OK)
        step_complain(worker, "claims", &error);
    for (uint32_t i = 0; i < DATA_RECORDS_MAX; i++)
        worker->uses[i] += (uint64_t)worker->sum.uses[i];
}

/* --- Micro-batches --- */

/* Zeroes, as a strategy's tensors are: a member with fewer nodes than others sends what is behind its own. */
static void room_reserve(struct data_worker *worker, struct muster_tensor *tensor,
                         uint64_t elements)
{
    struct muster_mem *mem = worker->env->mem;

    if (elements <= tensor->count)
        return;
    muster_mem_free(mem, tensor->data);
    *tensor = (struct muster_tensor){.data = sim_mem_alloc_surely(mem, elements * sizeof(float)),
                                     .count = elements,
                                     .dtype = MUSTER_F32};
    memset(tensor->data, 0, elements * sizeof(float));
}

static void micro_begin(struct data_worker *worker, uint32_t rank, uint32_t size)
{
    struct muster_micro_values *values = &worker->values;
    struct muster_dataset_shares shares;
    struct muster_dataset_batch batch;
    struct muster_tensor tensor;
    struct muster_error error;
    uint64_t own, received;
    uint32_t slot;

    muster_view_unref(worker->view);
    worker->view = muster_view_ref((struct muster_view *)muster_node_view(worker->node));
    values->slot_count = worker->book->slot_count;
    values->element_count = DATA_GRADIENT;
    muster_micro_values_plan(values, rank, size, &own, &received);
    room_reserve(worker, &values->own, own);
    room_reserve(worker, &values->received, received);
    muster_micro_values_begin(values);
    shares = (struct muster_dataset_shares){values->range.first, values->range.count,
                                            values->slot_count};
    if (muster_dataset_next_shares(worker->dataset, &shares, &error) != MUSTER_OK) {
        step_complain(worker, "no shares", &error);
        return;
    }
    while (muster_micro_values_next(values, &slot, &tensor)) {
        if (muster_dataset_share(worker->dataset, slot, &batch, &error) != MUSTER_OK)
            step_complain(worker, "no share", &error);
        else
            data_book_gradient(&batch, tensor.data);
    }
}

static enum muster_rc micro_start(struct data_worker *worker, struct muster_group *group,
                                  muster_op_fn *done)
{
    struct muster_tensor input, output;

    if (worker->is_gathering) {
        muster_micro_values_gather(&worker->values, &input, &output);
        return muster_all_gather_start_in(&worker->op, group, worker->view, &input, &output, done);
    }
    muster_micro_values_exchange(&worker->values, &input, &output);
    return muster_all_to_all_start_in(&worker->op, group, worker->view, &input, &output, done);
}

static void micro_take(const struct data_worker *worker, struct ledger_outcome *outcome)
{
    struct muster_tensor sum = muster_micro_values_sum(&worker->values);

    outcome->is_partial = true; /* the sum does not tell who has contributed */
    if (worker->is_gathering)
        outcome->digest = sim_digest(sum.data, (size_t)sum.count * sizeof(float));
}

static void micro_update(struct data_worker *worker)
{
    struct muster_tensor tensor = muster_micro_values_sum(&worker->values);
    const float *sum = tensor.data;
    struct muster_error error;

    if (muster_dataset_complete_step(worker->dataset, &error) != MUSTER_OK)
        step_complain(worker, "completing", &error);
    for (uint32_t i = 0; i < DATA_RECORDS_MAX; i++)
        worker->uses[i] += (uint64_t)sum[i];
    data_book_update(worker->weights, sum);
}

/* --- Either --- */

void data_sums_begin(struct data_worker *worker, uint32_t rank, uint32_t size)
{
    worker->has_sum = false;
    if (worker->book->slot_count > 0)
        micro_begin(worker, rank, size);
    else
        claims_begin(worker, rank, size);
}

void data_sums_start(struct data_worker *worker, struct muster_group *group, muster_op_fn *done)
{
    struct muster_tensor sum = {
        .data = &worker->sum, .count = sizeof(worker->sum) / sizeof(float), .dtype = MUSTER_F32};
    struct muster_op_id id = {.step = worker->step, .sequence = worker->sequence++};
    enum muster_rc rc;

    worker->op = (struct muster_op){
        .data = worker, .deadline_ns = muster_loop_after_ns(worker->env->loop, OP_TIMEOUT_NS)};
    worker->is_gathering = worker->phase == DATA_GATHER;
    ledger_started(worker->task->cast->ledger, worker->life, &id);
    if (worker->book->slot_count > 0)
        rc = micro_start(worker, group, done);
    else
        rc = muster_all_reduce_start(&worker->op, group, &sum, MUSTER_SUM, done);
    worker->phase = DATA_SUM;
    if (rc != MUSTER_OK)
        sim_fail(world_of(worker), "life %" PRIu32 ": an operation is refused: %s", worker->life,
                 muster_rc_name(rc));
}

bool data_sums_take(struct data_worker *worker, struct ledger_outcome *outcome)
{
    outcome->has_value = true;
    if (worker->book->slot_count > 0)
        micro_take(worker, outcome);
    else
        claims_take(worker, outcome);
    worker->has_sum = worker->book->slot_count == 0 || worker->is_gathering;
    return !worker->has_sum;
}

void data_sums_update(struct data_worker *worker)
{
    if (!worker->has_sum)
        return;
    if (worker->book->slot_count > 0)
        micro_update(worker);
    else
        claims_update(worker);
}

void data_sums_fini(struct data_worker *worker)
{
    muster_mem_free(worker->env->mem, worker->values.own.data);
    muster_mem_free(worker->env->mem, worker->values.received.data);
    muster_view_unref(worker->view);
}
