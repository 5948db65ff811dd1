/* The allocator that keeps freed blocks: reuse, bounds, growth, and what happens without memory. */
#include "test_env.h"

#include <stdalign.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <muster/mem.h>

#define KEPT_MAX (1u << 20)
#define MIB      ((size_t)1 << 20)

struct stage {
    struct muster_mem_limited base;
    struct muster_mem_pool pool;
};

static int open_stage(void **state)
{
    static struct stage stage;

    muster_mem_limited_init(&stage.base, muster_mem_system(), 0);
    muster_mem_pool_init(&stage.pool, &stage.base.mem, KEPT_MAX);
    *state = &stage;
    return 0;
}

static int close_stage(void **state)
{
    struct stage *stage = *state;

    muster_mem_pool_fini(&stage->pool);
    return muster_mem_limited_fini(&stage->base) == 0 ? 0 : -1;
}

/* The bytes that the base holds for a block besides its room. */
static size_t header_of(struct stage *stage)
{
    size_t before = stage->base.held_bytes, header;
    void *block = muster_mem_alloc(&stage->pool.mem, 2 * KEPT_MAX); /* never rounded, never kept */

    header = stage->base.held_bytes - before - 2 * KEPT_MAX;
    muster_mem_free(&stage->pool.mem, block);
    assert_int_equal(stage->base.held_bytes, before);
    return header;
}

/* Steps of 16 bytes to 8 KiB, then eighths of each power of two. */
static void sizes_are_rounded_up_to_their_class(void **state)
{
    static const size_t rows[][2] = {
        {0, 16},
        {1, 16},
        {16, 16},
        {17, 32},
        {8176, 8176},
        {8177, 8192},
        {8192, 8192},
        {8193, 9216},
        {9216, 9216},
        {9217, 10240},
        {16384, 16384},
        {16385, 18432},
        {(1u << 17) + 1, (1u << 17) + (1u << 14)},
        {(1u << 18) - 1, 1u << 18},
        {KEPT_MAX - 1, KEPT_MAX},
        {KEPT_MAX, KEPT_MAX},
        {KEPT_MAX + 1, KEPT_MAX + 1}, /* never kept */
    };
    struct stage *stage = *state;
    size_t header = header_of(stage);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *block = muster_mem_alloc(&stage->pool.mem, rows[i][0]);

        assert_int_equal(stage->base.held_bytes, header + rows[i][1]);
        muster_mem_free(&stage->pool.mem, block);
        assert_int_equal(stage->pool.kept_bytes, rows[i][1] <= KEPT_MAX ? rows[i][1] : 0);
        muster_mem_pool_trim(&stage->pool);
        assert_int_equal(stage->base.held_bytes, 0);
        assert_int_equal(stage->pool.kept_bytes, 0);
    }
}

/* Sizes of one class share their blocks, neighbours do not. */
static void a_freed_block_serves_its_class_alone(void **state)
{
    static const size_t rows[][4] = {
        /* a block of this size, then of one class, and of the classes beside it */
        {20, 32, 33, 16},
        {8192, 8177, 8193, 8176},
        {9000, 9216, 9217, 8192},
        {(1u << 16) + 1, (1u << 16) + 8192, (1u << 16) + 8193, 1u << 16},
    };
    struct stage *stage = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *block = muster_mem_alloc(&stage->pool.mem, rows[i][0]), *other;
        void *first = block;

        muster_mem_free(&stage->pool.mem, block);
        for (size_t j = 2; j < 4; j++) {
            other = muster_mem_alloc(&stage->pool.mem, rows[i][j]);
            assert_ptr_not_equal(other, first);
            muster_mem_free(&stage->pool.mem, other);
        }
        block = muster_mem_alloc(&stage->pool.mem, rows[i][1]);
        assert_ptr_equal(block, first);
        muster_mem_free(&stage->pool.mem, block);
        muster_mem_pool_trim(&stage->pool);
    }
}

