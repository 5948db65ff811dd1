/* Places, shares and claims: each record of an epoch once, whoever contributes to a step; parts of policies and
 * replicas. A model of a job: members begin a step under views of their own, some die, and claims are summed. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include <muster/env.h>

#include "training/data/plan.h"

#define RECORDS_MAX 300u
#define BATCH_MAX   40u
#define MEMBERS_MAX 6u

struct model {
    struct muster_data_division division;
    struct muster_rng_seeded rng;
    uint64_t position[MUSTER_DATA_WORDS + BATCH_MAX];
    unsigned uses[RECORDS_MAX]; /* of the epoch, in sums that were applied */
    unsigned aborted, left_over;
};

static struct muster_data_place model_place(const struct model *model)
{
    return (struct muster_data_place){.epoch = model->position[MUSTER_DATA_EPOCH],
                                      .cursor = model->position[MUSTER_DATA_CURSOR],
                                      .pool_count = model->position[MUSTER_DATA_POOL],
                                      .is_share = true};
}

static uint64_t model_draw(struct model *model, uint64_t bound)
{
    return muster_rng_below(&model->rng.rng, bound);
}

/* One step: every member that lives to its operation adds its records and claims. */
static void model_step(struct model *model, struct muster_data_place settled)
{
    float sum[MUSTER_DATASET_CLAIMS(BATCH_MAX)] = {0}, claims[MUSTER_DATASET_CLAIMS(BATCH_MAX)];
    uint64_t numbers[BATCH_MAX], used = 0, in_sum = 0;
    unsigned uses[RECORDS_MAX] = {0};
    uint32_t size = 1 + (uint32_t)model_draw(model, MEMBERS_MAX);
    bool has_two_views = size > 1 && model_draw(model, 4) == 0;
    struct muster_error error;
    enum muster_rc rc;

    for (uint32_t rank = 0; rank < size; rank++) {
        struct muster_data_part part = {.numbers = numbers};
        struct muster_data_place place = settled;

        if (model_draw(model, 5) == 0 && rank > 0) /* dies before its operation counts */
            continue;
        place.shares = (struct muster_dataset_shares){rank, 1, size};
        if (has_two_views && rank == size - 1) /* it began when another member had left */
            place.shares = (struct muster_dataset_shares){rank - 1, 1, size - 1};
        muster_data_place_fill(&model->division, &place, model->position + MUSTER_DATA_WORDS,
                               &part);
        muster_data_claims_record(&model->division, &part, claims);
        for (size_t i = 0; i < MUSTER_DATASET_CLAIMS(model->division.batch); i++)
            sum[i] += claims[i];
        for (uint32_t i = 0; i < part.count; i++)
            uses[part.numbers[i]]++;
        in_sum += part.count;
    }
    rc = muster_data_claims_apply(&model->division, sum, model->position, &used, &error);
    if (rc == MUSTER_ABORTED) {
        model->aborted++;
        return;
    }
    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(used, in_sum);
    model->left_over += model->position[MUSTER_DATA_POOL] > 0;
    for (unsigned i = 0; i < RECORDS_MAX; i++)
        model->uses[i] += uses[i];
}

static void model_run(struct model *model, uint64_t seed)
{
    muster_rng_seeded_init(&model->rng, seed);
    model->division = (struct muster_data_division){
        .record_count = 1 + model_draw(model, RECORDS_MAX),
        .is_shuffled = model_draw(model, 2) != 0,
        .seed = seed,
        .epoch_count = 2,
        .batch = 1 + (uint32_t)model_draw(model, BATCH_MAX),
        .shard = {.num_workers = 1},
    };
    for (;;) {
        struct muster_data_place place = model_place(model);
        uint64_t epoch = place.epoch;
        bool is_more = muster_data_place_settle(&model->division, &place);

        if (place.epoch != epoch) {
            for (unsigned i = 0; i < RECORDS_MAX; i++)
                assert_int_equal(model->uses[i], i < model->division.record_count);
            memset(model->uses, 0, sizeof(model->uses));
        }
        if (!is_more)
            return;
        model->position[MUSTER_DATA_EPOCH] = place.epoch;
        model->position[MUSTER_DATA_CURSOR] = place.cursor;
        model_step(model, place);
    }
}

static void each_record_is_used_once_whoever_dies(void **state)
{
    unsigned aborted = 0, left_over = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct model model = {0};

        model_run(&model, seed);
        aborted += model.aborted;
        left_over += model.left_over;
    }
    assert_true(aborted > 100);
    assert_true(left_over > 1000);
}

/* --- Shares --- */

