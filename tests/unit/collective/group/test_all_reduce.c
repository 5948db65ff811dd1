/* All-reduce by weight and by the program's function: over every algorithm, and when a member dies. */
#include "group_ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <muster/collective.h>

#include "collective/plan/plan.h"
#include "kernel_reference.h"

#define COUNT_MAX 700
#define TURNS_MAX 3000

/* One operation of one member: its input and its output. */
struct seat {
    struct muster_op op;
    _Alignas(64) uint8_t memory[COUNT_MAX * 8];
    unsigned done_count;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct seat seats[GROUP_RING_MAX];

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

static enum muster_algorithm forced;

static void open_seats(uint32_t n)
{
    const struct muster_plan_parameters plan = {
        .chunk_bytes = 128, .direct_max_bytes = 64, .forced = forced};

    group_ring_open_plan(&ring, n, &plan);
    memset(seats, 0, sizeof(seats));
    for (uint32_t i = 0; i < n; i++) {
        seats[i].op.data = &seats[i];
        seats[i].op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
    }
}

static bool are_done(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (group_ring_is_living(&ring, i) && seats[i].done_count == 0)
            return false;
    return true;
}

static void run_until_done(uint32_t n)
{
    for (unsigned turns = 0; !are_done(n); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > TURNS_MAX)
            fail_msg("the members hang");
    }
}

/* --- By weight --- */

static double value_at(uint32_t member, uint64_t i)
{
    return (double)((int)(member * 5 + i % 13) - 9) / 4;
}

static void fill_input(enum muster_dtype dtype, uint32_t member, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        reference_encode(dtype, value_at(member, i),
                         seats[member].memory + i * muster_dtype_bytes(dtype));
}

static void start_weighted(enum muster_dtype dtype, uint32_t member, uint64_t count,
                           uint64_t weight)
{
    const struct muster_tensor tensor = {seats[member].memory, count, dtype};

    fill_input(dtype, member, count);
    assert_int_equal(muster_all_reduce_weighted_start(&seats[member].op, ring.members[member].group,
                                                      &tensor, weight, on_done),
                     MUSTER_OK);
}

/* without: bit r = member r did not contribute. */
static double mean_at(const uint64_t *weights, uint32_t n, unsigned without, uint64_t i)
{
    double sum = 0, total = 0;

    for (uint32_t member = 0; member < n; member++) {
        if ((without >> member & 1) != 0)
            continue;
        sum += value_at(member, i) * (double)weights[member];
        total += (double)weights[member];
    }
    return total > 0 ? sum / total : 0;
}

static uint64_t total_of(const uint64_t *weights, uint32_t n, unsigned without)
{
    uint64_t total = 0;

    for (uint32_t member = 0; member < n; member++)
        total += (without >> member & 1) != 0 ? 0 : weights[member];
    return total;
}

static double tolerance_of(enum muster_dtype dtype)
{
    static const double steps[] = {
        [MUSTER_F32] = 1e-6, [MUSTER_F64] = 1e-14, [MUSTER_F16] = 8e-3, [MUSTER_BF16] = 6e-2};

    return steps[dtype];
}

static void check_mean(enum muster_dtype dtype, const uint64_t *weights, uint32_t n, uint64_t count,
                       unsigned without)
{
    const struct seat *first = NULL;

    for (uint32_t member = 0; member < n; member++) {
        const struct seat *seat = &seats[member];

        if (!group_ring_is_living(&ring, member))
            continue;
        first = first == NULL ? seat : first;
        assert_int_equal(seat->done_count, 1);
        assert_int_equal(seat->rc, MUSTER_OK);
        assert_int_equal(seat->op.result.total_weight, total_of(weights, n, without));
        assert_memory_equal(seat->memory, first->memory, count * muster_dtype_bytes(dtype));
        for (uint64_t i = 0; i < count; i++) {
            double got = reference_get(dtype, seat->memory, i);

            if (fabs(got - mean_at(weights, n, without, i)) > tolerance_of(dtype) * (1 + fabs(got)))
                fail_msg("%s x %llu, member %u of %u, element %llu: %g", muster_dtype_name(dtype),
                         (unsigned long long)count, member, n, (unsigned long long)i, got);
        }
    }
}

