/* Allocators: counting, limits, injected failures. */
#include "test_env.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* The heap, but every new block is full of 0xA5, and what is asked is noted. */
struct noting_mem {
    struct muster_mem mem;
    unsigned call_count;
    size_t bytes; /* of the last call */
    bool is_empty;
};

static void *noting_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    struct noting_mem *noting = (struct noting_mem *)mem;
    void *block;

    noting->call_count++;
    noting->bytes = bytes;
    if (noting->is_empty && bytes > 0)
        return NULL;
    block = bytes == 0 ? NULL : realloc(ptr, bytes);
    if (bytes == 0)
        free(ptr);
    else if (ptr == NULL)
        memset(block, 0xA5, bytes);
    return block;
}

static struct noting_mem noting_open(void)
{
    static const struct muster_mem_ops ops = {.realloc = noting_realloc};

    return (struct noting_mem){.mem = {.ops = &ops}};
}

static void nothing_is_taken_for_a_byte(void **state)
{
    struct noting_mem noting = noting_open();
    void *block = muster_mem_alloc(&noting.mem, 0);

    (void)state;
    assert_non_null(block);
    assert_int_equal(noting.bytes, 1);
    block = muster_mem_realloc(&noting.mem, block, 7);
    assert_int_equal(noting.bytes, 7);
    block = muster_mem_realloc(&noting.mem, block, 0);
    assert_non_null(block);
    assert_int_equal(noting.bytes, 1);
    muster_mem_free(&noting.mem, block);
    assert_int_equal(noting.bytes, 0);
    assert_int_equal(noting.call_count, 4);
    muster_mem_free(&noting.mem, NULL); /* nobody is asked */
    assert_int_equal(noting.call_count, 4);
    assert_null(muster_mem_system()->ops->realloc(muster_mem_system(), NULL, 0));
    assert_null(muster_mem_system()->ops->realloc(muster_mem_system(), malloc(1), 0));
}

static void zeroed_memory_is_zero_and_overflow_is_refused(void **state)
{
    static const char zero[24] = {0};
    struct noting_mem noting = noting_open();
    char *block = muster_mem_alloc_zero(&noting.mem, 3, 8);

    (void)state;
    assert_int_equal(noting.bytes, 24);
    assert_memory_equal(block, zero, sizeof(zero));
    muster_mem_free(&noting.mem, block);
    noting.call_count = 0;
    noting.is_empty = true;
    assert_null(muster_mem_alloc_zero(&noting.mem, SIZE_MAX / 2, 3));
    assert_null(muster_mem_alloc_zero(&noting.mem, SIZE_MAX / 8 + 1, 8));
    assert_int_equal(noting.call_count, 0);
    assert_null(muster_mem_alloc_zero(&noting.mem, SIZE_MAX / 8, 8));
    assert_int_equal(noting.call_count, 1);
}

static void a_copy_of_text_stops_at_the_length_or_the_end(void **state)
{
    static const struct {
        size_t length;
        const char *copy;
    } rows[] = {{0, ""}, {3, "mus"}, {5, "muste"}, {6, "muster"}, {7, "muster"}, {99, "muster"}};
    struct noting_mem noting = noting_open();
    char *text;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        text = muster_mem_strndup(&noting.mem, "muster", rows[i].length);
        assert_string_equal(text, rows[i].copy);
        assert_int_equal(noting.bytes, strlen(rows[i].copy) + 1);
        muster_mem_free(&noting.mem, text);
    }
    text = muster_mem_strdup(&noting.mem, "whole");
    assert_string_equal(text, "whole");
    muster_mem_free(&noting.mem, text);
    noting.is_empty = true;
    assert_null(muster_mem_strdup(&noting.mem, "none"));
}

static void check_counts(const struct muster_mem_limited *limited, size_t held, size_t peak,
                         size_t blocks, uint64_t allocs)
{
    assert_int_equal(limited->held_bytes, held);
    assert_int_equal(limited->held_peak_bytes, peak);
    assert_int_equal(limited->block_count, blocks);
    assert_int_equal(limited->alloc_count, allocs);
}

static void held_bytes_and_blocks_are_counted(void **state)
{
    struct noting_mem noting = noting_open();
    struct muster_mem_limited limited;
    char *text, *other;

    (void)state;
    muster_mem_limited_init(&limited, &noting.mem, 0);
    check_counts(&limited, 0, 0, 0, 0);
    text = muster_mem_alloc(&limited.mem, 100);
    check_counts(&limited, 100, 100, 1, 1);
    text = muster_mem_realloc(&limited.mem, text, 40);
    check_counts(&limited, 40, 100, 1, 2);
    other = muster_mem_alloc(&limited.mem, 60);
    check_counts(&limited, 100, 100, 2, 3);
    text = muster_mem_realloc(&limited.mem, text, 41);
    check_counts(&limited, 101, 101, 2, 4);
    noting.is_empty = true; /* what fails is not counted */
    assert_null(muster_mem_alloc(&limited.mem, 1));
    assert_null(muster_mem_realloc(&limited.mem, text, 1000));
    check_counts(&limited, 101, 101, 2, 4);

    muster_mem_free(&limited.mem, text);
    check_counts(&limited, 60, 101, 1, 4);
    assert_null(limited.mem.ops->realloc(&limited.mem, NULL, 0));
    check_counts(&limited, 60, 101, 1, 4);
    muster_mem_free(&limited.mem, other);
    check_counts(&limited, 0, 101, 0, 4);
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
    assert_null(limited.base);
}

