/* Plans in a model of the network: times that can be worked out by hand, and bounds. */
#include "tools/bench/model.c"

#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

static const enum muster_algorithm algorithms[] = {
    MUSTER_ALGORITHM_DIRECT, MUSTER_ALGORITHM_RING,        MUSTER_ALGORITHM_HALVING,
    MUSTER_ALGORITHM_BLOCKS, MUSTER_ALGORITHM_DOUBLE_TREE, MUSTER_ALGORITHM_TWO_LEVEL};

#define ALGORITHM_COUNT (sizeof(algorithms) / sizeof(algorithms[0]))

/* 8 Gbit/s: 1,000 bytes in a microsecond. */
static struct bench_model usual_model(uint32_t n, uint64_t bytes, enum muster_algorithm algorithm)
{
    return (struct bench_model){.n = n,
                                .bytes = bytes,
                                .algorithm = algorithm,
                                .latency_us = 10,
                                .local_latency_us = 1,
                                .gbps = 8,
                                .local_gbps = 80};
}

static struct bench_model_result play_model(const struct bench_model *model)
{
    struct bench_model_result result;
    struct muster_error error;

    fail_if(bench_model_run(muster_mem_system(), model, &result, &error) != MUSTER_OK, "%s",
            error.text);
    return result;
}

static void assert_near(double a, double b)
{
    fail_if(a < b * 0.999 - 0.001 || a > b * 1.001 + 0.001, "%f is not %f", a, b);
}

static void times_are_as_worked_out_by_hand(void **state)
{
    struct bench_model model = usual_model(2, 4000, MUSTER_ALGORITHM_DIRECT);

    (void)state;
    assert_near(play_model(&model).time_us, 10 + 4);
    model.n = 5; /* four messages leave one after the other, and so they come in */
    assert_near(play_model(&model).time_us, 10 + 4 * 4);
    model = usual_model(4, 16384, MUSTER_ALGORITHM_HALVING);
    assert_near(play_model(&model).time_us, 4 * 10 + 2 * (8.192 + 4.096));
    model = usual_model(4, 16384, MUSTER_ALGORITHM_BLOCKS);
    assert_near(play_model(&model).time_us, 2 * 10 + 2 * 3 * 4.096);
    model = usual_model(3, 196608, MUSTER_ALGORITHM_RING); /* one chunk of 64 KiB for each member */
    assert_near(play_model(&model).time_us, 4 * 10 + 4 * 65.536);
}

static void members_of_a_host_share_its_port(void **state)
{
    struct bench_model model = usual_model(4, 16000, MUSTER_ALGORITHM_DIRECT);

    (void)state;
    model.ranks_per_host = 2; /* each host sends four messages to the other */
    assert_near(play_model(&model).time_us, 10 + 4 * 16);
    model.ranks_per_host = 4;
    assert_near(play_model(&model).time_us, 1 + 3 * 1.6);
}

static void overhead_is_paid_for_each_message(void **state)
{
    struct bench_model model = usual_model(5, 4000, MUSTER_ALGORITHM_DIRECT);

    (void)state;
    model.overhead_us = 3;
    assert_near(play_model(&model).time_us, 10 + 4 * (3 + 4));
}

static void no_plan_is_faster_than_the_bound(void **state)
{
    (void)state;
    for (uint32_t n = 2; n < 40; n += 1 + n / 3)
        for (uint64_t bytes = 64; bytes < 4 << 20; bytes *= 16)
            for (uint32_t per_host = 1; per_host <= 4; per_host += 3)
                for (size_t a = 0; a < ALGORITHM_COUNT; a++) {
                    struct bench_model model = usual_model(n, bytes, algorithms[a]);
                    struct bench_model_result result;

                    model.ranks_per_host = per_host;
                    model.overhead_us = (double)(n % 3) * 5;
                    result = play_model(&model);
                    assert_int_equal(result.algorithm, algorithms[a]);
                    assert_true(result.time_us >= result.bound_us * 0.999);
                }
}

static void a_bound_is_of_latency_or_of_bandwidth(void **state)
{
    struct bench_model model = usual_model(1024, 64, MUSTER_ALGORITHM_HALVING);

    (void)state;
    model.overhead_us = 3;
    assert_near(play_model(&model).bound_us, 10 + 10 * 3);
    model = usual_model(4, 1 << 20, MUSTER_ALGORITHM_HALVING);
    assert_near(play_model(&model).bound_us, 1.5 * 1048.576);
}

static void auto_takes_what_the_parameters_choose(void **state)
{
    struct bench_model model = usual_model(8, 1 << 20, MUSTER_ALGORITHM_AUTO);

    (void)state;
    model.parameters.row_count = 1;
    model.parameters.rows[0] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                                        .algorithm = MUSTER_ALGORITHM_DOUBLE_TREE};
    assert_int_equal(play_model(&model).algorithm, MUSTER_ALGORITHM_DOUBLE_TREE);
}

static void what_cannot_be_played_is_refused(void **state)
{
    struct bench_model model = usual_model(8, 64 << 20, MUSTER_ALGORITHM_DIRECT);
    struct bench_model_result result;
    struct muster_error error;

    (void)state;
    assert_int_equal(bench_model_run(muster_mem_system(), &model, &result, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "direct cannot reduce 67108864 bytes"));
    model.gbps = 0;
    assert_int_equal(bench_model_run(muster_mem_system(), &model, &result, &error),
                     MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_as_worked_out_by_hand),
        cmocka_unit_test(members_of_a_host_share_its_port),
        cmocka_unit_test(overhead_is_paid_for_each_message),
        cmocka_unit_test(no_plan_is_faster_than_the_bound),
        cmocka_unit_test(a_bound_is_of_latency_or_of_bandwidth),
        cmocka_unit_test(auto_takes_what_the_parameters_choose),
        cmocka_unit_test(what_cannot_be_played_is_refused),
    };

    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