/* There are classes up to 8 MiB, however much may be kept. */
static void blocks_beyond_the_classes_are_not_kept(void **state)
{
    struct stage *stage = *state;
    struct muster_mem_pool pool;

    muster_mem_pool_init(&pool, &stage->base.mem, SIZE_MAX / 2);
    for (size_t i = 0; i < 2; i++) {
        void *block = muster_mem_alloc(&pool.mem, 8 * MIB + i);

        muster_mem_free(&pool.mem, block);
        assert_int_equal(pool.kept_bytes, i == 0 ? 8 * MIB : 0);
        muster_mem_pool_trim(&pool);
        assert_int_equal(stage->base.held_bytes, 0);
    }
    muster_mem_pool_fini(&pool);
    muster_mem_pool_fini(&pool);
}

static void a_block_grows_in_its_place_within_its_class(void **state)
{
    static const struct {
        size_t from, to;
        bool is_moved;
    } rows[] = {{17, 32, false},      {32, 17, false},      {32, 33, true},
                {33, 32, true},       {8193, 9216, false},  {100000, 10, true},
                {10, 3u << 20, true}, {3u << 20, 10, true}, {100, 8192, true}};
    struct stage *stage = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t least = rows[i].from < rows[i].to ? rows[i].from : rows[i].to;
        uint8_t *block = muster_mem_alloc(&stage->pool.mem, rows[i].from), *moved;
        uint64_t count = stage->base.alloc_count;

        for (size_t at = 0; at < rows[i].from; at++)
            block[at] = (uint8_t)(at * 7);
        moved = muster_mem_realloc(&stage->pool.mem, block, rows[i].to);
        assert_int_equal(stage->base.alloc_count - count, rows[i].is_moved);
        assert_int_equal(stage->base.block_count, 1 + (stage->pool.kept_bytes > 0));
        for (size_t at = 0; at < least; at++)
            assert_int_equal(moved[at], (uint8_t)(at * 7));
        memset(moved, 9, rows[i].to);
        muster_mem_free(&stage->pool.mem, moved);
        muster_mem_pool_trim(&stage->pool);
    }
    assert_null(
        stage->pool.mem.ops->realloc(&stage->pool.mem, muster_mem_alloc(&stage->pool.mem, 1), 0));
}

static void a_block_that_cannot_grow_stays(void **state)
{
    static const size_t rows[][2] = {{100, 200}, {2u << 20, 3u << 20}, {100, 2u << 20}};
    struct stage *stage = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t *block = muster_mem_alloc(&stage->pool.mem, rows[i][0]);

        memset(block, 5, rows[i][0]);
        stage->base.limit_bytes = stage->base.held_bytes + 10;
        assert_null(muster_mem_realloc(&stage->pool.mem, block, rows[i][1]));
        assert_null(muster_mem_realloc(&stage->pool.mem, block, SIZE_MAX - 1));
        stage->base.limit_bytes = 0;
        assert_int_equal(block[rows[i][0] - 1], 5);
        muster_mem_free(&stage->pool.mem, block);
        muster_mem_pool_trim(&stage->pool);
        assert_int_equal(stage->base.block_count, 0);
    }
}

static void repeated_work_allocates_once(void **state)
{
    struct stage *stage = *state;
    uint64_t count;

    for (unsigned round = 0; round < 10; round++) {
        void *a = muster_mem_alloc(&stage->pool.mem, 100),
             *b = muster_mem_alloc(&stage->pool.mem, 70000);

        count = round == 0 ? stage->base.alloc_count : count;
        muster_mem_free(&stage->pool.mem, a);
        muster_mem_free(&stage->pool.mem, b);
    }

    assert_int_equal(count, 2);
    assert_int_equal(stage->base.alloc_count, 2);
}

static void every_size_has_its_room_and_alignment(void **state)
{
    struct stage *stage = *state;

    for (size_t size = 1; size < (3u << 20); size += 1 + size / 7) {
        uint8_t *block = muster_mem_alloc(&stage->pool.mem, size);

        assert_non_null(block);
        assert_int_equal((uintptr_t)block % alignof(max_align_t), 0);
        assert_true(stage->pool.kept_bytes <= KEPT_MAX);
        memset(block, 0xa5, size);
        muster_mem_free(&stage->pool.mem, block);
    }
}

