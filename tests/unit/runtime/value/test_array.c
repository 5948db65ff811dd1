/* Arrays that grow. */
#include "runtime/value/array.h"

#include "test_env.h"

static void an_array_keeps_its_elements_and_doubles_when_it_is_full(void **state)
{
    struct test_env test;
    uint32_t *numbers = NULL;
    size_t capacity = 0, held_before;
    uint64_t allocations_before;
    (void)state;
    test_env_open(&test);
    held_before = test.mem.held_bytes;
    allocations_before = test.mem.alloc_count;

    for (uint32_t i = 0; i < 100; i++) {
        uint32_t *room =
            muster_array_reserve(test.env.mem, numbers, i, &capacity, sizeof(numbers[0]));

        assert_non_null(room);
        assert_true(i == 0 || i == 8 || i == 16 || i == 32 || i == 64 || room == numbers);
        assert_true(capacity > i);
        numbers = room;
        numbers[i] = i;
    }

    assert_int_equal(capacity, 128);
    assert_int_equal(test.mem.alloc_count - allocations_before, 5);
    assert_int_equal(test.mem.held_bytes - held_before, 128 * sizeof(numbers[0]));
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(numbers[i], i);
    muster_mem_free(test.env.mem, numbers);
    test_env_close(&test);
}

static void without_memory_the_array_is_as_before(void **state)
{
    struct test_env test;
    uint32_t *numbers;
    size_t capacity = 0;
    (void)state;
    test_env_open(&test);
    numbers = muster_array_reserve(test.env.mem, NULL, 0, &capacity, sizeof(numbers[0]));
    assert_int_equal(capacity, 8);
    numbers[7] = 7;

    test.mem.fail_at = 1;
    assert_null(muster_array_reserve(test.env.mem, numbers, 8, &capacity, sizeof(numbers[0])));

    assert_int_equal(capacity, 8);
    assert_int_equal(numbers[7], 7);
    muster_mem_free(test.env.mem, numbers);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_keeps_its_elements_and_doubles_when_it_is_full),
        cmocka_unit_test(without_memory_the_array_is_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