static const uint64_t weights_of_5[] = {3, 0, 128, 77, 1000000};

static void means_are_by_weight_on_every_type_and_algorithm(void **state)
{
    static const enum muster_dtype dtypes[] = {MUSTER_F16, MUSTER_BF16, MUSTER_F32, MUSTER_F64};
    static const uint64_t counts[] = {0, 1, 5, COUNT_MAX};

    (void)state;
    for (uint32_t n = 1; n <= 5; n++)
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                open_seats(n);
                for (uint32_t i = 0; i < n; i++)
                    start_weighted(dtypes[d], i, counts[c], weights_of_5[i]);
                run_until_done(n);
                check_mean(dtypes[d], weights_of_5, n, counts[c], 0);
                group_ring_close(&ring);
            }
}

static void nobody_with_a_weight_gives_zero(void **state)
{
    static const uint64_t none[3] = {0, 0, 0};

    (void)state;
    for (uint32_t n = 1; n <= 3; n++)
        for (uint64_t count = 3; count < COUNT_MAX; count += 600) {
            open_seats(n);
            for (uint32_t i = 0; i < n; i++)
                start_weighted(MUSTER_F32, i, count, 0);
            run_until_done(n);
            check_mean(MUSTER_F32, none, n, count, 0);
            group_ring_close(&ring);
        }
}

/* 60,000 * 100 is far above the largest f16. */
static void a_weight_does_not_overflow_small_floats(void **state)
{
    const uint16_t large = muster_f16_from_f32(60000);

    (void)state;
    open_seats(3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct muster_tensor tensor = {seats[i].memory, COUNT_MAX, MUSTER_F16};

        for (uint64_t k = 0; k < COUNT_MAX; k++)
            memcpy(seats[i].memory + 2 * k, &large, sizeof(large));
        assert_int_equal(muster_all_reduce_weighted_start(&seats[i].op, ring.members[i].group,
                                                          &tensor, 100 + i, on_done),
                         MUSTER_OK);
    }
    run_until_done(3);
    for (uint64_t k = 0; k < COUNT_MAX; k++)
        assert_memory_equal(seats[1].memory + 2 * k, &large, sizeof(large));
}

static void who_has_no_weight_may_hold_anything(void **state)
{
    const uint64_t weights[2] = {4, 0};

    (void)state;
    for (uint64_t count = 4; count < COUNT_MAX; count += 500) {
        const struct muster_tensor nan = {seats[1].memory, count, MUSTER_F32};

        open_seats(2);
        start_weighted(MUSTER_F32, 0, count, weights[0]);
        memset(seats[1].memory, 0xff, count * 4);
        assert_int_equal(muster_all_reduce_weighted_start(&seats[1].op, ring.members[1].group, &nan,
                                                          weights[1], on_done),
                         MUSTER_OK);
        run_until_done(2);
        check_mean(MUSTER_F32, weights, 2, count, 0);
        group_ring_close(&ring);
    }
}

