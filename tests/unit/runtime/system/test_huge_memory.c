/* Large memory: where it lies, and what its allocator sees. */
#include "test_env.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

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

static size_t pages_count(const struct muster_huge_memory *memory)
{
    static unsigned char pages[5 * MUSTER_HUGE_PAGE_BYTES / 4096];
    size_t count = 0;

    assert_true(memory->capacity / 4096 <= sizeof(pages));
    assert_int_equal(mincore(memory->bytes, memory->capacity, pages), 0);
    for (size_t i = 0; i < memory->capacity / 4096; i++)
        count += pages[i] & 1;
    return count;
}

static void a_thread_takes_all_pages_and_changes_no_byte(void **state)
{
    struct muster_huge_memory memory;
    struct test_env test;
    size_t sum = 0;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_huge_memory_open(test.env.mem, 5 * MUSTER_HUGE_PAGE_BYTES, &memory),
                     MUSTER_OK);
    assert_int_equal(muster_huge_memory_taken_bytes(&memory), 0);
    memset(memory.bytes + 4096, 7, MUSTER_HUGE_PAGE_BYTES);
    assert_true(pages_count(&memory) < memory.capacity / 4096);

    muster_huge_memory_take_start(&memory);
    while (muster_huge_memory_taken_bytes(&memory) < memory.capacity)
        (void)sched_yield();

    assert_int_equal(pages_count(&memory), memory.capacity / 4096);
    for (size_t i = 0; i < MUSTER_HUGE_PAGE_BYTES; i++)
        sum += memory.bytes[4096 + i];
    assert_int_equal(sum, 7 * MUSTER_HUGE_PAGE_BYTES);
    muster_huge_memory_close(&memory);
    test_env_close(&test);
}

static void memory_is_closed_while_its_pages_are_taken(void **state)
{
    struct muster_huge_memory memory;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_huge_memory_open(test.env.mem, 500 * MUSTER_HUGE_PAGE_BYTES, &memory),
                     MUSTER_OK);
    muster_huge_memory_take_start(&memory);
    while (muster_huge_memory_taken_bytes(&memory) == 0)
        (void)sched_yield();

    muster_huge_memory_close(&memory);

    assert_int_equal(muster_huge_memory_taken_bytes(&memory), 0);
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
        cmocka_unit_test(a_thread_takes_all_pages_and_changes_no_byte),
        cmocka_unit_test(memory_is_closed_while_its_pages_are_taken),
        cmocka_unit_test(a_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests_name("huge_memory", tests, NULL, NULL);
}
