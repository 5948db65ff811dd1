/* The memory for a checkpoint's copies is there before the first one begins. */
#include <sched.h>
#include <stdlib.h>

#include <muster/strategy_checkpoint.h>

#include "test_env.h"
#include "trainee.h"
#include "training/strategy_internal.h"

#define LARGE_COUNT 1500000u /* 12 MB */
#define PART_BYTES  (3 + LARGE_COUNT * sizeof(int64_t))

static struct job_stage stage;

static const struct muster_huge_memory *memory_of(const struct trainee *one)
{
    return &one->strategy->saving.copies.memory;
}

/* Until the thread has taken them all. */
static void pages_await(const struct trainee *one)
{
    while (muster_huge_memory_taken_bytes(memory_of(one)) < memory_of(one)->capacity)
        (void)sched_yield();
}

/* Returns how much of the memory was new. */
static uint64_t checkpoint_make(struct trainee *one)
{
    struct muster_strategy_checkpoint_result result;

    trainee_begin(one);
    JOB_CHECK(trainee_save(one, trainee_folder) == MUSTER_OK);
    trainee_commit(one);
    JOB_CHECK(muster_strategy_checkpoint_wait(one->strategy) == MUSTER_OK);
    muster_strategy_checkpoint_result(one->strategy, &result);
    return result.new_bytes;
}

static void the_first_checkpoint_that_was_announced_copies_into_no_new_memory(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    assert_int_equal(muster_strategy_checkpoint_prepare(one.strategy, 0), MUSTER_OK);
    trainee_train(&one, 1);
    assert_true(memory_of(&one)->capacity >= PART_BYTES);
    pages_await(&one);

    assert_int_equal(checkpoint_make(&one), 0);
    assert_int_equal(checkpoint_make(&one), 0);

    trainee_close(&one);
    job_stage_close(&stage);
}

static void without_a_word_there_is_no_memory_before_the_first_and_enough_for_the_second(
    void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    trainee_train(&one, 2);
    assert_int_equal(memory_of(&one)->capacity, 0);

    (void)checkpoint_make(&one);
    pages_await(&one);

    assert_int_equal(checkpoint_make(&one), 0);
    trainee_close(&one);
    job_stage_close(&stage);
}

static void what_the_variables_save_is_prepared_unless_it_is_the_end_alone(void **state)
{
    static const char *const rows[] = {"1000", "10h", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct trainee one;

        job_stage_open(&stage, 0, 1);
        setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
        if (rows[i] != NULL)
            setenv("MUSTER_CHECKPOINT_EVERY", rows[i], 1);
        trainee_open(&one, LARGE_COUNT, NULL);
        unsetenv("MUSTER_CHECKPOINT_DIR");
        unsetenv("MUSTER_CHECKPOINT_EVERY");
        trainee_begin(&one);

        assert_int_equal(memory_of(&one)->capacity >= PART_BYTES, rows[i] != NULL);

        trainee_commit(&one);
        trainee_close(&one);
        job_stage_close(&stage);
    }
}

static void memory_that_is_not_needed_any_more_is_given_back(void **state)
{
    static const struct {
        uint64_t bytes_max;
        size_t least, most;
    } rows[] = {
        {0, PART_BYTES, PART_BYTES + MUSTER_HUGE_PAGE_BYTES},
        {7u << 20, PART_BYTES, PART_BYTES + MUSTER_HUGE_PAGE_BYTES}, /* more than half of it */
        {2u << 20, 2u << 20, 2u << 20},
        {0, PART_BYTES, PART_BYTES + MUSTER_HUGE_PAGE_BYTES},
    };
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_strategy_checkpoint_prepare(one.strategy, rows[i].bytes_max),
                         MUSTER_OK);
        trainee_train(&one, i + 1);

        assert_in_range(memory_of(&one)->capacity, rows[i].least, rows[i].most);
    }
    trainee_close(&one);
    job_stage_close(&stage);
}

/* It leaves behind the second step. */
static void leave_early(unsigned rank, void *data)
{
    struct trainee one;

    (void)rank;
    (void)data;
    trainee_open(&one, LARGE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_close(&one);
}

static void a_member_whose_part_grows_takes_more_memory(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 2);
    job_stage_start(&stage, 1, leave_early, NULL);
    trainee_open(&one, LARGE_COUNT, NULL);
    assert_int_equal(muster_strategy_checkpoint_prepare(one.strategy, 0), MUSTER_OK);
    trainee_begin(&one);
    assert_int_equal(muster_strategy_size(one.strategy), 2);
    assert_in_range(memory_of(&one)->capacity, PART_BYTES / 2, PART_BYTES - 1);
    trainee_commit(&one);
    while (muster_strategy_size(one.strategy) == 2)
        trainee_train(&one, one.step + 1);

    assert_true(memory_of(&one)->capacity >= PART_BYTES);

    trainee_close(&one);
    job_stage_join(&stage);
    job_stage_close(&stage);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, trainee_folders_make, trainee_folders_delete)
    const struct CMUnitTest tests[] = {
        CASE(the_first_checkpoint_that_was_announced_copies_into_no_new_memory),
        CASE(without_a_word_there_is_no_memory_before_the_first_and_enough_for_the_second),
        CASE(what_the_variables_save_is_prepared_unless_it_is_the_end_alone),
        CASE(memory_that_is_not_needed_any_more_is_given_back),
        CASE(a_member_whose_part_grows_takes_more_memory),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.strategy_copies", tests, NULL, NULL);
}