/* Returns whether the k-th point exists. */
static bool play_death(uint32_t victim, unsigned k, uint64_t count, bool is_stopped)
{
    bool has_cut;

    open_seats(4);
    ring.members[victim].cut_at = k;
    ring.is_stopped_at_cut = is_stopped;
    for (uint32_t i = 0; i < 4; i++)
        start_weighted(MUSTER_F32, i, count, weights_of_5[i] + 1);
    for (unsigned turns = 0; !ring.has_cut && !are_done(4) && turns < TURNS_MAX; turns++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    has_cut = ring.has_cut;
    if (has_cut) {
        uint64_t weights[4];
        uint32_t survivor = victim == 0 ? 1 : 0;

        for (uint32_t i = 0; i < 4; i++)
            weights[i] = weights_of_5[i] + 1;
        group_ring_kill(&ring, victim);
        group_ring_change(&ring, UINT32_MAX);
        run_until_done(4);
        check_mean(MUSTER_F32, weights, 4, count,
                   seats[survivor].op.result.contributor_count == 4 ? 0 : 1u << victim);
    }
    group_ring_close(&ring);
    return has_cut;
}

static void a_death_leaves_the_mean_of_the_weights_that_count(void **state)
{
    (void)state;
    for (uint64_t count = 10; count < COUNT_MAX; count += 280)
        for (uint32_t victim = 0; victim < 4; victim++) {
            unsigned k = 1;

            while (play_death(victim, k, count, k % 2 == 0))
                k++;
            assert_true(k > 1 || group_ring_has_boards); /* boards have other points */
        }
}

/* --- By the program --- */

struct best {
    uint32_t score, owner;
    uint8_t note[4];
};

static void keep_best(void *data, void *into, const void *from, size_t count)
{
    struct best *a = into;
    const struct best *b = from;

    ++*(unsigned *)data;
    for (size_t i = 0; i < count; i++)
        if (b[i].score > a[i].score)
            a[i] = b[i];
}

static unsigned call_count;
static const struct muster_user_reduction best = {.name = "best",
                                                  .element_bytes = sizeof(struct best),
                                                  .is_commutative = true,
                                                  .reduce = keep_best,
                                                  .data = &call_count};

static void start_user(uint32_t member, uint64_t count,
                       const struct muster_user_reduction *reduction)
{
    assert_int_equal(muster_all_reduce_user_start(&seats[member].op, ring.members[member].group,
                                                  seats[member].memory, count, reduction, on_done),
                     MUSTER_OK);
}

static void the_programs_function_reduces_elements_of_any_size(void **state)
{
    static const uint64_t counts[] = {1, 3, 400};

    (void)state;
    for (uint32_t n = 2; n <= 5; n++)
        for (size_t c = 0; c < 3; c++) {
            open_seats(n);
            call_count = 0;
            for (uint32_t i = 0; i < n; i++) {
                for (uint64_t k = 0; k < counts[c]; k++)
                    memcpy(seats[i].memory + k * sizeof(struct best),
                           &(struct best){.score = (uint32_t)((i + 1) * (k + 7) % 11 * 8 + i),
                                          .owner = i},
                           sizeof(struct best));
                start_user(i, counts[c], &best);
            }
            run_until_done(n);
            assert_true(call_count > 0);
            for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(seats[i].rc, MUSTER_OK);
                assert_memory_equal(seats[i].memory, seats[0].memory,
                                    counts[c] * sizeof(struct best));
                for (uint64_t k = 0; k < counts[c]; k++) {
                    const struct best *got = (const void *)(seats[i].memory + k * sizeof(*got));
                    uint32_t most = 0;

                    for (uint32_t m = 0; m < n; m++)
                        most = (m + 1) * (k + 7) % 11 * 8 + m > most
                                   ? (uint32_t)((m + 1) * (k + 7) % 11 * 8 + m)
                                   : most;
                    assert_int_equal(got->score, most);
                    assert_int_equal(got->owner, most % 8);
                }
            }
            group_ring_close(&ring);
        }
}

/* x -> scale * x + shift, one after the other: (a, then b) is not (b, then a). */
static void compose_maps(void *data, void *into, const void *from, size_t count)
{
    uint32_t *a = into;
    const uint32_t *b = from;

    (void)data;
    for (size_t i = 0; i < count; i++, a += 2, b += 2) {
        a[1] = b[0] * a[1] + b[1];
        a[0] = a[0] * b[0];
    }
}

static const struct muster_user_reduction composed = {
    .name = "composed", .element_bytes = 8, .reduce = compose_maps};

