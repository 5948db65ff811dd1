/* Batches: those of a step are one global batch, pieces hold each element once, and sizes are used in turn. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include <muster/input.h>

static uint64_t step_size(struct muster_batch_split split, uint64_t step)
{
    uint64_t sum = 0;

    for (split.worker = 0; split.worker < split.num_workers; split.worker++)
        for (uint32_t replica = 0; replica < split.replicas_per_worker; replica++)
            sum += muster_batch_split_size(&split, step * split.replicas_per_worker + replica);
    return sum;
}

static void the_batches_of_each_step_are_one_global_batch(void **state)
{
    (void)state;
    for (uint64_t batch = 1; batch < 14; batch++)
        for (uint32_t workers = 1; workers < 5; workers++)
            for (uint32_t replicas = 1; replicas < 4; replicas++)
                for (uint64_t step = 0; step < 9; step++)
                    assert_int_equal(
                        step_size((struct muster_batch_split){batch, workers, replicas, 0}, step),
                        batch);
}

static void a_split_that_is_none_is_refused(void **state)
{
    static const struct {
        struct muster_batch_split split;
        const char *error;
    } rows[] = {
        {{0, 2, 1, 0}, "above 0, got 0 and 1"},
        {{4, 2, 0, 0}, "above 0, got 4 and 0"},
        {{4, 0, 1, 0}, "below their number 0, got 0"},
        {{4, 2, 1, 2}, "below their number 2, got 2"},
    };
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_batch_split_check(&(struct muster_batch_split){4, 2, 1, 1}, &error),
                     MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_batch_split_check(&rows[i].split, &error), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, rows[i].error));
    }
}

static void the_pieces_of_a_batch_hold_each_element_once(void **state)
{
    (void)state;
    for (uint64_t size = 0; size < 20; size++)
        for (uint32_t count = 1; count < 8; count++) {
            uint64_t end = 0, first, piece;

            for (uint32_t i = 0; i < count; i++) {
                muster_batch_cut(size, count, i, &first, &piece);
                assert_int_equal(first, end);
                end += piece;
            }
            assert_int_equal(end, size);
        }
}

static void a_rebatch_uses_its_sizes_in_turn(void **state)
{
    static const int64_t sizes[] = {2, 0, 1};
    static const int64_t negative[] = {2, -1};
    static const int64_t zeros[] = {0, 0};
    struct muster_rebatch rebatch;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_rebatch_init(&rebatch, sizes, 3, &error), MUSTER_OK);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(muster_rebatch_next(&rebatch), sizes[i % 3]);
    assert_int_equal(muster_rebatch_init(&rebatch, negative, 2, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "the size of a batch must not be negative, got -1");
    assert_int_equal(muster_rebatch_init(&rebatch, zeros, 2, &error), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_rebatch_init(&rebatch, NULL, 0, &error), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_rebatch_next(&rebatch), 0); /* as it was: the second of sizes */
}

static void the_batch_size_behind_a_pipeline_is_that_of_its_last_batch(void **state)
{
    static const struct muster_input_stage stages[] = {
        {MUSTER_INPUT_BATCH, 4},   {MUSTER_INPUT_KEEP, 9},    {MUSTER_INPUT_MAP, 0},
        {MUSTER_INPUT_UNBATCH, 0}, {MUSTER_INPUT_BATCH, 3},   {MUSTER_INPUT_BATCH, 2},
        {MUSTER_INPUT_UNBATCH, 0}, {MUSTER_INPUT_UNBATCH, 0},
    };
    static const int64_t expected[] = {4, 4, -1, 0, 3, 2, -1, 0}; /* 0: refused */
    struct muster_error error;

    (void)state;
    for (size_t count = 1; count <= sizeof(stages) / sizeof(stages[0]); count++) {
        int64_t size = 0;
        enum muster_rc rc = muster_input_batch_size(stages, count, &size, &error);

        assert_int_equal(rc, expected[count - 1] != 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        assert_int_equal(size, expected[count - 1]);
    }
    assert_int_equal(muster_input_batch_size(NULL, 0, &(int64_t){0}, &error),
                     MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_batches_of_each_step_are_one_global_batch),
        cmocka_unit_test(a_split_that_is_none_is_refused),
        cmocka_unit_test(the_pieces_of_a_batch_hold_each_element_once),
        cmocka_unit_test(a_rebatch_uses_its_sizes_in_turn),
        cmocka_unit_test(the_batch_size_behind_a_pipeline_is_that_of_its_last_batch),
    };

    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
