/* Allocators: counting, limits, injected failures. */
#include "test_env.h"

#include <stdalign.h>
#include <string.h>

static void held_bytes_and_blocks_are_counted(void **state)
{
    struct muster_mem_limited limited;
    char *text;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 0);
    text = muster_mem_alloc(&limited.mem, 100);
    assert_non_null(text);
    assert_int_equal(limited.held_bytes, 100);
    text = muster_mem_realloc(&limited.mem, text, 40);
    assert_int_equal(limited.held_bytes, 40);
    assert_int_equal(limited.held_peak_bytes, 100);
    assert_int_equal(limited.block_count, 1);

    muster_mem_free(&limited.mem, text);
    assert_int_equal(limited.held_bytes, 0);
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

static void a_block_that_was_not_freed_is_told(void **state)
{
    struct muster_mem_limited limited;
    void *block;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 0);
    block = muster_mem_alloc(&limited.mem, 1);
    assert_int_equal(limited.block_count, 1);

    muster_mem_free(&limited.mem, block);
    block = muster_mem_alloc(&limited.mem, 1);
    muster_mem_free(muster_mem_system(), (char *)block - alignof(max_align_t));
    assert_int_equal(muster_mem_limited_fini(&limited), 1);
}

static void the_limit_refuses_and_leaves_the_old_block(void **state)
{
    struct muster_mem_limited limited;
    char *text;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 64);
    text = muster_mem_strdup(&limited.mem, "kept");
    assert_null(muster_mem_realloc(&limited.mem, text, 65));
    assert_null(muster_mem_alloc(&limited.mem, 60));
    assert_string_equal(text, "kept");
    text = muster_mem_realloc(&limited.mem, text, 64);
    assert_non_null(text);

    muster_mem_free(&limited.mem, text);
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

static void the_nth_allocation_fails_once(void **state)
{
    struct muster_mem_limited limited;
    void *first, *third;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 0);
    limited.fail_at = 2;
    first = muster_mem_alloc(&limited.mem, 1);
    assert_non_null(first);
    assert_null(muster_mem_alloc(&limited.mem, 1));
    third = muster_mem_alloc(&limited.mem, 1);
    assert_non_null(third);

    muster_mem_free(&limited.mem, first);
    muster_mem_free(&limited.mem, third);
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

static void blocks_are_aligned_for_every_type(void **state)
{
    struct muster_mem_limited limited;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 0);
    for (size_t bytes = 0; bytes < 40; bytes++) {
        void *block = muster_mem_alloc(&limited.mem, bytes);

        assert_int_equal((uintptr_t)block % alignof(max_align_t), 0);
        muster_mem_free(&limited.mem, block);
    }
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

static void zeroed_memory_is_zero_and_overflow_is_refused(void **state)
{
    static const char zero[24] = {0};
    char *block = muster_mem_alloc_zero(muster_mem_system(), 3, 8);

    (void)state;
    assert_memory_equal(block, zero, sizeof(zero));
    assert_null(muster_mem_alloc_zero(muster_mem_system(), SIZE_MAX / 2, 3));
    muster_mem_free(muster_mem_system(), block);
    muster_mem_free(muster_mem_system(), NULL);
}

static void strndup_stops_at_the_length_or_the_end(void **state)
{
    char *cut = muster_mem_strndup(muster_mem_system(), "muster", 3);
    char *whole = muster_mem_strndup(muster_mem_system(), "muster", 99);

    (void)state;
    assert_string_equal(cut, "mus");
    assert_string_equal(whole, "muster");
    muster_mem_free(muster_mem_system(), cut);
    muster_mem_free(muster_mem_system(), whole);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(held_bytes_and_blocks_are_counted),
        cmocka_unit_test(a_block_that_was_not_freed_is_told),
        cmocka_unit_test(the_limit_refuses_and_leaves_the_old_block),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(blocks_are_aligned_for_every_type),
        cmocka_unit_test(zeroed_memory_is_zero_and_overflow_is_refused),
        cmocka_unit_test(strndup_stops_at_the_length_or_the_end),
    };

    return cmocka_run_group_tests_name("mem", cases, NULL, NULL);
}