/* The records of the step by shares, one after the other, as members take them. */
static void shares_fill(const struct muster_data_division *division,
                        const struct muster_data_place *settled, uint32_t total, uint32_t size,
                        uint64_t *numbers, uint32_t *ret_firsts)
{
    uint32_t filled = 0;

    for (uint32_t rank = 0; rank < size; rank++) {
        struct muster_data_part part = {.numbers = numbers + filled};
        struct muster_data_place place = *settled;

        place.shares = (struct muster_dataset_shares){
            total * rank / size, total * (rank + 1) / size - total * rank / size, total};
        muster_data_place_fill(division, &place, NULL, &part);
        for (uint32_t i = 0; i < place.shares.count; i++) {
            uint32_t first, count;

            muster_data_part_share(&part, &place.shares, place.shares.first + i, &first, &count);
            ret_firsts[place.shares.first + i] = filled + first;
            assert_true(first + count <= part.count);
        }
        filled += part.count;
    }
    ret_firsts[total] = filled;
}

static void shares_of_a_step_are_the_same_for_any_number_of_members(void **state)
{
    const struct muster_data_division division = {.record_count = 103,
                                                  .is_shuffled = true,
                                                  .seed = 5,
                                                  .epoch_count = 2,
                                                  .batch = BATCH_MAX,
                                                  .shard = {.num_workers = 1}};
    struct muster_data_place place = {.is_share = true};
    unsigned uses[103] = {0};

    (void)state;
    while (muster_data_place_settle(&division, &place)) {
        uint64_t alone[BATCH_MAX], numbers[BATCH_MAX];
        uint32_t alone_firsts[9], firsts[9];

        shares_fill(&division, &place, 8, 1, alone, alone_firsts);
        for (uint32_t size = 2; size < 12; size++) {
            shares_fill(&division, &place, 8, size, numbers, firsts);
            assert_memory_equal(firsts, alone_firsts, sizeof(firsts));
            assert_memory_equal(numbers, alone, firsts[8] * sizeof(numbers[0]));
        }
        for (uint32_t i = 0; i < alone_firsts[8]; i++)
            uses[alone[i]]++;
        muster_data_place_advance(&division, &place);
    }
    for (unsigned i = 0; i < 103; i++)
        assert_int_equal(uses[i], 2);
}

/* --- Claims --- */

static enum muster_rc claims_try(float count, float first, float second, uint64_t *ret_used)
{
    const struct muster_data_division division = {
        .record_count = 100, .batch = 20, .shard = {.num_workers = 1}};
    const float claims[] = {count, first, second};
    uint64_t position[MUSTER_DATA_WORDS + 20] = {0}, before[MUSTER_DATA_WORDS + 20] = {0};
    struct muster_error error;
    enum muster_rc rc = muster_data_claims_apply(&division, claims, position, ret_used, &error);

    if (rc != MUSTER_OK)
        assert_memory_equal(position, before, sizeof(before));
    return rc;
}

static void claims_that_are_not_a_sum_of_parts_are_refused(void **state)
{
    static const struct {
        const char *name;
        float count, first, second;
        enum muster_rc rc;
    } rows[] = {
        {"all", 20, 65535, 15, MUSTER_OK},
        {"nobody", 0, 0, 0, MUSTER_OK},
        {"one twice", 2, 2, 0, MUSTER_ABORTED}, /* record 0 by two */
        {"carried out of the first value", 2, 65536, 0, MUSTER_ABORTED},
        {"behind the window", 1, 0, 16, MUSTER_ABORTED},
        {"a mean", 1, 0.5f, 0, MUSTER_INVALID_ARGUMENT},
        {"a count of a mean", 0.5f, 1, 0, MUSTER_INVALID_ARGUMENT},
        {"below zero", 1, -1, 0, MUSTER_INVALID_ARGUMENT},
        {"too large", 1, 1e20f, 0, MUSTER_INVALID_ARGUMENT},
    };
    uint64_t used;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(claims_try(rows[i].count, rows[i].first, rows[i].second, &used),
                         rows[i].rc);
}

/* --- Policies and replicas --- */

/* Take what one worker has of an epoch; returns how many calls that were. */
static unsigned worker_take(const struct muster_data_division *division, unsigned *uses,
                            unsigned *sizes)
{
    struct muster_data_place place = {0};
    uint64_t numbers[BATCH_MAX];
    unsigned calls = 0;

    while (muster_data_place_settle(division, &place)) {
        struct muster_data_part part = {.numbers = numbers};

        muster_data_place_fill(division, &place, NULL, &part);
        for (uint32_t i = 0; i < part.count; i++)
            uses[part.numbers[i]]++;
        sizes[calls++] += part.count;
        muster_data_place_advance(division, &place);
    }
    return calls;
}