static void what_is_kept_is_bounded(void **state)
{
    struct stage *stage = *state;
    void *blocks[40];

    for (unsigned i = 0; i < 40; i++)
        blocks[i] = muster_mem_alloc(&stage->pool.mem, 100000);
    for (unsigned i = 0; i < 40; i++)
        muster_mem_free(&stage->pool.mem, blocks[i]);

    assert_true(stage->base.held_bytes <= KEPT_MAX + 40 * header_of(stage));
    assert_true(stage->pool.kept_bytes > KEPT_MAX - 106496); /* no room for another */
    muster_mem_pool_trim(&stage->pool);
    assert_int_equal(stage->base.held_bytes, 0);
    for (unsigned i = 0; i < 2; i++)
        blocks[i] = muster_mem_alloc(&stage->pool.mem, KEPT_MAX / 2);
    for (unsigned i = 0; i < 2; i++)
        muster_mem_free(&stage->pool.mem, blocks[i]);
    assert_int_equal(stage->pool.kept_bytes, KEPT_MAX); /* all that may be */
}

static void growing_keeps_the_bytes(void **state)
{
    struct stage *stage = *state;
    uint8_t *block = NULL;
    size_t filled = 0;

    for (size_t size = 1; size < (4u << 20); size = size * 3 / 2 + 1) {
        block = muster_mem_realloc(&stage->pool.mem, block, size);
        assert_non_null(block);
        for (; filled < size; filled++)
            block[filled] = (uint8_t)(filled * 7);
    }
    block = muster_mem_realloc(&stage->pool.mem, block, 1000);

    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(block[i], (uint8_t)(i * 7));
    muster_mem_free(&stage->pool.mem, block);
}

static void what_is_kept_goes_when_memory_runs_out(void **state)
{
    struct stage *stage = *state;
    void *block = muster_mem_alloc(&stage->pool.mem, 500000);

    muster_mem_free(&stage->pool.mem, block);
    stage->base.limit_bytes = 600000;
    block = muster_mem_alloc(&stage->pool.mem, 300000);

    assert_non_null(block);
    assert_null(muster_mem_alloc(&stage->pool.mem, 300000));
    assert_null(muster_mem_realloc(&stage->pool.mem, block, SIZE_MAX));
    muster_mem_free(&stage->pool.mem, block);
}

#ifdef __SANITIZE_ADDRESS__
/* Whoever writes behind a block, or into one that it has given back, is told at once. */
static void what_is_nobodys_is_poisoned(void **state)
{
    struct stage *stage = *state;
    uint8_t *block = muster_mem_alloc(&stage->pool.mem, 48), *again;

    assert_null(__asan_region_is_poisoned(block, 48));
    muster_mem_free(&stage->pool.mem, block);
    for (size_t i = 0; i < 48; i++)
        assert_true(__asan_address_is_poisoned(block + i));
    again = muster_mem_alloc(&stage->pool.mem, 40); /* of the same class */
    assert_ptr_equal(again, block);
    assert_null(__asan_region_is_poisoned(again, 40));
    assert_true(__asan_address_is_poisoned(again + 40));
    muster_mem_free(&stage->pool.mem, again);
    muster_mem_pool_trim(&stage->pool);
    block = muster_mem_alloc(&stage->pool.mem, 40);
    assert_null(__asan_region_is_poisoned(block, 40));
    for (size_t i = 40; i < 48; i++)
        assert_true(__asan_address_is_poisoned(block + i));
    muster_mem_free(&stage->pool.mem, block);
}
#endif

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)
    const struct CMUnitTest cases[] = {
        CASE(sizes_are_rounded_up_to_their_class),
        CASE(a_freed_block_serves_its_class_alone),
#ifdef __SANITIZE_ADDRESS__
        CASE(what_is_nobodys_is_poisoned),
#endif
        CASE(blocks_beyond_the_classes_are_not_kept),
        CASE(a_block_grows_in_its_place_within_its_class),
        CASE(a_block_that_cannot_grow_stays),
        CASE(repeated_work_allocates_once),
        CASE(every_size_has_its_room_and_alignment),
        CASE(what_is_kept_is_bounded),
        CASE(growing_keeps_the_bytes),
        CASE(what_is_kept_goes_when_memory_runs_out),
    };

    return cmocka_run_group_tests_name("mem_pool", cases, NULL, NULL);
}
