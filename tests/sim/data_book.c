/* Checkpoints that outlive their processes, the count of each record's uses, a run without faults. */
#include "tests/sim/data_book.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/trainee.h"

static enum muster_rc read_number(void *data, uint64_t number, void *ret_bytes, size_t *ret_size)
{
    (void)data;
    memcpy(ret_bytes, &number, sizeof(number));
    *ret_size = sizeof(number);
    return MUSTER_OK;
}

uint64_t data_book_number(const struct muster_bytes *record)
{
    uint64_t number;

    memcpy(&number, record->data, sizeof(number));
    return number;
}

static uint64_t book_draw(const struct data_book *book, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(book->world), bound);
}

/* Threads are none of the simulated world: records are read in the calls. */
void data_book_open(struct data_book *book, struct sim_world *world, bool is_micro)
{
    struct muster_error error;

    *book = (struct data_book){.world = world};
    book->dataset = (struct muster_dataset_options){
        .kind = MUSTER_DATASET_CALLBACK,
        .read = read_number,
        .record_bytes_max = sizeof(uint64_t),
        .record_count = 1 + book_draw(book, DATA_RECORDS_MAX),
        .batch = 1 + (uint32_t)book_draw(book, DATA_BATCH_MAX),
        .is_shuffled = book_draw(book, 4) != 0,
        .seed = book_draw(book, UINT32_MAX),
        .is_prefetch_off = true,
    };
    book->slot_count = is_micro ? 1 + (uint32_t)book_draw(book, DATA_SLOTS_MAX) : 0;
    book->save_interval = 1 + book_draw(book, 12);
    if (muster_dataset_open(&book->dataset, &book->plain, &error) != MUSTER_OK)
        sim_fail(world, "no dataset: %s", error.text);
}

void data_book_close(struct data_book *book)
{
    muster_dataset_close(book->plain);
    free(book->plain_digests);
}

/* --- A run without faults --- */

void data_book_gradient(const struct muster_dataset_batch *batch, float *gradient)
{
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t number = data_book_number(&batch->records[i]);

        gradient[number] += 1;
        for (uint32_t w = 0; w < DATA_WEIGHTS; w++)
            gradient[DATA_RECORDS_MAX + w] +=
                (float)(int32_t)sim_mix(number + 1, w + batch->epoch) * 0x1p-24f;
    }
}

void data_book_update(float *weights, const float *sum)
{
    for (uint32_t w = 0; w < DATA_WEIGHTS; w++)
        weights[w] = weights[w] * 0.875f + sum[DATA_RECORDS_MAX + w];
}

/* Slots `first` … below `first + span`, as far as there are any, by halves. */
static void plain_sum(struct data_book *book, uint32_t first, uint32_t span, float *ret_sum)
{
    struct muster_dataset_batch batch;
    struct muster_error error;
    float half[DATA_GRADIENT];

    if (span == 1) {
        memset(ret_sum, 0, sizeof(half));
        if (muster_dataset_share(book->plain, first, &batch, &error) == MUSTER_OK)
            data_book_gradient(&batch, ret_sum);
        return;
    }
    plain_sum(book, first, span / 2, ret_sum);
    if (first + span / 2 >= book->slot_count)
        return;
    plain_sum(book, first + span / 2, span / 2, half);
    for (uint32_t i = 0; i < DATA_GRADIENT; i++)
        ret_sum[i] += half[i];
}

static void plain_step(struct data_book *book)
{
    struct muster_dataset_shares shares = {0, book->slot_count, book->slot_count};
    struct muster_error error;
    float sum[DATA_GRADIENT];
    uint32_t span = 1;

    while (span < book->slot_count)
        span *= 2;
    if (muster_dataset_next_shares(book->plain, &shares, &error) != MUSTER_OK)
        sim_fail(book->world, "no shares: %s", error.text);
    plain_sum(book, 0, span, sum);
    if (muster_dataset_complete_step(book->plain, &error) != MUSTER_OK)
        sim_fail(book->world, "a step does not end: %s", error.text);
    data_book_update(book->plain_weights, sum);
    book->plain_digests =
        realloc(book->plain_digests, (book->plain_count + 1) * sizeof(*book->plain_digests));
    book->plain_digests[book->plain_count++] =
        sim_digest(book->plain_weights, sizeof(book->plain_weights));
}

