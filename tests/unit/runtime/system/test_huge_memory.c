/* Large memory: where it lies, and what its allocator sees. */
#include "test_env.h"

#include <string.h>

#include "runtime/system/huge_memory.h"

static void memory_begins_at_a_page_and_has_the_bytes(void **state)
{
    static const struct {
        size_t bytes, align;
    } rows[] = {
        {0, 4096},
        {1, 4096},
        {4097, 4096},
        {MUSTER_HUGE_PAGE_BYTES - 1, 4096},
        {MUSTER_HUGE_PAGE_BYTES, MUSTER_HUGE_PAGE_BYTES},
        {MUSTER_HUGE_PAGE_BYTES + 1, MUSTER_HUGE_PAGE_BYTES},
    };
    struct test_env test;

    (void)state;
    test_env_open(&test);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_huge_memory memory;

        assert_int_equal(muster_huge_memory_open(test.env.mem, rows[i].bytes, &memory), MUSTER_OK);

        assert_int_equal((uintptr_t)memory.bytes % rows[i].align, 0);
        assert_true(memory.capacity >= rows[i].bytes);
        if (memory.capacity > 0)
            memset(memory.bytes, 1, memory.capacity);
        muster_huge_memory_close(&memory);
        muster_huge_memory_close(&memory);
        assert_int_equal(memory.capacity, 0);
    }
    test_env_close(&test);
}

static void a_lack_of_memory_is_told(void **state)
{
    static const size_t rows[] = {4096, SIZE_MAX, SIZE_MAX - MUSTER_HUGE_PAGE_BYTES};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test.mem.limit_bytes = test.mem.held_bytes + 4096;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_huge_memory memory;

        assert_int_equal(muster_huge_memory_open(test.env.mem, rows[i], &memory),
                         MUSTER_RESOURCE_EXHAUSTED);
    }
    test.mem.limit_bytes = 0;
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_begins_at_a_page_and_has_the_bytes),
        cmocka_unit_test(a_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests_name("huge_memory", tests, NULL, NULL);
}
