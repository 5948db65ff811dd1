/* The order of an epoch: each number once, another order for each seed and epoch. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "training/data/order.h"

#define COUNT_MAX 1100

static void each_number_comes_once(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < COUNT_MAX; count += count < 70 ? 1 : 101) {
        bool seen[COUNT_MAX] = {false};
        struct muster_data_order order;
        unsigned sum = 0;

        muster_data_order_init(&order, count, true, 7, count % 3);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t number = muster_data_order_at(&order, i);

            assert_true(number < count);
            sum += !seen[number];
            seen[number] = true;
        }
        assert_int_equal(sum, count);
    }
}

static unsigned count_equal_places(uint64_t seed, uint64_t epoch)
{
    struct muster_data_order first, other;
    unsigned equal = 0;

    muster_data_order_init(&first, 1000, true, 1, 0);
    muster_data_order_init(&other, 1000, true, seed, epoch);
    for (uint64_t i = 0; i < 1000; i++)
        equal += muster_data_order_at(&first, i) == muster_data_order_at(&other, i);
    return equal;
}

static void seeds_and_epochs_have_orders_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(count_equal_places(1, 0), 1000);
    assert_true(count_equal_places(1, 1) < 20);
    assert_true(count_equal_places(2, 0) < 20);
}

static void numbers_of_a_tenth_come_from_everywhere(void **state)
{
    struct muster_data_order order;
    unsigned low = 0, rising = 0;

    (void)state;
    muster_data_order_init(&order, 10000, true, 3, 0);
    for (uint64_t i = 0; i < 1000; i++) {
        low += muster_data_order_at(&order, i) < 5000;
        rising += muster_data_order_at(&order, i) < muster_data_order_at(&order, i + 1);
    }
    assert_in_range(low, 430, 570);
    assert_in_range(rising, 430, 570);
}

static void without_a_shuffle_numbers_are_in_order(void **state)
{
    struct muster_data_order order;

    (void)state;
    muster_data_order_init(&order, 50, false, 3, 2);
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(muster_data_order_at(&order, i), i);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(each_number_comes_once),
        cmocka_unit_test(seeds_and_epochs_have_orders_of_their_own),
        cmocka_unit_test(numbers_of_a_tenth_come_from_everywhere),
        cmocka_unit_test(without_a_shuffle_numbers_are_in_order),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
