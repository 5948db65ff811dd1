/* Steps in a fixed number of shares: the same records in the same shares, whoever takes them. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/dataset.h>

#define RECORDS 26u

struct world {
    struct muster_mem_limited mem;
    struct muster_dataset *dataset;
    struct muster_error error;
    struct muster_bytes records[RECORDS];
    char letters[RECORDS];
};

static int world_set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    muster_mem_limited_init(&world->mem, muster_mem_system(), 0);
    for (unsigned i = 0; i < RECORDS; i++) {
        world->letters[i] = (char)('a' + i);
        world->records[i] = (struct muster_bytes){&world->letters[i], 1};
    }
    *state = world;
    return 0;
}

static int world_tear_down(void **state)
{
    struct world *world = *state;

    muster_dataset_close(world->dataset);
    assert_int_equal(muster_mem_limited_fini(&world->mem), 0);
    free(world);
    return 0;
}

static void letters_open(struct world *world, uint32_t batch, uint64_t epochs)
{
    const struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_MEMORY,
        .mem = &world->mem.mem,
        .records = world->records,
        .record_count = RECORDS,
        .batch = batch,
        .epoch_count = epochs,
    };

    muster_dataset_close(world->dataset);
    world->dataset = NULL;
    assert_int_equal(muster_dataset_open(&options, &world->dataset, &world->error), MUSTER_OK);
}

static void letters_append(char *text, const struct muster_dataset_batch *batch)
{
    size_t used = strlen(text);

    for (size_t i = 0; i < batch->count; i++) {
        text[used++] = *(const char *)batch->records[i].data;
        assert_int_equal(batch->numbers[i], text[used - 1] - 'a');
    }
    text[used] = '\0';
}

/* Take shares, which are so, divided by "|". */
static void shares_take(struct world *world, struct muster_dataset_shares shares,
                        const char *expected)
{
    struct muster_dataset_batch batch;
    char text[100] = "";

    assert_int_equal(muster_dataset_next_shares(world->dataset, &shares, &world->error), MUSTER_OK);
    for (uint32_t i = 0; i < shares.count; i++) {
        assert_int_equal(
            muster_dataset_share(world->dataset, shares.first + i, &batch, &world->error),
            MUSTER_OK);
        letters_append(text, &batch);
        if (i + 1 < shares.count)
            strcat(text, "|");
    }
    assert_string_equal(text, expected);
}

static void step_complete(struct world *world)
{
    assert_int_equal(muster_dataset_complete_step(world->dataset, &world->error), MUSTER_OK);
}

static void a_share_has_the_same_records_whoever_takes_it(void **state)
{
    struct world *world = *state;

    letters_open(world, 8, 1);
    shares_take(world, (struct muster_dataset_shares){0, 4, 4}, "ab|cd|ef|gh");
    shares_take(world, (struct muster_dataset_shares){1, 2, 4}, "cd|ef");    /* another member */
    shares_take(world, (struct muster_dataset_shares){1, 3, 4}, "cd|ef|gh"); /* after a death */
    shares_take(world, (struct muster_dataset_shares){2, 0, 4}, "");
    step_complete(world);
    shares_take(world, (struct muster_dataset_shares){0, 1, 4}, "ij");
    step_complete(world);
    step_complete(world);
    shares_take(world, (struct muster_dataset_shares){0, 4, 4}, "|y||z"); /* the end of an epoch */
}

static void steps_of_all_epochs_are_completed_one_by_one(void **state)
{
    struct world *world = *state;
    struct muster_dataset_shares all = {0, 2, 2};
    struct muster_dataset_batch batch;
    unsigned uses[RECORDS] = {0}, steps = 0;

    letters_open(world, 8, 3);
    while (muster_dataset_next_shares(world->dataset, &all, &world->error) == MUSTER_OK) {
        for (uint32_t share = 0; share < 2; share++) {
            assert_int_equal(muster_dataset_share(world->dataset, share, &batch, &world->error),
                             MUSTER_OK);
            assert_int_equal(batch.epoch, steps / 4);
            for (size_t i = 0; i < batch.count; i++)
                uses[batch.numbers[i]]++;
        }
        assert_false(muster_dataset_is_over(world->dataset));
        step_complete(world);
        steps++;
    }
    assert_int_equal(world->error.rc, MUSTER_OUT_OF_RANGE);
    assert_true(muster_dataset_is_over(world->dataset));
    assert_int_equal(steps, 12);
    for (unsigned i = 0; i < RECORDS; i++)
        assert_int_equal(uses[i], 3);
    assert_int_equal(muster_dataset_complete_step(world->dataset, &world->error),
                     MUSTER_OUT_OF_RANGE);
}