static void parts_of_workers_have_each_record_once(void **state)
{
    static const enum muster_shard_unit units[] = {MUSTER_SHARD_ELEMENTS, MUSTER_SHARD_MARK};

    (void)state;
    for (uint32_t workers = 1; workers < 5; workers++)
        for (uint32_t replicas = 0; replicas < 4; replicas++)
            for (size_t unit = 0; unit < 2; unit++) {
                struct muster_data_division division = {.record_count = 101,
                                                        .is_shuffled = true,
                                                        .epoch_count = 1,
                                                        .batch = 13,
                                                        .replicas_per_worker = replicas,
                                                        .unit = units[unit],
                                                        .shard = {.num_workers = workers}};
                unsigned uses[101] = {0}, sizes[256] = {0};

                for (division.shard.index = 0; division.shard.index < workers;
                     division.shard.index++)
                    worker_take(&division, uses, sizes);
                for (unsigned i = 0; i < 101; i++)
                    assert_int_equal(uses[i], 1);
            }
}

static void a_global_batch_is_cut_in_pieces_for_all_replicas(void **state)
{
    struct muster_data_division division = {.record_count = 20,
                                            .epoch_count = 1,
                                            .batch = 7,
                                            .replicas_per_worker = 2,
                                            .unit = MUSTER_SHARD_ELEMENTS,
                                            .shard = {.num_workers = 2}};
    static const unsigned expected[2][6] = {{2, 2, 2, 2, 2, 2}, {2, 1, 2, 1, 2, 0}};
    unsigned uses[20] = {0};

    (void)state;
    for (division.shard.index = 0; division.shard.index < 2; division.shard.index++) {
        unsigned sizes[16] = {0};

        assert_int_equal(worker_take(&division, uses, sizes), 6);
        assert_memory_equal(sizes, expected[division.shard.index], sizeof(expected[0]));
    }
}

static void streams_of_their_own_have_tensorflows_rotation(void **state)
{
    struct muster_data_division division = {.record_count = 17,
                                            .epoch_count = 1,
                                            .batch = 7,
                                            .replicas_per_worker = 2,
                                            .unit = MUSTER_SHARD_WHOLE,
                                            .shard = {.num_workers = 2}};
    static const unsigned expected[2][10] = {{2, 2, 2, 1, 2, 2, 2, 1, 2, 1},
                                             {2, 1, 2, 2, 2, 1, 2, 2, 2, 1}};

    (void)state;
    for (division.shard.index = 0; division.shard.index < 2; division.shard.index++) {
        unsigned sizes[32] = {0}, uses[17] = {0};

        assert_int_equal(worker_take(&division, uses, sizes), 10);
        assert_memory_equal(sizes, expected[division.shard.index], sizeof(expected[0]));
        for (unsigned i = 0; i < 17; i++)
            assert_int_equal(uses[i], 1);
    }
}

static void a_remainder_is_dropped_by_the_step(void **state)
{
    static const struct {
        const char *name;
        uint32_t replicas;
        enum muster_shard_unit unit;
        unsigned calls, records;
    } rows[] = {
        {"batches", 0, MUSTER_SHARD_WHOLE, 2, 14},
        {"pieces", 2, MUSTER_SHARD_ELEMENTS, 4, 8},
        {"a stream", 2, MUSTER_SHARD_WHOLE, 8, 14},
    };

    (void)state;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        struct muster_data_division division = {.record_count = 17,
                                                .epoch_count = 1,
                                                .is_remainder_dropped = true,
                                                .batch = 7,
                                                .replicas_per_worker = rows[row].replicas,
                                                .unit = rows[row].unit,
                                                .shard = {.num_workers = 2}};
        unsigned uses[17] = {0}, sizes[32] = {0}, records = 0;

        if (division.replicas_per_worker == 0)
            division.shard.num_workers = 1;
        assert_int_equal(worker_take(&division, uses, sizes), rows[row].calls);
        for (unsigned i = 0; i < 17; i++)
            records += uses[i];
        assert_int_equal(records, rows[row].records);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(each_record_is_used_once_whoever_dies),
        cmocka_unit_test(shares_of_a_step_are_the_same_for_any_number_of_members),
        cmocka_unit_test(claims_that_are_not_a_sum_of_parts_are_refused),
        cmocka_unit_test(parts_of_workers_have_each_record_once),
        cmocka_unit_test(a_global_batch_is_cut_in_pieces_for_all_replicas),
        cmocka_unit_test(streams_of_their_own_have_tensorflows_rotation),
        cmocka_unit_test(a_remainder_is_dropped_by_the_step),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