static void blocks_that_were_not_freed_are_told(void **state)
{
    struct muster_mem_limited limited;
    void *blocks[2];

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 0);
    for (size_t i = 0; i < 2; i++)
        blocks[i] = muster_mem_alloc(&limited.mem, 1);
    assert_int_equal(muster_mem_limited_fini(&limited), 2);
    for (size_t i = 0; i < 2; i++)
        muster_mem_free(muster_mem_system(), (char *)blocks[i] - alignof(max_align_t));
}

static void the_limit_holds_to_the_byte_and_leaves_the_old_block(void **state)
{
    struct muster_mem_limited limited;
    char *text, *other;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 64);
    assert_null(muster_mem_alloc(&limited.mem, 65));
    text = muster_mem_strdup(&limited.mem, "kept");
    assert_null(muster_mem_realloc(&limited.mem, text, 65));
    assert_null(muster_mem_alloc(&limited.mem, 60));
    assert_string_equal(text, "kept");
    other = muster_mem_alloc(&limited.mem, 59);
    assert_non_null(other);
    assert_null(muster_mem_alloc(&limited.mem, 1));
    assert_null(muster_mem_realloc(&limited.mem, text, 6));
    text = muster_mem_realloc(&limited.mem, text, 5); /* nothing more */
    assert_non_null(text);
    text = muster_mem_realloc(&limited.mem, text, 4);
    assert_non_null(text);
    muster_mem_free(&limited.mem, other);
    text = muster_mem_realloc(&limited.mem, text, 64);
    assert_non_null(text);

    muster_mem_free(&limited.mem, text);
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

/* The header of a block must fit, too. */
static void a_size_beyond_the_address_space_is_refused(void **state)
{
    struct noting_mem noting = noting_open();
    struct muster_mem_limited limited;

    (void)state;
    muster_mem_limited_init(&limited, &noting.mem, 0);
    noting.is_empty = true;
    assert_null(muster_mem_alloc(&limited.mem, SIZE_MAX));
    assert_null(muster_mem_alloc(&limited.mem, SIZE_MAX - alignof(max_align_t) + 1));
    assert_int_equal(noting.call_count, 0);
    assert_null(muster_mem_alloc(&limited.mem, SIZE_MAX - alignof(max_align_t)));
    assert_int_equal(noting.call_count, 1);
    assert_int_equal(noting.bytes, SIZE_MAX);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    for (uint64_t fail_at = 1; fail_at <= 3; fail_at++) {
        struct muster_mem_limited limited;
        void *block = NULL;

        muster_mem_limited_init(&limited, muster_mem_system(), 0);
        limited.fail_at = fail_at;
        for (uint64_t at = 1; at <= 4; at++) { /* a block that grows is an allocation */
            void *moved = muster_mem_realloc(&limited.mem, block, at * 10);

            assert_true((moved == NULL) == (at == fail_at));
            block = moved != NULL ? moved : block;
        }
        muster_mem_free(&limited.mem, block);
        assert_int_equal(muster_mem_limited_fini(&limited), 0);
    }
}

static void blocks_are_aligned_for_every_type_and_keep_their_bytes(void **state)
{
    struct muster_mem_limited limited;

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), 0);
    for (size_t bytes = 0; bytes < 40; bytes++) {
        char *block = muster_mem_alloc(&limited.mem, bytes);

        assert_int_equal((uintptr_t)block % alignof(max_align_t), 0);
        memset(block, 7, bytes);
        block = muster_mem_realloc(&limited.mem, block, 5000);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(block[i], 7);
        muster_mem_free(&limited.mem, block);
    }
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(nothing_is_taken_for_a_byte),
        cmocka_unit_test(zeroed_memory_is_zero_and_overflow_is_refused),
        cmocka_unit_test(a_copy_of_text_stops_at_the_length_or_the_end),
        cmocka_unit_test(held_bytes_and_blocks_are_counted),
        cmocka_unit_test(blocks_that_were_not_freed_are_told),
        cmocka_unit_test(the_limit_holds_to_the_byte_and_leaves_the_old_block),
        cmocka_unit_test(a_size_beyond_the_address_space_is_refused),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(blocks_are_aligned_for_every_type_and_keep_their_bytes),
    };

    return cmocka_run_group_tests_name("mem", cases, NULL, NULL);
}