/* The place of a step does not say how its records were taken, so a job may go on in the other way. */
static void records_that_a_member_left_over_are_in_the_shares(void **state)
{
    struct world *world = *state;
    float claims[MUSTER_DATASET_CLAIMS(6)];
    struct muster_dataset_batch batch;
    uint64_t used;

    letters_open(world, 6, 1);
    assert_int_equal(muster_dataset_next_share(world->dataset, 1, 3, &batch, &world->error),
                     MUSTER_OK);
    muster_dataset_record_claims(world->dataset, claims);
    assert_int_equal(muster_dataset_apply_claims(world->dataset, claims, &used, &world->error),
                     MUSTER_OK);
    shares_take(world, (struct muster_dataset_shares){0, 2, 2}, "abe|fgh");
    step_complete(world);
    shares_take(world, (struct muster_dataset_shares){0, 2, 2}, "ijk|lmn");
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
}

static void a_position_that_was_restored_has_its_shares(void **state)
{
    struct world *world = *state;
    struct muster_tensor position;
    uint64_t words[64];

    letters_open(world, 8, 1);
    step_complete(world);
    position = muster_dataset_position(world->dataset);
    memcpy(words, position.data, position.count * sizeof(words[0]));
    letters_open(world, 8, 1);
    shares_take(world, (struct muster_dataset_shares){3, 1, 4}, "gh");
    position = muster_dataset_position(world->dataset);
    memcpy(position.data, words, position.count * sizeof(words[0]));
    shares_take(world, (struct muster_dataset_shares){3, 1, 4}, "op");
}

static void a_position_of_another_dataset_is_not_moved(void **state)
{
    struct world *world = *state;
    struct muster_tensor position;

    letters_open(world, 8, 1);
    position = muster_dataset_position(world->dataset);
    ((uint64_t *)position.data)[2]++; /* records */
    assert_int_equal(muster_dataset_complete_step(world->dataset, &world->error),
                     MUSTER_FAILED_PRECONDITION);
    ((uint64_t *)position.data)[2]--;
    shares_take(world, (struct muster_dataset_shares){0, 1, 4}, "ab");
}

static void shares_beyond_the_total_are_refused(void **state)
{
    static const struct muster_dataset_shares rows[] = {
        {0, 0, 0}, {0, 1, 0}, {4, 1, 4}, {0, 5, 4}, {UINT32_MAX, 2, 4}, {3, UINT32_MAX, 4},
    };
    struct world *world = *state;

    letters_open(world, 8, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_dataset_next_shares(world->dataset, &rows[i], &world->error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(world->error.text, "shares must be some of those from 0 to below"));
    }
}

static void a_share_that_was_not_taken_is_refused(void **state)
{
    struct world *world = *state;
    struct muster_dataset_batch batch;

    letters_open(world, 8, 1);
    assert_int_equal(muster_dataset_share(world->dataset, 0, &batch, &world->error),
                     MUSTER_INVALID_ARGUMENT);
    shares_take(world, (struct muster_dataset_shares){1, 2, 4}, "cd|ef");
    assert_int_equal(muster_dataset_share(world->dataset, 0, &batch, &world->error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(world->error.text, "share 0 must be one of those"));
    assert_int_equal(muster_dataset_share(world->dataset, 3, &batch, &world->error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    assert_int_equal(muster_dataset_share(world->dataset, 1, &batch, &world->error),
                     MUSTER_INVALID_ARGUMENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_share_has_the_same_records_whoever_takes_it),
        CASE(steps_of_all_epochs_are_completed_one_by_one),
        CASE(records_that_a_member_left_over_are_in_the_shares),
        CASE(a_position_that_was_restored_has_its_shares),
        CASE(a_position_of_another_dataset_is_not_moved),
        CASE(shares_beyond_the_total_are_refused),
        CASE(a_share_that_was_not_taken_is_refused),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