static void what_is_not_commutative_goes_in_the_order_of_ranks(void **state)
{
    (void)state;
    for (uint64_t count = 2; count <= 600; count += 299) {
        open_seats(4);
        for (uint32_t i = 0; i < 4; i++) {
            for (uint64_t k = 0; k < count; k++)
                memcpy(seats[i].memory + 8 * k, (uint32_t[]){i + 2, (uint32_t)k + i}, 8);
            start_user(i, count, &composed);
        }
        run_until_done(4);
        for (uint64_t k = 0; k < count; k++) {
            uint32_t expected[2] = {1, 0};

            for (uint32_t i = 0; i < 4; i++)
                compose_maps(NULL, expected, (uint32_t[]){i + 2, (uint32_t)k + i}, 1);
            for (uint32_t i = 0; i < 4; i++)
                assert_memory_equal(seats[i].memory + 8 * k, expected, 8);
        }
        group_ring_close(&ring);
    }
}

static void members_with_different_functions_are_told_both_names(void **state)
{
    struct muster_user_reduction other = best;

    (void)state;
    other.name = "worst";
    open_seats(2);
    start_user(0, 50, &best);
    start_user(1, 50, &other);
    run_until_done(2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(seats[i].rc, MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(seats[i].op.error.text, "all_reduce(best, 12 bytes x 50)"));
        assert_non_null(strstr(seats[i].op.error.text, "all_reduce(worst, 12 bytes x 50)"));
    }
}

static void a_mean_by_weight_is_another_operation_than_a_mean(void **state)
{
    const struct muster_tensor tensor = {seats[1].memory, 50, MUSTER_F32};

    (void)state;
    open_seats(2);
    start_weighted(MUSTER_F32, 0, 50, 1);
    assert_int_equal(
        muster_all_reduce_start(&seats[1].op, ring.members[1].group, &tensor, MUSTER_MEAN, on_done),
        MUSTER_OK);
    run_until_done(2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(seats[i].rc, MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(seats[i].op.error.text, "all_reduce(weighted mean, f32 x 50)"));
        assert_non_null(strstr(seats[i].op.error.text, "all_reduce(mean, f32 x 50)"));
    }
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    struct muster_user_reduction bad[4] = {best, best, best, best};
    const struct muster_tensor whole = {seats[0].memory, 4, MUSTER_I32};
    struct muster_op *op = &seats[0].op;

    (void)state;
    bad[0].name = NULL;
    bad[1].reduce = NULL;
    bad[2].element_bytes = 0;
    bad[3].element_bytes = MUSTER_USER_ELEMENT_BYTES_MAX + 1;
    open_seats(1);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(muster_all_reduce_user_start(op, ring.members[0].group, seats[0].memory, 1,
                                                      &bad[i], on_done),
                         MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_all_reduce_user_start(op, ring.members[0].group, NULL, 1, &best, on_done),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_all_reduce_weighted_start(op, ring.members[0].group, &whole, 1, on_done),
        MUSTER_INVALID_ARGUMENT);
    group_ring_close(&ring);
    assert_int_equal(seats[0].done_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_by_weight_on_every_type_and_algorithm),
        cmocka_unit_test(nobody_with_a_weight_gives_zero),
        GROUP_RING_CASE(a_weight_does_not_overflow_small_floats),
        cmocka_unit_test(who_has_no_weight_may_hold_anything),
        cmocka_unit_test(a_death_leaves_the_mean_of_the_weights_that_count),
        cmocka_unit_test(the_programs_function_reduces_elements_of_any_size),
        cmocka_unit_test(what_is_not_commutative_goes_in_the_order_of_ranks),
        GROUP_RING_CASE(members_with_different_functions_are_told_both_names),
        GROUP_RING_CASE(a_mean_by_weight_is_another_operation_than_a_mean),
        cmocka_unit_test(calls_that_make_no_sense_are_refused),
    };

    int failed = 0;

    for (int i = MUSTER_ALGORITHM_AUTO; i <= MUSTER_ALGORITHM_TWO_LEVEL; i++) {
        forced = (enum muster_algorithm)i;
        failed += cmocka_run_group_tests_name(muster_algorithm_name(forced), tests, NULL, NULL);
    }
    forced = MUSTER_ALGORITHM_AUTO;
    group_ring_has_boards = true;
    return failed + cmocka_run_group_tests_name("all_reduce through boards", tests, NULL, NULL);
}