/* Steps of whole batches that lead to a position. */
static uint64_t steps_before(const struct data_book *book, const uint64_t *position)
{
    uint64_t batch = book->dataset.batch;
    uint64_t steps_of_pass = (book->dataset.record_count + batch - 1) / batch;

    return position[MUSTER_DATA_EPOCH] * steps_of_pass +
           (position[MUSTER_DATA_CURSOR] + batch - 1) / batch;
}

static void check_weights(struct data_book *book, uint32_t life, uint64_t step,
                          const struct data_state *state)
{
    uint64_t count = steps_before(book, state->position);

    if (count == 0)
        return;
    while (book->plain_count < count && sim_failure(book->world) == NULL)
        plain_step(book);
    if (sim_failure(book->world) == NULL &&
        book->plain_digests[count - 1] != sim_digest(state->weights, sizeof(state->weights)))
        sim_fail(book->world,
                 "life %" PRIu32 ": the weights after step %" PRIu64
                 " are not those of a run without faults after %" PRIu64 " steps",
                 life, step, count);
}

/* --- The count --- */

static void check_uses(struct data_book *book, uint32_t life, uint64_t step,
                       const struct data_state *state)
{
    uint64_t count = book->dataset.record_count, sum = 0;
    uint64_t pass = state->position[MUSTER_DATA_EPOCH];
    uint64_t used = state->position[MUSTER_DATA_CURSOR] - state->position[MUSTER_DATA_POOL];

    for (uint64_t i = 0; i < count; i++) {
        sum += state->uses[i];
        if (state->uses[i] < pass || state->uses[i] > pass + 1) {
            sim_fail(book->world,
                     "life %" PRIu32 ": record %" PRIu64 " is used %" PRIu64
                     " times after step %" PRIu64 ", in pass %" PRIu64 " of the data",
                     life, i, state->uses[i], step, pass);
            return;
        }
    }
    if (sum != pass * count + used)
        sim_fail(book->world,
                 "life %" PRIu32 ": %" PRIu64 " records are used after step %" PRIu64
                 ", the position says %" PRIu64 " in pass %" PRIu64 " of %" PRIu64,
                 life, sum, step, used, pass, count);
}

void data_book_check(struct data_book *book, uint32_t life, uint64_t step,
                     const struct data_state *state)
{
    check_uses(book, life, step, state);
    if (book->slot_count > 0 && sim_failure(book->world) == NULL)
        check_weights(book, life, step, state);
    book->pools += state->position[MUSTER_DATA_POOL] > 0;
    if (state->position[MUSTER_DATA_EPOCH] > book->passes)
        book->passes = state->position[MUSTER_DATA_EPOCH];
    if (step > book->committed_max)
        book->committed_max = step;
}

/* --- Checkpoints --- */

void data_book_save(struct data_book *book, uint64_t step, const struct data_state *state)
{
    sim_note(book->world, "data_saved", step, 0, 0);
    if (step >= book->newest.step)
        book->newest = (struct data_save){.step = step, .state = *state};
}

void data_book_stop(struct data_book *book, uint64_t step, const struct data_state *state)
{
    if (!book->is_preempted)
        sim_fail(book->world, "a member stops after step %" PRIu64 ", and nobody has asked", step);
    if (book->stopped_step != 0 && step != book->stopped_step)
        sim_fail(book->world, "members stop after steps %" PRIu64 " and %" PRIu64,
                 book->stopped_step, step);
    if (step == 0)
        return;
    book->stopped_step = step;
    data_book_save(book, step, state);
}

/* All steps that they had done are in what was saved when all stopped. */
static void check_stop(struct data_book *book)
{
    if (book->stopped_step == 0)
        return;
    if (book->newest.step != book->stopped_step || book->committed_max > book->stopped_step)
        sim_fail(book->world,
                 "the job stopped after step %" PRIu64 ", had committed step %" PRIu64
                 " and goes on after step %" PRIu64,
                 book->stopped_step, book->committed_max, book->newest.step);
    book->stopped_step = 0;
}

const struct data_save *data_book_restore(struct data_book *book, uint64_t begin_epoch)
{
    if (begin_epoch > book->restored_begin_epoch) {
        check_stop(book);
        book->restored_begin_epoch = begin_epoch;
        book->restored = book->newest;
        book->committed_max = book->newest.step;
        book->restores += book->newest.step > 0;
        sim_note(book->world, "data_restored", begin_epoch, book->restored.step, 0);
    }
    return &book->restored;
}
