/* From times to a table. */
#include "tools/bench/tune_table.c"

#include "test_env.h"

static void neighbours_that_agree_are_one_row(void **state)
{
    struct bench_tune_set set = {.n = 4};
    struct muster_plan_parameters parameters = {.row_count = 0};

    (void)state;
    bench_tune_add(&set, 65536, MUSTER_ALGORITHM_HALVING, 90);
    bench_tune_add(&set, 1024, MUSTER_ALGORITHM_DIRECT, 20);
    bench_tune_add(&set, 4096, MUSTER_ALGORITHM_DIRECT, 30);
    bench_tune_add(&set, 16384, MUSTER_ALGORITHM_DIRECT, 60);
    bench_tune_make(&set, 1, &parameters);

    assert_int_equal(parameters.row_count, 2);
    assert_int_equal(parameters.rows[0].algorithm, MUSTER_ALGORITHM_DIRECT);
    assert_true(parameters.rows[0].bytes_max == 32768);
    assert_int_equal(parameters.rows[1].algorithm, MUSTER_ALGORITHM_HALVING);
    assert_true(parameters.rows[1].bytes_max == 0);
}

static void a_later_algorithm_must_be_clearly_faster(void **state)
{
    struct bench_tune_set set = {.n = 2};

    (void)state;
    bench_tune_add(&set, 1024, MUSTER_ALGORITHM_DIRECT, 100);
    bench_tune_add(&set, 1024, MUSTER_ALGORITHM_BLOCKS, 98);
    assert_int_equal(set.best[0].algorithm, MUSTER_ALGORITHM_DIRECT);
    bench_tune_add(&set, 1024, MUSTER_ALGORITHM_RING, 90);
    assert_int_equal(set.best[0].algorithm, MUSTER_ALGORITHM_RING);
    assert_int_equal(set.count, 1);
}

static void the_largest_number_of_members_comes_first(void **state)
{
    struct bench_tune_set sets[] = {{.n = 2}, {.n = 16}, {.n = 4}};
    struct muster_plan_parameters parameters = {.row_count = 0};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        bench_tune_add(&sets[i], 1024, MUSTER_ALGORITHM_RING, 1);
    bench_tune_make(sets, 3, &parameters);

    assert_int_equal(parameters.row_count, 3);
    assert_int_equal(parameters.rows[0].n_min, 16);
    assert_int_equal(parameters.rows[1].n_min, 4);
    assert_int_equal(parameters.rows[2].n_min, 2);
}

static void more_sizes_than_there_is_room_for_are_refused(void **state)
{
    struct bench_tune_set set = {.n = 2};

    (void)state;
    for (uint64_t i = 0; i < BENCH_TUNE_SIZES_MAX; i++)
        assert_true(bench_tune_add(&set, 1 + i, MUSTER_ALGORITHM_RING, 1));
    assert_false(bench_tune_add(&set, 999, MUSTER_ALGORITHM_RING, 1));
    assert_true(bench_tune_add(&set, 7, MUSTER_ALGORITHM_RING, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_that_agree_are_one_row),
        cmocka_unit_test(a_later_algorithm_must_be_clearly_faster),
        cmocka_unit_test(the_largest_number_of_members_comes_first),
        cmocka_unit_test(more_sizes_than_there_is_room_for_are_refused),
    };

    return cmocka_run_group_tests_name("bench_tune_table", tests, NULL, NULL);
}
